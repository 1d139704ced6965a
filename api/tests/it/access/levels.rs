//! Nothing runs more freely than was decided: what is not known when a run is asked for, what is done over
//! again, and what only looks as if it was done before.

use super::access_server::{AccessServer, ApiResponse, LIMITED_ACTOR, entry, porch_with, sent};
use crate::flow::{NOTHING, path};
use chimera_core::access::{ActorEntry, Level};
use chimera_core::flow::tables::RUNS;
use chimera_core::record::Row;
use chimera_engine::access::Settings;
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, TENANT, id_of, workflow};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

/// Acts at L2 with every tool that reaches outside.
const ACTOR: &str = "n8n_workflow_123";

async fn porch(mut entries: Vec<ActorEntry>) -> AccessServer {
    entries.push(entry(ACTOR, &["http.*", "webhook.*", "notion.*", "local.*"]));
    porch_with(settings(TENANT, entries), None).await
}

/// A request of an actor with a token that is narrower than they are.
async fn narrow(porch: &AccessServer, actor: &str, scopes: &[&str], path: &str, body: Value) -> ApiResponse {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    let token = porch.token_with(actor, |claims| claims.scopes = Some(scopes));
    let request = porch.house.client.post(porch.house.server.url(path)).bearer_auth(token);
    sent(crate::flow::signed(request, porch.house.stage.world.clock.now(), actor, &body)).await
}

fn read() -> Value {
    json!([{"tool": "http.request", "input": {"url": "https://a.test/secret", "method": "GET"}}])
}

fn sent_to(porch: &AccessServer, method: &str) -> usize {
    porch.asked("http.request").of("execute").iter().filter(|made| made.input["method"] == method).count()
}

/// What a person refused is not sent by looking at it once more.
#[tokio::test]
async fn a_shadow_does_not_send_what_was_refused() {
    let drafts = ActorEntry { level: Some(Level::Draft), ..entry("n8n_workflow_abc", &["http.*"]) };
    let porch = porch(vec![drafts]).await;
    let ask = async || porch.act("n8n_workflow_abc", json!({"steps": read(), "wait": 15})).await.body;
    let refused = ask().await;
    assert_eq!(porch.ask("admin", Method::POST, &path(&refused, "/reject"), NOTHING).await.status, 200);
    porch.house.until(&refused, "cancelled").await;
    let shadow = json!({"mode": "shadow"});
    let again = porch.ask("n8n_workflow_abc", Method::POST, &path(&refused, "/replay"), shadow.clone()).await;
    assert_eq!(again.status, 202, "{again:?}");
    let ended = porch.house.until(&again.body, "failed").await;
    assert_eq!(ended["error"]["code"], "NOT_RECORDED", "{ended:#}");
    let told = &ended["result"]["differences"][0];
    assert_eq!((&told["node"], &told["what"]), (&json!("s1"), &json!("not_recorded")), "{ended:#}");
    assert_eq!(sent_to(&porch, "GET"), 0);
    let approved = ask().await;
    let approve = json!({"decision": "approve"});
    assert_eq!(porch.ask("admin", Method::POST, &path(&approved, "/approve"), approve).await.status, 200);
    porch.house.until(&approved, "completed").await;
    let again = porch.ask("n8n_workflow_abc", Method::POST, &path(&approved, "/replay"), shadow).await;
    porch.house.until(&again.body, "completed").await;
    assert_eq!(sent_to(&porch, "GET"), 2, "what was sent is read anew");
}

