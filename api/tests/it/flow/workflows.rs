//! Applying, checking, showing and listing workflows.

use super::{NOTHING, code, house, reviewed};
use chimera_core::limits::JSON_VALUES_MAX;
use chimera_testkit::flow::{chain, workflow};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_document_becomes_a_version_and_the_same_again_changes_nothing() {
    let house = house().await;
    let first = chain("w", &[("a", "think")]);
    let put = |air: &chimera_testkit::flow::Air| (Method::PUT, air.document().clone());
    let (method, document) = put(&first);
    let (status, applied) = house.ask(method, "/workflows/w", document).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&applied["workflow_id"], &applied["version"], &applied["created"]),
        (&json!("w"), &json!(1), &json!(true))
    );
    assert_eq!(applied["digest"].as_str().unwrap().len(), 64);
    let (_, again) = house.ask(Method::PUT, "/workflows/w", first.document().clone()).await;
    assert_eq!(
        (&again["version"], &again["created"], &again["digest"]),
        (&json!(1), &json!(false), &applied["digest"])
    );
    let second = chain("w", &[("a", "think"), ("b", "think")]);
    let (_, next) = house.ask(Method::PUT, "/workflows/w", second.document().clone()).await;
    assert_eq!(next["version"], 2);

    let (_, newest) = house.get("/workflows/w").await;
    assert_eq!((&newest["version"], newest["document"]["nodes"].as_array().unwrap().len()), (&json!(2), 2));
    let (_, oldest) = house.get("/workflows/w?version=1").await;
    assert_eq!((&oldest["version"], &oldest["digest"]), (&json!(1), &applied["digest"]));
    assert_eq!(oldest["created_by"], "admin");
    for absent in
        ["/workflows/w?version=3", "/workflows/nothing", "/workflows/%00", &format!("/workflows/{}", "x".repeat(200))]
    {
        let (status, problem) = house.get(absent).await;
        assert_eq!((status, code(&problem)), (404, "NOT_FOUND"), "{absent}");
    }
    let (status, problem) = house.get("/workflows/w?version=one").await;
    assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"));
}

/// What a document costs goes by its values, also where a reader of its own reads it.
#[tokio::test]
async fn a_document_of_too_many_values_is_refused_like_every_other_body() {
    let house = house().await;
    let values = vec![0; JSON_VALUES_MAX];
    let document = chain("w", &[("a", "think")]).with("inputs", json!({"enum": values})).document().clone();
    for (method, path, body) in [
        (Method::PUT, "/workflows/w", document.clone()),
        (Method::POST, "/workflows/w/check", document),
        (Method::POST, "/act", json!({"workflow_id": "w", "inputs": values})),
    ] {
        let (status, problem) = house.ask(method, path, body).await;
        assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"), "{path}: {problem}");
        let reason = problem["error"]["details"]["reason"].as_str().unwrap();
        assert_eq!(reason, "the document has more than 100000 values", "{path}");
    }
}

#[tokio::test]
async fn every_fault_of_a_document_is_told_with_its_place() {
    let house = house().await;
    let broken = json!({
        "air_version": "1.0", "workflow_id": "w",
        "nodes": [
            {"id": "a", "type": "function", "fn": "nonexistent", "inputs": {}},
            {"id": "b", "type": "function", "fn": "thnk", "inputs": {}},
        ],
        "edges": [{"from": "a", "to": "b"}],
    });
    for (method, path) in [(Method::PUT, "/workflows/w"), (Method::POST, "/workflows/w/check")] {
        let (status, problem) = house.ask(method, path, broken.clone()).await;
        assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"), "{problem}");
        let problems = problem["error"]["details"]["problems"].as_array().unwrap();
        let at = |pointer: &str| problems.iter().any(|found| found["pointer"].as_str().unwrap().starts_with(pointer));
        assert!(at("/nodes/0/fn") && at("/nodes/1/fn"), "{problem}");
        let text = broken.to_string();
        let column = text.find("\"nonexistent\"").unwrap() + 1;
        assert_eq!((&problems[0]["line"], &problems[0]["column"]), (&json!(1), &json!(column)), "{problem}");
    }
    let (status, problem) = house.ask(Method::PUT, "/workflows/other", reviewed().document().clone()).await;
    assert_eq!((status, code(&problem)), (422, "MALFORMED_ARGS"));
    assert_eq!(house.get("/workflows").await.1["items"], json!([]));
}

#[tokio::test]
async fn checking_stores_nothing() {
    let house = house().await;
    let (status, checked) = house.post("/workflows/reviewed/check", reviewed().document().clone()).await;
    assert_eq!(status, 200, "{checked}");
    assert_eq!((&checked["nodes"], &checked["edges"], &checked["not_startable"]), (&json!(3), &json!(2), &Value::Null));
    assert_eq!(house.get("/workflows/reviewed").await.0, 404);
    let agent = json!({
        "air_version": "1.0", "workflow_id": "later",
        "nodes": [{"id": "a", "type": "agent", "agent": "x", "inputs": {}}], "edges": [],
    });
    let (status, checked) = house.post("/workflows/later/check", agent).await;
    assert_eq!(status, 200, "{checked}");
    assert!(checked["not_startable"].is_string());
    let (status, problem) = house.post("/workflows/reviewed/check", json!({"air_version": "1.0"})).await;
    assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"));
}

