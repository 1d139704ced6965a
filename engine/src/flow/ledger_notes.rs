//! Turns a run's notes into ledger entries.

use super::engine::EngineState;
use crate::ledger::audit::{AuditError, DecisionRecord, EventRecord, Writer};
use chimera_core::flow::run::{LedgerNote, RunHead};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::Tx;

/// Adds the ledger entries of a turn's notes to its transaction. Moves the data out of the notes. `operator_of` is the
/// tenant of a caller who acts for another one.
pub(super) fn add_entries(
    tx: &mut Tx,
    inner: &EngineState,
    head: &RunHead,
    notes: &mut [LedgerNote],
    operator_of: Option<&str>,
) -> Result<(), AuditError> {
    let writer = Writer { random: &*inner.parts.random, clock: &*inner.parts.clock };
    for note in notes {
        let operator_of = operator_of.filter(|_| note.by.is_some()).map(str::to_owned);
        let event = EventRecord { operator_of, ..event(head, note) };
        match &note.verdict {
            None => writer.event(tx, event)?,
            Some(verdict) => {
                let decision = DecisionRecord {
                    event,
                    source: verdict.source,
                    outcome: verdict.outcome,
                    rationale: verdict.rationale.clone(),
                    agent_id: None,
                    action_type: Some(note.event_type.to_owned()),
                    action_data: None,
                    policies: verdict.policies.clone(),
                    campaign_id: None,
                    task_id: None,
                };
                writer.decision(tx, decision)?
            }
        };
    }
    Ok(())
}

fn event(head: &RunHead, note: &mut LedgerNote) -> EventRecord {
    let subject = match note.step {
        Some(step) => (SubjectType::Task, step),
        None => (SubjectType::Other, head.id),
    };
    EventRecord {
        tenant_id: head.tenant.clone(),
        subject_type: subject.0,
        subject_id: subject.1.to_string(),
        event_type: note.event_type.to_owned(),
        actor_type: note.by.as_ref().map_or(ActorType::System, |by| by.kind),
        actor_id: note.by.as_ref().map(|by| by.id.clone()),
        data: std::mem::take(&mut note.data),
        run_id: Some(head.id),
        run_seq: Some(note.run_seq),
        trace_id: Some(EngineState::trace(head)),
        operator_of: None,
    }
}
