//! The door: who are you, is it you, is it now, how often.
//!
//! The checks come in one order, and the first that fails answers: token, its time, its revocation,
//! the signature, its time, the rate, the nonce. What a request's head tells is checked before its body
//! is read. Whoever is turned away is counted by address and
//! entered in the ledger; whoever is let in gets a permit, and that is the only way to get one.

use super::directory::{Directory, HeldKey, may_share, shares_key_of};
use super::once::{Nonce, Once};
use super::permit::Permit;
use super::rate::{Rate, Rates};
use super::refused;
use crate::access::port::{CounterError, Counters};
use crate::error::EngineError;
use chimera_core::access::signature::{Claimed, Parts, Unsigned};
use chimera_core::access::tables::{REVOKED_TOKENS, TOKEN_FAMILIES};
use chimera_core::access::token::{self, Claims, InvalidToken, TokenKey};
use chimera_core::access::{ANONYMOUS, Claimant, address, mac, scope};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{CLOCK_SKEW_SECONDS, RATE_WINDOW_SECONDS, SIGNATURE_AHEAD_SECONDS_MAX, TOKENS_KNOWN_MAX};
use chimera_core::record::{Scope, Select};
use chimera_core::time::Timestamp;
use core::net::IpAddr;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// What somebody shows at the door.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The bearer token.
    pub bearer: Option<&'a str>,
    /// What shows that the request is the actor's own.
    pub proof: Proof<'a>,
    /// The body as it was received; none as long as it was not read.
    pub body: Option<&'a [u8]>,
    /// It only asks.
    pub reads: bool,
    /// From where.
    pub peer: Option<IpAddr>,
    /// What is asked for: method and route.
    pub target: &'a str,
    /// The trace that the request belongs to.
    pub trace_id: Option<&'a str>,
}

/// What shows, beside the token, that a request is the actor's own.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// Nothing more is needed.
    Token,
    /// A signature of the body alone.
    Body {
        /// It, if there is one.
        signature: Option<&'a str>,
        /// The body may say when it was made, and that it is used once.
        dated: bool,
    },
    /// A signature of method, path, query and body.
    Message(Parts<'a>),
}

/// Somebody whose token counts. It permits nothing: what they sent has to be proven theirs first.
#[derive(Debug)]
pub struct Known(Permit);

impl Known {
    /// Who it is.
    #[must_use]
    pub fn actor(&self) -> Arc<str> {
        self.0.shared_actor()
    }

    /// Who asks for a place that all tenants share.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        self.0.claimant()
    }
}

/// Somebody who was turned away.
#[derive(Debug)]
pub struct Turned {
    /// Why.
    pub body: ErrorBody,
    /// Where they stand in their window, as far as they have one.
    pub rate: Option<Rate>,
}

/// Lets callers in.
pub struct Door {
    pub(super) directory: Arc<Directory>,
    pub(super) rates: Rates,
    /// What all nodes share, if anything.
    pub(crate) claims: Option<Arc<dyn Counters>>,
    /// Tokens whose signature was checked, by digest.
    known: Mutex<BTreeMap<[u8; 32], Arc<Claims>>>,
}

/// The key that has signed a request: its id, and the actor or the pattern whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyUsed {
    pub(super) id: Uuid,
    pub(super) of: String,
}

impl KeyUsed {
    /// The pattern that shares it, unless it is an actor's own.
    pub(super) fn shared_by(&self) -> Option<String> {
        self.of.contains('*').then(|| self.of.clone())
    }
}

/// When a request says that it was made.
#[derive(Deserialize)]
struct Dated {
    issued_at: Option<Value>,
    nonce: Option<Value>,
}

impl Door {
    /// A door to what the directory knows.
    #[must_use]
    pub fn new(directory: Arc<Directory>, rates: Rates, claims: Option<Arc<dyn Counters>>) -> Self {
        Self { directory, rates, claims, known: Mutex::default() }
    }

