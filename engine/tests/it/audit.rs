//! The audit writer: both records or neither, and no act without them.

use crate::memory::Memory;
use crate::world::{World, event};
use chimera_core::ledger::decision::{Outcome, Source};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, AUDIT_LOGS, FEED_CURSORS};
use chimera_core::record::{Insert, Tx, Value};
use chimera_engine::ledger::audit::{AuditError, Decision, Event, commit};
use chimera_engine::port::{Clock as _, CommitError};
use serde_json::json;
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use uuid::Uuid;

fn decision() -> Decision {
    Decision {
        event: Event { event_type: "intent.denied".into(), ..event("acme") },
        source: Source::Policy,
        outcome: Outcome::Rejected,
        rationale: "the budget is spent".into(),
        agent_id: Some(Uuid::from_u128(5)),
        action_type: Some("publish".into()),
        action_data: Some(json!({"channel": "blog"})),
        policies: vec!["budget/v3".into()],
    }
}

/// The act: some row that must not be there without its audit entry.
fn act(world: &World) -> Tx {
    let now = world.clock.now();
    let cells = vec![("consumer", "act".into()), ("lane", 1.into()), ("seq", 1.into()), ("updated_at", now.into())];
    Tx { inserts: vec![Insert::into(&FEED_CURSORS, cells).unwrap()], ..Tx::default() }
}

/// CONTENT-118, CONTENT-121
#[tokio::test]
async fn a_decision_leaves_a_row_and_an_entry_that_tell_how_it_was_made() {
    let (world, store) = (World::new(), Memory::new());
    let mut tx = act(&world);
    let id = world.writer().decision(&mut tx, decision()).unwrap();
    commit(&store, tx).await.unwrap();
    let row = store.rows(&AUDIT_LOGS).pop().unwrap();
    assert_eq!(row.text("event_type"), "policy_evaluation");
    assert_eq!(row.text("decision_outcome"), "rejected");
    assert_eq!(row.text("decision_rationale"), "the budget is spent");
    assert_eq!(row.text("action_type"), "publish");
    assert_eq!(row.uuid("agent_id"), Uuid::from_u128(5));
    assert_eq!(row.get("policy_references"), &Value::Texts(vec!["budget/v3".into()]));
    assert_eq!(row.get("action_data").as_json().unwrap().to_value(), json!({"channel": "blog"}));
    assert_eq!(row.get("event_timestamp").as_time(), Some(world.clock.now()));
    let metadata = row.get("metadata").as_json().unwrap().to_value();
    let entry = store.rows(&AUDIT_LOG_ENTRIES).pop().unwrap();
    assert_eq!(metadata["entry_id"], json!(id));
    assert_eq!(metadata["trace_id"], json!(entry.text("trace_id")));
    assert_eq!((entry.text("id"), entry.text("event_type")), (id.as_str(), "intent.denied"));
    let data = entry.get("data_json").as_json().unwrap().to_value();
    assert_eq!(data["audit_log_id"], json!(row.uuid("audit_log_id")));
    assert_eq!((&data["outcome"], &data["policies"]), (&json!("rejected"), &json!(["budget/v3"])));
}

/// SWARM-119
#[tokio::test]
async fn a_persons_action_leaves_an_entry_that_names_the_person_and_the_subject() {
    let (world, store) = (World::new(), Memory::new());
    let mut tx = act(&world);
    world.writer().event(&mut tx, event("acme")).unwrap();
    commit(&store, tx).await.unwrap();
    let entry = store.rows(&AUDIT_LOG_ENTRIES).pop().unwrap();
    assert_eq!((entry.text("actor_type"), entry.text("actor_id")), ("human", "ann"));
    assert_eq!((entry.text("subject_type"), entry.text("subject_id")), ("task", "task-1"));
}

/// CONTENT-123, CONTENT-124
#[tokio::test]
async fn when_the_audit_entry_can_not_be_written_the_act_does_not_happen() {
    let (world, store) = (World::new(), Memory::new());
    store.set_broken(true);
    let mut tx = act(&world);
    world.writer().decision(&mut tx, decision()).unwrap();
    assert!(matches!(commit(&store, tx.clone()).await, Err(CommitError::Unavailable(_))));
    assert!(store.rows(&FEED_CURSORS).is_empty() && store.rows(&AUDIT_LOGS).is_empty());
    store.set_broken(false);
    commit(&store, tx.clone()).await.unwrap();
    assert!(matches!(commit(&store, tx).await, Err(CommitError::Conflict(_))), "an act that loses");
    assert_eq!(store.rows(&AUDIT_LOGS).len(), 1, "leaves no half entry");
    assert_eq!(store.rows(&AUDIT_LOG_ENTRIES).len(), 1);
}

#[test]
fn a_decision_that_can_not_be_recorded_leaves_the_transaction_as_it_was() {
    let world = World::new();
    let mut tx = act(&world);
    let mut unrecordable = decision();
    unrecordable.event.data = json!({"count": u64::MAX});
    assert!(matches!(world.writer().decision(&mut tx, unrecordable), Err(AuditError::Entry(_))));
    let mut unrecordable = decision();
    unrecordable.action_data = Some(json!("\0"));
    assert!(matches!(world.writer().decision(&mut tx, unrecordable), Err(AuditError::Json(_))));
    assert_eq!(tx, act(&world));
}

/// CONTENT-122
#[test]
fn a_failed_audit_write_is_logged_as_critical_and_a_lost_race_is_not() {
    let critical = Critical::default();
    tracing::subscriber::with_default(critical.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (world, store) = (World::new(), Memory::new());
            commit(&store, act(&world)).await.unwrap();
            commit(&store, act(&world)).await.unwrap_err();
            assert_eq!(critical.seen(), 0);
            store.set_broken(true);
            commit(&store, act(&world)).await.unwrap_err();
            assert_eq!(critical.seen(), 1);
        });
    });
}

/// Counts log events that are marked as critical.
#[derive(Clone, Default)]
struct Critical(Arc<Mutex<usize>>);

impl Critical {
    fn seen(&self) -> usize {
        *self.0.lock().unwrap()
    }
}

impl Visit for &Critical {
    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "critical" && value {
            *self.0.lock().unwrap() += 1;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl tracing::Subscriber for Critical {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut &*self);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
