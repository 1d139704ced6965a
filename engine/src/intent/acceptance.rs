//! What commits with the first durable change of an accepted intent: its idempotency record with the answer, its log
//! row, its ledger entry, and its sighting. So a crash never leaves a used key that names nothing.

use super::router::IntentRouter;
use super::stages::{AuthenticatedEnvelope, keyed_request};
use super::verdict::VerdictDraft;
use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::error::Code;
use chimera_core::intent::Envelope;
use chimera_core::ledger::idempotency::{KeyDecision, decide};
use chimera_core::limits::INTENT_RECORD_SECONDS;
use chimera_core::record::Tx;
use serde_json::{Value, json};
use uuid::Uuid;

/// An intent that passed every check and is being dispatched.
pub(super) struct Acceptance<'a> {
    pub(super) router: &'a IntentRouter,
    pub(super) known: &'a AuthenticatedEnvelope,
    pub(super) draft: &'a VerdictDraft,
}

impl Acceptance<'_> {
    pub(super) const fn permit(&self) -> &Permit {
        &self.known.permit
    }

    pub(super) const fn envelope(&self) -> &Envelope {
        &self.known.envelope
    }

    /// The caller's permit with the record of this verdict: it commits with what the permit is used for. `result` is
    /// the answer, now and for every duplicate; `run` is the run that it is about.
    pub(super) fn permit_with(&self, result: &Value, run: Option<Uuid>) -> Result<Permit, EngineError> {
        let Self { router, known, draft } = self;
        let answer = json!({"status": "accepted", "result": result, "trace_id": draft.trace_id()});
        let mut request = keyed_request(&known.permit, &known.envelope)?;
        request = request.with_answer(answer).with_ttl(INTENT_RECORD_SECONDS);
        if let Some(run) = run {
            request = request.with_resource(run.to_string());
        }
        let mut tx = Tx::default();
        // The record was over when it was read; the clock may have gone back since.
        let now = known.expired.as_ref().map_or(router.now(), |record| router.now().max(record.expires_at));
        match decide(known.expired.clone(), &request, now)? {
            KeyDecision::Fresh(insert, _) => tx.inserts.push(insert),
            KeyDecision::TakeOver(update, _) => tx.updates.push(update),
            KeyDecision::InFlight(_) | KeyDecision::Done(_) | KeyDecision::Mismatch(_) => {
                return Err(EngineError::refused(Code::ConflictIdempotency, "the idempotency key is in use"));
            }
        }
        tx.inserts.extend(known.sighting.insert()?);
        draft.accept(&mut tx, router, &known.permit, (result, run))?;
        Ok(known.permit.with_alongside(tx))
    }
}
