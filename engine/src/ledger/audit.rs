//! The audit writer: one call puts a decision into every audit table that asks for it.
//!
//! It writes nothing itself: it adds the ledger entry, the `audit_logs` row and the scope that says
//! whose row that is to the transaction of the act. So an act without its audit entry can't exist,
//! and when the entry can't be written, the act does not happen. `commit` sends such a transaction
//! and raises a critical alarm when the store refuses to write. Words of others are bounded and cleaned
//! here, so that no act is lost because of how it was described.

use crate::port::{Clock, CommitError, Random, Receipt, Records};
use chimera_core::ledger::decision::{Outcome, Source};
use chimera_core::ledger::tables::{AUDIT_LOGS, RECORD_SCOPES};
use chimera_core::ledger::{ActorType, Entry, EntryError, SubjectType};
use chimera_core::record::{Insert, InvalidTx, Json, JsonError, Tx, Value};
use chimera_core::text;
use serde_json::json;
use uuid::Uuid;

/// Who did what to what, the part that decisions and plain events share.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whose entry it is.
    pub tenant_id: String,
    /// What it is about.
    pub subject_type: SubjectType,
    /// Which one.
    pub subject_id: String,
    /// What happened, in the finest word there is.
    pub event_type: String,
    /// Who caused it.
    pub actor_type: ActorType,
    /// Which one.
    pub actor_id: Option<String>,
    /// Details: digests, references, ids, error codes.
    pub data: serde_json::Value,
    /// The run it belongs to.
    pub run_id: Option<Uuid>,
    /// Its number within the run.
    pub run_seq: Option<i64>,
    /// The trace it belongs to.
    pub trace_id: Option<String>,
}

/// A governance decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What happened.
    pub event: Event,
    /// Where it was decided.
    pub source: Source,
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub rationale: String,
    /// The agent it is about.
    pub agent_id: Option<Uuid>,
    /// The kind of action that asked for it.
    pub action_type: Option<String>,
    /// The action, as far as it is needed to understand the decision.
    pub action_data: Option<serde_json::Value>,
    /// The policies that were looked at.
    pub policies: Vec<String>,
    /// The campaign it belongs to.
    pub campaign_id: Option<String>,
    /// The swarm's task it belongs to.
    pub task_id: Option<String>,
}

/// Why an audit entry can't be made; then the act must not happen.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The entry can't be sealed.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// A document can't be stored.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The row can't be stored.
    #[error(transparent)]
    Invalid(#[from] InvalidTx),
}

/// Makes audit entries.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// Where ids and salts come from.
    pub random: &'a dyn Random,
    /// What time it is.
    pub clock: &'a dyn Clock,
}

impl Writer<'_> {
    /// Adds the ledger entry of an event to `tx`; gives the entry's id.
    pub fn event(&self, tx: &mut Tx, event: Event) -> Result<String, AuditError> {
        let id = self.random.opaque_id();
        let Event { tenant_id, subject_type, subject_id, event_type, .. } = event;
        let Event { actor_type, actor_id, data, run_id, run_seq, trace_id, .. } = event;
        let timestamp = self.clock.now();
        let entry = Entry {
            id: id.clone(),
            tenant_id,
            subject_type,
            subject_id,
            event_type,
            actor_type,
            actor_id,
            timestamp,
            data,
            run_id,
            run_seq,
            trace_id,
        };
        tx.entries.push(self.random.seal(entry)?);
        Ok(id)
    }

    /// Adds a decision to `tx`: its `audit_logs` row and its ledger entry, which name each other
    /// and the trace, and the row's scope, without which no tenant could see it; gives the entry's
    /// id. On an error `tx` is as it was.
    pub fn decision(&self, tx: &mut Tx, mut decision: Decision) -> Result<String, AuditError> {
        decision.rationale = text::storable(decision.rationale);
        decision.policies = decision.policies.into_iter().map(text::storable).collect();
        let now = self.clock.now();
        let audit_log_id = self.random.row_id(now);
        let mut draft = Tx::default();
        let id = self.event(&mut draft, decided(&decision, audit_log_id))?;
        let scope = scope(&decision, audit_log_id)?;
        let metadata = metadata(&decision, &id);
        let Decision { source, outcome, rationale, agent_id, action_type, action_data, policies, .. } = decision;
        let policies = if policies.is_empty() { Value::Null } else { policies.into() };
        let row = Insert::into(
            &AUDIT_LOGS,
            vec![
                ("audit_log_id", audit_log_id.into()),
                ("event_type", source.event_type().as_str().into()),
                ("agent_id", agent_id.into()),
                ("action_type", action_type.into()),
                ("action_data", action_data.as_ref().map(Json::of).transpose()?.into()),
                ("policy_references", policies),
                ("decision_outcome", outcome.as_str().into()),
                ("decision_rationale", rationale.into()),
                ("event_timestamp", now.into()),
                ("metadata", Json::of(&metadata)?.into()),
            ],
        )?;
        tx.inserts.extend([row, scope]);
        tx.entries.append(&mut draft.entries);
        Ok(id)
    }
}

/// Whose the row is: its table has no tenant of its own.
fn scope(decision: &Decision, audit_log_id: Uuid) -> Result<Insert, InvalidTx> {
    Insert::into(
        &RECORD_SCOPES,
        vec![
            ("record_kind", "audit_log".into()),
            ("record_id", audit_log_id.into()),
            ("tenant_id", decision.event.tenant_id.as_str().into()),
            ("campaign_id", decision.campaign_id.clone().into()),
            ("task_id", decision.task_id.clone().into()),
            ("trace_id", decision.event.trace_id.clone().into()),
        ],
    )
}

/// What the row's own columns have no place for.
fn metadata(decision: &Decision, entry_id: &str) -> serde_json::Value {
    let event = &decision.event;
    json!({
        "trace_id": event.trace_id,
        "tenant_id": event.tenant_id,
        "campaign_id": decision.campaign_id,
        "task_id": decision.task_id,
        "entry_id": entry_id,
        "event_type": event.event_type,
        "source": decision.source.as_str(),
        "subject_type": event.subject_type.as_str(),
        "subject_id": event.subject_id,
        "actor_type": event.actor_type.as_str(),
        "actor_id": event.actor_id,
        "run_id": event.run_id,
    })
}

/// The ledger's view of a decision: the event with verdict, reason and the row beside it.
fn decided(decision: &Decision, audit_log_id: Uuid) -> Event {
    let data = json!({
        "audit_log_id": audit_log_id,
        "outcome": decision.outcome.as_str(),
        "rationale": decision.rationale,
        "source": decision.source.as_str(),
        "policies": decision.policies,
        "action_type": decision.action_type,
        "agent_id": decision.agent_id,
        "campaign_id": decision.campaign_id,
        "task_id": decision.task_id,
        "details": decision.event.data,
    });
    Event { data, ..decision.event.clone() }
}

/// Commits an audited transaction. A store that can't write is a critical fault of the system:
/// it is logged as one, and the caller gets the error, so the act is refused.
pub async fn commit(records: &dyn Records, tx: Tx) -> Result<Receipt, CommitError> {
    let result = records.commit(tx).await;
    match &result {
        Ok(_) | Err(CommitError::Conflict(_) | CommitError::Overloaded) => {}
        Err(error) => tracing::error!(critical = true, %error, "audit entry not written, the act is refused"),
    }
    result
}
