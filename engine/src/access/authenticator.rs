//! The authenticator: identity, signature, freshness, rate limit.
//!
//! Checks run in a fixed order, and the first that fails answers: token, its expiry, its revocation, the signature, its
//! freshness, the rate limit, the nonce. Whatever the request's head shows is checked before its body is read. Refused
//! callers are counted by address and recorded in the ledger. Accepted callers get a permit.

use super::directory::{ActorKey, Directory, Snapshot};
use super::message_proof::{signature_refusal, signing_keys_of, verify_message};
use super::nonces::{Nonce, RequestNonces};
use super::permit::{Credential, Permit};
use super::rate::{Rate, Rates};
use super::refusals;
use super::tenants::restore_acting_tenant;
use crate::access::port::{CounterError, Counters};
use crate::error::EngineError;
use crate::rows;
use chimera_core::access::signature::{ExpectedSigner, RequestParts, UnverifiedSignature};
use chimera_core::access::tables::{REVOKED_TOKENS, TokenFamilyRow, revoked_tokens, token_families};
use chimera_core::access::token::{self, Claims, InvalidToken};
use chimera_core::access::{ANONYMOUS, Claimant, mac, scope};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{CLOCK_SKEW_SECONDS, STRANGER_ENTRIES_MAX, TOKENS_CACHED_MAX};
use chimera_core::record::{Scope, Select, StoredRow};
use chimera_core::time::Timestamp;
use core::net::IpAddr;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// The credentials of a request.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    pub bearer: Option<&'a str>,
    /// Which signature the route requires.
    pub proof: RequestProof<'a>,
    /// The raw body; `None` if it was not read yet.
    pub body: Option<&'a [u8]>,
    /// Whether the request only reads.
    pub reads: bool,
    pub peer: Option<IpAddr>,
    /// Method and route.
    pub target: &'a str,
    pub trace_id: Option<&'a str>,
}

/// The proof, besides the token, that the actor made the request.
#[derive(Clone, Copy, Debug)]
pub enum RequestProof<'a> {
    /// The token suffices.
    Token,
    /// An HMAC of the body.
    Body {
        signature: Option<&'a str>,
        /// Whether the body may carry `issued_at` and `nonce`.
        dated: bool,
    },
    /// An HTTP message signature over method, path, query and body.
    Message(RequestParts<'a>),
}

/// A caller with a valid token. It authorizes nothing: the request's signature has to be verified first.
pub struct AuthenticatedCaller {
    permit: Permit,
    /// The state of the directory in which the caller was let in.
    seen: Arc<Snapshot>,
}

impl AuthenticatedCaller {
    #[must_use]
    pub fn actor(&self) -> Arc<str> {
        self.permit.shared_actor()
    }

    /// The claimant of a slot that all tenants share.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        self.permit.claimant()
    }
}

/// A refused caller.
#[derive(Debug)]
pub struct Rejection {
    pub body: ErrorBody,
    /// The caller's rate limit window, if there is one.
    pub rate: Option<Rate>,
}

/// Authenticates callers.
pub struct Authenticator {
    pub(super) directory: Arc<Directory>,
    pub(super) rates: Rates,
    /// The shared counters, if there are any.
    pub(crate) claims: Option<Arc<dyn Counters>>,
    /// Cache of verified tokens, by digest.
    known: Mutex<BTreeMap<[u8; 32], Arc<Claims>>>,
}

/// The key that signed a request, and the actor or pattern that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyUsed {
    pub(super) id: Uuid,
    pub(super) of: String,
}

impl KeyUsed {
    /// The pattern that shares it; `None` if it belongs to one actor.
    pub(super) fn shared_by(&self) -> Option<String> {
        self.of.contains('*').then(|| self.of.clone())
    }
}

/// What a valid proof says.
#[derive(Default)]
pub(super) struct VerifiedProof {
    pub(super) nonces: Vec<Nonce>,
    /// The key that made it.
    pub(super) key: Option<Uuid>,
}

/// The members of a dated body.
#[derive(Deserialize)]
struct DatedBody {
    issued_at: Option<Value>,
    nonce: Option<Value>,
}

impl Authenticator {
    #[must_use]
    pub fn new(directory: Arc<Directory>, rates: Rates, claims: Option<Arc<dyn Counters>>) -> Self {
        Self { directory, rates, claims, known: Mutex::default() }
    }

