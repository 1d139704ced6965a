//! Starting, showing and listing runs.

use super::{NOTHING, code, house, path, reviewed, signed};
use chimera_testkit::flow::{chain, workflow};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test]
async fn whoever_waits_gets_the_whole_run_when_it_has_ended() {
    let house = house().await;
    house.apply(&chain("w", &[("a", "think"), ("b", "change")])).await;
    let ask = json!({"wait": 15, "autonomy_level": "L2_ExecuteNotify", "priority": 2, "correlation_id": "mine"});
    let (status, run) = house.start("w", ask).await;
    assert_eq!(status, 200, "{run}");
    assert_eq!((&run["status"], &run["autonomy_level"]), (&json!("completed"), &json!("L2_ExecuteNotify")));
    assert_eq!(run["result"]["b"]["echo"]["n"], "b");
    let (_, shown) = house.get(&path(&run, "")).await;
    assert_eq!(shown["priority"], 2);
    for member in ["run_id", "status", "autonomy_level", "trace_id", "risk", "approvals", "approve_url", "result"] {
        assert_eq!(shown[member], run[member], "{member}");
    }
    assert_eq!(shown["plan"]["steps"], run["plan"]["steps"]);
    let (_, steps) = house.get(&path(&run, "/steps")).await;
    let standing: Vec<_> =
        steps["steps"].as_array().unwrap().iter().map(|step| (&step["node_id"], &step["status"])).collect();
    assert_eq!(standing, [(&json!("a"), &json!("completed")), (&json!("b"), &json!("completed"))]);
    assert_eq!(steps["steps"][1]["tool_calls"][0]["tool_name"], "change");
}

#[tokio::test]
async fn without_waiting_the_run_is_durable_and_named_at_once() {
    let house = house().await;
    house.apply(&chain("w", &[("a", "think")])).await;
    let request = house.client.post(house.server.url("/act")).bearer_auth(house.token("admin"));
    let answer = signed(request, house.stage.world.clock.now(), "admin", &json!({"workflow_id": "w", "wait": 0}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 202);
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    let started: Value = answer.json().await.unwrap();
    assert_eq!(place, path(&started, ""));
    assert_eq!(started["autonomy_level"], "L2_ExecuteNotify");
    assert_eq!(started["trace_id"], started["run_id"].as_str().unwrap().replace('-', ""));
    assert_eq!(house.until(&started, "completed").await["status"], "completed");
}

#[tokio::test]
async fn a_run_that_needs_a_person_is_answered_before_the_time_is_over() {
    let house = house().await;
    house.apply(&reviewed()).await;
    let (status, run) = house.start("reviewed", json!({"wait": 15})).await;
    assert_eq!((status, &run["status"]), (200, &json!("awaiting_approval")));
    let approval = &run["approvals"][0];
    assert_eq!((&approval["node_id"], &approval["approvals_needed"]), (&json!("review"), &json!(1)));
    assert_eq!(approval["action"]["input"], json!({"prompt": "May it?", "show": {"n": 1}}));
    assert_eq!(run["approve_url"], path(&run, "/approve"));
}

#[tokio::test]
async fn a_parent_is_waited_for_although_it_rests_while_its_child_runs() {
    let house = house().await;
    house.apply(&chain("child", &[("a", "change")])).await;
    let parent = workflow("parent").child("go", "child", json!({}));
    let run = house.run(&parent, json!({})).await;
    assert_eq!(run["status"], "completed", "{run}");
}

#[tokio::test]
async fn a_key_starts_one_run() {
    let house = house().await;
    let run = house.run(&chain("w", &[("a", "change")]), json!({"idempotency_key": "k"})).await;
    let (status, problem) = house.start("w", json!({"idempotency_key": "k"})).await;
    assert_eq!((status, code(&problem)), (409, "CONFLICT_IDEMPOTENCY"));
    assert_eq!(problem["error"]["details"]["run_id"], run["run_id"]);
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_says_what_it_would_do() {
    let house = house().await;
    let run = house.run(&chain("w", &[("a", "change")]), json!({"dry_run": true})).await;
    assert_eq!((&run["dry_run"], &run["status"]), (&json!(true), &json!("completed")), "{run}");
}

#[tokio::test]
async fn what_can_not_be_started_is_refused_with_the_reason() {
    let house = house().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    house.apply(&chain("w", &[("a", "think")]).with("inputs", schema)).await;
    for (body, status, expected) in [
        (json!({"inputs": {}}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": "x"}}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": 1}, "priority": 11}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": 1}, "idempotency_key": ""}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": 1}, "notify": {"webhook": "ftp://x"}}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": 1}, "notify": {"email": "nobody"}}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": 1}, "correlation_id": "x".repeat(257)}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": 1}, "autonomy_level": "L9"}), 400, "SCHEMA_INVALID"),
        (json!({"inputs": {"n": 1}, "speed": 1}), 400, "SCHEMA_INVALID"),
        (json!({"inputs": {"n": 1, "x": "\u{0}"}}), 422, "VALIDATION_FAILED"),
        (json!({"inputs": {"n": 1}, "version": 7}), 404, "NOT_FOUND"),
    ] {
        let (got, problem) = house.start("w", body.clone()).await;
        assert_eq!((got, code(&problem)), (status, expected), "{body}: {problem}");
    }
    assert_eq!(house.start("none", NOTHING).await.0, 404);
    assert_eq!(house.get("/runs").await.1["items"], json!([]));
}

