//! The access service of a process: the directory of actors and the authenticator.

use super::authenticator::Authenticator;
use super::directory::Directory;
use super::published_keys::PublishedKeys;
use crate::port::Records;
use bytes::Bytes;
use chimera_core::access::SigningKey;
use chimera_core::access::token::Jwk;
use std::sync::Arc;

pub struct Access {
    pub(crate) directory: Arc<Directory>,
    pub(crate) authenticator: Authenticator,
    published_keys: PublishedKeys,
}

impl Access {
    #[must_use]
    pub const fn new(directory: Arc<Directory>, authenticator: Authenticator) -> Self {
        Self { directory, authenticator, published_keys: PublishedKeys::new() }
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

    /// The document of the signing keys that are valid now, which `build` writes.
    pub fn signing_keys_document(&self, build: impl FnOnce(&mut dyn Iterator<Item = &SigningKey>) -> Bytes) -> Bytes {
        let now = self.directory.parts.clock.now();
        self.published_keys.document(&self.directory.snapshot(), now, build)
    }

    /// The public keys for verifying access tokens, as JWKs.
    #[must_use]
    pub fn public_keys(&self) -> Vec<Jwk> {
        self.directory.settings.token_keys.iter().filter_map(|key| key.jwk()).collect()
    }
}
