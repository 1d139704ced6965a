//! Access tokens and sign-ins.
//!
//! A sign-in is a signed, dated, single-use request: a body that never changes would be a permanent password. Its
//! refresh token is exchanged for the next one. A refresh token that is used again after a short grace period was
//! stolen, so the whole sign-in (the token family) is revoked. Within the grace period reuse is allowed, because
//! parallel callers share a token.

use super::authenticator::{
    Authenticator, Credentials, KeyUsed, Rejection, RequestProof, check_issued_at, revoked_key,
};
use super::nonces;
use super::permit::{ACTORS_WRITE, Permit};
use super::rate::Rate;
use crate::error::EngineError;
use crate::ledger::audit::{self, EventRecord, Writer};
use crate::port::CommitError;
use crate::rows;
use chimera_core::access::tables::{
    REFRESH_TOKENS, REVOKED_TOKENS, RefreshTokenRow, TOKEN_FAMILIES, TokenFamilyRow, refresh_tokens, revoked_tokens,
    token_families,
};
use chimera_core::access::token::{self, Audience, Claims, TokenKey};
use chimera_core::access::{ActorEntry, matches_pattern, registry, scope};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::ledger::SubjectType;
use chimera_core::limits::{
    ACTOR_CHARS_MAX, ACTOR_SCOPES_MAX, ERROR_TEXT_CHARS_MAX, REFRESH_GRACE_SECONDS, REFRESH_SECONDS, SCOPE_CHARS_MAX,
    TOKEN_SECONDS,
};
use chimera_core::record::{Conflict, Insert, Scope, StoredRow, Tx, Update, Value};
use chimera_core::time::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A sign-in request.
#[derive(Clone, Debug)]
pub struct SignIn {
    pub actor: String,
    pub issued_at: serde_json::Value,
    /// Makes the request single-use.
    pub nonce: String,
    /// Narrows the token to these scopes.
    pub scopes: Option<Vec<String>>,
}

/// Issued tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    pub access_token: String,
    /// In seconds.
    pub expires_in: i64,
    pub refresh_token: String,
    pub scopes: Vec<String>,
    pub rate: Rate,
}

pub async fn sign_in(
    authenticator: &Authenticator,
    ask: &SignIn,
    shown: &Credentials<'_>,
) -> Result<Tokens, Rejection> {
    let now = authenticator.directory.parts.clock.now();
    let key = match check_sign_in(authenticator, ask, shown, now) {
        Ok(key) => key,
        Err(body) => {
            // Record the claimed actor.
            let tried: String = ask.actor.chars().take(ACTOR_CHARS_MAX).collect();
            return Err(authenticator.reject(shown, None, body.with("actor", tried)).await);
        }
    };
    let entry = authenticator.directory.snapshot().registry.resolve(&ask.actor);
    let permit =
        Permit::new(Arc::clone(&entry), &ask.actor, Vec::new(), authenticator.directory.settings.strict_scopes);
    let rate = authenticator.count(&permit, shown).await?;
    let family = authenticator.directory.parts.random.row_id(now);
    let scopes = ask.scopes.as_ref().map(|narrow| scope::narrowed(&entry.scopes, narrow));
    let granted = Grant { family, actor: &ask.actor, entry: &entry, narrow: scopes, rate, key: &key };
    match begin_family(authenticator, &granted, &ask.nonce, now).await {
        Ok(tokens) => Ok(tokens),
        Err(EngineError::Refused(body)) => Err(authenticator.reject(shown, None, *body).await),
        Err(error) => Err(Rejection { body: error.body(), rate: Some(rate) }),
    }
}

