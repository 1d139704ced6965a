//! The audit writer: changes that can't be recorded, and the alerts they raise.

use chimera_core::ledger::tables::FEED_CURSORS;
use chimera_core::limits::JSON_DEPTH_MAX;
use chimera_core::record::{Insert, Tx};
use chimera_engine::access::local_operator;
use chimera_engine::audit::{EntryFilter, list_entries};
use chimera_engine::ledger::audit::{AuditError, EventRecord, commit};
use chimera_engine::port::Clock as _;
use chimera_testkit::ledger_fixture::{LedgerFixture, decision, event};
use chimera_testkit::memory::MemoryRecords;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};

/// The change: a row that must not exist without its audit entry.
fn act(world: &LedgerFixture) -> Tx {
    let now = world.clock.now();
    let cells = vec![("consumer", "act".into()), ("lane", 1.into()), ("seq", 1.into()), ("updated_at", now.into())];
    Tx { inserts: vec![Insert::new(&FEED_CURSORS, cells).unwrap()], ..Tx::default() }
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[test]
fn a_decision_that_can_not_be_recorded_leaves_the_transaction_as_it_was() {
    let world = LedgerFixture::new(1);
    let mut tx = act(&world);
    let mut unrecordable = decision("acme");
    unrecordable.event.subject_id = "a\0".to_owned();
    assert!(matches!(world.writer().decision(&mut tx, unrecordable), Err(AuditError::Entry(_))));
    let mut unrecordable = decision("acme");
    unrecordable.action_data = Some(json!("\0"));
    assert!(matches!(world.writer().decision(&mut tx, unrecordable), Err(AuditError::Json(_))));
    assert_eq!(tx, act(&world));
}

#[test]
fn a_decision_is_recorded_whatever_words_it_is_given_with() {
    let (world, mut tx) = (LedgerFixture::new(1), Tx::default());
    let mut wordy = decision("acme");
    wordy.event.data = json!({"code": "X", "deep": nested(JSON_DEPTH_MAX + 1), "long": "é\0".repeat(100_000)});
    wordy.rationale = "because\0 ".repeat(100_000);
    wordy.policies = vec!["p\0".repeat(100_000)];
    world.writer().decision(&mut tx, wordy).unwrap();
    let data = &tx.entries[0].entry.data;
    assert_eq!((&data["details"]["code"], data["shortened"]["digest"].is_string()), (&json!("X"), true), "{data}");
    assert!(data["rationale"].as_str().unwrap().starts_with("because\u{fffd} because"));
}

#[tokio::test]
async fn entries_with_a_former_name_of_their_type_are_listed() {
    let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
    for written in ["run.told", "run.signalled", "run.started"] {
        let mut tx = Tx::default();
        world.writer().event(&mut tx, EventRecord { event_type: written.to_owned(), ..event("acme") }).unwrap();
        commit(&store, tx).await.unwrap();
    }
    for asked in ["run.told", "run.signalled"] {
        let filter = EntryFilter { event_type: Some(asked.to_owned()), limit: 10, ..EntryFilter::default() };
        let found = list_entries(&store, &local_operator("acme"), filter).await.unwrap().items;
        let names: Vec<&str> = found.iter().map(|entry| entry.event_type.as_str()).collect();
        assert_eq!(names, ["run.told", "run.signalled"]);
    }
}

/// CONTENT-122
#[test]
fn a_failed_audit_write_is_logged_as_critical_and_a_lost_race_is_not() {
    let critical = CriticalCounter::default();
    tracing::subscriber::with_default(critical.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
            commit(&store, act(&world)).await.unwrap();
            commit(&store, act(&world)).await.unwrap_err();
            assert_eq!(critical.seen(), 0);
            store.refuse_writes();
            commit(&store, act(&world)).await.unwrap_err();
            assert_eq!(critical.seen(), 1);
        });
    });
}

/// Counts log events that are marked as critical.
#[derive(Clone, Default)]
struct CriticalCounter(Arc<Mutex<usize>>);

impl CriticalCounter {
    fn seen(&self) -> usize {
        *self.0.lock().unwrap()
    }
}

impl Visit for &CriticalCounter {
    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "critical" && value {
            *self.0.lock().unwrap() += 1;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl tracing::Subscriber for CriticalCounter {
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