/// A shadow takes the scopes of what it really calls, and of nothing else; and whoever must ask for every call
/// asks for those too.
#[tokio::test]
async fn a_shadow_takes_the_scopes_of_what_it_reads() {
    let asks = ActorEntry { level: Some(Level::Ask), ..entry("user_cat", &["runs.manage", "http.*"]) };
    let porch = porch(vec![asks, entry("user_bob", &["runs.manage"])]).await;
    let steps = json!([read()[0], {"tool": "notion.note", "input": {"n": 1}}]);
    let done = porch.act(ACTOR, json!({"steps": steps, "wait": 15})).await.body;
    porch.house.until(&done, "completed").await;
    let (replay, shadow) = (path(&done, "/replay"), json!({"mode": "shadow"}));
    let own = narrow(&porch, ACTOR, &["notion.*"], &replay, shadow.clone()).await;
    let manages = porch.ask("user_bob", Method::POST, &replay, shadow.clone()).await;
    for refused in [own, manages] {
        assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{refused:?}");
        assert_eq!(refused.detail("tool"), "http.request");
    }
    let asked = porch.ask("user_cat", Method::POST, &replay, shadow.clone()).await;
    assert_eq!((asked.status, &asked.body["autonomy_level"]), (202, &json!("L0_Ask")), "{asked:?}");
    porch.house.until(&asked.body, "awaiting_approval").await;
    assert_eq!(sent_to(&porch, "GET"), 1);
    let reads = narrow(&porch, ACTOR, &["http.*"], &replay, shadow).await;
    assert_eq!(reads.status, 202, "what it does not call takes no scope: {reads:?}");
    porch.house.until(&reads.body, "completed").await;
    assert_eq!((sent_to(&porch, "GET"), porch.asked("notion.note").count("execute")), (2, 1));
}

/// The run inside a run, once there is one.
async fn inside(porch: &AccessServer, run: &Value) -> Uuid {
    let is = |row: &Row| row.get("parent_run_id").as_uuid() == Some(id_of(&run["run_id"]));
    let found = || porch.house.stage.rows(&RUNS).iter().find(|row| is(row)).map(|row| row.uuid("id"));
    porch.house.sees(run, |_| found().is_some()).await;
    found().unwrap()
}

/// A step that gives what is not known before, and a node behind it.
fn behind(id: &str, given: Value, node: Value) -> Air {
    let source = json!({"id": "s", "type": "function", "fn": "http.request", "inputs": {"method": "GET", "is": given}});
    workflow(id).node(source).node(node).edge("s", "c")
}

/// What becomes a deletion or a message to somebody outside, by whatever expression and however deep, was
/// counted when the level was decided.
#[tokio::test]
async fn what_depends_on_the_unknown_is_taken_for_the_worst_inside_children() {
    let porch = porch(Vec::new()).await;
    let method = json!({"method": "${inputs.m == 'DELETE' ? 'DELETE' : 'GET'}", "url": "https://a.test"});
    let url = json!({"url": "${inputs.m == 'DELETE' ? 'https://evil.test' : 'https://acme.example'}"});
    for (id, tool, inputs) in [("kid", "http.request", method), ("mail", "webhook_send", url)] {
        porch.house.stage.apply(&workflow(id).function("a", tool, inputs)).await;
    }
    let within = json!({"m": "${inputs.m}"});
    porch.house.stage.apply(&workflow("middle").child("k", "kid", within)).await;
    let given = json!({"m": "DELETE", "l": ["DELETE"]});
    let child = |workflow: &str, text: &str| json!({"id": "c", "type": "workflow", "workflow_id": workflow, "inputs": {"m": text}});
    let item = json!({"type": "workflow", "workflow_id": "kid", "inputs": {"m": "${item}"}});
    let map = json!({"id": "c", "type": "map", "over": "${nodes.s.outputs.echo.is.l}", "do": item});
    let unknown = "${nodes.s.outputs.echo.is.m}";
    for (id, node, because) in [
        ("one", child("kid", unknown), "deletes"),
        ("deep", child("middle", unknown), "deletes"),
        ("each", map, "deletes"),
        ("mails", child("mail", unknown), "message_to_outsiders"),
    ] {
        porch.house.stage.apply(&behind(id, given.clone(), node)).await;
        let run = porch.act(ACTOR, json!({"workflow_id": id, "inputs": {}, "wait": 15})).await.body;
        assert_eq!(
            (&run["autonomy_level"], &run["risk"]["level_because"]),
            (&json!("L1_Draft"), &json!(because)),
            "{id}: {run:#}"
        );
    }
    porch.house.stage.apply(&behind("free", given, child("kid", "GET"))).await;
    let free = porch.act(ACTOR, json!({"workflow_id": "free", "inputs": {}, "wait": 15})).await.body;
    assert_eq!((&free["autonomy_level"], &free["status"]), (&json!("L2_ExecuteNotify"), &json!("completed")));
    assert_eq!((sent_to(&porch, "DELETE"), porch.asked("webhook_send").count("execute")), (0, 0));
}

