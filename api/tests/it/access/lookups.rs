//! How often a request reads a workflow: once, and each of its child workflows once, with nothing cached.
//!
//! For a tenant that uses another's shared workflow these are several rows: its own (there is none), the owner's, and
//! its copy. It reads none of them twice.

use super::access_server::access_fixture;
use chimera_core::access::{ActorEntry, Guest, Level, SharedResources};
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{WORKFLOW_SHARES, WORKFLOWS};
use chimera_core::record::{Scope, Select};
use chimera_core::tool::EffectKind;
use chimera_engine::access::Permit;
use chimera_engine::access::port::Tenancy;
use chimera_engine::act::{self, ActOutcome, ActRequest, Actions, Objective};
use chimera_engine::flow;
use chimera_testkit::access::{everybody, settings};
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, TENANT, World, stage, workflow};
use chimera_testkit::memory::MemoryRecords;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Shares one tool with every tenant but the default one.
struct OneSharedTool;

impl Tenancy for OneSharedTool {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let shared = SharedResources { tools: vec!["test.read".to_owned()], ..SharedResources::default() };
        (tenant != TENANT).then(|| Arc::new(Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared }))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A node that has just started, on a store that may be older.
struct ColdNode {
    stage: EngineFixture,
    actions: Arc<Actions>,
}

/// A service that acts at L2.
fn service(tenant: &str) -> Permit {
    Permit::for_entry(ActorEntry {
        scopes: vec!["*".to_owned()],
        level: Some(Level::ExecuteNotify),
        ..ActorEntry::default_for("n8n_workflow_1", tenant)
    })
}

async fn open(world: World, records: Arc<MemoryRecords>) -> ColdNode {
    let ground = access_fixture(&world, &records, None);
    let directory = ground.directory(settings(TENANT, everybody(TENANT))).await;
    let tool = ScriptedTool::new("test.read", EffectKind::Read).build();
    let stage = stage(1).tool(tool).tenancy(Arc::new(OneSharedTool)).world(world).open_on(records).await;
    let actions = ground.access(&directory, stage.flow.clone());
    ColdNode { stage, actions }
}

fn outer() -> Air {
    workflow("outer").child("one", "middle", json!({})).child("two", "inner", json!({})).child(
        "three",
        "inner",
        json!({}),
    )
}

/// `outer` starts `middle`, and both start `inner`.
async fn with_workflows() -> ColdNode {
    let node = open(World::new(1), Arc::new(MemoryRecords::new())).await;
    node.stage.apply(&workflow("inner").function("a", "test.read", json!({}))).await;
    node.stage.apply(&workflow("middle").child("one", "inner", json!({}))).await;
    node.stage.apply(&outer()).await;
    node.restart().await
}

impl ColdNode {
    async fn restart(self) -> Self {
        self.stage.flow.stop();
        let node = open(self.stage.world.clone(), Arc::clone(&self.stage.records)).await;
        node.stage.records.take_reads();
        node
    }

    /// Acts, waits for the end of the run, and returns what was read of workflows.
    async fn act(&self, permit: &Permit, what: Objective) -> (Uuid, Vec<String>) {
        let act = ActRequest::of(what, json!({}));
        let run = match act::act(&self.actions, permit, act).await {
            Ok(ActOutcome::Started(begun)) => begun.started.run_id,
            Ok(ActOutcome::Duplicate { .. }) => panic!("there is no key"),
            Err(error) => panic!("{}", json!(error.body())),
        };
        (run, self.lookups(permit, run).await)
    }

    async fn lookups(&self, permit: &Permit, run: Uuid) -> Vec<String> {
        let reads = self.stage.records.take_reads();
        let ended = |shown: &Value| shown["ended_at"].is_string() || shown["status"] == "completed";
        self.stage.wait_for_in(permit.tenant(), run, ended).await;
        lookups(&reads)
    }
}

