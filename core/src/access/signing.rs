//! Making an HTTP message signature, as clients do.
//!
//! It covers what the server requires and nothing else, under the label `sig1`.

use super::mac;
use super::private_key::Ed25519PrivateKey;
use super::signature::{CONTENT_DIGEST, ED25519, HMAC_SHA256, REQUIRED, RequestParts, content_digest, serialize_list};
use crate::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sfv::{BareItem, InnerList, Item, KeyRef, StringRef};

/// The headers of a signed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// `Content-Digest`, when there is a body.
    pub content_digest: Option<String>,
    /// `Signature-Input`.
    pub input: String,
    /// `Signature`.
    pub signature: String,
    /// The signature base.
    pub base: String,
}

impl Signed {
    /// Signs a request with an actor's HMAC key. `None` if the actor's name or the nonce can't be written.
    #[must_use]
    pub fn new(request: &RequestParts<'_>, actor: &str, key: &Secret, created: i64, nonce: &str) -> Option<Self> {
        let sign = |base: &[u8]| mac::bytes(key, base).to_vec();
        Self::make(request, (actor, HMAC_SHA256), (created, nonce), sign)
    }

    /// Signs a request with a signing key.
    #[must_use]
    pub fn with_private_key(
        request: &RequestParts<'_>,
        key: &Ed25519PrivateKey,
        created: i64,
        nonce: &str,
    ) -> Option<Self> {
        let kid = key.public().kid();
        Self::make(request, (&kid, ED25519), (created, nonce), |base| key.sign(base).to_vec())
    }

    fn make(
        request: &RequestParts<'_>,
        (keyid, algorithm): (&str, &str),
        (created, nonce): (i64, &str),
        sign: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Option<Self> {
        let content_digest = (!request.body.is_empty()).then(|| content_digest(request.body));
        let mut fields = request.fields.to_vec();
        fields.extend(content_digest.clone().map(|digest| (CONTENT_DIGEST.to_owned(), digest)));
        let parts = RequestParts { fields: &fields, ..*request };
        let names = REQUIRED.into_iter().chain(content_digest.is_some().then_some(CONTENT_DIGEST));
        let covered: Vec<&str> = names.collect();
        let items = covered.iter().map(|name| Some(Item::new(StringRef::from_str(name).ok()?.to_owned())));
        let mut list = InnerList::new(items.collect::<Option<_>>()?);
        let quoted = |text: &str| Some(BareItem::String(StringRef::from_str(text).ok()?.to_owned()));
        let created = BareItem::Integer(sfv::Integer::try_from(created).ok()?);
        let params =
            [("created", created), ("nonce", quoted(nonce)?), ("keyid", quoted(keyid)?), ("alg", quoted(algorithm)?)];
        for (name, value) in params {
            list.params.insert(KeyRef::from_str(name).ok()?.to_owned(), value);
        }
        let base = parts.base(&covered, &list).ok()?;
        let signature = sign(base.as_bytes());
        let input = format!("sig1={}", serialize_list(&list));
        let signature = format!("sig1=:{}:", STANDARD.encode(signature));
        Some(Self { content_digest, input, signature, base })
    }

    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let digest = self.content_digest.as_deref().map(|digest| (CONTENT_DIGEST, digest));
        let signature = [("signature-input", self.input.as_str()), ("signature", self.signature.as_str())];
        digest.into_iter().chain(signature)
    }
}
