//! Nested nodes: maps over lists, and child runs.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits;
use chimera_core::record::{Json, Row, Value as Cell};
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, ConcurrencyProbe, EngineFixture, ScriptedTool, chain, id_of, stage, until, workflow};
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// Takes longer the earlier its item is in the list.
fn backwards(watch: &ConcurrencyProbe) -> ScriptedTool {
    ScriptedTool::new("backwards", EffectKind::Read)
        .answers(|_, input| Ok(json!({"doubled": input["item"].as_i64().unwrap() * 2})))
        .with_delay(|input| Duration::from_millis(1_000 - input["index"].as_u64().unwrap() * 10))
        .with_probe(watch)
}

fn over(tool: &str, max_parallel: u32) -> Air {
    workflow("each")
        .map("m", json!("${inputs.list}"), tool, json!({"item": "${item}", "index": "${index}"}))
        .in_parallel(max_parallel)
}

#[tokio::test(start_paused = true)]
async fn a_map_keeps_the_order_of_its_list_and_runs_as_many_at_a_time_as_it_may() {
    let watch = ConcurrencyProbe::default();
    let stage = stage(1).tool(backwards(&watch).build()).open().await;
    let list: Vec<i64> = (0..20).collect();
    let run = stage.run_with(&over("backwards", 3), SILENT, json!({"list": list})).await;
    let shown = stage.ended(run).await;
    let doubled: Vec<_> =
        shown["result"]["m"]["items"].as_array().unwrap().iter().map(|item| &item["doubled"]).collect();
    assert_eq!(doubled, (0..20).map(|n| json!(n * 2)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    assert_eq!(watch.most("backwards"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_map_over_an_empty_list_gives_an_empty_list() {
    let stage = stage(1).open().await;
    let run = stage.run_with(&over("pure", 3), SILENT, json!({"list": []})).await;
    assert_eq!(stage.ended(run).await["result"]["m"], json!({"items": [], "success": true}));
}

#[tokio::test(start_paused = true)]
async fn a_failed_item_fails_its_map_and_nothing_behind_it_starts() {
    let tool = ScriptedTool::new("picky", EffectKind::Read)
        .answers(|_, input| match input["item"] == 3 {
            true => Err(ToolError::not_sent(Code::ValidationFailed, "three is no number")),
            false => Ok(json!({})),
        })
        .with_delay(|_| Duration::from_secs(1));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let air = over("picky", 2).function("rescue", "pure", json!({"why": "${nodes.m.outputs.error.message}"})).edge_if(
        "m",
        "rescue",
        "${nodes.m.outputs.success == false}",
    );
    let run = stage.run_with(&air, SILENT, json!({"list": [1, 2, 3, 4, 5, 6, 7, 8]})).await;
    let shown = stage.ended(run).await;
    assert_eq!(shown["status"], "completed", "a failed map is dealt with like any failed node");
    assert_eq!(shown["result"]["rescue"]["echo"]["why"], "three is no number");
    assert_eq!(asked.count("execute"), 4, "what was under way ended, nothing new began");
}

#[tokio::test(start_paused = true)]
async fn a_map_over_too_many_items_or_over_no_list_fails() {
    let stage = stage(1).open().await;
    let many: Vec<u8> = vec![0; limits::MAP_ITEMS_MAX + 1];
    for (list, code) in [(json!(many), "PAYLOAD_TOO_LARGE"), (json!("abc"), "VALIDATION_FAILED")] {
        let run = stage.run_with(&over("pure", 3), SILENT, json!({"list": list})).await;
        assert_eq!(stage.ended(run).await["error"]["code"], code);
    }
}

fn double() -> Air {
    workflow("double")
        .with("inputs", json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))
        .function("work", "again", json!({"n": "${inputs.n}"}))
        .with("outputs", json!({"twice": "${inputs.n * 2}"}))
}

#[tokio::test(start_paused = true)]
async fn a_map_of_child_runs_gives_their_results_in_the_order_of_the_list() {
    let stage = stage(1).open().await;
    stage.apply(&double()).await;
    let each = json!({"type": "workflow", "workflow_id": "double", "inputs": {"n": "${item}"}});
    let air = workflow("all")
        .node(json!({"id": "m", "type": "map", "over": "${inputs.list}", "max_parallel": 2, "do": each}));
    let run = stage.run_with(&air, SILENT, json!({"list": [1, 2, 3, 4, 5]})).await;
    let shown = stage.ended(run).await;
    let twice: Vec<_> = shown["result"]["m"]["items"].as_array().unwrap().iter().map(|item| &item["twice"]).collect();
    assert_eq!(twice, [2, 4, 6, 8, 10]);
    assert_eq!(stage.rows(&RUNS).len(), 6);
}

fn parent(child: &str) -> Air {
    workflow("parent").child("c", child, json!({"n": "${inputs.n}"}))
}

async fn child_of(stage: &EngineFixture, run: Uuid) -> Uuid {
    id_of(&stage.step(run, "c", "running").await["child_run_id"])
}

#[tokio::test(start_paused = true)]
async fn a_child_gives_its_result_to_its_parent_which_holds_no_slot_and_no_memory_meanwhile() {
    let stage = stage(1).open().await;
    stage.apply(&double().node(json!({"id": "ask", "type": "hitl"})).edge("work", "ask")).await;
    let run = stage.run_with(&parent("double"), SILENT, json!({"n": 21})).await;
    let child = child_of(&stage, run).await;
    stage.asks(child).await;
    assert_eq!(stage.flow.active_runs(), 0, "both wait in the store");
    let shown = stage.show(child).await;
    assert_eq!((&shown["parent_run_id"], &shown["actor"]), (&json!(run), &json!("user_ann")));
    stage.approve("user_ann", child).await;
    assert_eq!(stage.ended(run).await["result"]["c"]["twice"], 42);
}

#[tokio::test(start_paused = true)]
async fn a_failed_child_fails_its_node_and_the_graph_may_deal_with_it() {
    let tool = ScriptedTool::new("no", EffectKind::Read)
        .answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "the child says no")));
    let stage = stage(1).tool(tool.build()).open().await;
    stage.apply(&workflow("bad").function("a", "no", json!({}))).await;
    let run = stage.run_with(&parent("bad"), SILENT, json!({"n": 1})).await;
    assert_eq!(stage.ended(run).await["error_message"], "the child says no");
    let air = parent("bad").with("workflow_id", json!("forgiving")).function("rescue", "pure", json!({})).edge_if(
        "c",
        "rescue",
        "${nodes.c.outputs.success == false}",
    );
    let run = stage.run_with(&air, SILENT, json!({"n": 1})).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_child_checks_its_inputs() {
    let stage = stage(1).open().await;
    stage.apply(&double()).await;
    let run = stage.run_with(&parent("double"), SILENT, json!({"n": "many"})).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("VALIDATION_FAILED")));
    assert!(stage.world.outside.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_child_is_stopped_with_its_parent() {
    let stage = stage(1).open().await;
    stage.apply(&workflow("waits").node(json!({"id": "ask", "type": "hitl"}))).await;
    let run = stage.run_with(&parent("waits"), SILENT, json!({"n": 1})).await;
    let child = child_of(&stage, run).await;
    stage.asks(child).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, Some("enough".to_owned())).await.unwrap();
    assert_eq!(stage.ended(child).await["status"], "cancelled");
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    let stopped = |run: Uuid| {
        let entries = stage.rows(&AUDIT_LOG_ENTRIES).into_iter().filter(move |entry| {
            matches!(entry.text("event_type"), "run.cancel_requested" | "run.cancelled")
                && entry.get("run_id") == &Cell::from(run)
        });
        entries
            .map(|entry| (entry.text("actor_id").to_owned(), entry.text("actor_type").to_owned()))
            .collect::<Vec<_>>()
    };
    let ann = || ("user_ann".to_owned(), "human".to_owned());
    assert_eq!(stopped(child), [ann(), ann()], "not whoever the run belongs to");
    assert_eq!(stopped(run), stopped(child));
}

/// The child of a failed run was not cancelled by anybody.
#[tokio::test(start_paused = true)]
async fn a_child_that_is_stopped_because_its_parent_failed_names_the_system() {
    let bad = ScriptedTool::new("bad", EffectKind::Read).with_delay(|_| Duration::from_secs(1));
    let bad = bad.answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "no")));
    let stage = stage(1).tool(bad.build()).open().await;
    stage.apply(&workflow("waits").node(json!({"id": "ask", "type": "hitl"}))).await;
    let parent = parent("waits").function("bad", "bad", json!({}));
    let run = stage.run_with(&parent, SILENT, json!({"n": 1})).await;
    let child = child_of(&stage, run).await;
    assert_eq!(stage.ended(child).await["status"], "cancelled");
    let entries = stage.rows(&AUDIT_LOG_ENTRIES);
    let ended = |entry: &&Row| entry.text("event_type") == "run.cancelled" && entry.get("run_id") == &Cell::from(child);
    assert_eq!(entries.iter().find(ended).expect("an entry").text("actor_id"), "system");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_stopped_alone_fails_its_node() {
    let stage = stage(1).open().await;
    stage.apply(&workflow("waits").node(json!({"id": "ask", "type": "hitl"}))).await;
    let run = stage.run_with(&parent("waits"), SILENT, json!({"n": 1})).await;
    let child = child_of(&stage, run).await;
    stage.asks(child).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), child, None).await.unwrap();
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("CANCELLED")));
}

