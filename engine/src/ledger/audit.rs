//! The audit writer: adds a decision or event to every audit table that records it.
//!
//! It writes nothing itself: it adds the ledger entry, the `audit_logs` row and its tenant scope to the transaction of
//! the change. So a change without its audit entry can't exist, and if the entry can't be written, the change does not
//! happen. `commit` sends such a transaction and logs a critical error when the store can't write. User-supplied text
//! is bounded, cleaned and masked here, so that no change fails because of its description, and no reason or note that
//! somebody gives brings a credential into the ledger, which can't forget it.

use crate::port::{Clock, CommitError, Random, Receipt, Records};
use chimera_core::ledger::decision::{DecisionSource, Outcome};
use chimera_core::ledger::tables::{AUDIT_LOGS, RECORD_SCOPES, audit_logs, record_scopes};
use chimera_core::ledger::{ActorType, Entry, EntryError, SubjectType};
use chimera_core::record::{Insert, InvalidTx, Json, JsonError, Tx, Value};
use chimera_core::redact::Redactor;
use chimera_core::text;
use serde_json::json;
use uuid::Uuid;

/// Who did what to what: common to decisions and plain events.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRecord {
    pub tenant_id: String,
    pub subject_type: SubjectType,
    pub subject_id: String,
    /// The most specific event type.
    pub event_type: String,
    pub actor_type: ActorType,
    pub actor_id: Option<String>,
    /// Digests, references, ids, error codes.
    pub data: serde_json::Value,
    pub run_id: Option<Uuid>,
    /// Sequence number within the run.
    pub run_seq: Option<i64>,
    pub trace_id: Option<String>,
    /// The tenant of an operator who did it for another tenant. Its ledger gets an entry too.
    pub operator_of: Option<String>,
}

impl EventRecord {
    /// An event that no actor caused.
    #[must_use]
    pub fn by_system(tenant: &str, subject: impl Into<String>, event_type: &str, data: serde_json::Value) -> Self {
        Self {
            tenant_id: tenant.to_owned(),
            subject_type: SubjectType::Other,
            subject_id: subject.into(),
            event_type: event_type.to_owned(),
            actor_type: ActorType::System,
            actor_id: None,
            data,
            run_id: None,
            run_seq: None,
            trace_id: None,
            operator_of: None,
        }
    }

    /// The same event of a run.
    #[must_use]
    pub fn of_run(self, run: Uuid) -> Self {
        Self { run_id: Some(run), trace_id: Some(chimera_core::id::trace_id(run)), ..self }
    }

    /// The entry for the ledger of an operator's own tenant. It is no part of the run: its order is not the run's, and
    /// the run is not one of that tenant.
    fn for_operator(&self, home: &str) -> Self {
        let mut data = self.data.clone();
        data["for_tenant"] = self.tenant_id.as_str().into();
        if let Some(run) = self.run_id {
            data["run_id"] = run.to_string().into();
        }
        let (tenant_id, operator_of) = (home.to_owned(), None);
        Self { tenant_id, data, run_id: None, run_seq: None, operator_of, ..self.clone() }
    }
}

/// A governance decision.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRecord {
    pub event: EventRecord,
    pub source: DecisionSource,
    pub outcome: Outcome,
    pub rationale: String,
    pub agent_id: Option<Uuid>,
    /// The type of the requested action.
    pub action_type: Option<String>,
    /// The parts of the action that explain the decision.
    pub action_data: Option<serde_json::Value>,
    /// The policies that were evaluated.
    pub policies: Vec<String>,
    pub campaign_id: Option<String>,
    pub task_id: Option<String>,
}

/// The audit entry can't be built, so the change must not happen.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Entry(#[from] EntryError),
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error(transparent)]
    Invalid(#[from] InvalidTx),
}

/// Builds audit entries.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    pub random: &'a dyn Random,
    pub clock: &'a dyn Clock,
}

