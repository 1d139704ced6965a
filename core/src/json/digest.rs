//! SHA-256 digests.

use super::canonical;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt;

/// A SHA-256 digest. It has no default, so a failure cannot become zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest32(pub [u8; 32]);

impl Digest32 {
    /// The previous hash of the first entry of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of a document's canonical form.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        Self::of_bytes(canonical(value).as_bytes())
    }

    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        Self::from_slice(&hex::decode(text).ok()?)
    }

    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

impl AsRef<[u8]> for Digest32 {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Digest32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut spelled = [0; 64];
        hex::encode_to_slice(self.0, &mut spelled).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&spelled).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Digest32 {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}
