//! Tenants behind one door: whatever one has, another can neither read, change, count nor tell from nothing.
//!
//! Every operation of the OpenAPI document is asked twice, in an order that a seed gives: for something that
//! another tenant has, and for something of the same shape that nobody has. The answers must be the same, none
//! may hold a word of the other tenant, and no row of that tenant may have changed. An operation without its case
//! fails here.

use super::matrix::{OPEN, operations, unsigned};
use crate::flow::{FlowServer, NOTHING, front, furnished, reviewed, setup};
use chimera_core::access::{ActorEntry, Ed25519PrivateKey, Ed25519PublicKey, Guest, Role, SharedResources};
use chimera_core::catalog;
use chimera_core::limits::RATE_HITS_MAX;
use chimera_core::record::Row;
use chimera_engine::access::Settings;
use chimera_engine::access::port::Tenancy;
use chimera_testkit::access::{everybody, settings};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, TENANT, workflow};
use chimera_testkit::seeded::Seeded;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Shares every tool with every tenant but the default one.
pub(super) struct AllToolsShared;

impl Tenancy for AllToolsShared {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let shared = SharedResources { tools: vec!["*".to_owned()], ..SharedResources::default() };
        (tenant != TENANT).then(|| Arc::new(Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared }))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// What somebody has, or what nobody has.
#[derive(Clone)]
pub(super) struct TenantResources {
    tenant: &'static str,
    actor: &'static str,
    pub(super) workflow: String,
    /// A run that waits for a decision, and its approval.
    pub(super) run: String,
    digest: String,
    /// The key under which a run was asked for.
    key: String,
    /// Where a list of the owner goes on.
    cursor: String,
    /// A signing key of the actor.
    kid: String,
    /// What nobody else may read.
    pub(super) marks: Vec<String>,
}

impl TenantResources {
    /// Names of the same shape behind which there is nothing.
    fn absent() -> Self {
        Self {
            tenant: "nobodys",
            actor: "user_zz9",
            workflow: "absentwork".to_owned(),
            run: "019f2c1e-7a54-7d31-8c1e-5f0e2b9a6d10".to_owned(),
            digest: "0".repeat(64),
            key: "key-of-nobody".to_owned(),
            cursor: "AAAAAAAAAABbIjEiXQ".to_owned(),
            kid: public_key(98).kid(),
            marks: Vec::new(),
        }
    }

    /// What stands in a request, to be told from what an answer adds.
    fn names(&self) -> [&str; 8] {
        [&self.run, &self.workflow, self.actor, &self.digest, &self.key, &self.cursor, self.tenant, &self.kid]
    }
}

pub(super) fn public_key(seed: u8) -> Ed25519PublicKey {
    Ed25519PrivateKey::from_seed(&[seed; 32]).public()
}

pub(super) type Body = fn(&TenantResources) -> Value;

fn none(_: &TenantResources) -> Value {
    Value::Null
}

fn empty(_: &TenantResources) -> Value {
    json!({})
}

fn document(of: &TenantResources) -> Value {
    named(&of.workflow).document().clone()
}

/// A schedule with the name of its workflow.
fn scheduled(of: &TenantResources) -> Value {
    json!({"name": of.workflow, "workflow_id": of.workflow, "every": "1d", "starts_at": "2999-01-01T00:00:00Z"})
}

