//! Doing something again, and changing what runs: both are asking for something.

use super::access_server::{AccessServer, entry, harmless, porch_with};
use chimera_core::access::{ActorEntry, Level};
use chimera_testkit::access::settings;
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::Method;
use serde_json::{Value, json};

/// Doing something again is asking for it: the level is that of whoever asks now, and never freer.
#[tokio::test]
async fn what_is_done_again_is_decided_about_again() {
    let careful = ActorEntry { level: Some(Level::Ask), ..entry("user_cat", &["runs.manage", "local.*"]) };
    let porch = porch_with(settings(TENANT, vec![careful, entry("user_bob", &["runs.manage"])]), None).await;
    let broken = json!([harmless()[0], {"tool": "notion.broken", "input": {}}]);
    let failed = porch.act("n8n_workflow_1", json!({"steps": broken, "wait": 15})).await.body;
    let done = porch.act("admin", json!({"steps": harmless()})).await.body;
    let before = porch.effects();
    let again = async |actor: &str, run: &Value, path: &str, body: Value| {
        let path = format!("/runs/{}/{path}", run["run_id"].as_str().unwrap());
        porch.ask(actor, Method::POST, &path, body).await
    };
    porch.house.until(&done, "completed").await;
    let before = before.max(porch.effects());
    for (path, body) in [("retry", json!({})), ("replay", json!({"mode": "retry", "from": "s1"}))] {
        for (actor, run) in [("user_bob", &failed), ("user_bob", &done), ("user_cat", &failed)] {
            let refused = again(actor, run, path, body.clone()).await;
            assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{actor} {path}: {refused:?}");
        }
    }
    let asked = again("user_cat", &done, "replay", json!({"mode": "retry", "from": "s1"})).await;
    assert_eq!((asked.status, &asked.body["autonomy_level"]), (202, &json!("L0_Ask")), "{asked:?}");
    porch.house.until(&asked.body, "awaiting_approval").await;
    assert_eq!(porch.effects(), before, "nothing runs before a person says so");
}

/// A run that waits for a person, so that it can be changed meanwhile.
async fn waiting(porch: &AccessServer) -> Value {
    let review = json!({"id": "review", "type": "hitl", "prompt": "Well?"});
    porch.house.stage.apply(&workflow("reviewed").node(review)).await;
    let writes = workflow("writes").function("w", "notion.note", json!({"text": "One."}));
    porch.house.stage.apply(&writes).await;
    porch.act("n8n_workflow_1", json!({"workflow_id": "reviewed", "inputs": {}, "wait": 15})).await.body
}

