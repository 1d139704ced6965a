//! What an operator does for another tenant stands in both ledgers: in that tenant's with `operator_of`, and in the
//! operator's own with `for_tenant`.

use super::tenants::{CASES, TenantResources, named, public_key, settled, street};
use crate::flow::FlowServer;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::TENANT;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Changing operations, in an order in which each succeeds, by an operator for another tenant.
fn operator_changes(other: &TenantResources, second: &str) -> Vec<(&'static str, String, Value)> {
    let (workflow, run) = (other.workflow.as_str(), other.run.as_str());
    let case = |operation: &'static str, path: &str, body: Value| (operation, path.to_owned(), body);
    let air = named(workflow).function("more", "think", json!({"said": "more"}));
    let schedule = json!({"name": "own", "workflow_id": workflow, "every": "1d", "inputs": {"said": "x"}});
    let (first, next) = (public_key(97), public_key(96));
    let rotate = format!("/signing-keys/{}/rotate", first.kid());
    vec![
        case("PUT /workflows/{id}", &format!("/workflows/{workflow}"), air.document().clone()),
        case("DELETE /workflows/{id}/cache", &format!("/workflows/{workflow}/cache"), Value::Null),
        case("POST /workflows/{id}/call", &format!("/workflows/{workflow}/call"), json!({"said": "x"})),
        case("POST /schedules", "/schedules", schedule),
        case(
            "PUT /schedules/{name}",
            "/schedules/own",
            json!({"workflow_id": workflow, "every": "2d", "inputs": {"said": "x"}}),
        ),
        case("POST /schedules/{name}/pause", "/schedules/own/pause", json!({})),
        case("POST /schedules/{name}/resume", "/schedules/own/resume", Value::Null),
        case("POST /schedules/{name}/run", "/schedules/own/run", json!({})),
        case("DELETE /schedules/{name}", "/schedules/own", Value::Null),
        case("POST /events", "/events", json!({"name": "paid", "key": "operator"})),
        case("POST /runs/{id}/pause", &format!("/runs/{run}/pause"), Value::Null),
        case("POST /runs/{id}/approve", &format!("/runs/{second}/approve"), json!({"decision": "approve"})),
        case("POST /runs/{id}/cancel", &format!("/runs/{run}/cancel"), Value::Null),
        case("PUT /actors/{id}", "/actors/user_123", json!({"scopes": ["think"]})),
        case("POST /actors/{id}/keys", "/actors/user_123/keys", json!({})),
        case("POST /actors/{id}/signing-keys", "/actors/user_123/signing-keys", json!({"public_key": first.x()})),
        case("POST /signing-keys/{kid}/rotate", &rotate, json!({"public_key": next.x()})),
        case("DELETE /signing-keys/{kid}", &format!("/signing-keys/{}", next.kid()), Value::Null),
        case("DELETE /actors/{id}", "/actors/user_123", Value::Null),
    ]
}

/// Operations that end as one of those above: as a signal to the run, as a run of its own, as a decision, or as an event
/// of the same permit.
const SAME_ENTRY: &[&str] = &[
    "PATCH /runs/{id}",
    "POST /runs/{id}/steps/{step}/resolve",
    "POST /runs/{id}/steps/{step}/edit",
    "POST /runs/{id}/reject",
    "POST /runs/{id}/resume",
    "POST /runs/{id}/rollback",
    "POST /runs/{id}/retry",
    "POST /runs/{id}/replay",
    "POST /runs/{id}/patch",
    "DELETE /runs/{id}/patches/{number}",
    "POST /work/claim",
    "POST /work/renew",
    "POST /work/complete",
    "POST /work/fail",
];

/// Operations that change nothing, or nothing of the tenant in `for_tenant`.
const NOT_FOR_A_TENANT: &[&str] = &[
    "POST /act",
    "POST /auth/revoke",
    // An envelope names the tenant itself. What it starts is one of the operations above.
    "POST /intents",
    "POST /intents/validate",
    "POST /workflows/{id}/check",
    "PUT /workflows/{id}/share",
    "DELETE /workflows/{id}/share",
    "POST /tenants",
    "POST /tools/reload",
    "PATCH /tenants/{slug}",
];

