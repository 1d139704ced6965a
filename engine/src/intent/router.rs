//! The Router: from the bytes of an envelope to a verdict.
//!
//! | stage | refused with |
//! |---|---|
//! | shape | `SCHEMA_INVALID` |
//! | signature | `SIGNATURE_INVALID`; `RBAC_FORBIDDEN` if the envelope is not the caller's |
//! | age | `EXPIRED_TTL` |
//! | idempotency | `CONFLICT_IDEMPOTENCY`, with the prior answer |
//! | arguments | `SCHEMA_INVALID` |
//! | rights | `RBAC_FORBIDDEN` |
//! | policy | `POLICY_DENIED` |
//! | dispatch | `MALFORMED_ARGS`, or what the use case says |
//!
//! An accepted intent's idempotency record, log row and ledger entry commit with the first durable change of what it
//! starts. A refused one leaves its log row, its entry and its sighting.

use super::acceptance::Acceptance;
use super::dispatch::{self, DispatchRequest};
use super::sighting::Sighting;
use super::stage::{Stage, Stopped};
use super::stages::{self, AuthenticatedEnvelope};
use super::verdict::VerdictDraft;
use crate::access::Permit;
use crate::act::Actions;
use crate::error::EngineError;
use crate::port::CommitError;
use chimera_core::flow::trace::SpanId;
use chimera_core::intent::tables::INTENT_SIGHTINGS;
use chimera_core::intent::{EnvelopeReader, IntentCatalog};
use chimera_core::json::schema::InvalidSchema;
use chimera_core::ledger::tables::IDEMPOTENCY_RECORDS;
use chimera_core::limits::IDEMPOTENCY_TRIES_MAX;
use chimera_core::record::Conflict;
use chimera_core::time::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use uuid::Uuid;

/// Checks and dispatches intents.
pub struct IntentRouter {
    pub(super) actions: Arc<Actions>,
    pub(super) reader: EnvelopeReader,
    /// Services whose keys may sign for whoever sends the envelope.
    pub(super) issuers: BTreeSet<String>,
    catalog: RwLock<Arc<IntentCatalog>>,
}

/// The request that an intent came with.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntentContext {
    /// The id of the run that it starts, if it starts one. Also the trace id.
    pub run_id: Option<Uuid>,
    pub parent_span: Option<SpanId>,
}

/// The answer to an accepted intent.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedIntent {
    pub result: Value,
    pub trace_id: String,
}

impl IntentRouter {
    /// A router for the built-in intents.
    pub fn new(actions: Arc<Actions>) -> Result<Self, InvalidSchema> {
        let catalog = RwLock::new(Arc::new(IntentCatalog::built_in()?));
        Ok(Self { actions, reader: EnvelopeReader::new()?, issuers: BTreeSet::new(), catalog })
    }

    /// The same with services whose keys may sign for whoever sends the envelope.
    #[must_use]
    pub fn with_issuers(self, issuers: BTreeSet<String>) -> Self {
        Self { issuers, ..self }
    }

    /// The schema of envelopes.
    #[must_use]
    pub const fn envelope_schema(&self) -> &Value {
        self.reader.schema()
    }

    /// The intents that it accepts now.
    #[must_use]
    pub fn catalog(&self) -> Arc<IntentCatalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the intents that it accepts.
    pub fn set_catalog(&self, catalog: IntentCatalog) {
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.actions.access().directory().parts.clock.now()
    }
}

/// Checks an envelope and does what it asks for.
pub async fn submit(
    router: &IntentRouter,
    permit: &Permit,
    bytes: &[u8],
    context: IntentContext,
) -> Result<AcceptedIntent, EngineError> {
    let clock = &router.actions.access().directory().parts.clock;
    let began = clock.steady();
    let settled = submit_once_settled(router, permit, bytes, context).await;
    observe(&settled, clock.steady().micros() - began.micros());
    settled
}

/// Counts a verdict, and how long it took.
fn observe(settled: &Result<AcceptedIntent, EngineError>, micros: i64) {
    let result = if settled.is_ok() { "accepted" } else { "rejected" };
    metrics::counter!("chimera_intents_total", "result" => result).increment(1);
    if let Err(error) = settled {
        metrics::counter!("chimera_intents_rejected_total", "code" => error.body().code).increment(1);
    }
    let seconds = Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64();
    metrics::histogram!("chimera_intent_duration_seconds").record(seconds);
}

async fn submit_once_settled(
    router: &IntentRouter,
    permit: &Permit,
    bytes: &[u8],
    context: IntentContext,
) -> Result<AcceptedIntent, EngineError> {
    let mut draft = VerdictDraft::begin(router, bytes, context);
    for _ in 1..IDEMPOTENCY_TRIES_MAX {
        match attempt(router, permit, bytes, &mut draft, context).await {
            // A request with the same key or envelope was faster: the next attempt finds what it left.
            Err(EngineError::Commit(CommitError::Conflict(conflict))) if is_race(&conflict) => {}
            settled => return settled,
        }
    }
    attempt(router, permit, bytes, &mut draft, context).await
}

/// Whether a row that every intent writes was written by another one.
fn is_race(conflict: &Conflict) -> bool {
    match conflict {
        Conflict::Exists(key) | Conflict::Stale(key) | Conflict::Missing(key) => {
            [IDEMPOTENCY_RECORDS.name, INTENT_SIGHTINGS.name].contains(&key.table)
        }
        Conflict::Rows { .. } => false,
    }
}

async fn attempt(
    router: &IntentRouter,
    permit: &Permit,
    bytes: &[u8],
    draft: &mut VerdictDraft,
    context: IntentContext,
) -> Result<AcceptedIntent, EngineError> {
    let mut sighting = Sighting::default();
    match Box::pin(route(router, permit, bytes, (draft, &mut sighting), context)).await {
        Ok(accepted) => Ok(accepted),
        Err(Stopped::Failed(EngineError::Refused(body))) => {
            draft.refuse(router, permit, (Stage::Idempotency, &body), &sighting).await?;
            Err(EngineError::Refused(body))
        }
        Err(Stopped::Failed(error)) => Err(error),
        Err(Stopped::Refused(stage, body)) => {
            draft.refuse(router, permit, (stage, &body), &sighting).await?;
            Err(EngineError::Refused(body))
        }
    }
}

async fn route(
    router: &IntentRouter,
    permit: &Permit,
    bytes: &[u8],
    (draft, sighting): (&mut VerdictDraft, &mut Sighting),
    context: IntentContext,
) -> Result<AcceptedIntent, Stopped> {
    let envelope = stages::read(router, bytes)?;
    draft.describe(&envelope);
    let key = stages::check_signature(router, permit, &envelope)?;
    draft.kid = Some(key.kid);
    *sighting = Sighting::look(router, &envelope, key.expires_at).await?;
    stages::check_age(router, &envelope, sighting)?;
    let expired = stages::check_idempotency(router, permit, &envelope).await?;
    let definition = stages::check_args(router, &envelope)?;
    let permit = stages::under_roles(router, permit, &envelope);
    stages::check_rights(&permit, &envelope, &definition)?;
    draft.policy_input = Some(stages::policy_input(router, &permit, &envelope, &definition));
    stages::check_policy(&envelope)?;
    let known = AuthenticatedEnvelope { envelope, permit, sighting: sighting.clone(), expired };
    let acceptance = Acceptance { router, known: &known, draft };
    let request = DispatchRequest { router, acceptance: &acceptance, context };
    let result = dispatch::dispatch(&request, &definition).await.map_err(Stopped::of_dispatch)?;
    Ok(AcceptedIntent { result, trace_id: draft.trace_id().to_owned() })
}