    /// Who it is, as far as the head of a request tells, or why they are turned away before its body is read: the token
    /// must count, and a signature that the route demands must be there and readable.
    pub async fn admit(&self, shown: &Presented<'_>) -> Result<Known, Turned> {
        let now = self.directory.parts.clock.now();
        let permit = match self.recognise(shown, now).await {
            Ok(permit) => permit,
            Err(body) => return Err(self.turn_away(shown, None, body).await),
        };
        match check_head(Some(permit.actor()), &shown.proof) {
            Ok(()) => Ok(Known(permit)),
            Err(body) => Err(self.turn_away(shown, Some(&permit), body).await),
        }
    }

    /// Turns somebody without a token away whose request lacks the signature that it needs, before its body is read.
    pub async fn admit_stranger(&self, shown: &Presented<'_>) -> Result<(), Turned> {
        match check_head(None, &shown.proof) {
            Ok(()) => Ok(()),
            Err(body) => Err(self.turn_away(shown, None, body).await),
        }
    }

    /// Lets somebody in whose request, read whole, is their own and made now.
    pub async fn prove(&self, Known(permit): Known, shown: &Presented<'_>) -> Result<Permit, Turned> {
        let now = self.directory.parts.clock.now();
        let once = self.is_own(permit.actor(), shown, now).and_then(|nonces| {
            let once = || Once::new(permit.actor(), nonces.clone(), &*self.directory.parts.clock);
            (!nonces.is_empty()).then(once).transpose()
        });
        match once {
            Ok(once) => Ok(permit.once(once)),
            Err(body) => Err(self.turn_away(shown, Some(&permit), body).await),
        }
    }

    /// Whoever showed a token before, as things stand now; none when it counts no more: it has run out or was
    /// revoked, its actor was disabled or acted for another tenant and looks after none any more, or nobody can tell.
    pub async fn readmit(&self, bearer: &str, before: &Permit) -> Option<Permit> {
        let claims = self.validate_jwt(bearer, self.directory.parts.clock.now()).ok()?;
        match self.is_revoked(&claims).await {
            Ok(false) => self.permit(&claims).ok().and_then(|permit| self.still_acting(permit, before)),
            Ok(true) | Err(_) => None,
        }
    }

    /// Counts a request of somebody who is known; over the limit they are turned away, and as long as
    /// nothing can be counted so is everybody.
    pub async fn count(&self, permit: &Permit, shown: &Presented<'_>) -> Result<Rate, Turned> {
        let steady = self.directory.parts.clock.steady();
        let rate = match self.rates.hit(permit.actor(), permit.quota(), shown.reads, steady).await {
            Ok(rate) => rate,
            Err(lost) => return Err(self.uncounted(shown, Some(permit), lost).await),
        };
        match rate.refusal() {
            None => Ok(rate),
            Some(body) => {
                let is_first = self.directory.floods.is_first(permit, shown.target, steady);
                let body = if is_first { self.enter(permit, shown, body).await } else { body };
                Err(Turned { body, rate: Some(rate) })
            }
        }
    }

    /// Turns somebody away who can't be counted. It is entered as often as this node's own count allows:
    /// the ledger is not theirs to fill.
    async fn uncounted(&self, shown: &Presented<'_>, permit: Option<&Permit>, lost: ErrorBody) -> Turned {
        let steady = self.directory.parts.clock.steady();
        let actor = permit.map_or(ANONYMOUS, Permit::actor);
        let quota = permit.map_or_else(|| self.quota(ANONYMOUS), Permit::quota);
        let body = match self.rates.allows_entry(actor, quota, steady).await {
            true => refused::enter(&self.directory, permit, shown, lost).await,
            false => lost,
        };
        Turned { body, rate: None }
    }

    fn quota(&self, actor: &str) -> u32 {
        self.directory.snapshot().registry.resolve(actor).quota_per_minute
    }