impl Writer<'_> {
    /// Adds an event's ledger entry to `tx`; returns the entry's id. What an operator did for another tenant is also
    /// added to the ledger of the operator's own.
    pub fn event(&self, tx: &mut Tx, mut event: EventRecord) -> Result<String, AuditError> {
        let Some(home) = event.operator_of.take() else { return self.entry(tx, event) };
        let mirrored = event.for_operator(&home);
        event.data["operator_of"] = home.into();
        let id = self.entry(tx, event)?;
        self.entry(tx, mirrored)?;
        Ok(id)
    }

    fn entry(&self, tx: &mut Tx, event: EventRecord) -> Result<String, AuditError> {
        let id = self.random.opaque_id();
        let EventRecord { tenant_id, subject_type, subject_id, event_type, .. } = event;
        let EventRecord { actor_type, actor_id, mut data, run_id, run_seq, trace_id, .. } = event;
        Redactor::default().strings(&mut data);
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

    /// Adds a decision to `tx`: its `audit_logs` row and ledger entry, which reference each other and the trace, and
    /// the row's scope, without which no tenant could see it. Returns the entry's id. On error `tx` is unchanged.
    pub fn decision(&self, tx: &mut Tx, mut decision: DecisionRecord) -> Result<String, AuditError> {
        decision.rationale = clean(decision.rationale);
        decision.policies = decision.policies.into_iter().map(clean).collect();
        decision.action_data.iter_mut().for_each(|data| Redactor::default().strings(data));
        let now = self.clock.now();
        let audit_log_id = self.random.row_id(now);
        let mut draft = Tx::default();
        let id = self.event(&mut draft, decision_event(&decision, audit_log_id))?;
        let scope = scope(&decision, audit_log_id)?;
        let metadata = metadata(&decision, &id);
        let DecisionRecord { source, outcome, rationale, agent_id, action_type, action_data, policies, .. } = decision;
        let policies = if policies.is_empty() { Value::Null } else { policies.into() };
        let row = Insert::new(
            &AUDIT_LOGS,
            vec![
                (audit_logs::audit_log_id, audit_log_id.into()),
                (audit_logs::event_type, source.event_type().into()),
                (audit_logs::agent_id, agent_id.into()),
                (audit_logs::action_type, action_type.into()),
                (audit_logs::action_data, action_data.as_ref().map(Json::encode).transpose()?.into()),
                (audit_logs::policy_references, policies),
                (audit_logs::decision_outcome, outcome.into()),
                (audit_logs::decision_rationale, rationale.into()),
                (audit_logs::event_timestamp, now.into()),
                (audit_logs::metadata, Json::encode(&metadata)?.into()),
            ],
        )?;
        tx.inserts.extend([row, scope]);
        tx.entries.append(&mut draft.entries);
        Ok(id)
    }
}

/// What people and services wrote, without secrets and control characters.
fn clean(words: String) -> String {
    text::sanitize_message(Redactor::default().text(&words).into_owned())
}

/// The tenant of the row: `audit_logs` has no tenant column.
fn scope(decision: &DecisionRecord, audit_log_id: Uuid) -> Result<Insert, InvalidTx> {
    Insert::new(
        &RECORD_SCOPES,
        vec![
            (record_scopes::record_kind, "audit_log".into()),
            (record_scopes::record_id, audit_log_id.into()),
            (record_scopes::tenant_id, decision.event.tenant_id.as_str().into()),
            (record_scopes::campaign_id, decision.campaign_id.clone().into()),
            (record_scopes::task_id, decision.task_id.clone().into()),
            (record_scopes::trace_id, decision.event.trace_id.clone().into()),
        ],
    )
}

/// The data that has no column of its own.
fn metadata(decision: &DecisionRecord, entry_id: &str) -> serde_json::Value {
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

/// The ledger event of a decision: with outcome, rationale and the id of the `audit_logs` row.
fn decision_event(decision: &DecisionRecord, audit_log_id: Uuid) -> EventRecord {
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
    EventRecord { data, ..decision.event.clone() }
}

/// Commits an audited transaction. A store that can't write is logged as a critical error. The caller gets the error,
/// so the change is refused.
pub async fn commit(records: &dyn Records, tx: Tx) -> Result<Receipt, CommitError> {
    let result = records.commit(tx).await;
    match &result {
        Ok(_) | Err(CommitError::Conflict(_) | CommitError::Overloaded) => {}
        Err(error) => tracing::error!(critical = true, %error, "audit entry not written; the change is refused"),
    }
    result
}
