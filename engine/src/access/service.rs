//! The access service of a process: the directory of actors and the authenticator.

use super::authenticator::Authenticator;
use super::directory::Directory;
use crate::port::Records;
use chimera_core::access::token::Jwk;
use std::sync::Arc;

pub struct Access {
    pub(crate) directory: Arc<Directory>,
    pub(crate) authenticator: Authenticator,
}

impl Access {
    #[must_use]
    pub const fn new(directory: Arc<Directory>, authenticator: Authenticator) -> Self {
        Self { directory, authenticator }
    }

    #[must_use]
    pub const fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    #[must_use]
    pub fn records(&self) -> &dyn Records {
        &*self.directory.parts.records
    }

    /// The public keys for verifying access tokens, as JWKs.
    #[must_use]
    pub fn public_keys(&self) -> Vec<Jwk> {
        self.directory.settings.token_keys.iter().filter_map(|key| key.jwk()).collect()
    }
}