    /// Whose token it is, if it counts.
    async fn recognise(&self, shown: &Presented<'_>, now: Timestamp) -> Result<Permit, ErrorBody> {
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

    /// Whether a request is the actor's own and made now; gives what makes it usable once.
    fn is_own(&self, actor: &str, shown: &Presented<'_>, now: Timestamp) -> Result<Vec<Nonce>, ErrorBody> {
        match &shown.proof {
            Proof::Token => Ok(Vec::new()),
            Proof::Body { signature, dated } => {
                let body = shown.body.unwrap_or_default();
                let _: KeyUsed = self.validate_hmac(actor, body, *signature, now)?;
                let nonce = if *dated { dated_body(body, now)? } else { None };
                Ok(nonce.map(Nonce::from).into_iter().collect())
            }
            Proof::Message(parts) => self.validate_message(actor, parts, now),
        }
    }

    /// Whether the actor has signed what the request asks for; gives the nonces of all signatures of the actor's key, since
    /// with each alone it could be sent again, now or when its time has come. Whoever is refused learns what they should
    /// have signed.
    fn validate_message(&self, actor: &str, parts: &Parts<'_>, now: Timestamp) -> Result<Vec<Nonce>, ErrorBody> {
        let all = Claimed::read(parts, actor).map_err(|why| unsigned(&why))?;
        let snapshot = self.directory.snapshot();
        let keys: Vec<_> = snapshot.keys(actor, now).map(|key| &key.secret).collect();
        // One that fits and is made now is enough; if none is, the first says why.
        let (mut nonces, mut counts, mut first) = (Vec::new(), false, None);
        for claimed in all {
            if let Err(why) = claimed.verify(keys.iter().copied()) {
                first = first.or_else(|| Some(unsigned(&why).with("signature_base", claimed.base.as_str())));
                continue;
            }
            let made_at = Timestamp::from_micros(claimed.created.saturating_mul(1_000_000));
            match is_signed_now(&claimed, now) {
                Ok(()) => counts = true,
                Err(why) if made_at > now.plus_seconds(SIGNATURE_AHEAD_SECONDS_MAX) => return Err(why),
                Err(why) => first = first.or(Some(why)),
            }
            nonces.push(Nonce { text: claimed.nonce, made_at: Some(made_at) });
        }
        match first {
            Some(why) if !counts => Err(why),
            _ => Ok(nonces),
        }
    }

    /// What a token says, if one of our keys has signed it and its time has not run out. A signature that
    /// was checked once needs no second look; the time does.
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
                if known.len() >= TOKENS_KNOWN_MAX {
                    known.clear();
                }
                known.insert(digest, Arc::clone(&claims));
                claims
            }
        };
        claims.counts_at(now.millis().div_euclid(1_000))?;
        Ok(claims)
    }

    fn permit(&self, claims: &Claims) -> Result<Permit, ErrorBody> {
        let entry = self.directory.snapshot().registry.resolve(&claims.sub);
        if entry.disabled {
            return Err(ErrorBody::new(Code::RbacForbidden, "the actor is disabled"));
        }
        let shared = self.directory.settings.token_keys.iter().any(TokenKey::is_shared);
        let by_shared = claims.key_of.as_ref().is_some_and(|of| !shares_key_of(of, &entry, &claims.sub));
        if by_shared || (shared && !may_share(&entry, &claims.sub)) {
            let body = ErrorBody::new(
                Code::Unauthenticated,
                "Invalid JWT: its key is shared, and not by this actor; sign in with a key of your own",
            );
            return Err(body.with("reason", "shared key"));
        }
        let scopes = match &claims.scopes {
            Some(narrow) => scope::narrowed(&entry.scopes, narrow),
            None => entry.scopes.clone(),
        };
        Ok(Permit::new(entry, &claims.sub, scopes, self.directory.settings.strict_scopes))
    }

    /// Whether a token or its sign-in was revoked: as far as this process knows, as the shared
    /// counters say, and, when those can't be reached or too much was revoked, as the store says.
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
            let select = Select::from(&REVOKED_TOKENS, Scope::System).with("token_id", jti.as_str()).take(1);
            if !records.read(select).await.map_err(unreadable)?.rows.is_empty() {
                return Ok(true);
            }
        }
        let Some(family) = claims.fam.as_deref().and_then(|family| Uuid::parse_str(family).ok()) else {
            return Ok(false);
        };
        let select = Select::from(&TOKEN_FAMILIES, Scope::System).with("id", family).take(1);
        let rows = records.read(select).await.map_err(unreadable)?.rows;
        Ok(rows.first().is_some_and(|row| !row.get("revoked_at").is_null()))
    }

    /// Whether the actor has signed the very bytes that arrived. Clients that change them on the way
    /// learn how many there were, and their digest.
    pub(super) fn validate_hmac(
        &self,
        actor: &str,
        body: &[u8],
        signature: Option<&str>,
        now: Timestamp,
    ) -> Result<KeyUsed, ErrorBody> {
        let snapshot = self.directory.snapshot();
        // Every key is tried, so the answer's delay tells nothing.
        let signed = |key: &&HeldKey| mac::is_signed([&key.secret], body, signature.unwrap_or_default());
        let made: Vec<&HeldKey> = snapshot.keys(actor, now).filter(signed).collect();
        if let Some(key) = made.first() {
            return Ok(KeyUsed { id: key.id, of: key.of.clone() });
        }
        let body = invalid_hmac(if signature.is_none() { "missing" } else { "mismatch" })
            .with("bytes_received", body.len())
            .with("sha256", hex::encode(Sha256::digest(body)));
        Err(body)
    }

    /// Refuses a request that was obeyed before; enters that, as anything that somebody known is refused.
    pub async fn check_once(&self, permit: &Permit, shown: &Presented<'_>) -> Result<(), ErrorBody> {
        match permit.check_once(&*self.directory.parts.records).await {
            Ok(()) => Ok(()),
            Err(body) => Err(self.enter(permit, shown, body).await),
        }
    }

    /// Uses up the nonce of a request that was obeyed and changed nothing.
    pub async fn finish(&self, permit: &Permit) -> Result<(), ErrorBody> {
        permit.finish(&*self.directory.parts.records).await
    }

    /// Refuses somebody before it is looked who they are: what they sent can't be read.
    pub async fn refuse(&self, shown: &Presented<'_>, body: ErrorBody) -> Turned {
        self.turn_away(shown, None, body).await
    }

    /// Enters in the ledger that somebody who is known was refused something, and gives the refusal back.
    pub async fn enter(&self, permit: &Permit, shown: &Presented<'_>, body: ErrorBody) -> ErrorBody {
        refused::enter(&self.directory, Some(permit), shown, body).await
    }

    /// Counts and enters somebody who was turned away.
    pub(super) async fn turn_away(&self, shown: &Presented<'_>, permit: Option<&Permit>, body: ErrorBody) -> Turned {
        let (quota, steady) = (self.quota(ANONYMOUS), self.directory.parts.clock.steady());
        let rate = match self.rates.hit_stranger(shown.peer, quota, steady).await {
            Ok(rate) => rate,
            Err(lost) => return self.uncounted(shown, permit, lost).await,
        };
        let Some(over) = rate.refusal() else {
            let body = refused::enter(&self.directory, permit, shown, body).await;
            return Turned { body, rate: Some(rate) };
        };
        // A flood of strangers is entered once a window: the ledger is not theirs to fill.
        let window = Duration::from_secs(RATE_WINDOW_SECONDS.into());
        let first = self.rates.own.claim(&flood_key(shown.peer), "1", window, steady).await;
        let body = match first {
            Ok(crate::access::port::Claim::Claimed) => refused::enter(&self.directory, permit, shown, over).await,
            _ => over,
        };
        Turned { body, rate: Some(rate) }
    }
}

