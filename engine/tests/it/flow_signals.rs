//! A signal that can't be decoded is handled and reported: it neither disappears nor comes back.

use chimera_core::access::Level;
use chimera_core::flow::tables::RUN_SIGNALS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::{Insert, Json, Tx};
use chimera_engine::flow;
use chimera_engine::port::Records;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, stage, workflow};
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

#[tokio::test(start_paused = true)]
async fn a_signal_that_can_not_be_read_stands_among_the_events_of_its_run() {
    let stage = stage(1).open().await;
    let air = workflow("w").node(json!({"id": "ask", "type": "hitl", "prompt": "Go on?"}));
    let run = stage.run(&air, Level::ExecuteSilent).await;
    stage.step(run, "ask", "awaiting_approval").await;
    for (at, payload) in [json!({"kind": "from_the_future", "by": 7}), json!(null)].into_iter().enumerate() {
        let signal = vec![
            ("run_id", run.into()),
            ("id", Uuid::from_u64_pair(7, at as u64).into()),
            ("tenant_id", TENANT.into()),
            ("kind", "from_the_future".into()),
            ("payload", Json::encode(&payload).expect("a payload").into()),
        ];
        let insert = Insert::new(&RUN_SIGNALS, signal).expect("a signal");
        stage.records.commit(Tx { inserts: vec![insert], ..Tx::default() }).await.expect("a commit");
    }
    stage.pass(Duration::from_secs(5)).await;
    assert!(stage.rows(&RUN_SIGNALS).is_empty(), "they were taken in");
    let entries = stage.rows(&AUDIT_LOG_ENTRIES);
    let unreadable = entries.iter().filter(|entry| entry.text("event_type") == "run.signal_discarded");
    assert_eq!(unreadable.count(), 2);
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.expect("a cancellation");
    assert_eq!(stage.ended(run).await["status"], "cancelled", "what can be read still counts");
}
