//! Execution order of nodes: conditions, joins, skipped branches, parallel branches.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::ToolError;
use chimera_testkit::flow::{ConcurrencyProbe, ScriptedTool, chain, stage, workflow};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;

const SILENT: Level = Level::ExecuteSilent;

fn upload(id: &str, succeeds: bool) -> (chimera_testkit::flow::Air, ScriptedTool) {
    let tool = ScriptedTool::new("upload", EffectKind::Write).answers(move |_, _| match succeeds {
        true => Ok(json!({"url": "s3://acme/1"})),
        false => Err(ToolError::not_sent(Code::PolicyDenied, "403")),
    });
    let air = workflow(id)
        .function("upload_to_s3", "upload", json!({}))
        .function("notify_email", "again", json!({"subject": "Upload OK ${run_id}"}))
        .function("notify_slack", "again", json!({"text": "Upload FAILED ${run_id}"}))
        .edge_if("upload_to_s3", "notify_email", "${nodes.upload_to_s3.outputs.success == true}")
        .edge_if("upload_to_s3", "notify_slack", "${nodes.upload_to_s3.outputs.success == false}");
    (air, tool)
}

/// INTENT-033, INTENT-034
#[tokio::test(start_paused = true)]
async fn success_takes_the_way_of_success() {
    let (air, tool) = upload("w", true);
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.step_statuses(run).await, "upload_to_s3=completed notify_email=completed notify_slack=skipped");
    assert_eq!(stage.world.outside.sent()[0].input, json!({"subject": format!("Upload OK {run}")}));
}

/// INTENT-034
#[tokio::test(start_paused = true)]
async fn a_failure_that_the_graph_deals_with_does_not_fail_the_run() {
    let (air, tool) = upload("w", false);
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.step_statuses(run).await, "upload_to_s3=failed notify_email=skipped notify_slack=completed");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_no_edge_is_taken_for_fails_the_run_with_its_own_error() {
    let tool = ScriptedTool::new("broken", EffectKind::Pure)
        .answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "no such page")));
    let air = workflow("w")
        .function("a", "broken", json!({}))
        .function("b", "pure", json!({}))
        .function("c", "pure", json!({}))
        .edge("a", "b")
        .edge_if("a", "c", "${nodes.a.outputs.pages > 3}");
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&air, SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!(shown["status"], "failed");
    assert_eq!(shown["error"]["code"], "VALIDATION_FAILED");
    assert_eq!(shown["error_message"], "no such page");
    assert_eq!(shown["error"]["details"]["node"], "a");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_can_not_be_decided_fails_the_run() {
    let air = workflow("w").function("a", "pure", json!({})).function("b", "pure", json!({})).edge_if(
        "a",
        "b",
        "${nodes.a.outputs.echo.missing > 3}",
    );
    let stage = stage(1).open().await;
    let run = stage.run(&air, SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("VALIDATION_FAILED")));
}

#[tokio::test(start_paused = true)]
async fn what_lies_behind_a_skipped_node_is_skipped_unless_another_way_leads_there() {
    let air = workflow("w")
        .function("a", "pure", json!({}))
        .function("dead", "pure", json!({}))
        .function("behind", "pure", json!({}))
        .function("joined", "pure", json!({}))
        .edge_if("a", "dead", "${inputs.go == true}")
        .edge("dead", "behind")
        .edge("behind", "joined")
        .edge("a", "joined");
    let stage = stage(1).open().await;
    let run = stage.run_with(&air, SILENT, json!({"go": false})).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.step_statuses(run).await, "a=completed dead=skipped behind=skipped joined=completed");
}

fn race(join: &str) -> chimera_testkit::flow::Air {
    workflow("race")
        .function("fast", "pure", json!({}))
        .function("slow", "slow", json!({}))
        .function("after", "mark", json!({}))
        .with_node_member("join", json!(join))
        .edge("fast", "after")
        .edge("slow", "after")
}

fn slow() -> ScriptedTool {
    ScriptedTool::new("slow", EffectKind::Read).with_delay(|_| Duration::from_secs(7))
}

#[tokio::test(start_paused = true)]
async fn a_join_of_all_waits_for_the_last_edge_and_a_join_of_any_for_the_first() {
    for (join, seconds) in [("all", 7), ("any", 0)] {
        let mark = ScriptedTool::new("mark", EffectKind::Read);
        let (asked, began) = (mark.asked(), tokio::time::Instant::now());
        let stage = stage(1).tool(slow().build()).tool(mark.build()).open().await;
        let run = stage.run(&race(join), SILENT).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        let marks = asked.of("execute");
        assert_eq!(marks.len(), 1, "it runs once, however many edges are taken");
        assert_eq!((marks[0].at - began).as_secs(), seconds, "{join}");
    }
}

#[tokio::test(start_paused = true)]
async fn branches_run_at_the_same_time() {
    let barrier = Arc::new(Barrier::new(3));
    // Each call waits for the others: run in sequence, none would ever end.
    let meet = ScriptedTool::new("meet", EffectKind::Read).on_execute(move |_, _| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok(json!({}))
        }
    });
    let air = ["a", "b", "c"].iter().fold(workflow("w"), |air, id| air.function(id, "meet", json!({})));
    let stage = stage(1).tool(meet.build()).open().await;
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.step_statuses(run).await, "a=completed b=completed c=completed");
}

#[tokio::test(start_paused = true)]
async fn one_run_has_no_more_calls_under_way_than_it_may() {
    let watch = ConcurrencyProbe::default();
    let busy = ScriptedTool::new("busy", EffectKind::Read).with_delay(|_| Duration::from_secs(1)).with_probe(&watch);
    let air = (0..100).fold(workflow("wide"), |air, n| air.function(&format!("n{n}"), "busy", json!({})));
    let stage = stage(1).tool(busy.build()).open().await;
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(watch.most("busy"), chimera_core::limits::RUN_CALLS_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_run_gives_what_its_workflow_says_or_what_its_last_nodes_gave() {
    let stage = stage(1).open().await;
    let air = chain("plain", &[("a", "pure"), ("b", "pure")]);
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["result"]["b"]["echo"], json!({"n": "b"}));
    let air =
        chain("said", &[("a", "pure"), ("b", "pure")]).with("outputs", json!({"who": "${nodes.a.outputs.echo.n}"}));
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["result"], json!({"who": "a"}));
}