/// Whether the head of a request carries the signature that it needs, in a shape that could fit.
fn check_head(actor: Option<&str>, proof: &Proof<'_>) -> Result<(), ErrorBody> {
    match (proof, actor) {
        (Proof::Body { signature: None, .. }, _) => Err(invalid_hmac("missing")),
        (Proof::Body { signature: Some(signature), .. }, _) if !mac::is_shaped(signature) => {
            Err(invalid_hmac("unreadable").with("expected", "64 digits of lower-case hex"))
        }
        (Proof::Message(parts), Some(actor)) => Claimed::check_head(parts, actor).map_err(|why| unsigned(&why)),
        _ => Ok(()),
    }
}

fn invalid_hmac(reason: &str) -> ErrorBody {
    ErrorBody::new(Code::SignatureInvalid, "Invalid HMAC signature")
        .with("reason", reason)
        .with("header", "x-hmac-signature")
}

fn unsigned(why: &Unsigned) -> ErrorBody {
    ErrorBody::new(Code::SignatureInvalid, format!("the request is not signed: {why}"))
        .with("reason", why.reason())
        .with("header", "signature-input")
}

fn flood_key(peer: Option<IpAddr>) -> String {
    format!("flood:{}", peer.map(|peer| address::counted(peer).to_string()).unwrap_or_default())
}