#[tokio::test]
async fn a_listing_has_the_newest_of_each_and_goes_on_behind_its_cursor() {
    let house = house().await;
    for id in ["c", "a", "b"] {
        house.apply(&chain(id, &[("n", "think")])).await;
    }
    house.apply(&chain("a", &[("n", "think"), ("m", "think")]).with("description", json!("twice"))).await;
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| format!("{} {}", item["workflow_id"].as_str().unwrap(), item["version"])).collect()
    };
    let (_, page) = house.get("/workflows?limit=2").await;
    assert_eq!(ids(&page), ["a 2", "b 1"]);
    assert_eq!(page["items"][0]["description"], "twice");
    let (_, rest) = house.get(&format!("/workflows?limit=2&cursor={}", page["next_cursor"].as_str().unwrap())).await;
    assert_eq!((ids(&rest), &rest["next_cursor"]), (vec!["c 1".to_owned()], &Value::Null));
    for wrong in ["limit=0", "limit=1001", "limit=x", "size=3", "cursor=%00"] {
        let (status, problem) = house.get(&format!("/workflows?{wrong}")).await;
        assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"), "{wrong}: {problem}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_of_its_type_is_refused() {
    let house = house().await;
    let send = |kind: &'static str, body: &'static [u8]| {
        let request = house.client.put(house.server.url("/workflows/w")).bearer_auth(house.token("admin"));
        let now = house.stage.world.clock.now();
        let signed = chimera_testkit::access::signed("admin", now, ("PUT", "/workflows/w"), body);
        let request = signed.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        request.header("content-type", kind).body(body).send()
    };
    assert_eq!(send("text/plain", b"{}").await.unwrap().status(), 415);
    assert_eq!(send("application/json", b"\xff").await.unwrap().status(), 400);
    let cut = send("application/json", b"{\"air_version\":").await.unwrap();
    assert_eq!(cut.status(), 422);
    assert_eq!(code(&cut.json().await.unwrap()), "VALIDATION_FAILED");
}

#[tokio::test]
async fn tools_are_listed_with_schemas_and_what_policies_decide_by() {
    let house = house().await;
    let (status, tools) = house.get("/tools").await;
    assert_eq!(status, 200);
    let tool = tools["items"].as_array().unwrap().iter().find(|tool| tool["name"] == "change").unwrap();
    assert_eq!((&tool["effect"], &tool["metadata"]["risk_level"]), (&json!("write"), &json!("low")));
    assert_eq!(tool["input_schema"]["properties"]["dry_run"]["type"], "boolean");
}

#[tokio::test]
async fn recorded_outputs_are_forgotten_by_key_or_all() {
    let house = house().await;
    let document = chain("w", &[("a", "think")]).document().clone();
    assert_eq!(house.ask(Method::PUT, "/workflows/w", document).await.0, 200);
    for path in ["/workflows/w/cache", "/workflows/w/cache?key=n:sha256:00"] {
        assert_eq!(house.ask(Method::DELETE, path, NOTHING).await, (204, Value::Null));
    }
    assert_eq!(house.ask(Method::DELETE, "/workflows/missing/cache", NOTHING).await.0, 404);
}

#[tokio::test]
async fn what_is_wrong_with_a_workflow_is_said_in_our_own_words() {
    let house = house().await;
    let put = async |id: &str, document: Value| {
        let (status, problem) = house.ask(Method::PUT, &format!("/workflows/{id}"), document).await;
        assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"), "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    };
    let long = "x".repeat(129);
    assert!(put(&long, chain(&long, &[("a", "think")]).document().clone()).await.contains("1 to 128"));
    let remote = json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}});
    let told = put("w", chain("w", &[("a", "think")]).with("inputs", remote).document().clone()).await;
    assert!(told.contains("\"https://example.com/schema.json\" refers to another document"), "{told}");
    let told = put("w", json!([])).await;
    assert_eq!(told, "the workflow is not valid: expected an object, found an array");
    let approval = json!({"approvals_needed": 3, "approvers": ["user_ann"]});
    let lonely = workflow("w").node(json!({"id": "ask", "type": "hitl", "approval": approval}));
    let told = put("w", lonely.document().clone()).await;
    assert!(told.contains("/nodes/0/approval/approvals_needed: 3 people must approve, but only 1 may"), "{told}");
    let approval = json!({"approvals_needed": 3, "approvers": ["user_a*"]});
    house.apply(&workflow("w").node(json!({"id": "ask", "type": "hitl", "approval": approval}))).await;
}