#[tokio::test]
async fn runs_are_listed_newest_first_by_status_actor_and_workflow() {
    let house = house().await;
    house.run(&chain("one", &[("a", "think")]), json!({})).await;
    house.run(&chain("two", &[("a", "broken")]), json!({})).await;
    let ann = house.start_as("user_ann", "one", json!({"wait": 15})).await.1;
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|run| run["workflow_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&house.get("/runs").await.1), ["one", "two", "one"]);
    assert_eq!(ids(&house.get("/runs?status=failed").await.1), ["two"]);
    assert_eq!(ids(&house.get("/runs?workflow_id=one&status=completed").await.1), ["one", "one"]);
    let (_, of_ann) = house.get("/runs?actor=user_ann").await;
    assert_eq!(of_ann["items"][0]["run_id"], ann["run_id"]);
    let (_, page) = house.get("/runs?limit=2").await;
    let cursor = page["next_cursor"].as_str().unwrap();
    let (_, rest) = house.get(&format!("/runs?limit=2&cursor={cursor}")).await;
    assert_eq!((ids(&rest), &rest["next_cursor"]), (vec!["one".to_owned()], &Value::Null));
    for wrong in ["status=done", "limit=0", "cursor=xyz", &format!("actor=x&cursor={cursor}"), "actor=a%00b"] {
        let (status, problem) = house.get(&format!("/runs?{wrong}")).await;
        assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"), "{wrong}: {problem}");
    }
}

#[tokio::test]
async fn an_id_that_no_run_has_is_not_found() {
    let house = house().await;
    for id in ["x", "%00", "00000000-0000-0000-0000-000000000001"] {
        for rest in ["", "/steps", "/events"] {
            let (status, problem) = house.get(&format!("/runs/{id}{rest}")).await;
            assert_eq!((status, code(&problem)), (404, "NOT_FOUND"), "{id}{rest}");
        }
    }
}

/// The members that the document describes, with those of what it is made of.
fn described(document: &Value, name: &str) -> BTreeSet<String> {
    let schema = &document["components"]["schemas"][name];
    let parts = schema["allOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
    let mut members = BTreeSet::new();
    for part in parts {
        if let Some(reference) = part["$ref"].as_str() {
            members.extend(described(document, reference.rsplit('/').next().unwrap()));
        }
        members.extend(part["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
    }
    members
}

#[tokio::test]
async fn the_described_documents_have_the_members_of_the_real_ones() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let (_, steps) = house.get(&path(&run, "/steps")).await;
    let (_, list) = house.get("/runs").await;
    let (_, workflow) = house.get("/workflows/reviewed").await;
    let (_, workflows) = house.get("/workflows").await;
    let (_, tools) = house.get("/tools").await;
    let document = serde_json::to_value(chimera_api::document()).unwrap();
    let keys = |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    for (name, real) in [
        ("RunDocument", &run),
        ("RunSummary", &list["items"][0]),
        ("ApprovalDocument", &run["approvals"][0]),
        ("StepDocument", &steps["steps"][0]),
        ("CallDocument", &steps["steps"][0]["tool_calls"][0]),
        ("WorkflowDocument", &workflow),
        ("WorkflowEntry", &workflows["items"][0]),
        ("ToolDocument", &tools["items"][0]),
    ] {
        assert_eq!(described(&document, name), keys(real), "{name}");
    }
}

#[tokio::test]
async fn inputs_that_are_no_object_and_waits_that_are_no_time_are_refused() {
    let house = house().await;
    house.apply(&chain("w", &[("a", "think")])).await;
    for inputs in [json!([1]), json!("text"), json!(7), json!(true)] {
        let (status, problem) = house.start("w", json!({"inputs": inputs})).await;
        assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"), "{inputs}");
        let (status, problem) = house.post("/workflows/w/call", inputs.clone()).await;
        assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"), "{inputs}");
    }
    for wait in [json!(-1), json!(-0.5), json!(1e300), json!(3_601)] {
        let (status, problem) = house.start("w", json!({"wait": wait})).await;
        assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"), "{wait}");
    }
    for wait in ["-1", "NaN", "inf", "1e9"] {
        let (status, problem) = house.post(&format!("/workflows/w/call?wait={wait}"), json!({})).await;
        assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"), "{wait}");
    }
    let (_, runs) = house.get("/runs").await;
    assert_eq!(runs["items"], json!([]), "nothing was started");
}

#[tokio::test]
async fn the_version_that_is_not_there_is_named() {
    let house = house().await;
    house.apply(&chain("w", &[("a", "think")])).await;
    let (status, problem) = house.start("w", json!({"version": 99})).await;
    assert_eq!((status, problem["detail"].as_str()), (404, Some("no workflow `w` in version 99")));
    let (status, problem) = house.get("/workflows/w?version=99").await;
    assert_eq!((status, problem["detail"].as_str()), (404, Some("no workflow `w` in version 99")));
}

#[tokio::test]
async fn runs_are_found_by_the_beginning_of_their_id() {
    let house = house().await;
    let run = house.run(&chain("w", &[("a", "think")]), json!({})).await;
    let id = run["run_id"].as_str().unwrap();
    let digits = id.replace('-', "");
    for prefix in [&id[..8], &id[..13], &id[..18], &digits[..12], id] {
        let (status, found) = house.get(&format!("/runs?id_prefix={prefix}")).await;
        assert_eq!((status, found["items"][0]["run_id"].as_str()), (200, Some(id)), "{prefix}: {found}");
    }
    let (status, found) = house.get("/runs?id_prefix=ffffffff").await;
    assert_eq!((status, &found["items"]), (200, &json!([])));
    for prefix in ["", "0", "0000000", "zzzzzzzz", "0000-0000"] {
        let (status, problem) = house.get(&format!("/runs?id_prefix={prefix}")).await;
        assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"), "{prefix}");
    }
}

#[tokio::test]
async fn an_unknown_name_is_repeated_and_the_closest_one_suggested() {
    let house = house().await;
    house.apply(&chain("weekly-report", &[("a", "think")])).await;
    let run = house.run(&chain("w", &[("a", "think")]), json!({})).await;
    let nobody = "01a12c3f-8b7e-7c20-9d55-3f0e6a1b2c4d";
    for (asked, words) in [
        ("/workflows/wekly-report".to_owned(), "no workflow `wekly-report` (did you mean weekly-report?)"),
        ("/runs/01".to_owned(), "`01` is not a run id"),
        (format!("/runs/{nobody}"), "no run `01a12c3f-8b7e-7c20-9d55-3f0e6a1b2c4d`"),
        ("/runs/%1b[2J".to_owned(), "`\u{fffd}[2J` is not a run id"),
        ("/runs?status=compleet".to_owned(), "unknown run status `compleet` (did you mean completed?)"),
    ] {
        let (_, problem) = house.get(&asked).await;
        assert_eq!(problem["detail"], words, "{asked}");
    }
    let (status, problem) = house.start("wekly-report", json!({})).await;
    let words = "no workflow `wekly-report` (did you mean weekly-report?)";
    assert_eq!((status, problem["detail"].as_str()), (404, Some(words)));
    let (_, problem) = house.post(&path(&run, "/steps/b/resolve"), json!({"outcome": "never"})).await;
    assert_eq!(problem["detail"], "no step `b`");
}

/// An error names the parameter or member that is wrong, what it should be, and the limit that it exceeds.
#[tokio::test]
async fn an_error_says_which_value_is_wrong_and_what_it_should_be() {
    let house = house().await;
    for (asked, parameter, words) in [
        ("/runs?limit=x", "limit", "invalid query parameter `limit`: expected an integer in range"),
        ("/runs?limit=-1", "limit", "invalid query parameter `limit`: expected an integer in range"),
        ("/runs?in_doubt=maybe", "in_doubt", "invalid query parameter `in_doubt`: expected true or false"),
    ] {
        let (status, problem) = house.get(asked).await;
        assert_eq!((status, problem["detail"].as_str()), (400, Some(words)), "{asked}");
        assert_eq!(problem["error"]["details"]["parameter"], parameter, "{asked}");
    }
    let (_, problem) = house.get("/runs?id_prefix=0000-0000").await;
    assert!(problem["detail"].as_str().unwrap().contains("an id begins like 01a1eea5-4eba-7c3f"), "{problem}");
    let (status, problem) = house.start("w", json!({"autonomy_level": 3})).await;
    assert_eq!((status, &problem["error"]["details"]["pointer"]), (400, &json!("/autonomy_level")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().ends_with("expected a string"), "{problem}");

    house.apply(&chain("w", &[("a", "think")])).await;
    let (status, problem) = house.start("w", json!({"inputs": {"text": "x".repeat(1_100_000)}})).await;
    assert_eq!((status, code(&problem)), (413, "PAYLOAD_TOO_LARGE"), "{problem}");
    let max = chimera_core::limits::RUN_INPUT_BYTES_MAX;
    assert_eq!(problem["error"]["details"]["bytes_max"], max, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(&max.to_string()), "{problem}");

    for (workflow, status) in [("w", 204), ("absent", 404)] {
        let path = format!("/workflows/{workflow}/cache");
        assert_eq!(house.ask(reqwest::Method::DELETE, &path, NOTHING).await.0, status, "{workflow}");
    }
}

#[tokio::test]
async fn steps_are_listed_page_by_page_with_the_calls_of_each() {
    let house = house().await;
    let air = chain("w", &[("a", "think"), ("b", "change"), ("c", "think")])
        .node(json!({"id": "ask", "type": "hitl"}))
        .function("d", "think", json!({}))
        .function("e", "think", json!({}))
        .edge("c", "ask")
        .edge("ask", "d")
        .edge("ask", "e");
    let run = house.run(&air, json!({})).await;
    let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let (status, page) = house.get(&path(&run, &format!("/steps?limit=2{cursor}"))).await;
        assert_eq!(status, 200, "{page}");
        pages += 1;
        seen.extend(page["steps"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let nodes: Vec<_> =
        seen.iter().map(|step| (step["node_id"].as_str().unwrap(), step["status"].as_str().unwrap())).collect();
    let all = [
        ("a", "completed"),
        ("b", "completed"),
        ("c", "completed"),
        ("ask", "awaiting_approval"),
        ("d", "pending"),
        ("e", "pending"),
    ];
    assert_eq!((nodes.as_slice(), pages), (&all[..], 3));
    assert!(seen[..3].iter().all(|step| step["tool_calls"].as_array().unwrap().len() == 1), "{seen:?}");
    assert_eq!(house.get(&path(&run, "/steps")).await.1["steps"].as_array().unwrap().len(), 6);
    for cursor in ["node:x", "zzz"] {
        let (status, problem) = house.get(&path(&run, &format!("/steps?cursor={cursor}"))).await;
        assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"), "{cursor}");
    }
    assert_eq!(house.get(&path(&run, "/steps?limit=0")).await.0, 400);
}
