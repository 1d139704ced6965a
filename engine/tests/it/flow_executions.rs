//! The execution log: rows of another room that are written with the turn that they tell of.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::id;
use chimera_core::job::tables::{AGENT_EXECUTIONS, AgentExecutionRow};
use chimera_core::ledger::tables::RECORD_SCOPES;
use chimera_core::limits::EXECUTION_DATA_BYTES_MAX;
use chimera_core::record::Json;
use chimera_core::tool::EffectKind;
use chimera_engine::act::rules::{Rule, Rules};
use chimera_engine::flow::port::ToolError;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, TENANT, chain, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const SILENT: Level = Level::ExecuteSilent;

fn logged(air: Air) -> Air {
    air.with("log_executions", json!({}))
}

fn one(tool: &str, inputs: Value) -> Air {
    logged(workflow("w").function("a", tool, inputs))
}

/// A rule about `work`.
fn rule(mut says: Value) -> Rules {
    says["name"] = "no-work".into();
    says["tool"] = "work".into();
    Rules(vec![serde_json::from_value::<Rule>(says).unwrap()])
}

/// The records, oldest first.
fn records(stage: &EngineFixture) -> Vec<AgentExecutionRow> {
    let mut rows = stage.records.list::<AgentExecutionRow>();
    // A call's record comes before that of an error in the same turn.
    rows.sort_by_key(|row| (row.started_at, row.agent_type == "governor", row.error_data.is_some()));
    rows
}

fn document(json: Option<&Json>) -> Value {
    json.map(|json| json.value().unwrap()).unwrap_or_default()
}

/// CONTENT-091, CONTENT-092, CONTENT-093, CONTENT-125, CONTENT-129
#[tokio::test(start_paused = true)]
async fn a_record_is_there_while_the_call_runs_and_says_nothing_untrue_if_the_process_dies() {
    for effect in [EffectKind::Pure, EffectKind::Read, EffectKind::Write] {
        let gate = Arc::new(Notify::new());
        let held = Arc::clone(&gate);
        let tool = ScriptedTool::new("work", effect).on_execute(move |_, input| {
            let held = Arc::clone(&held);
            async move {
                held.notified().await;
                Ok(json!({"echo": input}))
            }
        });
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&one("work", json!({"n": 1})), SILENT).await;
        let rows = records(&stage);
        assert_eq!(rows.len(), 1, "{effect:?}");
        let row = &rows[0];
        assert_eq!((row.agent_type.as_str(), row.execution_type.as_str()), ("worker", "task_execution"));
        assert_eq!((row.status.as_str(), row.completed_at, row.execution_duration_ms), ("timeout", None, 0));
        assert_eq!(row.agent_id, id::agent(TENANT, "user_ann"));
        assert_eq!(document(row.input_data.as_ref()), json!({"n": 1}));
        assert!(row.output_data.is_none() && row.error_data.is_none() && row.resource_usage.is_none());
        let scopes = stage.rows(&RECORD_SCOPES);
        let scope = scopes.iter().find(|scope| scope.uuid("record_id") == row.execution_id).unwrap();
        assert_eq!((scope.text("record_kind"), scope.text("tenant_id")), ("agent_execution", TENANT));
        assert_eq!(scope.text("trace_id"), id::trace_id(run));
        gate.notify_one();
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

/// CONTENT-126, CONTENT-127, CONTENT-128, CONTENT-130
#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_completes_its_record() {
    let tool = ScriptedTool::new("work", EffectKind::Read).with_delay(|_| Duration::from_millis(1_250));
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("work", json!({"n": 1})), SILENT).await;
    stage.ended(run).await;
    let rows = records(&stage);
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.status.as_str(), row.error_data.is_none()), ("success", true));
    assert_eq!(document(row.output_data.as_ref()), json!({"echo": {"n": 1}}));
    assert!((1_250..1_300).contains(&row.execution_duration_ms), "{}", row.execution_duration_ms);
    assert!(row.completed_at.unwrap() >= row.started_at);
    let usage = document(row.resource_usage.as_ref());
    assert_eq!(usage, json!({"tool": "work", "attempt": 1, "input_bytes": 7, "output_bytes": 16}));
}