/// The key under which all nodes find what was revoked.
pub(super) fn revoked_key(id: &str) -> String {
    format!("revoked:{id}")
}

fn internal() -> ErrorBody {
    ErrorBody::new(Code::Internal, "the request could not be worked on")
}

/// Whether a time is now, as far as clocks agree: Unix seconds or RFC 3339.
pub(super) fn is_now(issued_at: &Value, now: Timestamp) -> Result<(), ErrorBody> {
    let said = match issued_at {
        Value::Number(seconds) => seconds.as_f64().map(|seconds| (seconds * 1_000.0) as i64),
        Value::String(text) => text.parse::<Timestamp>().ok().map(Timestamp::millis),
        _ => None,
    };
    let Some(said) = said else {
        let body = ErrorBody::new(Code::SchemaInvalid, "issued_at is Unix seconds or an RFC 3339 time");
        return Err(body.with("pointer", "/issued_at"));
    };
    is_made_now("issued_at", said, now)
}

/// Whether a signature was made now and has not expired.
fn is_signed_now(claimed: &Claimed, now: Timestamp) -> Result<(), ErrorBody> {
    is_made_now("created", claimed.created.saturating_mul(1_000), now)?;
    if claimed.expires.is_some_and(|expires| expires < now.millis().div_euclid(1_000)) {
        let body = ErrorBody::new(Code::ExpiredTtl, "the signature has expired");
        return Err(body.with("reason", "expired").with("now", now.to_string()));
    }
    Ok(())
}

/// Whether a time in milliseconds is now, as far as clocks agree.
fn is_made_now(what: &str, said: i64, now: Timestamp) -> Result<(), ErrorBody> {
    let off_ms = now.millis().abs_diff(said);
    if off_ms <= CLOCK_SKEW_SECONDS.unsigned_abs() * 1_000 {
        return Ok(());
    }
    let side = if said < now.millis() { "behind" } else { "ahead of" };
    let message = format!("{what} is {} seconds {side} our clock", off_ms.div_ceil(1_000));
    Err(ErrorBody::new(Code::ExpiredTtl, message).with("reason", "stale").with("now", now.to_string()))
}

/// Whether a body that says when it was made was made now; gives what makes it usable once. One without
/// the other is no protection, so they come together or not at all.
fn dated_body(body: &[u8], now: Timestamp) -> Result<Option<String>, ErrorBody> {
    let mentions = |word: &str| body.windows(word.len()).any(|part| part == word.as_bytes());
    // A name may be written with escapes.
    if !mentions("issued_at") && !mentions("nonce") && !mentions("\\u") {
        return Ok(None);
    }
    // A body that can't be read is refused later, by its schema.
    let Ok(Dated { issued_at, nonce }) = serde_json::from_slice(body) else { return Ok(None) };
    let alone = |pointer: &str| {
        let body = ErrorBody::new(Code::SchemaInvalid, "issued_at and nonce come together or not at all");
        Err(body.with("pointer", pointer))
    };
    match (issued_at, nonce) {
        (None, None) => Ok(None),
        (Some(_), None) => alone("/nonce"),
        (None, Some(_)) => alone("/issued_at"),
        (Some(issued_at), Some(nonce)) => {
            is_now(&issued_at, now)?;
            // Anything but a text is refused by the schema.
            Ok(nonce.as_str().map(str::to_owned))
        }
    }
}