    /// Authenticates by the request's head, before its body is read: the token must be valid, and a required signature
    /// must be present and well formed.
    pub async fn admit(&self, shown: &Credentials<'_>) -> Result<AuthenticatedCaller, Rejection> {
        let (now, seen) = (self.directory.parts.clock.now(), self.directory.snapshot());
        let permit = match self.authenticate(shown, now).await {
            Ok(permit) => permit,
            Err(body) => return Err(self.reject(shown, None, body).await),
        };
        match check_head(Some((&seen, permit.actor())), &shown.proof) {
            Ok(()) => Ok(AuthenticatedCaller { permit, seen }),
            Err(body) => Err(self.reject(shown, Some(&permit), body).await),
        }
    }

    /// Whether the registry and the revocations are still those with which the caller was let in.
    #[must_use]
    pub fn is_current(&self, known: &AuthenticatedCaller) -> bool {
        Arc::ptr_eq(&known.seen, &self.directory.snapshot())
    }

    /// Refuses a request without a token that lacks the required signature, before its body is read.
    pub async fn admit_anonymous(&self, shown: &Credentials<'_>) -> Result<(), Rejection> {
        match check_head(None, &shown.proof) {
            Ok(()) => Ok(()),
            Err(body) => Err(self.reject(shown, None, body).await),
        }
    }

    /// Verifies the signature and freshness of a request whose body was read.
    pub async fn verify_request(
        &self,
        AuthenticatedCaller { permit, .. }: AuthenticatedCaller,
        shown: &Credentials<'_>,
    ) -> Result<Permit, Rejection> {
        let now = self.directory.parts.clock.now();
        let proven = self.verify_proof(permit.actor(), shown, now).and_then(|VerifiedProof { nonces, key }| {
            let once = || RequestNonces::new(permit.actor(), nonces.clone(), &*self.directory.parts.clock);
            Ok(((!nonces.is_empty()).then(once).transpose()?, key))
        });
        match proven {
            Ok((once, key)) => {
                let credential = Credential { key, ..permit.credential().clone() };
                Ok(permit.with_nonces(once).with_credential(credential))
            }
            Err(body) => Err(self.reject(shown, Some(&permit), body).await),
        }
    }

    /// Authenticates the holder of a token again. `None` if the token expired or was revoked, the actor was disabled,
    /// an operator who acts for another tenant is no longer one, or the check failed.
    pub async fn readmit(&self, bearer: &str, before: &Permit) -> Option<Permit> {
        let claims = self.validate_jwt(bearer, self.directory.parts.clock.now()).ok()?;
        match self.is_revoked(&claims).await {
            Ok(false) => self.permit(&claims).ok().and_then(|permit| restore_acting_tenant(self, permit, before)),
            Ok(true) | Err(_) => None,
        }
    }

    /// Counts a caller's request. Refuses it over the limit, and also when it can't be counted.
    pub async fn count(&self, permit: &Permit, shown: &Credentials<'_>) -> Result<Rate, Rejection> {
        let steady = self.directory.parts.clock.steady();
        let rate = match self.rates.hit(permit.actor(), permit.quota(), shown.reads, steady).await {
            Ok(rate) => rate,
            Err(lost) => return Err(self.reject_uncounted(shown, Some(permit), lost).await),
        };
        match rate.refusal() {
            None => Ok(rate),
            Some(body) => {
                let is_first = self.directory.floods.is_first(permit, shown.target, steady);
                let body = if is_first { self.record_refusal(permit, shown, body).await } else { body };
                Err(Rejection { body, rate: Some(rate) })
            }
        }
    }

    /// Counts what is done in an actor's name at this moment without a request, like a request of theirs. Returns the
    /// refusal if it is over the limit.
    pub(crate) async fn count_unattended(&self, permit: &Permit) -> Result<(), ErrorBody> {
        let steady = self.directory.parts.clock.steady();
        let rate = self.rates.hit(permit.actor(), permit.quota(), false, steady).await?;
        rate.refusal().map_or(Ok(()), Err)
    }

    /// Refuses a request that can't be counted. The node's own counter limits how many of these are recorded, so that
    /// callers can't flood the ledger.
    async fn reject_uncounted(&self, shown: &Credentials<'_>, permit: Option<&Permit>, lost: ErrorBody) -> Rejection {
        let steady = self.directory.parts.clock.steady();
        let actor = permit.map_or(ANONYMOUS, Permit::actor);
        let quota = permit.map_or_else(|| self.quota(ANONYMOUS), Permit::quota);
        let body = match self.rates.may_record(actor, quota, steady).await {
            true => refusals::record_refusal(&self.directory, permit, shown, lost).await,
            false => lost,
        };
        Rejection { body, rate: None }
    }

