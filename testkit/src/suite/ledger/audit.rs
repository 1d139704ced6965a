//! The audit writer: a decision's records commit together, and no action commits without them.

use super::{LedgerNodes, all_rows, entries, list};
use crate::build::run;
use crate::ledger_fixture::{LedgerFixture, decision, event};
use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::decision::{EventType, Outcome};
use chimera_core::ledger::tables::{RECORD_SCOPES, SCOPED_AUDIT_LOGS, ScopedDecisionRow};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::{Row, Scope, Select, StoredRow, Table, Tx};
use chimera_engine::ledger::audit::{DecisionRecord, commit};
use chimera_engine::port::{Clock as _, CommitError, Records};
use serde_json::json;
use uuid::Uuid;

async fn system(records: &dyn Records, table: &'static Table) -> Vec<Row> {
    all_rows(records, Select::from(table, Scope::System)).await
}

/// An action (a row that must not exist without its audit entry) with the decision that allowed it.
fn decided_tx(world: &LedgerFixture, decision: DecisionRecord) -> (Tx, String) {
    let mut tx = run(&world.random).tx().unwrap();
    let id = world.writer().decision(&mut tx, decision).unwrap();
    (tx, id)
}

/// Row counts of everything that an audited action writes.
async fn count_rows(records: &dyn Records) -> [usize; 4] {
    let rows = [&RUNS, &SCOPED_AUDIT_LOGS, &RECORD_SCOPES].map(|table| system(records, table));
    let [runs, logs, scopes] = rows;
    [runs.await.len(), logs.await.len(), scopes.await.len(), entries(records).await.len()]
}

pub(super) async fn a_decision_leaves_a_row_an_entry_and_a_scope(stage: &LedgerNodes) {
    let (tx, id) = decided_tx(&stage.world, decision("acme"));
    commit(&*stage.one, tx).await.unwrap();
    let select = ScopedDecisionRow::select(Scope::System);
    let row: ScopedDecisionRow = list(&*stage.two, select).await.pop().unwrap();
    assert_eq!((row.event_type, row.decision_outcome), (EventType::PolicyEvaluation, Outcome::Rejected));
    assert_eq!(row.decision_rationale, "the budget is spent");
    assert_eq!(row.action_type.as_deref(), Some("publish"));
    assert_eq!(row.agent_id, Some(Uuid::from_u128(5)));
    assert_eq!(row.policy_references, Some(vec!["budget/v3".to_owned()]));
    assert_eq!(row.action_data.unwrap().value().unwrap(), json!({"channel": "blog"}));
    assert_eq!(row.event_timestamp, stage.world.clock.now());
    assert_eq!((row.tenant_id.as_str(), row.campaign_id.as_deref()), ("acme", Some("campaign-1")));
    assert_eq!(row.swarm_task_id.as_deref(), Some("task-1"));
    let entry = entries(&*stage.two).await.pop().unwrap();
    let metadata = row.metadata.unwrap().value().unwrap();
    assert_eq!((&metadata["entry_id"], &metadata["trace_id"]), (&json!(id), &json!(entry.trace_id)));
    assert_eq!((entry.id, entry.event_type.as_str()), (id, "intent.denied"));
    assert_eq!(row.trace_id, entry.trace_id);
    let data = entry.data_json.value().unwrap();
    assert_eq!(data["audit_log_id"], json!(row.audit_log_id));
    assert_eq!((&data["outcome"], &data["policies"]), (&json!("rejected"), &json!(["budget/v3"])));
}

pub(super) async fn a_decision_is_seen_by_its_tenant_only(stage: &LedgerNodes) {
    for tenant in ["globex", "globex", "initech"] {
        commit(&*stage.one, decided_tx(&stage.world, decision(tenant)).0).await.unwrap();
    }
    for (tenant, count) in [("globex", 2), ("initech", 1), ("nobody", 0)] {
        let select = ScopedDecisionRow::select(Scope::Tenant(tenant.to_owned()));
        let rows: Vec<ScopedDecisionRow> = list(&*stage.two, select).await;
        assert_eq!(rows.len(), count, "{tenant}");
        assert!(rows.iter().all(|row| row.tenant_id == tenant));
    }
}

pub(super) async fn a_persons_action_names_the_person_and_the_subject(stage: &LedgerNodes) {
    let mut tx = Tx::default();
    let id = stage.world.writer().event(&mut tx, event("acme")).unwrap();
    commit(&*stage.one, tx).await.unwrap();
    let rows = entries(&*stage.two).await;
    let entry = rows.iter().find(|row| row.id == id).unwrap();
    assert_eq!((entry.actor_type, entry.actor_id.as_deref()), (ActorType::Human, Some("ann")));
    assert_eq!((entry.subject_type, entry.subject_id.as_str()), (SubjectType::Task, "task-1"));
}

pub(super) async fn an_act_that_loses_leaves_no_half_entry(stage: &LedgerNodes) {
    let (tx, _) = decided_tx(&stage.world, decision("acme"));
    commit(&*stage.one, tx.clone()).await.unwrap();
    let (before, mut late) = (count_rows(&*stage.two).await, decided_tx(&stage.world, decision("acme")).0);
    // The decision is new, but the action is a duplicate.
    late.inserts[0] = tx.inserts[0].clone();
    assert!(matches!(commit(&*stage.two, late).await, Err(CommitError::Conflict(_))));
    assert!(matches!(commit(&*stage.two, tx).await, Err(CommitError::Conflict(_))), "the very same decision");
    assert_eq!(count_rows(&*stage.one).await, before);
}

/// While `audit_logs` cannot be written, nothing of the action commits; afterwards all of it does. `hurt` makes the
/// table refuse rows, `mend` lets it accept them again.
pub async fn without_its_audit_row_an_act_does_not_happen(
    records: &dyn Records,
    hurt: impl AsyncFn(),
    mend: impl AsyncFn(),
) {
    let world = LedgerFixture::new(3);
    commit(records, decided_tx(&world, decision("acme")).0).await.unwrap();
    let [runs, logs, scopes, written] = count_rows(records).await;
    let (tx, _) = decided_tx(&world, decision("acme"));
    hurt().await;
    let refused = commit(records, tx.clone()).await;
    let is_refusal = matches!(refused, Err(CommitError::Rejected { .. } | CommitError::Unavailable(_)));
    assert!(is_refusal, "{refused:?}");
    assert_eq!(count_rows(records).await, [runs, logs, scopes, written]);
    mend().await;
    commit(records, tx).await.unwrap();
    assert_eq!(count_rows(records).await, [runs + 1, logs + 1, scopes + 1, written + 1]);
}
