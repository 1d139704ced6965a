//! Late reports of workers: against a person who resolves the same call, and after the run has given up on it.

use crate::work::{LEASE, SILENT, by_workers, claim, complete, fail, failure, items, lease, start, worker};
use chimera_core::access::{ActorEntry, Kind};
use chimera_core::flow::call::Sent;
use chimera_core::flow::tables::{RUN_SIGNALS, WORK_ITEMS, work_items};
use chimera_core::flow::work::WorkState;
use chimera_core::job::tables::AgentExecutionRow;
use chimera_core::limits;
use chimera_core::record::{Tx, Update};
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::work::{self, ClaimedCall};
use chimera_engine::flow::{self, OutcomeReport};
use chimera_engine::port::Records;
use chimera_testkit::flow::{EngineFixture, TENANT, chain, code_of, id_of};
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(LEASE as u64 + 5);

/// A call in doubt that a worker has, and whose run applies no signals until it is started again.
async fn held_in_doubt(stage: &EngineFixture) -> (Uuid, Uuid, ClaimedCall) {
    let run = start(stage, "pay").await;
    let claimed = claim(stage).await;
    stage.pass(LONG).await;
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    stage.flow.stop();
    (run, step, claimed)
}

async fn never(stage: &EngineFixture, run: Uuid, step: Uuid) -> Result<(), EngineError> {
    flow::report_outcome(&stage.flow, &stage.permit("user_ann"), run, OutcomeReport::did_not_happen(step)).await
}

#[tokio::test(start_paused = true)]
async fn a_person_cannot_resolve_a_call_whose_worker_has_just_reported_it() {
    let stage = by_workers().open().await;
    let (run, step, claimed) = held_in_doubt(&stage).await;
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    assert_eq!(stage.rows(&RUN_SIGNALS).len(), 1, "the run has not heard of it");
    assert_eq!(code_of(never(&stage, run, step).await), "OCC_CONFLICT");
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    let next = stage.restart(by_workers()).await;
    assert_eq!(next.ended(run).await["status"], "completed");
    assert_eq!(next.steps(run).await[0]["outputs"]["n"], 7);
    assert_eq!(items(&next).len(), 1, "the call is handed out once");
}

#[tokio::test(start_paused = true)]
async fn a_worker_cannot_report_a_call_that_a_person_has_just_resolved() {
    let stage = by_workers().open().await;
    let (run, step, claimed) = held_in_doubt(&stage).await;
    never(&stage, run, step).await.unwrap();
    assert_eq!(stage.rows(&RUN_SIGNALS).len(), 1, "the run has not heard of it");
    assert_eq!(code_of(complete(&stage, &claimed, json!({"n": 7})).await), "LEASE_LOST");
    assert_eq!(code_of(fail(&stage, &claimed, Sent::No).await), "LEASE_LOST");
    assert_eq!(code_of(never(&stage, run, step).await), "OCC_CONFLICT", "it is resolved once");
    let next = stage.restart(by_workers()).await;
    complete(&next, &claim(&next).await, json!({"n": 8})).await.unwrap();
    assert_eq!(next.ended(run).await["status"], "completed");
    assert_eq!(next.steps(run).await[0]["outputs"]["n"], 8);
}

