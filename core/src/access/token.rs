//! Access tokens: JSON Web Tokens in compact form, signed with Ed25519 or HMAC-SHA256.
//!
//! The key determines the algorithm, never the token: a header that names another one is rejected before the
//! signature is checked. Time is an argument, so expiry uses the clock of the whole process. Other JOSE features are
//! not supported: a header with `crit` is rejected.

use super::{matches_pattern, registry, scope};
use crate::limits::{ACTOR_SCOPES_MAX, TOKEN_BYTES_MAX};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt;

/// The claims of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The actor.
    pub sub: String,
    /// Expiry in Unix seconds.
    pub exp: i64,
    /// Issue time in Unix seconds.
    pub iat: i64,
    /// Not before, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    /// Token id, for revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// The token family: the sign-in that it descends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fam: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aud: Option<Audience>,
    /// Restricts the scopes of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// The pattern whose shared key the token was obtained with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_of: Option<String>,
}

/// The audience of a token: one name or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Several(several) => several.iter().any(|one| one == name),
        }
    }
}

/// Why a token is not valid. Callers see these fixed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Not three base64url parts, or too long.
    #[error("malformed")]
    Malformed,
    /// The header names an algorithm that the key is not for.
    #[error("wrong algorithm")]
    Algorithm,
    #[error("wrong signature")]
    Signature,
    #[error("expired")]
    Expired,
    #[error("not yet valid")]
    NotYetValid,
    /// The claims are invalid.
    #[error("bad claims")]
    Claims,
    #[error("wrong audience")]
    Audience,
    #[error("revoked")]
    Revoked,
}

/// A key that signs or verifies tokens.
#[derive(Clone)]
pub enum TokenKey {
    /// Signs and verifies with Ed25519.
    EdDsa(Box<SigningKey>),
    /// Verifies only: a former key, or the key of another node.
    EdDsaPublic(VerifyingKey),
    /// Signs and verifies with HMAC-SHA256. `only` restricts its tokens to one actor or pattern.
    Hs256 { secret: crate::secret::Secret, restricted_to: Option<String> },
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), self.id())
    }
}

/// A public key as a JSON Web Key (RFC 7517).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jwk {
    pub kty: &'static str,
    pub crv: &'static str,
    /// The key, in URL-safe Base64.
    pub x: String,
    pub kid: String,
    pub alg: &'static str,
    pub r#use: &'static str,
}

impl TokenKey {
    /// Whether it is shared by all actors that match a pattern.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Hs256 { restricted_to: Some(only), .. } if only.contains('*'))
    }

    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::EdDsa(Box::new(SigningKey::from_bytes(seed)))
    }

    /// An Ed25519 key that only verifies.
    #[must_use]
    pub fn from_public(bytes: &[u8; 32]) -> Option<Self> {
        VerifyingKey::from_bytes(bytes).ok().map(Self::EdDsaPublic)
    }

    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::EdDsa(_) | Self::EdDsaPublic(_) => "EdDSA",
            Self::Hs256 { .. } => "HS256",
        }
    }

    fn public(&self) -> Option<VerifyingKey> {
        match self {
            Self::EdDsa(key) => Some(key.verifying_key()),
            Self::EdDsaPublic(key) => Some(*key),
            Self::Hs256 { .. } => None,
        }
    }

    /// The key id in headers and in the key set: the shortened RFC 7638 thumbprint. A shared secret has no id that
    /// could be published.
    #[must_use]
    pub fn id(&self) -> String {
        let Some(key) = self.public() else { return "shared".to_owned() };
        let x = URL_SAFE_NO_PAD.encode(key.as_bytes());
        let thumbprint = Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#));
        URL_SAFE_NO_PAD.encode(&thumbprint[..12])
    }

    /// The public key as a JSON Web Key; none for a shared secret.
    #[must_use]
    pub fn jwk(&self) -> Option<Jwk> {
        let x = URL_SAFE_NO_PAD.encode(self.public()?.as_bytes());
        Some(Jwk { kty: "OKP", crv: "Ed25519", x, kid: self.id(), alg: "EdDSA", r#use: "sig" })
    }

    /// Signs a token. None if the key only verifies.
    #[must_use]
    pub fn sign(&self, claims: &Claims) -> Option<String> {
        let mut header = json!({"alg": self.algorithm(), "typ": "JWT"});
        if self.public().is_some() {
            header["kid"] = self.id().into();
        }
        let part = |value: &[u8]| URL_SAFE_NO_PAD.encode(value);
        let claims = serde_json::to_vec(claims).ok()?;
        let message = format!("{}.{}", part(header.to_string().as_bytes()), part(&claims));
        let signature = match self {
            Self::EdDsa(key) => part(&key.sign(message.as_bytes()).to_bytes()),
            Self::EdDsaPublic(_) => return None,
            Self::Hs256 { secret, .. } => part(&mac(secret.expose())?.chain_update(&message).finalize().into_bytes()),
        };
        Some(format!("{message}.{signature}"))
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hs256 { secret, .. } => {
                mac(secret.expose()).is_some_and(|mac| mac.chain_update(message).verify_slice(signature).is_ok())
            }
            Self::EdDsa(_) | Self::EdDsaPublic(_) => {
                let signature = Signature::from_slice(signature);
                signature.is_ok_and(|signature| {
                    self.public().is_some_and(|key| key.verify_strict(message, &signature).is_ok())
                })
            }
        }
    }
}