/// Every guarded operation with its parameters, and a body that its owner could send.
pub(super) const CASES: &[(&str, &str, Body)] = &[
    ("POST /auth/revoke", "", |of| json!({"token": of.run})),
    ("POST /act", "", |of| json!({"workflow_id": of.workflow, "wait": 0})),
    ("POST /intents", "", |of| unsigned(&of.workflow)),
    ("POST /intents/validate", "", |of| unsigned(&of.workflow)),
    ("GET /intents/catalog", "", none),
    ("GET /actors", "", none),
    ("GET /actors/{id}", "", none),
    ("PUT /actors/{id}", "", |_| json!({"scopes": []})),
    ("POST /actors/{id}/keys", "", empty),
    ("DELETE /actors/{id}", "", none),
    ("GET /actors/{id}/signing-keys", "", none),
    ("POST /actors/{id}/signing-keys", "", |_| json!({"public_key": public_key(99).x()})),
    ("POST /signing-keys/{kid}/rotate", "", |_| json!({"public_key": public_key(99).x()})),
    ("DELETE /signing-keys/{kid}", "", none),
    ("GET /tenants", "", none),
    ("POST /tenants", "", |of| json!({"slug": of.tenant})),
    ("GET /tenants/{slug}", "", none),
    ("PATCH /tenants/{slug}", "", |_| json!({"disabled": true})),
    ("GET /tools", "", none),
    ("GET /tool-calls", "?run_id={run}", none),
    ("GET /doubts", "?cursor={cursor}", none),
    ("GET /inbox", "?cursor={cursor}", none),
    ("GET /audit", "?run_id={run}", none),
    ("GET /workflows", "?cursor={workflow}", none),
    ("GET /workflows/{id}", "", none),
    ("POST /workflows/{id}/call", "", empty),
    ("PUT /workflows/{id}", "", document),
    ("POST /workflows/{id}/check", "", document),
    ("PUT /workflows/{id}/share", "", none),
    ("GET /tools/problems", "", none),
    ("POST /tools/reload", "", none),
    ("DELETE /workflows/{id}/share", "", none),
    ("DELETE /workflows/{id}/cache", "", none),
    ("GET /events", "?key={workflow}", none),
    ("POST /events", "", |of| json!({"name": "paid", "key": of.workflow})),
    ("GET /schedules", "?cursor={cursor}", none),
    ("POST /schedules", "", scheduled),
    ("GET /schedules/{name}", "", none),
    ("PUT /schedules/{name}", "", |of| json!({"workflow_id": of.workflow, "every": "2d"})),
    ("GET /schedules/{name}/next", "", none),
    ("POST /schedules/{name}/pause", "", empty),
    ("POST /schedules/{name}/resume", "", none),
    ("POST /schedules/{name}/run", "", empty),
    ("DELETE /schedules/{name}", "", none),
    ("GET /work", "", none),
    ("POST /work/claim", "", |_| json!({"queue": "desk"})),
    ("POST /work/renew", "", |of| json!({"item_id": of.run, "lease_token": "x"})),
    ("POST /work/complete", "", |of| json!({"item_id": of.run, "lease_token": "x", "output": {}})),
    ("POST /work/fail", "", |of| json!({"item_id": of.run, "lease_token": "x", "message": "no"})),
    ("GET /runs", "?cursor={cursor}", none),
    ("GET /runs/{id}", "", none),
    ("PATCH /runs/{id}", "", |_| json!({"status": "rolled_back"})),
    ("GET /runs/{id}/steps", "", none),
    ("GET /runs/{id}/executions", "", none),
    ("POST /runs/{id}/steps/{step}/resolve", "", |_| json!({"outcome": "never"})),
    ("POST /runs/{id}/steps/{step}/edit", "", |_| json!({"input": {}})),
    ("GET /runs/{id}/events", "", none),
    ("POST /runs/{id}/approve", "", |of| json!({"decision": "approve", "digest": of.digest})),
    ("POST /runs/{id}/reject", "", empty),
    ("POST /runs/{id}/cancel", "", none),
    ("POST /runs/{id}/pause", "", none),
    ("POST /runs/{id}/resume", "", none),
    ("POST /runs/{id}/rollback", "", empty),
    ("POST /runs/{id}/retry", "", empty),
    ("POST /runs/{id}/replay", "", |_| json!({"mode": "freeze"})),
    ("POST /runs/{id}/patch", "", |_| json!({"patch": {}})),
    ("DELETE /runs/{id}/patches/{number}", "", none),
];

pub(super) fn named(id: &str) -> Air {
    workflow(id)
        .function("think", "think", json!({"said": "${inputs.said}"}))
        .node(json!({"id": "review", "type": "hitl", "prompt": "May it?", "show": {"n": 1}}))
        .function("change", "change", json!({"n": 2}))
        .edge("think", "review")
        .edge("review", "change")
}

