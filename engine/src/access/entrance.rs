//! The front door of a process: who there is, and who is let in.

use super::directory::Directory;
use super::door::Door;
use crate::port::Records;
use serde_json::Value;
use std::sync::Arc;

/// Who there is, and how they get in.
pub struct Access {
    pub(crate) directory: Arc<Directory>,
    pub(crate) door: Door,
}

impl Access {
    /// The front door to what a directory knows.
    #[must_use]
    pub const fn new(directory: Arc<Directory>, door: Door) -> Self {
        Self { directory, door }
    }

    /// Who lets callers in.
    #[must_use]
    pub const fn door(&self) -> &Door {
        &self.door
    }

    /// Who there is.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Where everything is kept.
    #[must_use]
    pub fn records(&self) -> &dyn Records {
        &*self.directory.parts.records
    }

    /// The public keys of access tokens.
    #[must_use]
    pub fn public_keys(&self) -> Vec<Value> {
        self.directory.settings.token_keys.iter().filter_map(|key| key.jwk()).collect()
    }
}
