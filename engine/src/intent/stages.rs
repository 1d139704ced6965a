//! The checks before dispatch, one function each.

use super::issuer::{self, IssuerKey};
use super::router::IntentRouter;
use super::sighting::Sighting;
use super::stage::{Stage, Stopped, schema_invalid};
use crate::access::{Permit, missing_scope_error};
use crate::error::EngineError;
use chimera_core::access::scope;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::intent::capability::{CapabilityRefusal, check_capability, scopes_under_roles};
use chimera_core::intent::{Envelope, IntentDefinition};
use chimera_core::json::Digest32;
use chimera_core::ledger::idempotency::{IdempotencyRecord, KeyOwner, KeyedRequest, RecordState};
use chimera_core::ledger::tables::{IDEMPOTENCY_RECORDS, idempotency_records};
use chimera_core::record::{Scope, Select};
use serde_json::{Value, json};
use std::sync::Arc;

/// The policy that keeps an intent within the tenant of its actor.
const TENANT_POLICY: &str = "intent.tenant";

/// An envelope that passed every check before dispatch.
pub(super) struct AuthenticatedEnvelope {
    pub(super) envelope: Envelope,
    /// The caller, with the scopes of the roles that the envelope names.
    pub(super) permit: Permit,
    pub(super) sighting: Sighting,
    /// The record of an earlier use of its key that is over.
    pub(super) expired: Option<IdempotencyRecord>,
}

pub(super) fn read(router: &IntentRouter, bytes: &[u8]) -> Result<Envelope, Stopped> {
    router.reader.read(bytes).map_err(|violations| {
        Stopped::refused(Stage::Shape, schema_invalid("the envelope does not match its schema", "", &violations))
    })
}

/// Refuses an envelope that nobody signed who may, or that is not the caller's.
pub(super) fn check_signature(
    router: &IntentRouter,
    permit: &Permit,
    envelope: &Envelope,
) -> Result<IssuerKey, Stopped> {
    let key = issuer::verify(router, permit, envelope).map_err(|body| Stopped::refused(Stage::Signature, body))?;
    let directory = router.actions.access().directory();
    let snapshot = directory.snapshot();
    let mismatch = if envelope.user_id != permit.actor() {
        Some(("/actor/user_id", "the token belongs to another actor"))
    } else if envelope.tenant != snapshot.slug_of(permit.tenant()) {
        Some(("/actor/tenant", "the caller acts in another tenant"))
    } else {
        None
    };
    match mismatch {
        None => Ok(key),
        Some((pointer, message)) => {
            let body = ErrorBody::new(Code::RbacForbidden, message).with("pointer", pointer);
            Err(Stopped::refused(Stage::Signature, body))
        }
    }
}

pub(super) fn check_age(router: &IntentRouter, envelope: &Envelope, sighting: &Sighting) -> Result<(), Stopped> {
    let now = router.now();
    chimera_core::intent::check_age(envelope, sighting.first_seen().unwrap_or(now), now).map_err(|stale| {
        let body = ErrorBody::new(Code::ExpiredTtl, stale.to_string()).with("reason", stale.reason());
        Stopped::refused(Stage::Age, body)
    })
}

/// The request under the envelope's key, as records compare it.
pub(super) fn keyed_request(permit: &Permit, envelope: &Envelope) -> Result<KeyedRequest, EngineError> {
    let owner = KeyOwner::User { tenant: permit.tenant().to_owned(), user: permit.actor().to_owned() };
    KeyedRequest::new(&owner, &envelope.idempotency_key, &envelope.request())
        .map_err(|error| EngineError::refused(Code::SchemaInvalid, error.to_string()))
}