fn check_sign_in(
    authenticator: &Authenticator,
    ask: &SignIn,
    shown: &Credentials<'_>,
    now: Timestamp,
) -> Result<KeyUsed, ErrorBody> {
    if !registry::is_actor_name(&ask.actor) || ask.actor.contains('*') {
        let body = ErrorBody::new(Code::SchemaInvalid, registry::InvalidActorEntry::Name.to_string());
        return Err(body.with("pointer", "/actor"));
    }
    let key = verify_body_signature(authenticator, &ask.actor, shown, now)?;
    if let Some(TokenKey::Hs256 { restricted_to: Some(only), .. }) = authenticator.directory.settings.token_keys.first()
        && !matches_pattern(only, &ask.actor)
    {
        return Err(ErrorBody::new(Code::RbacForbidden, format!("this server issues tokens only to {only}")));
    }
    check_issued_at(&ask.issued_at, now)?;
    let entry = authenticator.directory.snapshot().registry.resolve(&ask.actor);
    if entry.disabled {
        return Err(ErrorBody::new(Code::RbacForbidden, "the actor is disabled"));
    }
    if let Some(bad) = ask.scopes.iter().flatten().find(|scope| !scope::is_well_formed(scope)) {
        let bad: String = bad.chars().take(SCOPE_CHARS_MAX).collect();
        let message = format!("{bad:?} is not a valid scope: use a name like notion.pages.read, notion.* or logs:read");
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/scopes"));
    }
    // Refuse now: such a token would only fail at its first use.
    let narrowed = ask.scopes.as_ref().map_or(0, |wanted| scope::narrowed(&entry.scopes, wanted).len());
    if narrowed > ACTOR_SCOPES_MAX {
        let message = format!("a token has at most {ACTOR_SCOPES_MAX} scopes, not {narrowed}: request fewer");
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/scopes"));
    }
    if let Some(wanted) = &ask.scopes
        && narrowed == 0
    {
        let asked = if wanted.is_empty() { "no scope".to_owned() } else { wanted.join(", ") };
        let message =
            format!("{} holds none of the requested scopes ({asked}): request scopes that it holds", ask.actor);
        let message = message.chars().take(ERROR_TEXT_CHARS_MAX).collect::<String>();
        return Err(ErrorBody::new(Code::RbacForbidden, message).with("pointer", "/scopes"));
    }
    Ok(key)
}

/// Verifies the body's signature, the only credential before there is a token.
fn verify_body_signature(
    authenticator: &Authenticator,
    actor: &str,
    shown: &Credentials<'_>,
    now: Timestamp,
) -> Result<KeyUsed, ErrorBody> {
    let signature = match shown.proof {
        RequestProof::Body { signature, .. } => signature,
        RequestProof::Token | RequestProof::Message(_) => None,
    };
    authenticator.validate_hmac(actor, shown.body.unwrap_or_default(), signature, now)
}

async fn begin_family(
    authenticator: &Authenticator,
    grant: &Grant<'_>,
    nonce: &str,
    now: Timestamp,
) -> Result<Tokens, EngineError> {
    let (tokens, refresh) = mint_tokens(authenticator, grant, now)?;
    let scopes = grant.narrow.clone().unwrap_or_else(|| vec!["*".to_owned()]);
    let family = Insert::new(
        &TOKEN_FAMILIES,
        vec![
            (token_families::id, grant.family.into()),
            (token_families::actor_id, grant.actor.into()),
            (token_families::tenant_id, grant.entry.tenant.as_str().into()),
            (token_families::scopes, scopes.into()),
            (token_families::created_at, now.into()),
            (token_families::expires_at, now.plus_seconds(REFRESH_SECONDS).into()),
        ],
    )?;
    // The family must be inserted before its token, so these are ordered steps.
    let steps = vec![chimera_core::record::Step::Insert(family), chimera_core::record::Step::Insert(refresh)];
    let mut tx = Tx {
        inserts: vec![nonces::nonce_row(grant.actor, &nonce.to_owned().into(), &*authenticator.directory.parts.clock)?],
        steps,
        ..Tx::default()
    };
    record_grant(
        authenticator,
        &mut tx,
        grant,
        "token.issued",
        json!({"expires_in": TOKEN_SECONDS, "key_id": grant.key.id, "key_of": grant.key.of}),
    )?;
    match audit::commit(&*authenticator.directory.parts.records, tx).await {
        Ok(_) => Ok(tokens),
        Err(error) => Err(error.into()),
    }
}

/// Exchanges a refresh token for a new one and a new access token.
pub async fn refresh_tokens(
    authenticator: &Authenticator,
    refresh_token: &str,
    shown: &Credentials<'_>,
) -> Result<Tokens, Rejection> {
    let now = authenticator.directory.parts.clock.now();
    match try_refresh(authenticator, refresh_token, shown, now).await {
        Ok(tokens) => Ok(tokens),
        Err(RefreshError::Rejected(turned)) => Err(turned),
        Err(RefreshError::Failed(EngineError::Refused(body))) => Err(authenticator.reject(shown, None, *body).await),
        Err(RefreshError::Failed(error)) => Err(Rejection { body: error.body(), rate: None }),
    }
}

