//! Keys under which runs are asked for, each at most once.
//!
//! A key is unique in the whole store, because the documents say so, and yet an actor's own: whoever
//! finds theirs taken by somebody else gets another form of it. That form can't be worked out by others,
//! or they could take it first; and nobody can say it, because whatever looks like it is kept in the
//! other form itself.

use crate::access::Permit;
use chimera_core::access::mac;
use chimera_core::secret::Secret;
use sha2::{Digest, Sha256};

/// How the form that is an actor's own begins.
const OWN: &str = "own:";

/// A key under which somebody asks for a run. Its other forms are rarely needed, so they are worked out when they are.
#[derive(Clone, Debug)]
pub struct RunKey {
    said: String,
    /// The tenant, the actor and what they said.
    place: String,
    seal: Secret,
}

impl RunKey {
    /// What somebody said, sealed for them.
    #[must_use]
    pub fn new(seal: &Secret, permit: &Permit, said: &str) -> Self {
        let place = format!("{}\0{}\0{said}", permit.tenant(), permit.actor());
        Self { said: said.to_owned(), place, seal: seal.clone() }
    }

    /// As it was said.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The forms in which a new run may have it, in the order in which they are tried.
    pub(super) fn forms(&self) -> impl Iterator<Item = String> {
        let said = (!self.is_own_form()).then(|| self.said.clone());
        said.into_iter().chain(std::iter::once_with(|| self.sealed()))
    }

    /// Whether it looks like the form that is an actor's own.
    pub(super) fn is_own_form(&self) -> bool {
        self.said.starts_with(OWN)
    }

    /// The forms that only its own actor's runs have: that of today, and that of earlier versions.
    pub(super) fn own(&self) -> [String; 2] {
        [self.sealed(), format!("{OWN}{}", hex::encode(Sha256::digest(self.place.as_bytes())))]
    }

    /// The form that only its own actor's runs have, which nobody else can work out.
    pub(crate) fn sealed(&self) -> String {
        format!("{OWN}{}", mac::sign(&self.seal, format!("idempotency\0{}", self.place).as_bytes()))
    }
}