/// Scopes for everything, short of the operator's.
fn wide(actor: &str, tenant: &str) -> ActorEntry {
    let scopes = "actors.* approvals.* audit.* autonomy.* events.* runs.* workflows.* think change broken".split(' ');
    let scopes = scopes.map(str::to_owned).collect();
    let kind = chimera_core::access::Kind::Human;
    ActorEntry { scopes, quota_per_minute: RATE_HITS_MAX, kind, ..ActorEntry::default_for(actor, tenant) }
}

/// A house with the default tenant and two others.
pub(super) async fn street() -> FlowServer {
    let stage = setup().tenancy(Arc::new(AllToolsShared)).open().await;
    let others = [
        wide("user_ann", TENANT),
        wide("user_123", "other"),
        wide("user_cat", "umbrella"),
        wide("user_bob", "initech"),
    ];
    let access = front(&stage, settings(TENANT, everybody(TENANT).into_iter().chain(others).collect())).await;
    let flow = stage.flow.clone();
    let mut house = furnished(setup().unkept(), |edge| edge.with_flow(flow).with_actions(access)).await;
    house.stage = stage;
    house
}

/// Lets somebody have one of everything.
pub(super) async fn settled(house: &FlowServer, actor: &'static str, tenant: &'static str) -> TenantResources {
    let workflow = format!("work-of-{tenant}");
    let air = named(&workflow);
    let applied = house.ask_as(actor, Method::PUT, &format!("/workflows/{workflow}"), air.document().clone()).await;
    assert_eq!(applied.0, 200, "{applied:?}");
    let (said, key) = (format!("word-of-{tenant}"), format!("key-of-{tenant}"));
    let mut runs = Vec::new();
    for key in [&key, &format!("{key}-2")] {
        let ask = json!({"inputs": {"said": said}, "idempotency_key": key, "wait": 15});
        let (status, run) = house.start_as(actor, &workflow, ask).await;
        assert!([200, 202].contains(&status), "{run}");
        runs.push(run);
    }
    let (_, shown) = house.ask_as(actor, Method::GET, &format!("/runs/{}", id(&runs[0])), NOTHING).await;
    let (_, page) = house.ask_as(actor, Method::GET, "/runs?limit=1", NOTHING).await;
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{shown} {page}")).to_owned();
    let (digest, cursor) = (text(&shown["approvals"][0]["digest"]), text(&page["next_cursor"]));
    let own_key = public_key(u8::try_from(tenant.len()).unwrap());
    let new = json!({"public_key": own_key.x()});
    let (status, made) = house.ask_as(actor, Method::POST, &format!("/actors/{actor}/signing-keys"), new).await;
    assert_eq!(status, 201, "{made}");
    let kid = own_key.kid();
    let marks =
        vec![said, id(&runs[0]), id(&runs[1]), digest.clone(), key.clone(), actor.to_owned(), kid.clone(), own_key.x()];
    let resources = TenantResources { tenant, actor, workflow, run: id(&runs[0]), digest, key, cursor, kid, marks };
    let (status, made) = house.ask_as(actor, Method::POST, "/schedules", scheduled(&resources)).await;
    assert_eq!(status, 201, "{made}");
    let event = json!({"name": "paid", "key": resources.workflow});
    let (status, sent) = house.ask_as(actor, Method::POST, "/events", event).await;
    assert_eq!(status, 201, "{sent}");
    resources
}

fn id(run: &Value) -> String {
    run["run_id"].as_str().unwrap().to_owned()
}

/// Every row of a tenant, in every table that says whose its rows are.
fn rows(house: &FlowServer, tenant: &str) -> Vec<Row> {
    let tables = catalog().into_iter().filter_map(|table| Some((table, table.tenant?)));
    let of_tenant = |(table, column)| {
        let rows = house.stage.records.rows(table).into_iter();
        rows.filter(move |row: &Row| row.get(column).as_text() == Some(tenant))
    };
    tables.flat_map(of_tenant).collect()
}

async fn asked(house: &FlowServer, who: &str, case: &(&str, &str, Body), of: &TenantResources) -> (u16, Value) {
    let (method, path) = case.0.split_once(' ').unwrap();
    let named = match path {
        path if path.starts_with("/runs") => &of.run,
        path if path.starts_with("/actors") => of.actor,
        _ => &of.workflow,
    };
    let path =
        path.replace("{id}", named).replace("{slug}", of.tenant).replace("{step}", "review").replace("{number}", "1");
    let path = path.replace("{name}", &of.workflow).replace("{kid}", &of.kid);
    let query = case.1.replace("{run}", &of.run).replace("{cursor}", &of.cursor).replace("{workflow}", &of.workflow);
    house.ask_as(who, method.parse().unwrap(), &format!("{path}{query}"), case.2(of)).await
}