/// However a run came to its level: a real call that deletes, or writes to somebody outside, waits for a person.
#[tokio::test]
async fn a_call_that_turns_out_to_delete_is_asked_about_at_every_level() {
    let porch = porch(Vec::new()).await;
    let each = json!({"type": "function", "fn": "http.request", "inputs": {"method": "${item}"}});
    let unknown = "${nodes.s.outputs.echo.is}";
    let delete = json!({"method": unknown});
    let mail = json!({"url": unknown});
    let call = |tool: &str, inputs: Value| json!({"id": "c", "type": "function", "fn": tool, "inputs": inputs});
    let map = json!({"id": "c", "type": "map", "over": unknown, "do": each});
    for (id, given, node, reason) in [
        ("one", json!("DELETE"), call("http.request", delete), "the call deletes something"),
        ("mail", json!("https://evil.test"), call("webhook_send", mail), "the call writes to somebody outside"),
        ("map", json!(["GET", "DELETE"]), map, "with these 2 items the run deletes something"),
    ] {
        porch.house.stage.apply(&behind(id, given, node)).await;
        for level in [Level::ExecuteNotify, Level::ExecuteSilent] {
            let ask = StartRun { level, ..StartRun::of(id, json!({})) };
            let permit = porch.house.stage.permit(ACTOR);
            let run = flow::start(&porch.house.stage.flow, &permit, ask).await.unwrap().run_id;
            let asked = porch.house.stage.asks(run).await.remove(0);
            let told = asked["action"]["reason"].as_str().unwrap();
            assert!(told.starts_with(reason), "{id} {level:?}: {told}");
        }
    }
    assert_eq!((sent_to(&porch, "DELETE"), porch.asked("webhook_send").count("execute")), (0, 0));
}

/// A list whose risk can't be seen before: its texts are put together from what a step gives.
fn late() -> Air {
    let parts = json!(["DR", "OP TABLE users; -- ann@exa", "mple.com"]);
    let part = |at: usize| format!("nodes.s.outputs.echo.is[{at}]");
    let text = format!("${{{} + {} + {}}}", part(0), part(1), part(2));
    let each = json!({"type": "function", "fn": "local.summarize", "inputs": {"text": "${item}"}});
    behind("late", parts, json!({"id": "c", "type": "map", "over": [text], "do": each}))
}

/// The scope counts for whoever used it to ask for the level, and for nobody else.
#[tokio::test]
async fn only_a_level_that_was_asked_for_outranks_the_risk_of_a_late_list() {
    let scopes = ["http.*", "local.*", "autonomy.override"];
    let over = ActorEntry { level: None, ..entry("n8n_workflow_abc", &scopes) };
    let porch = porch(vec![over]).await;
    porch.house.stage.apply(&late()).await;
    let parent = workflow("around").child("k", "late", json!({}));
    porch.house.stage.apply(&parent).await;
    for id in ["late", "around"] {
        let ask = json!({"workflow_id": id, "inputs": {}});
        let mut asks = ask.clone();
        asks["autonomy_level"] = "L2_ExecuteNotify".into();
        let whole = porch.act("n8n_workflow_abc", ask.clone()).await;
        let less = narrow(&porch, "n8n_workflow_abc", &scopes[..2], "/act", ask).await;
        let less_asks = narrow(&porch, "n8n_workflow_abc", &scopes[..2], "/act", asks.clone()).await;
        for waits in [whole, less, less_asks] {
            assert_eq!(waits.body["risk"]["level_because"], "risk_score", "{id}: {waits:?}");
            let run = match id {
                "around" => inside(&porch, &waits.body).await,
                _ => id_of(&waits.body["run_id"]),
            };
            let asked = porch.house.stage.asks(run).await.remove(0);
            let told = asked["action"]["reason"].as_str().unwrap();
            assert!(told.contains("has a risk of"), "{id}: {told}");
        }
        let free = porch.act("n8n_workflow_abc", asks).await;
        assert_eq!(free.body["risk"]["level_because"], "override", "{id}: {free:?}");
        porch.house.until(&free.body, "completed").await;
    }
}