async fn try_refresh(
    authenticator: &Authenticator,
    text: &str,
    shown: &Credentials<'_>,
    now: Timestamp,
) -> Result<Tokens, RefreshError> {
    let invalid = || EngineError::refused(Code::Unauthenticated, "the refresh token is not valid");
    let Some((row, family)) = refresh_rows(authenticator, text).await? else { return Err(invalid().into()) };
    let actor = family.actor_id.clone();
    let key = verify_body_signature(authenticator, &actor, shown, now).map_err(EngineError::from)?;
    if family.revoked_at.is_some() || row.expires_at <= now || family.expires_at <= now {
        return Err(invalid().into());
    }
    let used_at = row.used_at;
    if used_at.is_some_and(|used| now >= used.plus_seconds(REFRESH_GRACE_SECONDS)) {
        end_family(authenticator, &family, None, "a refresh token was used again", now).await?;
        return Err(invalid().into());
    }
    let entry = authenticator.directory.snapshot().registry.resolve(&actor);
    if entry.disabled {
        return Err(EngineError::refused(Code::RbacForbidden, "the actor is disabled").into());
    }
    let permit = Permit::new(Arc::clone(&entry), &actor, Vec::new(), authenticator.directory.settings.strict_scopes);
    let rate = authenticator.count(&permit, shown).await.map_err(RefreshError::Rejected)?;
    let narrow = (family.scopes != ["*"]).then(|| scope::narrowed(&entry.scopes, &family.scopes));
    let grant = Grant { family: family.id, actor: &actor, entry: &entry, narrow, rate, key: &key };
    let (tokens, refresh) = mint_tokens(authenticator, &grant, now)?;
    let mut tx = Tx { inserts: vec![refresh], ..Tx::default() };
    if used_at.is_none() {
        let key = vec![row.token_digest.to_vec().into()];
        let unused = vec![(refresh_tokens::used_at, Value::Null)];
        let used = Update::new(&REFRESH_TOKENS, key, unused, vec![(refresh_tokens::used_at, now.into())]);
        tx.updates.push(used.map_err(EngineError::from)?);
    }
    record_grant(
        authenticator,
        &mut tx,
        &grant,
        "token.refreshed",
        json!({"again": used_at.is_some(), "key_id": key.id, "key_of": key.of}),
    )?;
    match audit::commit(&*authenticator.directory.parts.records, tx).await {
        Ok(_) => Ok(tokens),
        // A concurrent caller used it just now: within the grace period, so it is accepted again.
        Err(CommitError::Conflict(_)) if used_at.is_none() => {
            Box::pin(try_refresh(authenticator, text, shown, now)).await
        }
        Err(error) => Err(EngineError::from(error).into()),
    }
}

async fn refresh_rows(
    authenticator: &Authenticator,
    text: &str,
) -> Result<Option<(RefreshTokenRow, TokenFamilyRow)>, EngineError> {
    let records = &*authenticator.directory.parts.records;
    let digest = Sha256::digest(text.as_bytes()).to_vec();
    let select = RefreshTokenRow::select(Scope::System).with(refresh_tokens::token_digest, digest);
    let Some(row) = rows::find::<RefreshTokenRow>(records, select).await? else { return Ok(None) };
    Ok(find_family(authenticator, row.family_id).await?.map(|family| (row, family)))
}

async fn find_family(authenticator: &Authenticator, id: Uuid) -> Result<Option<TokenFamilyRow>, EngineError> {
    let select = TokenFamilyRow::select(Scope::System).with(token_families::id, id);
    rows::find(&*authenticator.directory.parts.records, select).await
}

/// Revokes a sign-in: none of its tokens is valid any more, on any node. Without a permit, the server revokes it
/// because of what the holder of one of its tokens did.
async fn end_family(
    authenticator: &Authenticator,
    family: &TokenFamilyRow,
    by: Option<&Permit>,
    why: &str,
    now: Timestamp,
) -> Result<(), EngineError> {
    let id = family.id;
    let set = vec![(token_families::revoked_at, now.into()), (token_families::revoked_because, why.into())];
    let update = Update::versioned(&TOKEN_FAMILIES, vec![id.into()], family.state_version, set)?;
    let mut tx = Tx { updates: vec![update], ..Tx::default() };
    let entry = authenticator.directory.snapshot().registry.resolve(&family.actor_id);
    let data = json!({"why": why, "actor": family.actor_id});
    let event = event(&entry, &family.actor_id, &id.to_string(), "token.family_revoked", data);
    record_revocation(authenticator, &mut tx, by, event)?;
    match audit::commit(&*authenticator.directory.parts.records, tx).await {
        Ok(_) => {}
        // Already revoked concurrently.
        Err(error @ CommitError::Conflict(_)) if !by.is_some_and(|by| by.is_alongside_conflict(&error)) => {}
        Err(error) => return Err(error.into()),
    }
    publish_revocation(authenticator, &id.to_string()).await;
    authenticator.directory.refresh_and_announce().await
}