/// An answer without what was asked for, and without what is new in every answer.
fn stripped(answer: &Value, of: &TenantResources) -> Value {
    match answer {
        Value::String(text) => {
            let names = of.names().into_iter();
            names.fold(text.clone(), |text, name| text.replace(name, "X")).into()
        }
        Value::Array(items) => items.iter().map(|item| stripped(item, of)).collect(),
        Value::Object(members) => {
            let volatile = ["trace_id", "request_id", "run_id", "instance"];
            let kept = members.iter().filter(|(name, _)| !volatile.contains(&name.as_str()));
            Value::Object(kept.map(|(name, member)| (name.clone(), stripped(member, of))).collect())
        }
        other => other.clone(),
    }
}

/// Asks for everything of somebody as somebody else.
async fn walk(house: &FlowServer, owner: &TenantResources, who: &str, seed: u64) {
    let (random, absent) = (Seeded::new(seed), TenantResources::absent());
    let before = rows(house, owner.tenant);
    let mut cases: Vec<_> = CASES.iter().collect();
    while !cases.is_empty() {
        let at = usize::try_from(random.below(cases.len() as u64)).unwrap();
        let case = cases.swap_remove(at);
        let (theirs, nobodys) = (asked(house, who, case, owner).await, asked(house, who, case, &absent).await);
        let what = format!("{} by {who}, seed {seed}: {theirs:?} {nobodys:?}", case.0);
        // Whoever is of the default tenant has every name that no other tenant has.
        let has_names = who == "user_ann" && case.0.contains("/actors/{id}");
        if !has_names {
            assert_eq!(theirs.0, nobodys.0, "told apart: {what}");
            if theirs.0 >= 300 {
                assert_eq!(stripped(&theirs.1, owner), stripped(&nobodys.1, &absent), "told apart: {what}");
            }
        }
        let asked_for = owner.names();
        let unasked = owner.marks.iter().filter(|mark| !asked_for.contains(&mark.as_str()));
        let text = theirs.1.to_string();
        for mark in unasked {
            assert!(!text.contains(mark.as_str()), "read: {mark} in {what}");
        }
        if theirs.0 < 300 {
            // What was asked for by its name is not repeated by anybody who has it.
            for mark in [&owner.run, &owner.digest] {
                assert!(!text.contains(mark.as_str()), "read: {mark} in {what}");
            }
        }
        assert_eq!(rows(house, owner.tenant), before, "changed by {what}");
    }
}

#[test]
fn every_operation_has_its_case() {
    let written: BTreeSet<String> =
        CASES.iter().map(|case| case.0).chain(OPEN.iter().map(|open| open.0)).map(str::to_owned).collect();
    assert_eq!(operations(), written, "an operation without its case, or a case without its operation");
}

#[tokio::test]
async fn nothing_of_a_tenant_is_read_changed_or_told_from_nothing_by_another() {
    let house = street().await;
    let default = settled(&house, "admin", TENANT).await;
    let other = settled(&house, "user_cat", "umbrella").await;
    for seed in 1..=2 {
        walk(&house, &default, "user_cat", seed).await;
        walk(&house, &other, "user_bob", seed).await;
        walk(&house, &other, "user_ann", seed).await;
    }
}

#[tokio::test]
async fn a_list_is_the_same_whatever_other_tenants_do() {
    let house = street().await;
    settled(&house, "user_cat", "umbrella").await;
    let mut lists = Vec::new();
    let own =
        |case: &&(&str, &str, Body)| case.0.starts_with("GET ") && !case.0.contains('{') && !case.0.contains("tenants");
    for case in CASES.iter().filter(own) {
        let path = case.0.trim_start_matches("GET ");
        lists.push((path, house.ask_as("user_cat", Method::GET, path, NOTHING).await));
    }
    settled(&house, "admin", TENANT).await;
    settled(&house, "user_bob", "initech").await;
    for (path, before) in lists {
        let after = house.ask_as("user_cat", Method::GET, path, NOTHING).await;
        assert_eq!(before, after, "counted: {path}");
        assert_eq!(after.0, 200, "{path}");
    }
}

