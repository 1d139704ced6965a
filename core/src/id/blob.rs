//! The content address of a blob: `cas://sha256:<64 hex digits>`, the SHA-256 of its bytes.
//!
//! The hex digits are lower case only, so each content has exactly one address and addresses can be compared as text.

use crate::json::Digest32;
use std::fmt;
use std::str::FromStr;

const SCHEME: &str = "cas://sha256:";

/// The content address of a blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(Digest32);

/// Text that is not a content address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a content address; expected cas://sha256: and 64 lower-case hex digits")]
pub struct InvalidBlobId;

impl BlobId {
    /// The JSON Schema pattern of an address.
    pub const PATTERN: &str = "^cas://sha256:[0-9a-f]{64}$";

    #[must_use]
    pub const fn new(digest: Digest32) -> Self {
        Self(digest)
    }

    #[must_use]
    pub const fn digest(&self) -> Digest32 {
        self.0
    }

    /// The digest as 64 lower-case hex digits, as used in URLs and keys.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.to_string()
    }

    /// Parses the bare hex digest, as used in URLs and keys.
    pub fn from_hex(text: &str) -> Result<Self, InvalidBlobId> {
        let canonical = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !canonical {
            return Err(InvalidBlobId);
        }
        Digest32::from_hex(text).map(Self).ok_or(InvalidBlobId)
    }
}

impl FromStr for BlobId {
    type Err = InvalidBlobId;

    fn from_str(text: &str) -> Result<Self, InvalidBlobId> {
        Self::from_hex(text.strip_prefix(SCHEME).ok_or(InvalidBlobId)?)
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn an_address_is_read_back_as_it_is_written() {
        let id = BlobId::new(Digest32(Sha256::digest(b"abc").into()));
        assert_eq!(id.to_string(), "cas://sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(BlobId::from_hex(&id.hex()), Ok(id));
    }

    #[test]
    fn every_other_spelling_is_refused() {
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for text in [
            String::new(),
            hex.to_owned(),
            "cas://sha256:".to_owned(),
            format!("cas://sha256:{}", hex.to_uppercase()),
            format!("CAS://sha256:{hex}"),
            format!("cas://sha512:{hex}"),
            format!("cas://sha256:{hex}0"),
            format!("cas://sha256:{}", &hex[1..]),
            format!("cas://sha256:{}g", &hex[1..]),
            format!("cas://sha256:../{}", &hex[3..]),
            format!(" cas://sha256:{hex}"),
        ] {
            assert_eq!(text.parse::<BlobId>(), Err(InvalidBlobId), "{text}");
        }
    }
}