#[tokio::test(start_paused = true)]
async fn a_person_resolves_a_call_whose_worker_does_not_know_the_outcome() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    fail(&stage, &claim(&stage).await, Sent::Maybe).await.unwrap();
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    assert_eq!(items(&stage)[0].state, WorkState::Failed);
    never(&stage, run, step).await.unwrap();
    complete(&stage, &claim(&stage).await, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_report_after_its_step_has_failed_at_the_deadline_is_refused() {
    let stage = by_workers().open().await;
    let run = start(&stage, "look").await;
    let claimed = claim(&stage).await;
    for _ in 0..90 {
        stage.pass(Duration::from_secs(40)).await;
        let _ = work::renew(&stage.flow, &worker(&stage), &lease(&claimed)).await;
    }
    assert_eq!(stage.ended(run).await["error"]["code"], "REQUEST_TIMEOUT");
    refuses_late_report(&stage, run, &claimed).await;
}

#[tokio::test(start_paused = true)]
async fn a_report_after_its_step_has_failed_with_lost_leases_is_refused() {
    let stage = by_workers().open().await;
    let run = start(&stage, "look").await;
    let mut last = None;
    for _ in 0..limits::WORK_CLAIMS_MAX {
        last = Some(claim(&stage).await);
        stage.pass(LONG).await;
    }
    assert_eq!(stage.ended(run).await["status"], "failed");
    refuses_late_report(&stage, run, &last.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_report_after_its_run_was_cancelled_is_refused() {
    let stage = by_workers().open().await;
    let run = stage.run(&chain("w", &[("a", "look")]), SILENT).await;
    let claimed = claim(&stage).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.pass(LONG).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    refuses_late_report(&stage, run, &claimed).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_became_a_person_cannot_report_what_it_claimed() {
    let stage = by_workers().open().await;
    start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    let scopes = vec!["work.claim.*".to_owned()];
    let entry = ActorEntry { kind: Kind::Human, scopes, ..ActorEntry::default_for("worker_1", TENANT) };
    let (person, held) = (Permit::for_entry(entry), lease(&claimed));
    assert_eq!(code_of(work::renew(&stage.flow, &person, &held).await), "RBAC_FORBIDDEN");
    assert_eq!(code_of(work::complete(&stage.flow, &person, &held, json!({})).await), "RBAC_FORBIDDEN");
    assert_eq!(code_of(work::fail(&stage.flow, &person, &held, failure(Sent::No)).await), "RBAC_FORBIDDEN");
    assert_eq!(items(&stage)[0].state, WorkState::Claimed);
}

async fn refuses_late_report(stage: &EngineFixture, run: Uuid, claimed: &ClaimedCall) {
    assert_eq!(code_of(complete(stage, claimed, json!({"n": 7})).await), "LEASE_LOST");
    assert_eq!(code_of(fail(stage, claimed, Sent::No).await), "LEASE_LOST");
    assert_eq!(items(stage)[0].state, WorkState::Cancelled);
    let events = stage.events(run).await;
    assert!(!events.iter().any(|event| event == "work.completed" || event == "work.failed"), "{events:?}");
}

/// The record of the call has ended as unknown, and is frozen.
#[tokio::test(start_paused = true)]
async fn a_late_report_has_an_execution_record_of_its_own() {
    for completes in [true, false] {
        let stage = by_workers().open().await;
        let run = stage.run(&chain("w", &[("a", "pay")]).with("log_executions", json!({})), SILENT).await;
        let claimed = claim(&stage).await;
        stage.pass(LONG).await;
        stage.step(run, "a", "outcome_unknown").await;
        let report = match completes {
            true => complete(&stage, &claimed, json!({"n": 7})).await,
            false => fail(&stage, &claimed, Sent::No).await,
        };
        report.unwrap();
        let records = || {
            let mut rows = stage.records.list::<AgentExecutionRow>();
            rows.sort_by_key(|row| row.started_at);
            rows.into_iter().map(|row| (row.status, row.completed_at.is_some())).collect::<Vec<_>>()
        };
        if completes {
            assert_eq!(stage.ended(run).await["status"], "completed");
            assert_eq!(records(), ["timeout", "failed", "success"].map(|status| (status.to_owned(), true)));
        } else {
            claim(&stage).await;
            assert_eq!(records()[..3], ["timeout", "failed", "failed"].map(|status| (status.to_owned(), true)));
        }
    }
}

/// A worker may take longer than the column for milliseconds holds.
#[tokio::test(start_paused = true)]
async fn a_call_that_took_a_month_is_recorded() {
    let stage = by_workers().open().await;
    let run = start(&stage, "look").await;
    let claimed = claim(&stage).await;
    let month_ago = stage.world.clock.steady().plus_seconds(-30 * 86_400);
    let set = vec![(work_items::claimed_at, month_ago.into())];
    let earlier = Update::new(&WORK_ITEMS, vec![claimed.id.into()], Vec::new(), set).unwrap();
    stage.records.commit(Tx { updates: vec![earlier], ..Tx::default() }).await.unwrap();
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}