/// Entries of a tenant by their type, with their data.
fn entries_of(house: &FlowServer, tenant: &str) -> Vec<(String, Value)> {
    let entries = house.stage.rows(&chimera_core::ledger::tables::AUDIT_LOG_ENTRIES);
    let of_tenant = entries.iter().filter(|row| row.text("tenant_id") == tenant);
    of_tenant
        .map(|row| (row.text("event_type").to_owned(), row.get("data_json").as_json().unwrap().value().unwrap()))
        .collect()
}

#[tokio::test]
async fn what_an_operator_changes_for_another_tenant_stands_in_both_ledgers() {
    let house = street().await;
    let other = settled(&house, "user_123", "other").await;
    let changes = operator_changes(&other, &other.marks[2]);
    let covered = changes.iter().map(|change| change.0).chain(SAME_ENTRY.iter().chain(NOT_FOR_A_TENANT).copied());
    let covered: BTreeSet<String> = covered.map(str::to_owned).collect();
    let guarded = CASES.iter().map(|case| case.0).filter(|operation| !operation.starts_with("GET "));
    assert_eq!(covered, guarded.map(str::to_owned).collect(), "an operation without its case");
    for (operation, path, body) in changes {
        let before = (entries_of(&house, "other").len(), entries_of(&house, TENANT).len());
        let method = operation.split_once(' ').unwrap().0.parse().unwrap();
        let (status, answer) = house.ask(method, &format!("{path}?for_tenant=other"), body).await;
        assert!(status < 300, "{operation}: {status} {answer}");
        let theirs = entries_of(&house, "other").split_off(before.0);
        let own = entries_of(&house, TENANT).split_off(before.1);
        let by_operator = |(kind, data): &&(String, Value)| data["operator_of"] == TENANT && kind != "operator.acted";
        let mut theirs: Vec<&str> = theirs.iter().filter(by_operator).map(|(kind, _)| kind.as_str()).collect();
        let mut mirrored: Vec<&str> = own.iter().map(|(kind, _)| kind.as_str()).collect();
        assert!(!theirs.is_empty(), "{operation}: the tenant is not told who did it");
        assert!(own.iter().all(|(_, data)| data["for_tenant"] == "other"), "{operation}: {own:?}");
        theirs.sort_unstable();
        mirrored.sort_unstable();
        assert_eq!(theirs, mirrored, "{operation}");
    }
}

#[tokio::test]
async fn a_tenant_is_named_in_the_query_as_every_other_parameter_is() {
    let house = street().await;
    let other = settled(&house, "user_123", "other").await;
    for query in ["for_tenant=other", "for_tenant=%6Fther", "for%5Ftenant=other", "limit=5&for_tenant=o%74her"] {
        let (status, page) = house.ask(Method::GET, &format!("/runs?{query}"), Value::Null).await;
        assert_eq!(status, 200, "{query}: {page}");
        let theirs = page["items"].as_array().unwrap().iter().any(|run| run["workflow_id"] == other.workflow);
        assert!(theirs, "{query}: {page}");
    }
    let (status, twice) = house.ask(Method::GET, "/runs?for_tenant=other&for%5Ftenant=other", Value::Null).await;
    assert_eq!(status, 400, "{twice}");
}

#[tokio::test]
async fn a_token_of_another_tenant_is_an_unknown_one() {
    let house = street().await;
    let theirs = house.token("user_ann");
    let (status, answer) = house.ask_as("user_123", Method::POST, "/auth/revoke", json!({"token": theirs})).await;
    assert_eq!((status, &answer["revoked"]), (200, &json!(false)), "{answer}");
    let (status, _) = house.ask_as("user_ann", Method::GET, "/runs", Value::Null).await;
    assert_eq!(status, 200, "it stays valid");
}

#[tokio::test]
async fn a_disabled_tenant_and_its_operator_are_both_told() {
    let house = street().await;
    settled(&house, "user_123", "other").await;
    let (status, answer) = house.post("/tenants?for_tenant=other", json!({"slug": "newcomer"})).await;
    assert_eq!(status, 403, "nobody manages tenants while they act for one: {answer}");
    let (status, answer) = house.ask(Method::PATCH, "/tenants/other", json!({"disabled": true})).await;
    assert_eq!(status, 200, "{answer}");
    for (tenant, member, value) in [(TENANT, "for_tenant", "other"), ("other", "operator_of", TENANT)] {
        let entries = entries_of(&house, tenant);
        let found = entries.iter().find(|(kind, _)| kind == "tenant.disabled").unwrap();
        assert_eq!(found.1[member], value, "{found:?}");
    }
}