/// CONTENT-151, CONTENT-152
#[tokio::test(start_paused = true)]
async fn every_attempt_has_its_own_record_and_every_error_a_failed_one() {
    let tool = ScriptedTool::new("work", EffectKind::Read).failing_at(&[1, 2]);
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("work", json!({})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let rows = records(&stage);
    assert_eq!(rows.iter().map(|row| row.status.as_str()).collect::<Vec<_>>(), ["failed", "failed", "success"]);
    let error = document(rows[0].error_data.as_ref());
    assert_eq!((&error["code"], &error["message"]), (&json!("EXTERNAL_SERVICE_ERROR"), &json!("not now")));
    assert_eq!(error["error_type"], "external_service_error");
    assert!(error.get("stack").is_none() && rows[2].error_data.is_none());
    assert!(rows.iter().all(|row| row.completed_at.is_some()));
}

/// CONTENT-093, CONTENT-151: a timeout is an error whose own record does not say `failed`.
#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_has_a_record_of_its_error_beside_its_own() {
    let tool = ScriptedTool::new("work", EffectKind::Read).with_delay(|_| Duration::from_secs(3_600));
    let stage = stage(1).tool(tool.build()).open().await;
    let air = one("work", json!({})).with_node_member("retry", json!({"max": 0}));
    let run = stage.run(&air.with_node_member("timeout_seconds", json!(2)), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    let rows = records(&stage);
    let mut statuses: Vec<&str> = rows.iter().map(|row| row.status.as_str()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, ["failed", "timeout"]);
    assert!(rows.iter().all(|row| document(row.error_data.as_ref())["code"] == "REQUEST_TIMEOUT"));
    assert!(rows.iter().all(|row| row.completed_at.is_some()));
}

/// CONTENT-151
#[tokio::test(start_paused = true)]
async fn an_error_without_a_call_has_a_record_too() {
    let tool = ScriptedTool::new("work", EffectKind::Write);
    let stage = stage(1).tool(tool.build()).policy(rule(json!({"effect": "deny", "reason": "not here"}))).open().await;
    let run = stage.run(&one("work", json!({})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    let rows = records(&stage);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].agent_type.as_str(), rows[0].execution_type.as_str()), ("governor", "policy_evaluation"));
    assert_eq!(document(rows[0].error_data.as_ref())["code"], Code::PolicyDenied.as_str());
    let run = stage.run(&one("again", json!({"n": "${inputs.missing.member}"})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    let rows = records(&stage);
    let told: Vec<(&str, &str)> = rows.iter().map(|row| (row.agent_type.as_str(), row.status.as_str())).collect();
    assert_eq!(told, [("worker", "failed"), ("governor", "failed")]);
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_a_limit_is_recorded_like_one_that_a_rule_denies() {
    let tool = ScriptedTool::new("work", EffectKind::Write);
    let limit = json!({"effect": "limit", "at_most": {"count": 0, "per": "1h"}});
    let stage = stage(1).tool(tool.build()).policy(rule(limit)).open().await;
    let run = stage.run(&one("work", json!({})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    let rows = records(&stage);
    let told: Vec<(&str, &str)> =
        rows.iter().map(|row| (row.agent_type.as_str(), row.execution_type.as_str())).collect();
    assert_eq!(told, [("governor", "policy_evaluation")]);
    assert_eq!(document(rows[0].error_data.as_ref())["code"], Code::PolicyDenied.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_judge_that_rejects_is_recorded_as_governor() {
    let tool = ScriptedTool::new("work", EffectKind::Read);
    let stage = stage(1).tool(tool.build()).open().await;
    let air = one("work", json!({})).with_node_member("judge", json!({"bytes_max": 3}));
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    let rows = records(&stage);
    let told: Vec<(&str, &str)> = rows.iter().map(|row| (row.agent_type.as_str(), row.status.as_str())).collect();
    assert_eq!(told, [("worker", "success"), ("governor", "failed")]);
    assert_eq!(rows[1].execution_type, "output_validation");
}

/// CONTENT-131, and no credential reaches the record.
#[tokio::test(start_paused = true)]
async fn large_data_is_replaced_by_its_digest_and_credentials_are_masked() {
    let tool = ScriptedTool::new("work", EffectKind::Read)
        .answers(|_, _| Ok(json!({"text": "x".repeat(EXECUTION_DATA_BYTES_MAX - 20)})));
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("work", json!({"password": "hunter2hunter2"})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let row = &records(&stage)[0];
    assert!(!document(row.input_data.as_ref()).to_string().contains("hunter2"));
    let kept = document(row.output_data.as_ref());
    assert!(kept["truncated"] == true || kept["text"].is_string(), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn runs_inside_are_recorded_with_their_parent_and_other_runs_not_at_all() {
    let stage = stage(1).open().await;
    stage.apply(&chain("leaf", &[("x", "again")])).await;
    let run = stage.run(&workflow("plain").child("c", "leaf", json!({})), SILENT).await;
    stage.ended(run).await;
    assert!(stage.rows(&AGENT_EXECUTIONS).is_empty());
    let air = workflow("w")
        .child("c", "leaf", json!({}))
        .with("log_executions", json!({"agent_type": "planner", "execution_type": "task_decomposition"}));
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let rows = records(&stage);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].agent_type.as_str(), rows[0].execution_type.as_str()), ("planner", "task_decomposition"));
}

/// What is refused by the store is refused with the records that tell of it.
#[tokio::test(start_paused = true)]
async fn an_outage_leaves_no_record_of_what_did_not_happen() {
    let tool = ScriptedTool::new("work", EffectKind::Write).with_delay(|_| Duration::from_secs(5));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("work", json!({})), SILENT).await;
    stage.pass(Duration::from_secs(1)).await;
    stage.records.refuse_writes();
    stage.pass(Duration::from_secs(30)).await;
    assert_eq!(records(&stage)[0].status, "timeout");
    stage.records.clear_faults();
    assert_eq!(stage.ended(run).await["status"], "completed");
    let rows = records(&stage);
    assert_eq!((rows.len(), rows[0].status.as_str(), asked.count("execute")), (1, "success", 1));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_can_not_be_known_is_recorded_once() {
    let tool = ScriptedTool::new("work", EffectKind::Write)
        .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceUnavailable, "the answer was lost")));
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("work", json!({})), SILENT).await;
    stage.step(run, "a", "outcome_unknown").await;
    let rows = records(&stage);
    assert_eq!((rows.len(), rows[0].status.as_str()), (1, "failed"));
}