/// A patch takes the scopes of all that it adds, workflows within included, and nobody lets a run do more
/// freely what they would have to ask a person for.
#[tokio::test]
async fn a_patch_adds_only_what_its_author_could_do_as_freely() {
    let asks = ActorEntry { level: Some(Level::Ask), ..entry("user_cat", &["runs.manage", "local.*", "notion.*"]) };
    let risky = ActorEntry { level: None, ..entry("n8n_workflow_abc", &["runs.manage", "notion.*", "local.*"]) };
    let manages = entry("n8n_workflow_123", &["runs.manage"]);
    let porch = porch_with(settings(TENANT, vec![asks, risky, manages]), None).await;
    let run = waiting(&porch).await;
    assert_eq!(run["autonomy_level"], "L2_ExecuteNotify", "{run:#}");
    let path = format!("/runs/{}/patch", run["run_id"].as_str().unwrap());
    let patch = async |actor: &str, nodes: Vec<Value>| {
        let edges: Vec<Value> = nodes.iter().map(|node| json!({"from": "review", "to": node["id"]})).collect();
        let patch = json!({"patch_version": "0.1", "justification": "more", "add_nodes": nodes, "add_edges": edges});
        let answer = porch.ask(actor, Method::POST, &path, json!({"patch": patch, "dry_run": true})).await;
        (answer.status, answer.code().to_owned())
    };
    let calls =
        |id: &str, tool: &str, text: &str| json!({"id": id, "type": "function", "fn": tool, "inputs": {"text": text}});
    let child = json!({"id": "c", "type": "workflow", "workflow_id": "writes", "inputs": {}});
    let each = json!({"type": "workflow", "workflow_id": "writes", "inputs": {}});
    let map = json!({"id": "m", "type": "map", "over": [1, 2], "do": each});
    let refused = |code: &str| (403, code.to_owned());
    for nodes in [vec![calls("a", "notion.note", "One.")], vec![child.clone()], vec![map]] {
        assert_eq!(patch("n8n_workflow_123", nodes).await, refused("RBAC_FORBIDDEN"));
    }
    assert_eq!(patch("user_cat", vec![calls("a", "local.summarize", "One.")]).await, refused("POLICY_DENIED"));
    let wild = calls("a", "notion.note", "DROP TABLE users; -- ann@example.com");
    assert_eq!(patch("n8n_workflow_abc", vec![wild]).await, refused("POLICY_DENIED"));
    let many = (0..11).map(|at| calls(&format!("a{at}"), "local.summarize", "One.")).collect();
    assert_eq!(patch("n8n_workflow_1", many).await, refused("POLICY_DENIED"));
    let each = json!({"type": "function", "fn": "notion.note", "inputs": {"text": "${item}"}});
    let over = |items: Value| vec![json!({"id": "m", "type": "map", "over": items, "do": each})];
    assert_eq!(
        patch("n8n_workflow_abc", over(json!(["DROP TABLE users", "a@example.com"]))).await,
        refused("POLICY_DENIED")
    );
    assert_eq!(patch("n8n_workflow_abc", over(json!(["One.", "Two."]))).await.0, 200);
    assert_eq!(patch("n8n_workflow_abc", vec![child]).await.0, 200);
    assert_eq!(patch("n8n_workflow_1", vec![calls("a", "local.summarize", "One.")]).await.0, 200);
}

/// The rules are asked at the door about everything that a patch adds, for whoever proposes it, also about what stands
/// inside the workflows that it starts, which the run itself can't see.
#[tokio::test]
async fn a_patch_adds_nothing_that_a_rule_denies_its_author() {
    let free = ActorEntry { level: Some(Level::ExecuteNotify), ..entry("user_cat", &["runs.manage", "local.*"]) };
    let porch = porch_with(settings(TENANT, vec![free]), None).await;
    let run = waiting(&porch).await;
    let forbidden = workflow("forbids").function("f", "local.forbidden", json!({}));
    porch.house.stage.apply(&forbidden).await;
    porch.house.stage.apply(&workflow("around").child("c", "forbids", json!({}))).await;
    porch.house.stage.apply(&workflow("harmless").function("s", "local.summarize", json!({"text": "One."}))).await;
    let path = format!("/runs/{}/patch", run["run_id"].as_str().unwrap());
    for (workflow, status) in [("harmless", 200), ("forbids", 403), ("around", 403)] {
        let node = json!({"id": "n", "type": "workflow", "workflow_id": workflow, "inputs": {}});
        let edges = json!([{"from": "review", "to": "n"}]);
        let patch = json!({"patch_version": "0.1", "justification": "more", "add_nodes": [node], "add_edges": edges});
        let answer = porch.ask("user_cat", Method::POST, &path, json!({"patch": patch, "dry_run": true})).await;
        assert_eq!(answer.status, status, "{workflow}: {answer:?}");
        if status == 403 {
            assert_eq!((answer.code(), answer.detail("rule")), ("POLICY_DENIED", &json!("never")), "{workflow}");
            assert_eq!(answer.detail("tool"), "local.forbidden");
        }
    }
}

