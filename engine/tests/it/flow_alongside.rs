//! Rows and ledger entries of a caller commit with what a request changes, or not at all, and a conflict of theirs is
//! told from one of the change.

use chimera_core::access::Level;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{APPROVAL_REQUESTS, RUN_PATCHES, RUN_SIGNALS, RUNS, WORKFLOW_SHARES, workflow_shares};
use chimera_core::record::{Insert, Tx, Update};
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::{self, Decide, Decision, PatchRequest, PublishEvent, ReplayOptions, StartRun};
use chimera_engine::port::Records;
use chimera_testkit::flow::{EngineFixture, TENANT, chain, stage, workflow};
use serde_json::json;
use uuid::Uuid;

/// A row beside a use case: here, of any table that none of them writes.
fn row(name: &str) -> Insert {
    let cells = vec![
        (workflow_shares::workflow_id, name.into()),
        (workflow_shares::tenant_id, TENANT.into()),
        (workflow_shares::shared_by, "admin".into()),
    ];
    Insert::new(&WORKFLOW_SHARES, cells).unwrap()
}

fn insert(name: &str) -> Tx {
    Tx { inserts: vec![row(name)], ..Tx::default() }
}

/// A change of a row that is not there.
fn stale() -> Tx {
    let set = vec![(workflow_shares::shared_by, "nobody".into())];
    let update = Update::new(&WORKFLOW_SHARES, vec!["missing".into()], Vec::new(), set).unwrap();
    Tx { updates: vec![update], ..Tx::default() }
}

/// Every use case, by a name.
const CASES: [&str; 7] = ["start", "replay", "approve", "reject", "patch", "cancel", "publish"];

async fn perform(stage: &EngineFixture, case: &str, run: Uuid, permit: &Permit) -> Result<(), EngineError> {
    let flow = &stage.flow;
    match case {
        "start" => flow::start(flow, permit, StartRun::of("done", json!({}))).await.map(drop),
        "replay" => {
            let replay = Replay { of: run, mode: ReplayMode::Freeze, from: None };
            flow::replay(flow, permit, replay, ReplayOptions::default()).await.map(drop)
        }
        "approve" | "reject" => {
            let decision = if case == "approve" { Decision::Approve } else { Decision::Reject };
            let decide = Decide { run, decision, approval: None, step: None, digest: None, reason: None };
            flow::decide(flow, permit, decide).await.map(drop)
        }
        "patch" => {
            let node = json!({"id": "more", "type": "function", "fn": "pure", "inputs": {}});
            let edge = json!({"from": "ask", "to": "more"});
            let patch = json!({"patch_version": "0.1", "justification": "x", "add_nodes": [node], "add_edges": [edge]});
            flow::patch(flow, permit, PatchRequest::new(run, patch)).await.map(drop)
        }
        "cancel" => flow::cancel(flow, permit, run, None).await,
        _ => {
            let event = PublishEvent {
                name: "e".to_owned(),
                key: "k".to_owned(),
                payload: json!(1),
                event_id: None,
                ttl_seconds: None,
            };
            flow::publish_event(flow, permit, event).await.map(drop)
        }
    }
}

/// A stage, and a run that the case is about.
async fn prepared(case: &str) -> (EngineFixture, Uuid) {
    let stage = stage(1).open().await;
    stage.apply(&chain("done", &[("a", "pure")])).await;
    let run = if case == "replay" {
        let run = stage.start(StartRun { level: Level::ExecuteSilent, ..StartRun::of("done", json!({})) }).await;
        stage.ended(run).await;
        run
    } else {
        let run = stage.run(&workflow("w").node(json!({"id": "ask", "type": "hitl"})), Level::ExecuteSilent).await;
        stage.asks(run).await;
        run
    };
    (stage, run)
}

#[tokio::test(start_paused = true)]
async fn every_use_case_takes_the_rows_of_its_caller_along() {
    for case in CASES {
        let (stage, run) = prepared(case).await;
        let permit = stage.permit("user_ann").with_alongside(insert("mine"));
        perform(&stage, case, run, &permit).await.unwrap_or_else(|error| panic!("{case}: {error:?}"));
        assert_eq!(stage.rows(&WORKFLOW_SHARES).len(), 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_of_a_row_beside_a_use_case_changes_nothing_and_is_told_apart() {
    for case in CASES {
        for alongside in [insert("taken"), stale()] {
            let (stage, run) = prepared(case).await;
            stage.records.commit(insert("taken")).await.unwrap();
            let tables = [&RUNS, &RUN_SIGNALS, &RUN_PATCHES, &APPROVAL_REQUESTS];
            let before = tables.map(|table| stage.rows(table));
            let permit = stage.permit("user_ann").with_alongside(alongside);
            let Err(EngineError::Commit(error)) = perform(&stage, case, run, &permit).await else {
                panic!("{case}: a conflict")
            };
            assert!(permit.is_alongside_conflict(&error), "{case}: {error:?}");
            assert!(!stage.permit("user_ann").is_alongside_conflict(&error), "{case}: {error:?}");
            assert_eq!(tables.map(|table| stage.rows(table)), before, "{case}");
            // The request itself is as good as before.
            perform(&stage, case, run, &stage.permit("user_ann")).await.unwrap();
        }
    }
}

/// A conflict of the change itself is retried or refused as before, whatever is beside it.
#[tokio::test(start_paused = true)]
async fn a_conflict_of_the_use_case_is_not_taken_for_one_beside_it() {
    let (stage, run) = prepared("approve").await;
    let [first, second] = ["one", "other"].map(|name| stage.permit("user_ann").with_alongside(insert(name)));
    let (one, other) = tokio::join!(perform(&stage, "approve", run, &first), perform(&stage, "reject", run, &second));
    assert_eq!([one.is_ok(), other.is_ok()].into_iter().filter(|ok| *ok).count(), 1, "{:?}", stage.show(run).await);
    assert_eq!(stage.rows(&WORKFLOW_SHARES).len(), 1, "the loser left nothing");
}
