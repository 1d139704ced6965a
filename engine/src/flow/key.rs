//! Idempotency keys of runs.
//!
//! A key is unique in the whole store, as the specification says, and yet private to an actor: when another actor
//! already uses the same text, a derived form is stored instead. Others can't compute that form, so they can't claim it
//! first; and nobody can send it, because a key that looks like it is itself stored in derived form.

use crate::access::Permit;
use chimera_core::access::mac;
use chimera_core::secret::Secret;
use sha2::{Digest, Sha256};

/// The prefix of the derived form.
const DERIVED_PREFIX: &str = "own:";

/// A client's idempotency key. The derived forms are rarely needed, so they are computed on demand.
#[derive(Clone, Debug)]
pub struct RunKey {
    said: String,
    /// Tenant, actor and key.
    place: String,
    seal: Secret,
}

impl RunKey {
    /// The key that the caller sent.
    #[must_use]
    pub fn new(seal: &Secret, permit: &Permit, said: &str) -> Self {
        let place = format!("{}\0{}\0{said}", permit.tenant(), permit.actor());
        Self { said: said.to_owned(), place, seal: seal.clone() }
    }

    /// The key as the client sent it.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The forms that a new run may be stored under, in order of preference.
    pub(super) fn forms(&self) -> impl Iterator<Item = String> {
        let said = (!self.is_derived()).then(|| self.said.clone());
        said.into_iter().chain(std::iter::once_with(|| self.derived()))
    }

    /// Whether it looks like a derived form.
    pub(super) fn is_derived(&self) -> bool {
        self.said.starts_with(DERIVED_PREFIX)
    }

    /// The derived forms: the current one, and that of earlier versions.
    pub(super) fn derived_forms(&self) -> [String; 2] {
        [self.derived(), format!("{DERIVED_PREFIX}{}", hex::encode(Sha256::digest(self.place.as_bytes())))]
    }

    /// The derived form, which nobody else can compute.
    pub(crate) fn derived(&self) -> String {
        format!("{DERIVED_PREFIX}{}", mac::sign(&self.seal, format!("idempotency\0{}", self.place).as_bytes()))
    }
}