    fn quota(&self, actor: &str) -> u32 {
        self.directory.snapshot().registry.resolve(actor).quota_per_minute
    }

    /// The permit for a valid token.
    async fn authenticate(&self, shown: &Credentials<'_>, now: Timestamp) -> Result<Permit, ErrorBody> {
        let jwt = |reason: InvalidToken| {
            let body = ErrorBody::new(Code::Unauthenticated, format!("Invalid JWT: {reason}"));
            body.with("reason", reason.to_string())
        };
        let bearer = shown
            .bearer
            .ok_or_else(|| ErrorBody::new(Code::Unauthenticated, "Invalid JWT: missing").with("reason", "missing"))?;
        let claims = self.validate_jwt(bearer, now).map_err(jwt)?;
        if self.is_revoked(&claims).await? {
            return Err(jwt(InvalidToken::Revoked));
        }
        self.permit(&claims)
    }

    /// Verifies that the actor made the request and that it is fresh.
    fn verify_proof(&self, actor: &str, shown: &Credentials<'_>, now: Timestamp) -> Result<VerifiedProof, ErrorBody> {
        match &shown.proof {
            RequestProof::Token => Ok(VerifiedProof::default()),
            RequestProof::Body { signature, dated } => {
                let body = shown.body.unwrap_or_default();
                let used = self.validate_hmac(actor, body, *signature, now)?;
                let nonce = if *dated { check_dated_body(body, now)? } else { None };
                Ok(VerifiedProof { nonces: nonce.map(Nonce::from).into_iter().collect(), key: Some(used.id) })
            }
            RequestProof::Message(parts) => verify_message(&self.directory.snapshot(), actor, parts, now),
        }
    }

    /// The claims of a token with a valid signature that has not expired. The signature is verified once and cached;
    /// the expiry is checked every time.
    fn validate_jwt(&self, bearer: &str, now: Timestamp) -> Result<Arc<Claims>, InvalidToken> {
        let digest: [u8; 32] = Sha256::digest(bearer.as_bytes()).into();
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known().get(&digest).cloned();
        let claims = match before {
            Some(claims) => claims,
            None => {
                let settings = &self.directory.settings;
                let claims = Arc::new(token::verify(bearer, &settings.token_keys, &settings.audience)?);
                let mut known = known();
                if known.len() >= TOKENS_CACHED_MAX {
                    known.clear();
                }
                known.insert(digest, Arc::clone(&claims));
                claims
            }
        };
        claims.check_validity_period(now.millis().div_euclid(1_000))?;
        Ok(claims)
    }

    fn permit(&self, claims: &Claims) -> Result<Permit, ErrorBody> {
        let entry = self.directory.snapshot().registry.resolve(&claims.sub);
        if entry.removed {
            return Err(ErrorBody::new(Code::Unauthenticated, "the actor was removed"));
        }
        if entry.disabled {
            return Err(ErrorBody::new(Code::RbacForbidden, "the actor is disabled"));
        }
        if !self.directory.may_share_key(&entry, &claims.sub, claims.key_of.as_deref()) {
            let body = ErrorBody::new(
                Code::Unauthenticated,
                "Invalid JWT: its key is shared but not valid for this actor; sign in with your own key",
            );
            return Err(body.with("reason", "shared key"));
        }
        let scopes = match &claims.scopes {
            Some(narrow) => scope::narrowed(&entry.scopes, narrow),
            None => entry.scopes.clone(),
        };
        let permit = Permit::new(entry, &claims.sub, scopes, self.directory.settings.strict_scopes);
        Ok(permit.with_credential(Credential { key: None, key_of: claims.key_of.clone() }))
    }

    /// Whether a token or its sign-in was revoked. Asks the cache and the shared counters, and the store if those can't
    /// be reached or there are too many revocations to cache.
    async fn is_revoked(&self, claims: &Claims) -> Result<bool, ErrorBody> {
        let snapshot = self.directory.snapshot();
        let ids = [claims.jti.as_deref(), claims.fam.as_deref()];
        let mut said = ids.iter().flatten().map(|id| snapshot.is_revoked(id));
        match said.try_fold(false, |any, revoked| revoked.map(|revoked| any || revoked)) {
            Some(true) => return Ok(true),
            Some(false) => {}
            None => return self.is_revoked_in_store(claims).await,
        }
        let Some(claimed) = &self.claims else { return Ok(false) };
        for id in ids.into_iter().flatten() {
            match claimed.read(&revoked_key(id), self.directory.parts.clock.steady()).await {
                Ok(found) if found.is_some() => return Ok(true),
                Ok(_) => {}
                Err(CounterError::Unavailable { .. }) => return self.is_revoked_in_store(claims).await,
                Err(_) => return Err(internal()),
            }
        }
        Ok(false)
    }