fn mac(key: &[u8]) -> Option<Hmac<Sha256>> {
    Hmac::new_from_slice(key).ok()
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Verifies a token: format, algorithm, signature, claims, audience. [`Claims::check_validity_period`] checks its validity period,
/// so that the rest can be cached.
pub fn verify(token: &str, keys: &[TokenKey], audience: &str) -> Result<Claims, InvalidToken> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(InvalidToken::Malformed);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(InvalidToken::Malformed)?;
    let (header, claims) = message.split_once('.').ok_or(InvalidToken::Malformed)?;
    let part = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidToken::Malformed);
    let header: TokenHeader = serde_json::from_slice(&part(header)?).map_err(|_| InvalidToken::Malformed)?;
    let (payload, signature) = (part(claims)?, part(signature)?);
    let mut fitting = keys.iter().filter(|key| key.algorithm() == header.alg).peekable();
    if fitting.peek().is_none() || header.crit.is_some() {
        return Err(InvalidToken::Algorithm);
    }
    let named = |key: &&TokenKey| header.kid.as_ref().is_none_or(|kid| key.public().is_none() || *kid == key.id());
    let key = fitting.filter(named).find(|key| key.verifies(message.as_bytes(), &signature));
    let key = key.ok_or(InvalidToken::Signature)?;
    let claims: Claims = serde_json::from_slice(&payload).map_err(|_| InvalidToken::Claims)?;
    claims.check(key, audience)?;
    Ok(claims)
}

impl Claims {
    fn check(&self, key: &TokenKey, audience: &str) -> Result<(), InvalidToken> {
        let another = |only: &String| !matches_pattern(only, &self.sub);
        let narrow = self.scopes.as_deref().unwrap_or_default();
        let well_formed = narrow.len() <= ACTOR_SCOPES_MAX && narrow.iter().all(|name| scope::is_well_formed(name));
        if !registry::is_actor_name(&self.sub) || self.sub.contains('*') || !well_formed || self.iat > self.exp {
            return Err(InvalidToken::Claims);
        }
        if matches!(key, TokenKey::Hs256 { restricted_to: Some(only), .. } if another(only)) {
            return Err(InvalidToken::Signature);
        }
        if self.aud.as_ref().is_some_and(|aud| !aud.contains(audience)) {
            return Err(InvalidToken::Audience);
        }
        Ok(())
    }

