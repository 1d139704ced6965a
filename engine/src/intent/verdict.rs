//! The record of a verdict: a row of the intent log and a ledger entry, for every intent.

use super::router::{IntentContext, IntentRouter};
use super::sighting::Sighting;
use super::stage::Stage;
use crate::access::Permit;
use crate::error::EngineError;
use crate::ledger::audit::{self, Writer};
use chimera_core::error::ErrorBody;
use chimera_core::id;
use chimera_core::intent::Envelope;
use chimera_core::intent::tables::{INTENT_LOG, intent_log};
use chimera_core::json::Digest32;
use chimera_core::record::{Insert, Tx, Unstorable, Value as Cell};
use chimera_core::redact::Redactor;
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

/// What is recorded about an intent, as far as it is known.
pub(super) struct VerdictDraft {
    id: Uuid,
    received_at: Timestamp,
    /// On the steady clock.
    began: Timestamp,
    /// Of the content that is signed; of the bytes, if they are no envelope.
    envelope_digest: Digest32,
    intent_type: Option<String>,
    trace_id: String,
    /// Whom the envelope names as its actor.
    claimed: Option<(String, String)>,
    idempotency_key: Option<String>,
    pub(super) kid: Option<String>,
    pub(super) policy_input: Option<Digest32>,
}

/// How an intent fared.
enum IntentVerdict<'a> {
    Accepted { result: &'a Value, run: Option<Uuid> },
    Rejected { stage: Stage, body: &'a ErrorBody },
}

impl VerdictDraft {
    pub(super) fn begin(router: &IntentRouter, bytes: &[u8], context: IntentContext) -> Self {
        let parts = &router.actions.access().directory().parts;
        let now = parts.clock.now();
        let id = parts.random.row_id(now);
        Self {
            id,
            received_at: now,
            began: parts.clock.steady(),
            envelope_digest: Digest32::of_bytes(bytes),
            intent_type: None,
            trace_id: id::trace_id(context.run_id.unwrap_or(id)),
            claimed: None,
            idempotency_key: None,
            kid: None,
            policy_input: None,
        }
    }

    /// Adds what the envelope says.
    pub(super) fn describe(&mut self, envelope: &Envelope) {
        self.envelope_digest = envelope.digest();
        self.intent_type = Some(envelope.intent_type.clone());
        self.claimed = Some((envelope.user_id.clone(), envelope.tenant.clone()));
        self.idempotency_key = Some(envelope.idempotency_key.clone());
        if let Some(trace_id) = &envelope.trace_id {
            self.trace_id.clone_from(trace_id);
        }
    }

    pub(super) fn trace_id(&self) -> &str {
        &self.trace_id
    }

    /// Adds the record of an accepted intent to the transaction of what it starts.
    pub(super) fn accept(
        &self,
        tx: &mut Tx,
        router: &IntentRouter,
        permit: &Permit,
        (result, run): (&Value, Option<Uuid>),
    ) -> Result<(), EngineError> {
        self.add(tx, router, permit, &IntentVerdict::Accepted { result, run })
    }

    /// Records that an intent is refused.
    pub(super) async fn refuse(
        &self,
        router: &IntentRouter,
        permit: &Permit,
        (stage, body): (Stage, &ErrorBody),
        sighting: &Sighting,
    ) -> Result<(), EngineError> {
        let mut tx = Tx::default();
        self.add(&mut tx, router, permit, &IntentVerdict::Rejected { stage, body })?;
        tx.inserts.extend(sighting.insert()?);
        audit::commit(router.actions.access().records(), tx).await?;
        Ok(())
    }

    fn add(
        &self,
        tx: &mut Tx,
        router: &IntentRouter,
        permit: &Permit,
        verdict: &IntentVerdict<'_>,
    ) -> Result<(), EngineError> {
        tx.inserts.push(self.row(router, permit, verdict)?);
        let parts = &router.actions.access().directory().parts;
        let event_type = match verdict {
            IntentVerdict::Accepted { .. } => "intent.accepted",
            IntentVerdict::Rejected { .. } => "intent.rejected",
        };
        let mut event = permit.event(self.id.to_string(), event_type, self.entry_data(router, permit, verdict));
        if let IntentVerdict::Accepted { run: Some(run), .. } = verdict {
            event = event.of_run(*run);
        }
        let writer = Writer { random: &*parts.random, clock: &*parts.clock };
        writer.event(tx, event)?;
        Ok(())
    }

    fn row(&self, router: &IntentRouter, permit: &Permit, verdict: &IntentVerdict<'_>) -> Result<Insert, Unstorable> {
        let steady = router.actions.access().directory().parts.clock.steady();
        let latency = i32::try_from(steady.millis() - self.began.millis()).unwrap_or(i32::MAX).max(0);
        let (result, body, run) = match verdict {
            IntentVerdict::Accepted { run, .. } => ("accepted", None, *run),
            IntentVerdict::Rejected { body, .. } => ("rejected", Some(*body), None),
        };
        let digest = |digest: Digest32| Cell::Bytes(digest.to_vec());
        Ok(Insert::new(
            &INTENT_LOG,
            vec![
                (intent_log::id, self.id.into()),
                (intent_log::tenant_id, permit.tenant().into()),
                (intent_log::actor, permit.actor().into()),
                (intent_log::intent_type, self.intent_type.as_deref().map(masked).into()),
                (intent_log::result, result.into()),
                (intent_log::trace_id, masked(&self.trace_id).into()),
                (intent_log::error_code, body.map(|body| body.code.clone()).into()),
                (intent_log::policy_id, body.and_then(policy_id).into()),
                (intent_log::envelope_digest, digest(self.envelope_digest)),
                (intent_log::kid, self.kid.clone().into()),
                (intent_log::idempotency_key, self.idempotency_key.as_deref().map(masked).into()),
                (intent_log::run_id, run.into()),
                (intent_log::latency_ms, latency.into()),
                (intent_log::received_at, self.received_at.into()),
                (intent_log::policy_input_digest, self.policy_input.map_or(Cell::Null, digest)),
            ],
        )?)
    }

    fn entry_data(&self, router: &IntentRouter, permit: &Permit, verdict: &IntentVerdict<'_>) -> Value {
        let mut data = json!({
            "type": self.intent_type,
            "envelope_digest": self.envelope_digest,
            "kid": self.kid,
            "idempotency_key": self.idempotency_key,
            "trace_id": self.trace_id,
            "policy_input_digest": self.policy_input,
        });
        match verdict {
            IntentVerdict::Accepted { result, .. } => {
                data["result"] = "accepted".into();
                data["result_digest"] = Digest32::of(result).to_string().into();
            }
            IntentVerdict::Rejected { stage, body } => {
                data["result"] = "rejected".into();
                data["stage"] = json!(stage);
                data["code"] = body.code.as_str().into();
                data["policy_id"] = policy_id(body).into();
            }
        }
        let snapshot = router.actions.access().directory().snapshot();
        if let Some((user, tenant)) = &self.claimed
            && (user != permit.actor() || tenant != snapshot.slug_of(permit.tenant()))
        {
            data["claimed_actor"] = json!({"user_id": user, "tenant": tenant});
        }
        data
    }
}

/// A text of the caller, without what looks like a credential.
pub(super) fn masked(text: &str) -> String {
    Redactor::default().text(text).into_owned()
}

/// The id of the policy that an error names.
fn policy_id(body: &ErrorBody) -> Option<String> {
    body.details.get("policy_id").and_then(Value::as_str).map(str::to_owned)
}