/// Revokes a token: an access token; a refresh token with its whole sign-in; or, without `token`, the bearer token
/// of the request with its sign-in. An unknown token is not an error: returns false if there was nothing to revoke.
/// A token of another actor is refused, since it stays valid; one of another tenant is unknown.
pub async fn revoke_token(
    authenticator: &Authenticator,
    permit: &Permit,
    bearer: &str,
    token: Option<&str>,
) -> Result<bool, EngineError> {
    let now = authenticator.directory.parts.clock.now();
    let settings = &authenticator.directory.settings;
    let text = token.unwrap_or(bearer);
    let check = |owner: &str| {
        let may = owner == permit.actor() || permit.may(ACTORS_WRITE);
        let message = "the token belongs to another actor: only its owner or a holder of actors.write can revoke it";
        let refused = || ErrorBody::new(Code::RbacForbidden, message).with("required_scope", ACTORS_WRITE);
        if may { Ok(()) } else { Err(EngineError::from(refused())) }
    };
    if let Ok(claims) = token::verify(text, &settings.token_keys, &settings.audience) {
        if tenant_of(authenticator, &claims.sub) != permit.tenant() {
            return Ok(false);
        }
        check(&claims.sub)?;
        revoke_access(authenticator, permit, &claims, now).await?;
        let mut ended = claims.jti.is_some();
        if let (None, Some(family)) = (token, claims.fam.as_deref().and_then(|id| Uuid::parse_str(id).ok()))
            && let Some(row) = find_family(authenticator, family).await?
        {
            // The nonce is used up by the first of the two.
            let by = if ended { permit.for_side_effects() } else { permit.clone() };
            end_family(authenticator, &row, Some(&by), "revoked", now).await?;
            ended = true;
        }
        return Ok(ended);
    }
    if let Some((_, family)) =
        refresh_rows(authenticator, text).await?.filter(|(_, family)| family.tenant_id == permit.tenant())
    {
        check(&family.actor_id)?;
        end_family(authenticator, &family, Some(permit), "revoked", now).await?;
        return Ok(true);
    }
    Ok(false)
}

/// Records who revoked something: the caller, or the actor of the event.
fn record_revocation(
    authenticator: &Authenticator,
    tx: &mut Tx,
    by: Option<&Permit>,
    mut event: EventRecord,
) -> Result<(), EngineError> {
    if let Some(permit) = by {
        (event.actor_type, event.actor_id) = (permit.kind(), Some(permit.actor().to_owned()));
        event.operator_of = permit.operator_of().map(str::to_owned);
        permit.add_alongside(tx);
    }
    writer(authenticator).event(tx, event)?;
    Ok(())
}

async fn revoke_access(
    authenticator: &Authenticator,
    permit: &Permit,
    claims: &Claims,
    now: Timestamp,
) -> Result<(), EngineError> {
    let Some(jti) = &claims.jti else { return Ok(()) };
    let entry = authenticator.directory.snapshot().registry.resolve(&claims.sub);
    let until = Timestamp::from_micros(claims.exp.saturating_mul(1_000_000));
    let row = Insert::new(
        &REVOKED_TOKENS,
        vec![
            (revoked_tokens::token_id, jti.as_str().into()),
            (revoked_tokens::actor_id, claims.sub.as_str().into()),
            (revoked_tokens::tenant_id, entry.tenant.as_str().into()),
            (revoked_tokens::revoked_at, now.into()),
            (revoked_tokens::expires_at, until.into()),
        ],
    )?;
    let mut tx = Tx { inserts: vec![row], ..Tx::default() };
    let event = event(&entry, &claims.sub, jti, "token.revoked", json!({"actor": claims.sub}));
    record_revocation(authenticator, &mut tx, Some(permit), event)?;
    match audit::commit(&*authenticator.directory.parts.records, tx).await {
        Ok(_) => {}
        // Already revoked.
        Err(error @ CommitError::Conflict(Conflict::Exists(_))) if !permit.is_alongside_conflict(&error) => {}
        Err(error) => return Err(error.into()),
    }
    publish_revocation(authenticator, jti).await;
    authenticator.directory.refresh_and_announce().await
}