    async fn is_revoked_in_store(&self, claims: &Claims) -> Result<bool, ErrorBody> {
        let records = &self.directory.parts.records;
        let unreadable = |error| EngineError::from(error).body();
        if let Some(jti) = &claims.jti {
            let select =
                Select::from(&REVOKED_TOKENS, Scope::System).with(revoked_tokens::token_id, jti.as_str()).take(1);
            if !records.read(select).await.map_err(unreadable)?.rows.is_empty() {
                return Ok(true);
            }
        }
        let Some(family) = claims.fam.as_deref().and_then(|family| Uuid::parse_str(family).ok()) else {
            return Ok(false);
        };
        let select = TokenFamilyRow::select(Scope::System).with(token_families::id, family);
        let row: Option<TokenFamilyRow> = rows::find(&**records, select).await.map_err(|error| error.body())?;
        Ok(row.is_some_and(|row| row.revoked_at.is_some()))
    }

    /// Verifies the HMAC of the received bytes. On a mismatch the error contains their length and digest, for clients
    /// whose bytes change in transit.
    pub(super) fn validate_hmac(
        &self,
        actor: &str,
        body: &[u8],
        signature: Option<&str>,
        now: Timestamp,
    ) -> Result<KeyUsed, ErrorBody> {
        let snapshot = self.directory.snapshot();
        // Try every key, so that timing reveals nothing.
        let signed = |key: &&ActorKey| mac::verify([&key.secret], body, signature.unwrap_or_default());
        let made: Vec<&ActorKey> = snapshot.keys(actor, now).filter(signed).collect();
        if let Some(key) = made.first() {
            return Ok(KeyUsed { id: key.id, of: key.of.clone() });
        }
        if snapshot.has_unopened(actor) {
            return Err(unopened());
        }
        let body = invalid_hmac(if signature.is_none() { "missing" } else { "mismatch" })
            .with("bytes_received", body.len())
            .with("sha256", hex::encode(Sha256::digest(body)));
        Err(body)
    }

    /// Refuses a request that was already executed, and records the refusal.
    pub async fn check_once(&self, permit: &Permit, shown: &Credentials<'_>) -> Result<(), ErrorBody> {
        match permit.check_nonces(&*self.directory.parts.records).await {
            Ok(()) => Ok(()),
            Err(body) => Err(self.record_refusal(permit, shown, body).await),
        }
    }

    /// Consumes the nonce of a successful request that changed nothing.
    pub async fn finish(&self, permit: &Permit) -> Result<(), ErrorBody> {
        permit.consume_nonces(&*self.directory.parts.records).await
    }

    /// Refuses a request that can't be parsed, before authentication.
    pub async fn reject_unparsed(&self, shown: &Credentials<'_>, body: ErrorBody) -> Rejection {
        self.reject(shown, None, body).await
    }

    /// Records the refusal of an authenticated caller and returns it.
    pub async fn record_refusal(&self, permit: &Permit, shown: &Credentials<'_>, body: ErrorBody) -> ErrorBody {
        refusals::record_refusal(&self.directory, Some(permit), shown, body).await
    }

    /// Counts and records a refused caller.
    pub(super) async fn reject(&self, shown: &Credentials<'_>, permit: Option<&Permit>, body: ErrorBody) -> Rejection {
        let (quota, steady) = (self.quota(ANONYMOUS), self.directory.parts.clock.steady());
        let strangers = &self.directory.strangers;
        let address = strangers.counted(shown.peer, steady);
        let rate = match self.rates.hit_anonymous(address, quota, steady).await {
            Ok(rate) => rate,
            Err(lost) => return self.reject_uncounted(shown, permit, lost).await,
        };
        // Of an address over the limit one refusal per window is recorded.
        let (body, records) = match rate.refusal() {
            Some(over) => (over, strangers.is_first_over(address, steady)),
            None => (body, true),
        };
        let body = match records && self.may_record(permit, shown, steady).await {
            true => refusals::record_refusal(&self.directory, permit, shown, body).await,
            false => body,
        };
        Rejection { body, rate: Some(rate) }
    }

    /// Whether to record one more refusal, whatever the number of addresses: strangers have one limit for the whole
    /// process, and so has each actor. The rest is summed up.
    async fn may_record(&self, permit: Option<&Permit>, shown: &Credentials<'_>, steady: Timestamp) -> bool {
        let Some(permit) = permit else { return self.directory.strangers.may_record(steady) };
        let quota = u32::try_from(STRANGER_ENTRIES_MAX).unwrap_or(u32::MAX);
        self.rates.may_record(permit.actor(), quota, steady).await
            || self.directory.floods.is_first(permit, shown.target, steady)
    }
}

