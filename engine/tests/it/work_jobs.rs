//! Calls that sandboxed jobs execute, with a scripted runner: what the run asks for are rows, and the end is a signal.

use crate::work::SILENT;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::{Signal, SignalKind};
use chimera_core::flow::tables::TIMERS;
use chimera_core::flow::work::{Elsewhere, JobOrder, Jobs, WorkStatus};
use chimera_core::record::{Comparison, Condition, Insert, RowCount, Step, Tx, Unstorable};
use chimera_core::time::Timestamp;
use chimera_core::tool::EffectKind;
use chimera_engine::flow;
use chimera_engine::port::Records;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, TENANT, chain, id_of, stage};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Keeps its jobs in a table that nothing else uses here.
struct ScriptedJobs;

impl Jobs for ScriptedJobs {
    fn start(&self, order: &JobOrder<'_>) -> Result<Result<Vec<Insert>, ErrorBody>, Unstorable> {
        let cells = vec![
            ("id", order.job.into()),
            ("tenant_id", order.tenant.into()),
            ("run_id", order.run.into()),
            ("step_id", order.step.into()),
            ("kind", "running".into()),
            ("due_at", order.deadline.into()),
        ];
        Ok(Ok(vec![Insert::new(&TIMERS, cells)?]))
    }

    fn cancel(&self, job: Uuid, _: Timestamp) -> Result<Vec<Step>, Unstorable> {
        let conditions = vec![Condition { column: "id", compare: Comparison::Is, value: job.into() }];
        Ok(vec![Step::update(&TIMERS, conditions, vec![("kind", "cancelled".into())], RowCount::AtMost(1))?])
    }
}

fn setup() -> EngineSetup {
    let tool = ScriptedTool::new("build", EffectKind::Write).by_jobs();
    stage(1).jobs(Arc::new(ScriptedJobs)).tool(tool.with_declaration(|tool| tool.timeout_ms = 600_000).build())
}

/// The job of a run and its state.
fn job(stage: &EngineFixture, run: Uuid) -> (Uuid, String) {
    let row = stage.rows_of(&TIMERS, run).remove(0);
    (row.get("id").as_uuid().unwrap(), row.text("kind").to_owned())
}

async fn end(stage: &EngineFixture, run: Uuid, status: WorkStatus, may_have_happened: bool) {
    let step = id_of(&stage.step(run, "a", "running").await["step_id"]);
    let error = (status != WorkStatus::Completed).then(|| ErrorBody::new(Code::Cancelled, "it was stopped"));
    let told = SignalKind::WorkEnded {
        step,
        work: Some(Elsewhere::Job(job(stage, run).0)),
        status,
        result: Some(json!({"built": true})),
        error,
        may_have_happened,
        took_ms: 5,
        changed_by: Vec::new(),
    };
    let signal = Signal::new(chimera_core::id::signal(run, "end"), told);
    let row = signal.row(TENANT, run, Timestamp::from_micros(0)).unwrap();
    stage.records.commit(Tx { inserts: vec![row], ..Tx::default() }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_executes_a_call_while_its_run_is_parked_and_survives_a_restart() {
    let stage = setup().open().await;
    let run = stage.run(&chain("w", &[("a", "build"), ("b", "pure")]), SILENT).await;
    stage.flow.rest(run).await;
    stage.step(run, "a", "running").await;
    assert_eq!((job(&stage, run).1.as_str(), stage.flow.active_runs()), ("running", 0));
    let stage = stage.restart(setup()).await;
    end(&stage, run, WorkStatus::Completed, false).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.steps(run).await[0]["outputs"]["built"], true);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_asks_its_job_to_stop_and_waits_for_its_end() {
    let stage = setup().open().await;
    let run = stage.run(&chain("w", &[("a", "build")]), SILENT).await;
    stage.step(run, "a", "running").await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.until(run, |_| job(&stage, run).1 == "cancelled").await;
    assert_eq!(stage.show(run).await["status"], "running");
    end(&stage, run, WorkStatus::Cancelled, false).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_end_in_time_is_cancelled_and_its_outcome_is_unknown() {
    let stage = setup().open().await;
    let run = stage.run(&chain("w", &[("a", "build")]), SILENT).await;
    stage.step(run, "a", "running").await;
    stage.pass(Duration::from_secs(700)).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(job(&stage, run).1, "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_process_without_jobs_refuses_the_call() {
    let tool = ScriptedTool::new("build", EffectKind::Write).by_jobs();
    let tool = tool.with_declaration(|tool| tool.metadata.idempotent = true);
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "build")]), SILENT).await;
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("TOOL_UNAVAILABLE")));
}