/// Publishes a revocation through the shared counters. The store has it too, and every node also checks there.
async fn publish_revocation(authenticator: &Authenticator, id: &str) {
    let Some(claims) = &authenticator.claims else { return };
    let steady = authenticator.directory.parts.clock.steady();
    let ttl = Duration::from_secs(TOKEN_SECONDS.unsigned_abs());
    if let Err(error) = claims.claim(&revoked_key(id), "revoked", ttl, steady).await {
        tracing::warn!(error = %error, "a revocation is in the store only, not in the shared counters");
    }
}

/// An access token for the operator of the process, who holds the signing key anyway. It can't be refreshed.
pub fn issue_operator_token(authenticator: &Authenticator, actor: &str) -> Result<String, EngineError> {
    sign_token(authenticator, &claims_of(authenticator, actor, authenticator.directory.parts.clock.now()))
}

/// The claims of an access token that belongs to no sign-in and has all the actor's scopes.
fn claims_of(authenticator: &Authenticator, actor: &str, now: Timestamp) -> Claims {
    let iat = now.millis().div_euclid(1_000);
    Claims {
        sub: actor.to_owned(),
        exp: iat + TOKEN_SECONDS,
        iat,
        nbf: None,
        jti: Some(authenticator.directory.parts.random.opaque_id()),
        fam: None,
        aud: Some(Audience::One(authenticator.directory.settings.audience.clone())),
        scopes: None,
        key_of: None,
    }
}

fn sign_token(authenticator: &Authenticator, claims: &Claims) -> Result<String, EngineError> {
    let signed = authenticator.directory.settings.token_keys.first().and_then(|key| key.sign(claims));
    signed.ok_or_else(|| EngineError::refused(Code::Internal, "no token signing key is configured"))
}

/// Creates an access token, a refresh token and the latter's row.
fn mint_tokens(
    authenticator: &Authenticator,
    grant: &Grant<'_>,
    now: Timestamp,
) -> Result<(Tokens, Insert), EngineError> {
    let parts = &authenticator.directory.parts;
    let access_token = sign_token(
        authenticator,
        &Claims {
            fam: Some(grant.family.to_string()),
            scopes: grant.narrow.clone(),
            key_of: grant.key.shared_by(),
            ..claims_of(authenticator, grant.actor, now)
        },
    )?;
    let mut bytes = [0; 32];
    parts.random.fill(&mut bytes);
    let refresh_token = hex::encode(bytes);
    let row = Insert::new(
        &REFRESH_TOKENS,
        vec![
            (refresh_tokens::token_digest, Sha256::digest(refresh_token.as_bytes()).to_vec().into()),
            (refresh_tokens::family_id, grant.family.into()),
            (refresh_tokens::issued_at, now.into()),
            (refresh_tokens::expires_at, now.plus_seconds(REFRESH_SECONDS).into()),
        ],
    )?;
    let scopes = grant.narrow.clone().unwrap_or_else(|| grant.entry.scopes.clone());
    Ok((Tokens { access_token, expires_in: TOKEN_SECONDS, refresh_token, scopes, rate: grant.rate }, row))
}

fn writer(authenticator: &Authenticator) -> Writer<'_> {
    Writer { random: &*authenticator.directory.parts.random, clock: &*authenticator.directory.parts.clock }
}

fn record_grant(
    authenticator: &Authenticator,
    tx: &mut Tx,
    grant: &Grant<'_>,
    what: &str,
    data: serde_json::Value,
) -> Result<(), EngineError> {
    writer(authenticator).event(tx, event(grant.entry, grant.actor, &grant.family.to_string(), what, data))?;
    Ok(())
}

fn tenant_of(door: &Authenticator, actor: &str) -> String {
    door.directory.snapshot().registry.resolve(actor).tenant.clone()
}

/// Who receives tokens.
struct Grant<'a> {
    family: Uuid,
    actor: &'a str,
    entry: &'a Arc<ActorEntry>,
    narrow: Option<Vec<String>>,
    rate: Rate,
    key: &'a KeyUsed,
}

/// Why a refresh failed.
enum RefreshError {
    Rejected(Rejection),
    Failed(EngineError),
}

impl From<EngineError> for RefreshError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

fn event(entry: &ActorEntry, actor: &str, subject: &str, what: &str, data: serde_json::Value) -> EventRecord {
    EventRecord {
        tenant_id: entry.tenant.clone(),
        subject_type: SubjectType::Other,
        subject_id: subject.to_owned(),
        event_type: what.to_owned(),
        actor_type: entry.kind.actor_type(),
        actor_id: Some(actor.to_owned()),
        data,
        run_id: None,
        run_seq: None,
        trace_id: None,
        operator_of: None,
    }
}
