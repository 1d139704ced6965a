//! Credentials that this process uses itself, and the actor registry for commands.

pub(crate) mod registry;
pub(crate) mod signing_keys;

use crate::failure::{Failure, Outcome};
use chimera_core::access::mac;
use chimera_core::secret::Secret;
use chimera_engine::access::{self, Access};

/// An access token for the operator who started this process.
pub(crate) fn token(access: &Access, actor: &str) -> Outcome<String> {
    access::issue_operator_token(access.authenticator(), actor).map_err(|error| Failure::from_body(error.body()))
}

pub(crate) fn sign(key: &str, body: &str) -> String {
    mac::sign(&Secret::new(key.as_bytes()), body.as_bytes())
}