/// The reads of workflows and their shares, sorted: tenant, id, and what else was asked for.
fn lookups(reads: &[Select]) -> Vec<String> {
    let of_workflows = |read: &&Select| [&WORKFLOWS, &WORKFLOW_SHARES].contains(&read.table);
    let line = |read: &Select| {
        let tenant = match &read.scope {
            Scope::Tenant(tenant) => tenant.as_str(),
            _ => "shares",
        };
        let value = |column: &str| read.conditions.iter().find(|condition| condition.column == column);
        let id = value("workflow_id").and_then(|condition| condition.value.as_text()).unwrap_or("?");
        let version = value("version").and_then(|condition| condition.value.as_int());
        let version = version.map(|version| format!(" v{version}")).unwrap_or_default();
        format!("{tenant} {}{version}", if id.starts_with("act.") { "plan" } else { id })
    };
    let mut lines: Vec<String> = reads.iter().filter(of_workflows).map(line).collect();
    lines.sort();
    lines
}

fn by_id(id: &str, version: Option<i64>) -> Objective {
    Objective::Workflow { id: id.to_owned(), version, inputs: json!({}) }
}

fn steps() -> Objective {
    Objective::Steps(vec![("test.read".to_owned(), json!({}))])
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_looked_up_once_whether_it_is_new_or_stored() {
    let (node, permit) = (with_workflows().await, service(TENANT));
    assert_eq!(node.act(&permit, steps()).await.1, ["acme plan"], "a new one");
    let node = node.restart().await;
    assert_eq!(node.act(&permit, steps()).await.1, ["acme plan"], "a stored one");
    assert_eq!(node.act(&permit, steps()).await.1, [""; 0], "a cached one");
    let guest = service("other");
    assert_eq!(node.act(&guest, steps()).await.1, ["other plan"], "another tenant's");
    let node = node.restart().await;
    assert_eq!(node.act(&guest, steps()).await.1, ["other plan"]);
}

#[tokio::test(start_paused = true)]
async fn a_workflow_and_its_children_are_looked_up_once_each() {
    let (mut node, permit) = (with_workflows().await, service(TENANT));
    for (version, outer) in [(None, "acme outer"), (Some(1), "acme outer v1")] {
        let (_, looked) = node.act(&permit, by_id("outer", version)).await;
        assert_eq!(looked, ["acme inner", "acme middle", outer]);
        node = node.restart().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_workflow_is_looked_up_once_and_no_row_is_read_twice() {
    let (node, guest) = (with_workflows().await, service("other"));
    for id in ["inner", "middle", "outer"] {
        flow::share_workflow(&node.stage.flow, &service(TENANT), id, true).await.unwrap();
    }
    let node = node.restart().await;
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    // The newest version: the tenant's own, the share, the owner's.
    let newest = |ids: &[&str]| -> Vec<String> {
        ids.iter().flat_map(|id| ["acme", "other", "shares"].map(|whose| format!("{whose} {id}"))).collect()
    };
    let all = ["inner", "middle", "outer"];
    let copies = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| format!("other {id} v1")).collect() };
    let cold = sorted([newest(&all), copies(&all)].concat());
    assert_eq!(node.act(&guest, by_id("outer", None)).await.1, cold, "it has no copies yet");
    assert_eq!(node.act(&guest, by_id("outer", None)).await.1, sorted(newest(&all)), "the copies are cached");
    let node = node.restart().await;
    assert_eq!(node.act(&guest, by_id("outer", None)).await.1, cold, "they have to be read once");
    let node = node.restart().await;
    let own = ["other outer".to_owned(), "shares outer".to_owned()].to_vec();
    let versioned = sorted([newest(&all[..2]), copies(&all), own].concat());
    assert_eq!(node.act(&guest, by_id("outer", Some(1))).await.1, versioned, "the copy itself is asked for");
}

#[tokio::test(start_paused = true)]
async fn a_replay_looks_its_workflows_up_once_each() {
    let (node, permit) = (with_workflows().await, service(TENANT));
    let (run, _) = node.act(&permit, by_id("outer", None)).await;
    let mut node = node.restart().await;
    for mode in [ReplayMode::Freeze, ReplayMode::Shadow, ReplayMode::Retry] {
        let again = act::replay(&node.actions, &permit, Replay { of: run, mode, from: None }, None).await;
        let again = again.unwrap_or_else(|error| panic!("{}", json!(error.body()))).run_id;
        let looked = node.lookups(&permit, again).await;
        assert_eq!(looked, ["acme inner v1", "acme middle v1", "acme outer v1"], "{mode:?}");
        node = node.restart().await;
    }
}