/// Refuses an envelope whose key the same user used before, with the prior answer. Returns the record of a use that is
/// over.
pub(super) async fn check_idempotency(
    router: &IntentRouter,
    permit: &Permit,
    envelope: &Envelope,
) -> Result<Option<IdempotencyRecord>, Stopped> {
    let request = keyed_request(permit, envelope)?;
    let mut select = Select::from(&IDEMPOTENCY_RECORDS, Scope::System).take(1);
    for (column, value) in [idempotency_records::owner, idempotency_records::key].into_iter().zip(request.row_key()) {
        select = select.with(column, value);
    }
    let row = router.actions.access().records().read(select).await?.rows.into_iter().next();
    let Some(record) = row.map(IdempotencyRecord::from_row).transpose().map_err(EngineError::from)? else {
        return Ok(None);
    };
    if record.expires_at <= router.now() {
        return Ok(Some(record));
    }
    let differs = record.fingerprint != request.fingerprint();
    let message = match differs {
        true => "this idempotency key was already used with a different intent",
        false => "this intent was already accepted",
    };
    let mut body = ErrorBody::new(Code::ConflictIdempotency, message).with("request_differs", differs);
    if let Some(run) = record.resource_id {
        body = body.with("run_id", run);
    }
    if let RecordState::Done { answer } = record.state {
        body = body.with("prior", answer);
    }
    Err(Stopped::refused(Stage::Idempotency, body))
}

/// The definition of the intent, whose arguments fit its schema.
pub(super) fn check_args(router: &IntentRouter, envelope: &Envelope) -> Result<Arc<IntentDefinition>, Stopped> {
    let refused = |body| Stopped::refused(Stage::Arguments, body);
    let catalog = router.catalog();
    let Some(definition) = catalog.get(&envelope.intent_type) else {
        let reason = format!("no intent `{}`; GET /intents/catalog lists them", envelope.intent_type);
        let body = ErrorBody::new(Code::SchemaInvalid, reason.as_str()).with("path", "/intent/type");
        return Err(refused(body.with("reason", reason)));
    };
    definition.schema.check(envelope.args.value()).map_err(|violations| {
        let what = format!("the arguments of {} do not match their schema", definition.name);
        refused(schema_invalid(&what, "/intent/args", &violations))
    })?;
    Ok(Arc::clone(definition))
}

/// The caller with the scopes of the roles that the envelope names.
pub(super) fn under_roles(router: &IntentRouter, permit: &Permit, envelope: &Envelope) -> Permit {
    let Some(named) = &envelope.roles else { return permit.clone() };
    let snapshot = router.actions.access().directory().snapshot();
    let entry = snapshot.registry.configured(permit.actor());
    let scopes = scopes_under_roles(&entry, snapshot.registry.roles(), Some(named));
    let scopes = scope::narrowed(permit.scopes(), &scopes);
    permit.clone().narrowed(&scopes.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Refuses an intent whose capability the caller lacks, or the envelope leaves out.
pub(super) fn check_rights(permit: &Permit, envelope: &Envelope, definition: &IntentDefinition) -> Result<(), Stopped> {
    let required = definition.requires.for_args(envelope.args.value());
    let refused = check_capability(&required, permit.scopes(), envelope.capabilities.as_deref());
    let body = match refused {
        Ok(()) => return Ok(()),
        Err(CapabilityRefusal::NotHeld) => missing_scope_error(&required),
        Err(CapabilityRefusal::NotNamed) => {
            let message = format!("the envelope does not name the capability {required}");
            ErrorBody::new(Code::RbacForbidden, message).with("pointer", "/constraints/capabilities")
        }
    };
    Err(Stopped::refused(Stage::Rights, body.with("capability", required)))
}

/// The digest of what the policy is asked.
pub(super) fn policy_input(
    router: &IntentRouter,
    permit: &Permit,
    envelope: &Envelope,
    definition: &IntentDefinition,
) -> Digest32 {
    let snapshot = router.actions.access().directory().snapshot();
    Digest32::of(&json!({
        "actor": {"id": permit.actor(), "tenant": snapshot.slug_of(permit.tenant()), "scopes": permit.scopes()},
        "intent": {"type": definition.name, "args": **envelope.args.value()},
        "capability": definition.requires.for_args(envelope.args.value()),
    }))
}

/// Refuses an intent that reaches for another tenant. The rules about what it starts are asked when it is dispatched.
pub(super) fn check_policy(envelope: &Envelope) -> Result<(), Stopped> {
    let args = envelope.args.value();
    for pointer in ["/tenant", "/filters/tenant"] {
        let named = args.pointer(pointer).and_then(Value::as_str);
        if named.is_some_and(|tenant| tenant != envelope.tenant) {
            let body = ErrorBody::new(Code::PolicyDenied, "an intent stays within the tenant of its actor")
                .with("policy_id", TENANT_POLICY)
                .with("pointer", format!("/intent/args{pointer}"));
            return Err(Stopped::refused(Stage::Policy, body));
        }
    }
    Ok(())
}