#[tokio::test(start_paused = true)]
async fn runs_stand_inside_each_other_only_so_deep() {
    let stage = stage(1).open().await;
    stage.apply(&workflow("w0").function("a", "pure", json!({}))).await;
    for level in 1..=limits::RUN_DEPTH_MAX + 1 {
        stage.apply(&workflow(&format!("w{level}")).child("c", &format!("w{}", level - 1), json!({}))).await;
    }
    let start = StartRun { level: SILENT, ..StartRun::of(format!("w{}", limits::RUN_DEPTH_MAX + 1), json!({})) };
    let run = stage.start(start).await;
    let shown = stage.ended(run).await;
    assert_eq!(shown["error_message"], "runs are nested too deeply");
    assert_eq!(stage.rows(&RUNS).len(), usize::try_from(limits::RUN_DEPTH_MAX).unwrap() + 1);
}

fn each_child(id: &str, child: &str) -> Air {
    let each = json!({"type": "workflow", "workflow_id": child, "inputs": {"list": "${inputs.list}"}});
    workflow(id).node(json!({"id": "m", "type": "map", "over": "${inputs.list}", "do": each}))
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_would_start_itself_is_refused_when_it_is_applied() {
    let stage = stage(1).open().await;
    let admin = stage.permit("admin");
    let refused = async |air: &Air| {
        let applied = stage.flow.workflows().apply(&admin, &air.id(), &air.document().to_string()).await;
        let body = applied.map(drop).unwrap_err().body();
        assert_eq!(body.code, "VALIDATION_FAILED");
        body.message
    };
    let told = refused(&workflow("w").child("c", "w", json!({}))).await;
    assert!(told.contains("/nodes/0/workflow_id") && told.ends_with("w → w"), "{told}");
    let told = refused(&each_child("w", "w")).await;
    assert!(told.contains("/nodes/0/do/workflow_id"), "{told}");
    stage.apply(&workflow("w").function("a", "pure", json!({}))).await;
    stage.apply(&each_child("x", "w")).await;
    stage.apply(&workflow("y").child("c", "x", json!({}))).await;
    let told = refused(&each_child("w", "y")).await;
    assert!(told.ends_with("w → y → x → w"), "{told}");
    let older = json!({"id": "c", "type": "workflow", "workflow_id": "w", "version": 1, "inputs": {}});
    assert_eq!(stage.apply(&workflow("w").node(older)).await, 2, "an older version of itself ends");
}

#[tokio::test(start_paused = true)]
async fn a_run_has_only_so_many_runs_inside_it() {
    let stage = stage(1).open().await;
    stage.apply(&workflow("leaf").function("a", "pure", json!({}))).await;
    stage.apply(&each_child("inner", "leaf")).await;
    // Each item's run gets its share of the total, which is less than the number of items.
    let list: Vec<u8> = vec![0; 400];
    let run = stage.run_with(&each_child("outer", "inner"), SILENT, json!({"list": list})).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("VALIDATION_FAILED")));
    assert_eq!(shown["error_message"], "m would exceed the limit of child runs");
    assert!(stage.rows(&RUNS).len() < 20, "no leaf was started");
    let few = stage.start(StartRun { level: SILENT, ..StartRun::of("outer", json!({"list": [1, 2, 3]})) }).await;
    assert_eq!(stage.ended(few).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_child_follows_the_version_that_was_newest_when_it_started_for_good() {
    let first = stage(1).open().await;
    let version = |n: i64| {
        let air = workflow("inner").node(json!({"id": "ask", "type": "hitl"})).function("a", "pure", json!({"v": n}));
        air.edge("ask", "a")
    };
    first.apply(&version(1)).await;
    first.apply(&parent("inner")).await;
    first.apply(&version(2)).await;
    let run = first.start(StartRun { level: SILENT, ..StartRun::of("parent", json!({"n": 1})) }).await;
    let child = child_of(&first, run).await;
    assert_eq!(first.until(child, |shown| shown["status"] == "awaiting_approval").await["workflow_version"], 2);
    first.apply(&version(3)).await;
    let second = first.restart(stage(1)).await;
    second.approve("user_ann", child).await;
    assert_eq!(second.ended(run).await["result"]["c"]["a"]["echo"]["v"], 2);
}

/// Runs keep pinned versions in their request; older runs have none there.
#[tokio::test(start_paused = true)]
async fn a_run_that_keeps_no_versions_starts_those_that_were_the_newest_when_it_was_asked_for() {
    let stage = stage(1).open().await;
    let version = |n: i64| workflow("inner").function("a", "pure", json!({"v": n}));
    let outer = workflow("outer").node(json!({"id": "ask", "type": "hitl"})).child("c", "inner", json!({}));
    let request = RUNS.position("request_payload").unwrap();
    for keeps in [true, false] {
        stage.apply(&version(1)).await;
        let run = stage.run(&outer.clone().edge("ask", "c"), SILENT).await;
        stage.asks(run).await;
        until("it is not in memory", || stage.flow.active_runs() == 0).await;
        stage.records.tamper(&RUNS, |runs| {
            let row = runs.iter_mut().find(|row| row.uuid("id") == run).unwrap();
            let mut kept = row.get("request_payload").as_json().unwrap().value().unwrap();
            let versions = kept.as_object_mut().unwrap().remove("workflow_versions");
            assert!(versions.is_some_and(|versions| versions["inner"].is_i64()));
            if !keeps {
                row.cells[request] = Json::encode(&kept).unwrap().into();
            }
        });
        stage.pass(Duration::from_secs(2)).await;
        stage.apply(&version(2)).await;
        stage.approve("user_ann", run).await;
        assert_eq!(stage.ended(run).await["result"]["c"]["a"]["echo"]["v"], 1, "{keeps}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_may_take_no_longer_than_its_node_its_workflow_or_its_parent_says() {
    let said: [(&str, Air, Air); 3] = [
        ("node", parent("waits").with_node_member("timeout_seconds", json!(60)), workflow("waits")),
        ("child", parent("waits"), workflow("waits").with("timeout_seconds", json!(60))),
        ("parent", parent("waits").with("timeout_seconds", json!(60)), workflow("waits")),
    ];
    for (who, parent, child) in said {
        let began = tokio::time::Instant::now();
        let stage = stage(1).open().await;
        stage.apply(&child.node(json!({"id": "ask", "type": "hitl"}))).await;
        let run = stage.run_with(&parent, SILENT, json!({"n": 1})).await;
        let shown = stage.ended(run).await;
        assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("REQUEST_TIMEOUT")), "{who}");
        assert!((60..63).contains(&began.elapsed().as_secs()), "{who}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_is_asked_for_where_its_level_or_its_node_demands_it() {
    let part = || json!({"id": "part", "type": "workflow", "workflow_id": "inner", "inputs": {}});
    let mut demanding = part();
    demanding["requires_approval"] = json!({"approvals_needed": 1});
    for (node, level) in [(part(), Level::Ask), (demanding, Level::ExecuteSilent)] {
        let stage = stage(1).open().await;
        stage.apply(&chain("inner", &[("x", "again")])).await;
        let run = stage.run(&workflow("outer").node(node), level).await;
        stage.step(run, "part", "awaiting_approval").await;
        assert_eq!(
            (stage.asks(run).await[0]["action"]["tool"].as_str(), stage.rows(&RUNS).len()),
            (Some("workflow"), 1)
        );
        stage.approve("user_ann", run).await;
        if level == Level::Ask {
            stage.step(run, "part", "running").await;
            let inner = stage.rows(&RUNS).iter().map(|row| row.uuid("id")).find(|id| *id != run).unwrap();
            stage.asks(inner).await;
            stage.approve("user_ann", inner).await;
        }
        assert_eq!(stage.ended(run).await["status"], "completed", "{level:?}");
        assert_eq!(stage.world.outside.sent().len(), 1);
    }
}