/// What a patch added to the run of another does not outlive its author's right to ask for it.
#[tokio::test]
async fn what_a_patch_added_is_refused_once_its_author_may_not_ask_for_it() {
    for less in [json!({"scopes": ["runs.manage"]}), json!({"scopes": ["runs.manage", "local.*"], "disabled": true})] {
        let free = ActorEntry { level: Some(Level::ExecuteNotify), ..entry("user_cat", &["runs.manage", "local.*"]) };
        let porch = porch_with(settings(TENANT, vec![free]), None).await;
        let run = waiting(&porch).await;
        let node = json!({"id": "n", "type": "function", "fn": "local.summarize", "inputs": {"text": "One."}});
        let edges = json!([{"from": "review", "to": "n"}]);
        let patch = json!({"patch_version": "0.1", "justification": "more", "add_nodes": [node], "add_edges": edges});
        let path = format!("/runs/{}/patch", run["run_id"].as_str().unwrap());
        let answer = porch.ask("user_cat", Method::POST, &path, json!({ "patch": patch })).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let (stage, id) = (&porch.house.stage, chimera_testkit::flow::id_of(&run["run_id"]));
        stage.until(id, |run| run["patches"][0]["status"] == "applied").await;
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_cat", less.clone()).await.status, 200);
        stage.approve("admin", id).await;
        let ended = stage.ended(id).await;
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")), "{less}");
        assert_eq!(porch.effects(), 0);
    }
}

/// Patches that are small one by one are counted together: the cap on many calls holds for the whole run.
#[tokio::test]
async fn patches_that_are_small_one_by_one_can_not_pass_the_cap_together() {
    let porch = porch_with(settings(TENANT, Vec::new()), None).await;
    let run = waiting(&porch).await;
    let path = format!("/runs/{}/patch", run["run_id"].as_str().unwrap());
    let patch = async |prefix: &str| {
        let nodes = (0..6).map(|at| {
            let id = format!("{prefix}{at}");
            json!({"id": id, "type": "function", "fn": "local.summarize", "inputs": {"text": id}})
        });
        let nodes: Vec<Value> = nodes.collect();
        let edges: Vec<Value> = nodes.iter().map(|node| json!({"from": "review", "to": node["id"]})).collect();
        let patch = json!({"patch_version": "0.1", "justification": "more", "add_nodes": nodes, "add_edges": edges});
        porch.ask("n8n_workflow_1", Method::POST, &path, json!({ "patch": patch })).await
    };
    assert_eq!(patch("a").await.status, 202);
    let applied = |run: &Value| run["patches"][0]["status"] == "applied";
    porch.house.stage.until(chimera_testkit::flow::id_of(&run["run_id"]), applied).await;
    let refused = patch("b").await;
    assert_eq!((refused.status, refused.code()), (403, "POLICY_DENIED"), "{refused:?}");
    assert_eq!(refused.body["error"]["details"]["level_because"], "many_steps", "{refused:?}");
}

/// Whoever changes a workflow within, after the run was asked for, changes nothing of that run.
#[tokio::test]
async fn what_was_looked_at_is_what_runs() {
    let porch = porch_with(settings(TENANT, Vec::new()), None).await;
    let says = |text: &str| workflow("says").function("s", "local.summarize", json!({"text": text}));
    porch.house.stage.apply(&says("One.")).await;
    let outer = workflow("outer")
        .node(json!({"id": "review", "type": "hitl", "prompt": "Well?"}))
        .node(json!({"id": "c", "type": "workflow", "workflow_id": "says", "inputs": {}}))
        .edge("review", "c");
    porch.house.stage.apply(&outer).await;
    let ask = json!({"workflow_id": "outer", "inputs": {}, "wait": 15});
    let run = porch.act("n8n_workflow_1", ask.clone()).await.body;
    assert_eq!(run["status"], "awaiting_approval", "{run:#}");
    porch.clock.wait(1);
    porch.house.stage.apply(&says("Two.")).await;
    porch.clock.wait(1);
    let later = porch.act("n8n_workflow_1", ask).await.body;
    for (run, text) in [(&run, "One."), (&later, "Two.")] {
        let url = run["approve_url"].as_str().unwrap();
        assert_eq!(porch.ask("admin", Method::POST, url, json!({"decision": "approve"})).await.status, 200);
        let ended = porch.house.until(run, "completed").await;
        assert!(ended["result"]["c"].to_string().contains(text), "{text}: {}", ended["result"]);
    }
}