    /// Whether the token is valid at this time: not expired, and not issued in the future beyond the allowed clock
    /// skew.
    pub fn check_validity_period(&self, now: i64) -> Result<(), InvalidToken> {
        let from_the_future = self.iat.max(self.nbf.unwrap_or(self.iat)) > now + crate::limits::CLOCK_SKEW_SECONDS;
        if self.exp <= now {
            return Err(InvalidToken::Expired);
        }
        if from_the_future { Err(InvalidToken::NotYetValid) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn claims() -> Claims {
        Claims {
            sub: "user_1".into(),
            exp: 4_600,
            iat: 1_000,
            nbf: None,
            jti: Some("a".into()),
            fam: None,
            aud: None,
            scopes: None,
            key_of: None,
        }
    }

    fn shared(only: Option<&str>) -> TokenKey {
        TokenKey::Hs256 { secret: Secret::new("jwt secret of the deployment"), restricted_to: only.map(str::to_owned) }
    }

    fn raw(header: &Value, claims: &Value, key: &TokenKey) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = match key {
            TokenKey::EdDsa(key) => URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes()).to_bytes()),
            TokenKey::Hs256 { secret, .. } => {
                let mac = mac(secret.expose()).unwrap().chain_update(&message);
                URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
            }
            TokenKey::EdDsaPublic(_) => String::new(),
        };
        format!("{message}.{signature}")
    }

    #[test]
    fn a_token_is_read_back_by_the_public_key_alone() {
        let key = TokenKey::from_seed(&[7; 32]);
        let token = key.sign(&claims()).unwrap();
        let public = TokenKey::EdDsaPublic(key.public().unwrap());
        assert_eq!(verify(&token, std::slice::from_ref(&public), "chimera"), Ok(claims()));
        assert_eq!(public.sign(&claims()), None);
        assert_eq!(key.jwk().unwrap().kid, key.id());
        assert_eq!(shared(None).jwk(), None);
    }

    /// CORE-110
    #[test]
    fn another_key_or_algorithm_is_refused_and_none_is_no_algorithm() {
        let key = TokenKey::from_seed(&[7; 32]);
        let token = key.sign(&claims()).unwrap();
        let other = TokenKey::from_seed(&[8; 32]);
        assert_eq!(verify(&token, std::slice::from_ref(&other), "c"), Err(InvalidToken::Signature));
        assert_eq!(verify(&token, &[shared(None)], "c"), Err(InvalidToken::Algorithm));
        let payload = serde_json::to_value(claims()).unwrap();
        for alg in ["none", "None", "HS512", "RS256", "ES256", "", "hs256"] {
            let forged = raw(&json!({"alg": alg}), &payload, &shared(None));
            assert_eq!(verify(&forged, &[key.clone(), shared(None)], "c"), Err(InvalidToken::Algorithm), "{alg}");
        }
        // A public key cannot be used as a shared secret.
        let public = key.public().unwrap();
        let confused = TokenKey::Hs256 { secret: Secret::new(public.as_bytes().to_vec()), restricted_to: None };
        let forged = raw(&json!({"alg": "HS256"}), &payload, &confused);
        assert_eq!(verify(&forged, std::slice::from_ref(&key), "c"), Err(InvalidToken::Algorithm));
        let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert_eq!(verify(&unsigned, std::slice::from_ref(&key), "c"), Err(InvalidToken::Signature));
        let critical = raw(&json!({"alg": "EdDSA", "crit": ["b64"]}), &payload, &key);
        assert_eq!(verify(&critical, &[key], "c"), Err(InvalidToken::Algorithm));
    }

    /// CORE-112
    #[test]
    fn a_token_counts_until_its_end_and_not_before_it_was_made() {
        assert_eq!(claims().check_validity_period(4_599), Ok(()));
        assert_eq!(claims().check_validity_period(4_600), Err(InvalidToken::Expired));
        assert_eq!(claims().check_validity_period(1_000 - crate::limits::CLOCK_SKEW_SECONDS), Ok(()));
        let later = Claims { nbf: Some(2_000), ..claims() };
        assert_eq!(later.check_validity_period(1_900), Err(InvalidToken::NotYetValid));
        assert_eq!(later.check_validity_period(2_000 - crate::limits::CLOCK_SKEW_SECONDS), Ok(()));
        assert_eq!(
            claims().check_validity_period(999 - crate::limits::CLOCK_SKEW_SECONDS),
            Err(InvalidToken::NotYetValid)
        );
    }

    /// CORE-111
    #[test]
    fn scopes_may_be_absent_and_must_be_a_list_of_names() {
        let key = shared(None);
        let header = json!({"alg": "HS256", "typ": "JWT"});
        let say = |scopes: Value| {
            let claims = json!({"sub": "user_1", "exp": 10, "iat": 1, "scopes": scopes});
            verify(&raw(&header, &claims, &key), std::slice::from_ref(&key), "c").map(|claims| claims.scopes)
        };
        assert_eq!(say(json!(["notion.*", "github.read"])), Ok(Some(vec!["notion.*".into(), "github.read".into()])));
        for bad in [json!("notion.*"), json!([1]), json!(["a..b"]), json!({"a": 1}), json!(vec!["x"; 300])] {
            assert_eq!(say(bad.clone()), Err(InvalidToken::Claims), "{bad}");
        }
        let without = raw(&header, &json!({"sub": "user_1", "exp": 10, "iat": 1}), &key);
        assert_eq!(verify(&without, std::slice::from_ref(&key), "c").unwrap().scopes, None);
        for lacking in
            [json!({"exp": 10, "iat": 1}), json!({"sub": "u", "iat": 1}), json!({"sub": "", "exp": 1, "iat": 1})]
        {
            assert_eq!(
                verify(&raw(&header, &lacking, &key), std::slice::from_ref(&key), "c"),
                Err(InvalidToken::Claims)
            );
        }
        for garbage in ["", ".", "..", "a.b.c", "a.b", "💥.x.y"] {
            assert_eq!(verify(garbage, std::slice::from_ref(&key), "c"), Err(InvalidToken::Malformed), "{garbage}");
        }
    }

    /// CORE-111: the documents give a token no audience, so one that others sign with the shared secret need not have any.
    #[test]
    fn an_audience_counts_when_it_is_there() {
        let key = shared(None);
        let bare = raw(&json!({"alg": "HS256"}), &json!({"sub": "user_1", "exp": 4_600, "iat": 1_000}), &key);
        assert!(verify(&bare, std::slice::from_ref(&key), "chimera").is_ok());
        let aimed = |aud| Claims { aud: Some(aud), ..claims() };
        let check = |claims: &Claims| verify(&key.sign(claims).unwrap(), std::slice::from_ref(&key), "chimera").is_ok();
        assert!(check(&aimed(Audience::One("chimera".into()))));
        assert!(check(&aimed(Audience::Several(vec!["x".into(), "chimera".into()]))));
        assert!(!check(&aimed(Audience::One("other".into()))));
        assert!(!check(&aimed(Audience::Several(Vec::new()))));
    }

    #[test]
    fn a_secret_of_one_actor_mints_for_that_actor_alone() {
        let key = shared(Some("user_1"));
        let token = key.sign(&claims()).unwrap();
        assert!(verify(&token, std::slice::from_ref(&key), "c").is_ok());
        let other = key.sign(&Claims { sub: "admin".into(), ..claims() }).unwrap();
        assert_eq!(verify(&other, &[key], "c"), Err(InvalidToken::Signature));
    }

    #[test]
    fn keys_overlap_while_one_replaces_the_other() {
        let (old, new) = (TokenKey::from_seed(&[1; 32]), TokenKey::from_seed(&[2; 32]));
        let before = TokenKey::EdDsaPublic(old.public().unwrap());
        let keys = [new.clone(), before];
        for key in [old, new] {
            assert!(verify(&key.sign(&claims()).unwrap(), &keys, "c").is_ok());
        }
    }
}