/// A key that another tenant has used is as good as a new one.
#[tokio::test]
async fn an_idempotency_key_is_a_tenants_own() {
    let house = street().await;
    let default = settled(&house, "admin", TENANT).await;
    let other = settled(&house, "user_cat", "umbrella").await;
    let ask = |key: &str| json!({"inputs": {"said": "x"}, "idempotency_key": key, "wait": 15});
    let before = rows(&house, TENANT);
    let taken = house.start_as("user_cat", &other.workflow, ask(&default.key)).await;
    let fresh = house.start_as("user_cat", &other.workflow, ask("key-of-nobody")).await;
    assert_eq!((taken.0, &taken.1["status"]), (fresh.0, &fresh.1["status"]), "{taken:?} {fresh:?}");
    assert_ne!(id(&taken.1), default.run);
    let (status, again) = house.start_as("user_cat", &other.workflow, ask(&default.key)).await;
    assert_eq!((status, &again["error"]["details"]["run_id"]), (409, &taken.1["run_id"]), "{again}");
    assert_eq!(rows(&house, TENANT), before);
}

/// A role of another tenant is as unknown as one that nobody has, and gives nothing.
#[tokio::test]
async fn a_role_is_a_tenants_own() {
    let role = |name: &str, tenant: &str, scope: &str| Role {
        name: name.to_owned(),
        tenant: tenant.to_owned(),
        scopes: vec![scope.to_owned()],
    };
    let stage = setup().open().await;
    let actors = [wide("user_cat", "umbrella"), wide("user_bob", "initech"), wide("user_ann", TENANT)];
    let roles = vec![role("clerk", "umbrella", "workflows.read"), role("auditor", TENANT, "audit.read")];
    let all = settings(TENANT, everybody(TENANT).into_iter().chain(actors).collect());
    let access = front(&stage, Settings { roles, ..all }).await;
    let flow = stage.flow.clone();
    let mut house = furnished(setup().unkept(), |edge| edge.with_flow(flow).with_actions(access)).await;
    house.stage = stage;
    let put = async |who: &str, role: &str| {
        let body = json!({"roles": [role], "autonomy_level": "L0_Ask"});
        let (status, told) = house.ask_as(who, Method::PUT, &format!("/actors/{who}"), body).await;
        (status, told["error"]["code"].clone(), told.to_string())
    };
    for who in ["user_cat", "user_bob"] {
        let (theirs, nobodys) = (put(who, "auditor").await, put(who, "absents").await);
        assert_eq!((theirs.0, &theirs.1), (422, &json!("VALIDATION_FAILED")), "{theirs:?}");
        let same = |told: &str, name: &str| told.replace(name, "X").split("trace_id").next().unwrap().to_owned();
        assert_eq!(same(&theirs.2, "auditor"), same(&nobodys.2, "absents"));
    }
    let told = put("user_bob", "clerk").await;
    assert!(told.0 == 422 && !told.2.contains("its roles are"), "{told:?}");
    let (status, told) =
        house.ask_as("user_bob", Method::PUT, "/actors/user_bob", json!({"roles": ["x"], "tenant": "umbrella"})).await;
    assert!(status == 403 && !told.to_string().contains("clerk"), "{told}");
    assert_eq!(put("user_cat", "clerk").await.0, 200);
    let (_, shown) = house.ask_as("user_cat", Method::GET, "/actors/user_cat", NOTHING).await;
    assert_eq!(shown["effective_scopes"], json!(["workflows.read"]), "{shown}");
    assert_eq!(house.ask_as("user_cat", Method::GET, "/audit", NOTHING).await.0, 403);
}

