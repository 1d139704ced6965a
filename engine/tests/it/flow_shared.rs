//! Tools that are shared with one tenant and not with another: an unshared tool does not exist, from validating a
//! workflow to making the call.

use chimera_core::access::{Guest, Level, SharedResources};
use chimera_core::tool::EffectKind;
use chimera_engine::access::port::Tenancy;
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::flow::{Air, EngineSetup, ScriptedTool, TENANT, code_of, shown, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;

/// Shares these tools with every tenant but the default one.
struct SharedTools(&'static [&'static str]);

impl Tenancy for SharedTools {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let tools = self.0.iter().map(|tool| (*tool).to_owned()).collect();
        let shared = SharedResources { tools, ..SharedResources::default() };
        (tenant != TENANT).then(|| Arc::new(Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared }))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

fn sharing(tools: &'static [&'static str]) -> EngineSetup {
    stage(1).tool(ScriptedTool::new("sends", EffectKind::Write).build()).tenancy(Arc::new(SharedTools(tools)))
}

fn asks_first(tool: &str) -> Air {
    workflow("w")
        .node(json!({"id": "ask", "type": "hitl", "prompt": "now?"}))
        .function("a", tool, json!({}))
        .edge("ask", "a")
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_not_shared_is_refused_like_one_that_nobody_has() {
    let stage = sharing(&["se*"]).open().await;
    let (own, other) = (stage.permit_of(TENANT, "admin"), stage.permit_of("other", "admin"));
    let names = |tools: Value| -> Vec<String> {
        let name = |tool: &Value| tool["name"].as_str().map(str::to_owned);
        tools.as_array().unwrap().iter().filter_map(name).collect()
    };
    assert_eq!(
        names(shown(flow::list_tools(&stage.flow, &other))),
        ["pure", "sends"],
        "what only computes is everybody's"
    );
    assert!(names(shown(flow::list_tools(&stage.flow, &own))).contains(&"again".to_owned()));
    let told = async |tool: &str| {
        let text = asks_first(tool).document().to_string();
        let error = stage.flow.workflows().check(&other, &text).await.expect_err("a refusal");
        serde_json::to_value(error.body()).unwrap().to_string().replace(tool, "X")
    };
    assert_eq!(told("checked").await, told("qqqqqqq").await);
    for (permit, tool, fine) in [(&own, "checked", true), (&other, "sends", true), (&other, "checked", false)] {
        let text = asks_first(tool).document().to_string();
        assert_eq!(stage.flow.workflows().check(permit, &text).await.is_ok(), fine, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_shared_no_more_is_not_called() {
    let first = sharing(&["sends"]).open().await;
    let other = first.permit_of("other", "admin");
    let text = asks_first("sends").document().to_string();
    first.flow.workflows().apply(&other, "w", &text).await.unwrap();
    let ask = || StartRun { level: Level::ExecuteSilent, ..StartRun::of("w", json!({})) };
    let run = flow::start(&first.flow, &other, ask()).await.unwrap().run_id;
    first.wait_for_in("other", run, |shown| shown["status"] == "awaiting_approval").await;
    let tool = ScriptedTool::new("sends", EffectKind::Write);
    let asked = tool.asked();
    let second = first.restart(stage(1).tool(tool.build()).tenancy(Arc::new(SharedTools(&[])))).await;
    assert_eq!(code_of(flow::start(&second.flow, &other, ask()).await), "VALIDATION_FAILED");
    let shown = shown(flow::show_run(&second.flow, &other, run).await.unwrap());
    let digest = shown["approvals"][0]["digest"].as_str().unwrap().to_owned();
    let decide = chimera_engine::flow::Decide {
        run,
        decision: chimera_engine::flow::Decision::Approve,
        approval: None,
        step: None,
        digest: chimera_core::json::Digest32::from_hex(&digest),
        reason: None,
    };
    flow::decide(&second.flow, &other, decide).await.unwrap();
    let shown = second.wait_for_in("other", run, |shown| shown["status"] == "failed").await;
    assert_eq!(shown["error"]["code"], "TOOL_UNAVAILABLE", "{shown:#}");
    assert_eq!(asked.count("execute"), 0);
}