/// What was done before is a document with all within it, not a name.
#[tokio::test]
async fn another_version_of_a_workflow_is_done_for_the_first_time() {
    let porch = porch_with(Settings { cautious: true, ..settings(TENANT, Vec::new()) }, None).await;
    let says = |id: &str, text: &str| workflow(id).function("a", "local.summarize", json!({ "text": text }));
    let outer = workflow("outer").child("c", "inner", json!({}));
    let stage = &porch.house.stage;
    let approve = async |run: Uuid| {
        stage.asks(run).await;
        let path = format!("/runs/{run}/approve");
        assert_eq!(porch.ask("admin", Method::POST, &path, json!({"decision": "approve"})).await.status, 200);
    };
    let level = async |id: &str| {
        let run = porch.act("n8n_workflow_1", json!({"workflow_id": id, "inputs": {}, "wait": 15})).await.body;
        let level = run["autonomy_level"].as_str().unwrap().to_owned();
        if level == "L1_Draft" {
            approve(id_of(&run["run_id"])).await;
            if id == "outer" {
                approve(inside(&porch, &run).await).await;
            }
        }
        porch.house.until(&run, "completed").await;
        level
    };
    porch.house.stage.apply(&says("inner", "One.")).await;
    porch.house.stage.apply(&outer).await;
    for id in ["inner", "outer"] {
        assert_eq!(level(id).await, "L1_Draft", "{id}");
        assert_eq!(level(id).await, "L2_ExecuteNotify", "{id}");
    }
    porch.clock.wait(2);
    porch.house.stage.apply(&says("inner", "Two.")).await;
    porch.clock.wait(2);
    for id in ["inner", "outer"] {
        assert_eq!(level(id).await, "L1_Draft", "{id}");
    }
}

/// Nothing is started that a limit denies whenever it is made: what it adds can't be read from its input. A value that a
/// step will only return is left to the run.
#[tokio::test]
async fn a_call_without_a_valid_amount_is_refused_at_the_door() {
    for level in [Level::ExecuteSilent, Level::Draft] {
        let robot = ActorEntry { level: Some(level), ..entry(LIMITED_ACTOR, &["desk.*", "billing.*"]) };
        let porch = porch(vec![robot]).await;
        let act = async |input: Value| {
            porch.act(LIMITED_ACTOR, json!({"steps": [{"tool": "desk.refund", "input": input}]})).await
        };
        let wrong = [json!(-1), json!("NaN"), json!("0.0000001"), json!(1e300), json!(null), json!([1])];
        let inputs = wrong.iter().map(|amount| json!({"amount": amount})).chain([json!({}), json!({"amounts": 1})]);
        for input in inputs {
            let refused = act(input.clone()).await;
            assert_eq!((refused.status, refused.code()), (403, "POLICY_DENIED"), "{level:?} {input}: {refused:?}");
            assert_eq!((refused.detail("rule"), refused.detail("pointer")), (&json!("refunds"), &json!("/steps/0")));
        }
        assert_eq!(porch.house.stage.rows(&RUNS).len(), 0);
        // Started; whether the answer has the result depends on the level and the time it took.
        let is_started = |answer: &ApiResponse| [200, 202].contains(&answer.status);
        let valid = act(json!({"amount": "12.5"})).await;
        assert!(is_started(&valid), "{valid:?}");
        let first = json!({"tool": "desk.refund", "input": {"amount": 1}});
        let second = json!({"tool": "desk.refund", "input": {"amount": "${nodes.s1.outputs.echo.amount}"}});
        let later = porch.act(LIMITED_ACTOR, json!({"steps": [first, second]})).await;
        assert!(is_started(&later), "{later:?}");
        // Of what is beyond the limit, a person decides.
        let beyond = act(json!({"amount": 1001})).await;
        assert!(is_started(&beyond), "{beyond:?}");
    }
}