/// What is shared is read and started by all, and changed by nobody else; everything else stays its tenant's own.
#[tokio::test]
async fn a_shared_workflow_is_started_by_every_tenant_as_its_own() {
    let house = street().await;
    let default = settled(&house, "admin", TENANT).await;
    let (path, list) = (format!("/workflows/{}", default.workflow), "/workflows");
    let share = format!("{path}/share");
    for who in ["user_ann", "user_cat"] {
        let (status, told) = house.ask_as(who, Method::PUT, &share, NOTHING).await;
        assert_eq!((status, &told["error"]["code"]), (403, &json!("RBAC_FORBIDDEN")), "{who}: {told}");
    }
    assert_eq!(house.ask(Method::PUT, "/workflows/absentwork/share", NOTHING).await.0, 404);
    assert_eq!(house.ask_as("user_cat", Method::GET, &path, NOTHING).await.0, 404);
    for _ in 0..2 {
        let (status, told) = house.ask(Method::PUT, &share, NOTHING).await;
        assert_eq!((status, &told["shared"]), (200, &json!(true)), "{told}");
    }
    let before = rows(&house, TENANT);
    let (status, shown) = house.ask_as("user_cat", Method::GET, &path, NOTHING).await;
    assert_eq!((status, &shown["shared"], &shown["created_by"]), (200, &json!(true), &Value::Null), "{shown}");
    let (_, listed) = house.ask_as("user_cat", Method::GET, list, NOTHING).await;
    assert_eq!(listed["items"][0]["workflow_id"], json!(default.workflow), "{listed}");
    assert!(!listed.to_string().contains("admin") && !shown.to_string().contains("admin"), "{listed} {shown}");

    let ask = json!({"inputs": {"said": "mine"}, "idempotency_key": default.key, "wait": 15});
    let (status, run) = house.start_as("user_cat", &default.workflow, ask.clone()).await;
    assert!([200, 202].contains(&status), "{run}");
    let at = format!("/runs/{}", id(&run));
    assert_eq!(house.ask_as("user_cat", Method::GET, &at, NOTHING).await.0, 200);
    for who in ["user_ann", "user_bob"] {
        assert_eq!(house.ask_as(who, Method::GET, &at, NOTHING).await.0, 404, "{who}: the run is its starter's");
    }
    assert_eq!(rows(&house, TENANT), before, "nothing of the owner has changed");

    assert_eq!(house.ask(Method::DELETE, &share, NOTHING).await.1["shared"], json!(false));
    let ask = json!({"inputs": {"said": "again"}, "wait": 0});
    assert_eq!(house.start_as("user_cat", &default.workflow, ask.clone()).await.0, 404);
    let versioned = json!({"inputs": {"said": "again"}, "version": 1, "wait": 0});
    assert_eq!(house.start_as("user_cat", &default.workflow, versioned).await.0, 404, "not by its version either");
    assert_eq!(house.ask_as("user_cat", Method::GET, &path, NOTHING).await.0, 404);
    let (status, shown) = house.ask_as("user_cat", Method::GET, &at, NOTHING).await;
    assert_eq!((status, &shown["status"]), (200, &json!("awaiting_approval")), "{shown}");
    // The ledger of the owner says who; that of the other tenant does not speak of the owner.
    let entries = house.stage.rows(&chimera_core::ledger::tables::AUDIT_LOG_ENTRIES);
    let of = |event: &str| entries.iter().filter(|row| row.text("event_type") == event).collect::<Vec<_>>();
    for event in ["workflow.shared", "workflow.unshared"] {
        let told = of(event);
        assert_eq!((told.len(), told[0].text("actor_id"), told[0].text("tenant_id")), (1, "admin", TENANT), "{event}");
    }
    let copied = of("workflow.copied");
    assert_eq!((copied.len(), copied[0].text("tenant_id")), (1, "umbrella"));
    assert!(!copied[0].get("data_json").as_json().unwrap().value().unwrap().to_string().contains(TENANT));
}

/// A workflow starts only workflows of its own tenant.
#[tokio::test]
async fn a_workflow_of_another_tenant_is_no_part_of_ones_own() {
    let house = street().await;
    let default = settled(&house, "admin", TENANT).await;
    let check = async |child: &str| {
        let air = workflow("outer").child("inner", child, json!({}));
        let (status, told) =
            house.ask_as("user_cat", Method::POST, "/workflows/outer/check", air.document().clone()).await;
        (status, told.to_string().replace(child, "X").replace(told["trace_id"].as_str().unwrap_or("-"), ""))
    };
    let (theirs, nobodys) = (check(&default.workflow).await, check("absentwork").await);
    assert_eq!(theirs.0, nobodys.0);
    assert!(theirs.1.contains("X") && !theirs.1.contains("word-of"), "{theirs:?} {nobodys:?}");
    let own = settled(&house, "user_cat", "umbrella").await;
    assert_ne!(check(&own.workflow).await.1, theirs.1);
    assert_eq!(reviewed().id(), "reviewed");
}