/// Whether the head carries the required signature, well formed.
fn check_head(caller: Option<(&Snapshot, &str)>, proof: &RequestProof<'_>) -> Result<(), ErrorBody> {
    match (proof, caller) {
        (RequestProof::Body { signature: None, .. }, _) => Err(invalid_hmac("missing")),
        (RequestProof::Body { signature: Some(signature), .. }, _) if !mac::is_well_formed(signature) => {
            Err(invalid_hmac("unreadable").with("expected", "64 digits of lower-case hex"))
        }
        (RequestProof::Message(parts), Some((seen, actor))) => {
            let signing_keys = signing_keys_of(seen, actor);
            let signer = ExpectedSigner { actor, signing_keys: &signing_keys };
            UnverifiedSignature::check_head(parts, &signer).map_err(|why| signature_refusal(&why))
        }
        _ => Ok(()),
    }
}

/// It is not the caller's fault.
pub(super) fn unopened() -> ErrorBody {
    let message = "the signature can't be checked: the server can't open this actor's key; an operator can see why with \
                   `chimera doctor`";
    ErrorBody::new(Code::NotReady, message).with("reason", "key_unreadable")
}

fn invalid_hmac(reason: &str) -> ErrorBody {
    ErrorBody::new(Code::SignatureInvalid, "Invalid HMAC signature")
        .with("reason", reason)
        .with("header", "x-hmac-signature")
}

/// The shared counter key of a revocation.
pub(super) fn revoked_key(id: &str) -> String {
    format!("revoked:{id}")
}

fn internal() -> ErrorBody {
    ErrorBody::new(Code::Internal, "the request could not be processed")
}

/// Whether a time, in Unix seconds or RFC 3339, is now within the clock skew.
pub(super) fn check_issued_at(issued_at: &Value, now: Timestamp) -> Result<(), ErrorBody> {
    let said = match issued_at {
        Value::Number(seconds) => seconds.as_f64().map(|seconds| (seconds * 1_000.0) as i64),
        Value::String(text) => text.parse::<Timestamp>().ok().map(Timestamp::millis),
        _ => None,
    };
    let Some(said) = said else {
        let body = ErrorBody::new(Code::SchemaInvalid, "issued_at must be Unix seconds or an RFC 3339 time");
        return Err(body.with("pointer", "/issued_at"));
    };
    check_clock_skew("issued_at", said, now)
}

/// Whether a time in milliseconds is now within the clock skew.
pub(super) fn check_clock_skew(what: &str, said: i64, now: Timestamp) -> Result<(), ErrorBody> {
    let off_ms = now.millis().abs_diff(said);
    if off_ms <= CLOCK_SKEW_SECONDS.unsigned_abs() * 1_000 {
        return Ok(());
    }
    let side = if said < now.millis() { "behind" } else { "ahead of" };
    let message = format!("{what} is {} seconds {side} the server's clock", off_ms.div_ceil(1_000));
    Err(ErrorBody::new(Code::ExpiredTtl, message).with("reason", "stale").with("now", now.to_string()))
}

/// Checks the freshness of a dated body and returns its nonce. `issued_at` without `nonce`, or the reverse, is no
/// protection, so both are required or neither.
fn check_dated_body(body: &[u8], now: Timestamp) -> Result<Option<String>, ErrorBody> {
    let mentions = |word: &str| body.windows(word.len()).any(|part| part == word.as_bytes());
    // Member names may contain escapes.
    if !mentions("issued_at") && !mentions("nonce") && !mentions("\\u") {
        return Ok(None);
    }
    // An unparsable body is refused later, by its schema.
    let Ok(DatedBody { issued_at, nonce }) = serde_json::from_slice(body) else { return Ok(None) };
    let alone = |pointer: &str| {
        let body = ErrorBody::new(Code::SchemaInvalid, "send issued_at and nonce together, or neither");
        Err(body.with("pointer", pointer))
    };
    match (issued_at, nonce) {
        (None, None) => Ok(None),
        (Some(_), None) => alone("/nonce"),
        (None, Some(_)) => alone("/issued_at"),
        (Some(issued_at), Some(nonce)) => {
            check_issued_at(&issued_at, now)?;
            // The schema refuses anything but a string.
            Ok(nonce.as_str().map(str::to_owned))
        }
    }
}
