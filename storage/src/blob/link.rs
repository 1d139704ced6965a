//! Signed links to our own `/artifacts`: a URL, its expiry, and a signature over both.
//!
//! The signature is HMAC-SHA256 over method, digest and expiry. It is verified in constant time before the expiry is
//! checked, so that a forger learns nothing from the answer.

use super::link_seconds;
use chimera_core::id::BlobId;
use chimera_core::limits::PRESIGN_SECONDS_MAX;
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{InvalidLink, PresentedLink, PresignedUrl};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Signs and verifies links.
pub struct LinkSigner {
    base: String,
    mac: Hmac<Sha256>,
}

impl LinkSigner {
    /// Links below `base_url`, with a key that all nodes share. `None` for an empty key.
    #[must_use]
    pub fn new(base_url: &str, key: &Secret) -> Option<Self> {
        let key = Some(key.expose()).filter(|key| !key.is_empty())?;
        let mac = Hmac::new_from_slice(key).ok()?;
        Some(Self { base: base_url.trim_end_matches('/').to_owned(), mac })
    }

    /// A link to `id` that is valid for `seconds`, capped at the limit.
    #[must_use]
    pub fn sign(&self, id: BlobId, seconds: u64, now: Timestamp) -> PresignedUrl {
        let lifetime = i64::try_from(link_seconds(seconds)).unwrap_or(i64::MAX);
        let expires = now.millis().div_euclid(1_000).saturating_add(lifetime);
        let signature = hex::encode(self.mac_over(id, expires).finalize().into_bytes());
        PresignedUrl {
            url: format!("{}/artifacts/{}?expires={expires}&signature={signature}", self.base, id.hex()),
            expires_at: Timestamp::from_micros(0).plus_seconds(expires),
        }
    }

    /// Whether this link is ours and has not expired.
    pub fn check(&self, link: &PresentedLink<'_>, now: Timestamp) -> Result<(), InvalidLink> {
        let expires: i64 = link.expires.parse().map_err(|_| InvalidLink::Forged)?;
        let signature = hex::decode(link.signature).map_err(|_| InvalidLink::Forged)?;
        let same_spelling = expires.to_string() == link.expires;
        if !same_spelling || self.mac_over(link.id, expires).verify_slice(&signature).is_err() {
            return Err(InvalidLink::Forged);
        }
        let left = Timestamp::from_micros(0).plus_seconds(expires).micros().saturating_sub(now.micros());
        if left <= 0 {
            return Err(InvalidLink::Expired);
        }
        // Signed by a clock far ahead of ours: it would be valid for longer than any link may.
        let longest = i64::try_from(PRESIGN_SECONDS_MAX).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        if left > longest { Err(InvalidLink::Forged) } else { Ok(()) }
    }

    fn mac_over(&self, id: BlobId, expires: i64) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(format!("GET\n{}\n{expires}", id.hex()).as_bytes());
        mac
    }
}