/// An operator writes and shares what a tenant runs, and nobody there is named as its author.
#[tokio::test]
async fn an_operator_who_acts_for_a_tenant_is_no_second_pair_of_eyes_there() {
    let house = street().await;
    let ask = |approval: Value| json!({"id": "ask", "type": "hitl", "prompt": "May it?", "approval": approval});
    for (name, approval, status) in
        [("strict", json!({"other_than_requester": true}), 403), ("plain", json!({"approvals_needed": 1}), 200)]
    {
        let air = workflow(name).node(ask(approval));
        let path = format!("/workflows/{name}");
        assert_eq!(house.ask(Method::PUT, &path, air.document().clone()).await.0, 200);
        assert_eq!(house.ask(Method::PUT, &format!("{path}/share"), NOTHING).await.0, 200);
        let (_, run) = house.start_as("user_123", name, json!({"inputs": {}, "wait": 15})).await;
        let decide = format!("/runs/{}/approve?for_tenant=other", id(&run));
        let (told, answer) = house.post(&decide, json!({"decision": "approve"})).await;
        assert_eq!(told, status, "{name}: {answer}");
        if status == 403 {
            assert_eq!(answer["error"]["details"]["reason"], "acts_for_tenant", "{answer}");
        }
    }
}

#[tokio::test]
async fn an_operator_acts_for_another_tenant_by_name_and_that_tenants_ledger_says_so() {
    let house = street().await;
    let other = settled(&house, "user_123", "other").await;
    let run = format!("/runs/{}", other.run);
    assert_eq!(house.get(&run).await.0, 404, "an operator sees what is their own tenant's");
    let (status, shown) = house.get(&format!("{run}?for_tenant=other")).await;
    assert_eq!((status, &shown["status"]), (200, &json!("awaiting_approval")), "{shown}");
    let (status, listed) = house.get("/runs?limit=1&for_tenant=other").await;
    assert_eq!((status, listed["items"].as_array().map(Vec::len)), (200, Some(1)), "{listed}");
    let (status, told) = house.post(&format!("{run}/cancel?for_tenant=other"), NOTHING).await;
    assert!(status < 300, "{told}");
    let acted = |row: &&Row| row.text("tenant_id") == "other" && row.text("event_type") == "operator.acted";
    let entries = house.stage.rows(&chimera_core::ledger::tables::AUDIT_LOG_ENTRIES);
    let entries: Vec<&Row> = entries.iter().filter(acted).collect();
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|row| row.text("actor_id") == "admin"), "{entries:?}");
    let last = entries[2].get("data_json").as_json().unwrap().value().unwrap();
    assert!(last.to_string().contains("POST /runs/{id}/cancel") && last.to_string().contains(TENANT), "{last}");

    assert_eq!(house.get("/runs?for_tenant=absent").await.0, 404);
    for twice in ["/runs?for_tenant=other&for_tenant=other", "/runs?for_tenant=other&limit=x"] {
        assert_eq!(house.get(twice).await.0, 400, "{twice}");
    }
    // Nobody else acts for another tenant, whether it is there or not, and for none where the query is not signed.
    for case in CASES {
        let mut told = Vec::new();
        for slug in ["other", "absent"] {
            let with =
                (case.0, &*format!("{}{}for_tenant={slug}", case.1, if case.1.is_empty() { "?" } else { "&" }), case.2);
            let (status, answer) = asked(&house, "user_cat", &with, &TenantResources::absent()).await;
            let wanted = if case.0 == "POST /act" { 400 } else { 403 };
            assert_eq!(status, wanted, "{}: {answer}", case.0);
            told.push(stripped(&answer, &TenantResources::absent()));
        }
        assert_eq!(told[0], told[1], "{}", case.0);
    }
}
