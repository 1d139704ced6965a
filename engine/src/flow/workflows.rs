//! The workflows of all tenants, by id and version.
//!
//! A version never changes, so its compiled graph is cached and shared by all its runs. Applying the same document
//! again returns the existing version.

use super::compiled::Compiled;
use super::definitions::PinnedSpecs;
use super::lookup::{FoundWorkflow, Origin};
use super::newest::NewestVersions;
use super::registry::{ToolSet, disabled};
use super::share::is_own;
use super::{ToolRegistry, lookup};
use crate::access::{Permit, WORKFLOWS_READ, WORKFLOWS_WRITE};
use crate::error::EngineError;
use crate::flow::error::invalid_document;
use crate::ledger::audit::Writer;
use crate::offload::Offload;
use crate::port::{Clock, CommitError, Random, Records};
use crate::rows;
use arc_swap::Guard;
use chimera_core::error::Code;
use chimera_core::flow::air::{
    self, Body, Catalog, ChildWorkflow, Document, DocumentProblem, Graph, Node, ProblemCode, Source, WorkflowInfo,
};
use chimera_core::flow::pins::Pins;
use chimera_core::flow::tables::{WORKFLOWS, WorkflowRow, workflows};
use chimera_core::json::Digest32;
use chimera_core::limits;
use chimera_core::record::{Comparison, Direction, Insert, Json, Scope, Select, StoredRow, Tx, Value};
use chimera_core::time::Timestamp;
use chimera_core::tool::Spec;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name prefix of plans.
pub(crate) const PLAN_PREFIX: &str = "act.";

pub struct Workflows {
    pub(super) records: Arc<dyn Records>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) registry: Arc<ToolRegistry>,
    graphs: Mutex<Compiled>,
    pub(super) newest: NewestVersions,
    /// Compiles large documents.
    pub(super) offload: Arc<Offload>,
}

/// The result of applying a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedWorkflow {
    pub workflow_id: String,
    pub version: i64,
    pub digest: Digest32,
    /// Whether this call created the version.
    pub is_new: bool,
}

/// The catalog for compiling a document: the tools of this process and the workflows that it names.
pub struct ToolCatalog<'a> {
    registry: &'a ToolRegistry,
    /// The tools at the moment when the catalog was made.
    set: Guard<Arc<ToolSet>>,
    /// The tools whose definition is fixed already.
    pinned: &'a PinnedSpecs,
    /// Restricts the tools to a tenant's; `None`: all, for a graph that was already authorized.
    tenant: Option<&'a str>,
    children: BTreeMap<(String, Option<i64>), WorkflowInfo>,
    /// The answer for workflows that were not looked up.
    unknown: WorkflowInfo,
    /// Missing tools are replaced by placeholders.
    stands_in: bool,
}

/// The workflows that the runs of a document would start.
#[derive(Default)]
struct Descendants {
    children: BTreeMap<(String, Option<i64>), WorkflowInfo>,
    problems: Vec<DocumentProblem>,
}

impl<'a> ToolCatalog<'a> {
    /// For a graph that is already running: its children are looked up when they start.
    #[must_use]
    pub fn running(registry: &'a ToolRegistry) -> Self {
        static NONE: PinnedSpecs = PinnedSpecs::none();
        Self {
            registry,
            set: registry.snapshot(),
            pinned: &NONE,
            tenant: None,
            children: BTreeMap::new(),
            unknown: WorkflowInfo::Exists,
            stands_in: false,
        }
    }

    /// The same, with these definitions of its tools.
    #[must_use]
    pub(super) fn pinned(self, pinned: &'a PinnedSpecs) -> Self {
        Self { pinned, ..self }
    }

    /// Which set of tools it has.
    pub(super) fn generation(&self) -> u64 {
        self.set.generation
    }
}

impl Catalog for ToolCatalog<'_> {
    fn tool(&self, name: &str) -> Option<Arc<Spec>> {
        if let Some(pinned) = self.pinned.get(name) {
            return pinned.as_ref().ok().cloned();
        }
        self.registry.spec_in(&self.set, self.tenant, name)
    }

    fn workflow(&self, id: &str, version: Option<i64>) -> WorkflowInfo {
        self.children.get(&(id.to_owned(), version)).unwrap_or(&self.unknown).clone()
    }

    fn unavailable_reason(&self, name: &str) -> Option<String> {
        self.registry.why_absent(self.tenant?, name)
    }

    fn absence_reason(&self, name: &str) -> Option<String> {
        match self.pinned.get(name) {
            Some(pinned) => pinned.as_ref().err().cloned(),
            None => Some(format!("the tool {name} can't be called: {}", disabled(self.set.why_disabled(name)?))),
        }
    }

    fn refusal(&self, tool: &Spec) -> Option<String> {
        self.registry.refusal(&self.set, self.tenant?, tool)
    }

    fn allows_placeholders(&self) -> bool {
        self.stands_in
    }

    fn tool_names(&self) -> Vec<String> {
        let specs = match self.tenant {
            Some(tenant) => self.registry.specs_of(tenant),
            None => self.registry.specs(),
        };
        specs.iter().map(|spec| spec.name.clone()).collect()
    }
}

/// A tenant's versions of a workflow, highest first.
fn versions(tenant: &str, id: &str) -> Select {
    let select = WorkflowRow::select(Scope::Tenant(tenant.to_owned())).with(workflows::workflow_id, id);
    select.by(&[workflows::version], Direction::Descending)
}

impl Workflows {
    #[must_use]
    pub fn new(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        registry: Arc<ToolRegistry>,
    ) -> Self {
        let tenants = Arc::clone(&registry);
        let offload = Arc::new(Offload::new(move || tenants.is_shared()));
        Self { records, clock, random, registry, graphs: Mutex::default(), newest: NewestVersions::default(), offload }
    }

    pub(super) fn compiled(&self) -> MutexGuard<'_, Compiled> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalog for a tenant's running graphs.
    #[must_use]
    pub fn running<'a>(&'a self, tenant: &'a str) -> ToolCatalog<'a> {
        ToolCatalog { tenant: Some(tenant), ..ToolCatalog::running(&self.registry) }
    }

    /// The catalog for stored graphs: a tool that is no longer configured is replaced by a placeholder, so that their
    /// runs can still be viewed and stopped.
    pub(super) fn stored<'a>(&'a self, tenant: &'a str) -> ToolCatalog<'a> {
        ToolCatalog { tenant: Some(tenant), stands_in: true, ..ToolCatalog::running(&self.registry) }
    }

    /// The definitions of the tools that a run is pinned to.
    pub(super) async fn pinned_specs(&self, tenant: &str, pins: &Pins) -> Result<PinnedSpecs, EngineError> {
        PinnedSpecs::of(&*self.records, &self.registry, tenant, pins).await
    }

    /// Pins the declared tools of graphs that were evaluated together. A reload may have come between two of them.
    pub(super) fn pin_tools<'a>(
        &self,
        mut pins: Pins,
        graphs: impl Iterator<Item = &'a Graph>,
    ) -> Result<Pins, EngineError> {
        let set = self.registry.snapshot();
        for node in graphs.flat_map(|graph| &graph.nodes).filter(|node| !node.is_tool_absent) {
            let Some(tool) = node.tool.as_ref().filter(|tool| !set.is_built_in(&tool.name)) else { continue };
            pins.pin_tool(&tool.name, &tool.version);
            if pins.tool(&tool.name) != Some(&tool.version) {
                let message = format!("{} changed while the run was being checked; try again", tool.name);
                return Err(EngineError::refused(Code::OccConflict, message));
            }
        }
        Ok(pins)
    }

    /// Refuses a stored graph with tools that are not configured here.
    pub(super) fn check_tools(&self, tenant: &str, graph: &Graph) -> Result<(), EngineError> {
        if !graph.nodes.iter().any(|node| node.is_tool_absent) {
            return Ok(());
        }
        let problems = air::compile(graph.document.clone(), &self.running(tenant)).err().unwrap_or_default();
        Err(invalid_document("the stored workflow", &problems))
    }

    /// Validates a document without storing it.
    pub async fn check(&self, permit: &Permit, text: &str) -> Result<Arc<Graph>, EngineError> {
        if !permit.may(WORKFLOWS_READ) {
            return Err(EngineError::missing_scope(WORKFLOWS_READ));
        }
        self.compile(permit, text).await
    }

    async fn compile(&self, permit: &Permit, text: &str) -> Result<Arc<Graph>, EngineError> {
        let mut source = Source::read(text);
        let mut children = BTreeMap::new();
        if let Some(document) = source.document() {
            let descendants = self.check_descendants(permit.tenant(), document).await?;
            children = descendants.children;
            descendants.problems.into_iter().for_each(|problem| source.add(problem));
        }
        let (who, large) = (permit.claimant(), text.len() > limits::COMPILE_INLINE_BYTES_MAX);
        self.offload.admit(&who, large)?;
        let work_slot = self.offload.acquire(&who, large).await;
        let tenant = Some(permit.tenant());
        let catalog =
            ToolCatalog { tenant, children, unknown: WorkflowInfo::Missing, ..ToolCatalog::running(&self.registry) };
        let compiled = work_slot.run(|| source.compile(&catalog));
        compiled.map(Arc::new).map_err(|problems| invalid_document("the workflow", &problems))
    }

    /// A workflow that a node names, or why it can't be started here.
    async fn find_usable(
        &self,
        tenant: &str,
        child: &ChildWorkflow,
    ) -> Result<Result<Option<FoundWorkflow>, String>, EngineError> {
        match lookup::find_workflow(self, tenant, &child.workflow_id, child.version).await {
            Err(EngineError::Refused(body)) if body.code == Code::ValidationFailed.as_str() => Ok(Err(body.message)),
            found => found.map(Ok),
        }
    }

    /// Checks all workflows that the runs of a document would start, as far as the current versions show them: none is
    /// the document itself, and all can be started here. An older version of itself, by its number, is another workflow.
    async fn check_descendants(&self, tenant: &str, document: &Document) -> Result<Descendants, EngineError> {
        let Descendants { mut children, mut problems } = Descendants::default();
        let problem = |at: usize, code, reason: String| {
            let inside = if matches!(document.nodes[at].body, Body::Map(_)) { "/do" } else { "" };
            DocumentProblem::new(code, format!("/nodes/{at}{inside}/workflow_id"), reason)
        };
        let own = document.workflow_id.as_str();
        let direct = document.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.child()?.clone())));
        let direct = direct.filter(|(_, child)| !child.workflow_id.is_empty());
        let mut queue: VecDeque<(usize, ChildWorkflow, String)> =
            direct.map(|(at, child)| (at, child, own.to_owned())).collect();
        while let Some((at, child, trail)) = queue.pop_front().filter(|_| problems.len() < limits::PROBLEMS_MAX) {
            let trail = format!("{trail} → {}", child.workflow_id);
            let key = (child.workflow_id.clone(), child.version);
            if child.workflow_id == own && child.version.is_none() {
                let reason = format!("runs of {own} would start runs of {own}: {trail}");
                let hint = "a workflow can start an older version of itself, by its number";
                problems.push(problem(at, ProblemCode::Cycle, reason).with_hint(hint));
                children.insert(key, WorkflowInfo::Exists);
                continue;
            }
            if children.contains_key(&key) {
                continue;
            }
            if children.len() >= limits::WORKFLOW_DESCENDANTS_MAX {
                let max = limits::WORKFLOW_DESCENDANTS_MAX;
                let reason = format!("it starts more than {max} workflows in total");
                problems.push(problem(at, ProblemCode::TooLarge, reason));
                break;
            }
            let found = match self.find_usable(tenant, &child).await? {
                Ok(found) => found,
                Err(why) => {
                    let reason = format!("the workflow {} can't be started: {why}", child.workflow_id);
                    problems.push(problem(at, ProblemCode::UnknownTool, reason));
                    children.insert(key, WorkflowInfo::Exists);
                    continue;
                }
            };
            let next = found.iter().flat_map(|found| found.graph.document.nodes.iter().filter_map(Node::child));
            queue.extend(next.map(|child| (at, child.clone(), trail.clone())));
            // Plans can't be child workflows: every request creates its own.
            let found = found.filter(|_| !child.workflow_id.starts_with(PLAN_PREFIX));
            children.insert(key, found.map_or(WorkflowInfo::Missing, |found| found.graph.info()));
        }
        Ok(Descendants { children, problems })
    }

    /// Stores a document as the next version of workflow `id`.
    pub async fn apply(&self, permit: &Permit, id: &str, text: &str) -> Result<AppliedWorkflow, EngineError> {
        if !permit.may(WORKFLOWS_WRITE) {
            return Err(EngineError::missing_scope(WORKFLOWS_WRITE));
        }
        if id.starts_with(PLAN_PREFIX) {
            let message = format!("names that start with {PLAN_PREFIX} are reserved for plans");
            return Err(EngineError::refused(Code::ValidationFailed, message));
        }
        let graph = self.compile(permit, text).await?;
        self.store(permit, id, &graph).await
    }

    /// The graph of a plan, and its version if it is already stored. Refuses one that can't run.
    pub(crate) async fn plan(
        &self,
        permit: &Permit,
        id: &str,
        document: &serde_json::Value,
    ) -> Result<(Option<FoundWorkflow>, Arc<Graph>), EngineError> {
        match lookup::find_workflow(self, permit.tenant(), id, None).await? {
            Some(found) => Ok((Some(found.clone()), found.graph)),
            None => Ok((None, self.compile(permit, &document.to_string()).await?)),
        }
    }

    /// Stores a plan that was looked up and not found.
    pub(crate) async fn store_plan(&self, permit: &Permit, graph: Arc<Graph>) -> Result<FoundWorkflow, EngineError> {
        let permit = permit.for_side_effects();
        let version = match self.commit_version(&permit, &graph, 1).await? {
            true => 1,
            false => self.store(&permit, &graph.document.workflow_id, &graph).await?.version,
        };
        // If another request was faster, it is the author. Nobody asks: plans have none.
        let origin = Origin::Own { author: permit.actor().to_owned() };
        Ok(FoundWorkflow { version, graph, origin, generation: 0 })
    }

    async fn store(&self, permit: &Permit, id: &str, graph: &Graph) -> Result<AppliedWorkflow, EngineError> {
        if graph.document.workflow_id != id {
            let message = format!("the document belongs to {}, not to {id}", graph.document.workflow_id);
            return Err(EngineError::refused(Code::MalformedArgs, message));
        }
        for _ in 0..limits::APPLY_TRIES_MAX {
            let (last, newest) = self.last_versions(permit.tenant(), id).await?;
            let applied =
                |version, is_new| AppliedWorkflow { workflow_id: id.to_owned(), version, digest: graph.digest, is_new };
            if let Some(row) = &newest
                && row.digest == graph.digest
            {
                return Ok(applied(row.version, false));
            }
            let version = last + 1;
            if self.commit_version(permit, graph, version).await? {
                return Ok(applied(version, true));
            }
        }
        Err(EngineError::refused(Code::OccConflict, "the workflow was changed concurrently; try again"))
    }

    /// Commits a version; `false` if its number was taken.
    async fn commit_version(&self, permit: &Permit, graph: &Graph, version: i64) -> Result<bool, EngineError> {
        match self.records.commit(self.insert(permit, graph, version)?).await {
            Ok(_) => {
                self.newest.keep(permit.tenant(), &graph.document.workflow_id, version, self.clock.steady());
                Ok(true)
            }
            Err(error @ CommitError::Conflict(_)) if !permit.is_alongside_conflict(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn writer(&self) -> Writer<'_> {
        Writer { random: &*self.random, clock: &*self.clock }
    }

    fn insert(&self, permit: &Permit, graph: &Graph, version: i64) -> Result<Tx, EngineError> {
        let id = graph.document.workflow_id.as_str();
        let document = Json::encode(&graph.document.to_value()).map_err(chimera_core::record::Unstorable::from)?;
        let row = Insert::new(
            &WORKFLOWS,
            vec![
                (workflows::tenant_id, permit.tenant().into()),
                (workflows::workflow_id, id.into()),
                (workflows::version, version.into()),
                (workflows::digest, Value::Bytes(graph.digest.to_vec())),
                (workflows::document, document.into()),
                (workflows::created_by, permit.actor().into()),
                (workflows::created_at, self.clock.now().into()),
            ],
        )
        .map_err(chimera_core::record::Unstorable::from)?;
        let mut tx = Tx { inserts: vec![row], ..Tx::default() };
        let data = json!({"version": version, "digest": graph.digest});
        self.writer().event(&mut tx, permit.event(id, "workflow.applied", data))?;
        permit.add_alongside(&mut tx);
        Ok(tx)
    }

    /// The row of a version, copies included; without a version, the newest of the tenant's own.
    pub async fn row(&self, tenant: &str, id: &str, version: Option<i64>) -> Result<Option<WorkflowRow>, EngineError> {
        let select = match version {
            Some(version) => versions(tenant, id).with(workflows::version, version),
            None => versions(tenant, id).with(workflows::shared_from, Value::Null),
        };
        rows::find(&*self.records, select).await
    }

    /// The highest version of a tenant, copies included (0 if there is none), and the newest of its own.
    async fn last_versions(&self, tenant: &str, id: &str) -> Result<(i64, Option<WorkflowRow>), EngineError> {
        let last: Option<WorkflowRow> = rows::find(&*self.records, versions(tenant, id)).await?;
        let Some(row) = last else { return Ok((0, None)) };
        let version = row.version;
        let newest = if is_own(&row) { Some(row) } else { self.row(tenant, id, None).await? };
        Ok((version, newest))
    }

    /// The newest version at a time; `None` if there was none. Only used for runs from before pins were stored: a
    /// version may be dated before it is visible.
    pub(super) async fn newest_at(&self, tenant: &str, id: &str, at: Timestamp) -> Result<Option<i64>, EngineError> {
        let select = versions(tenant, id).with(workflows::shared_from, Value::Null);
        let select = select.filter(workflows::created_at, Comparison::AtMost, at);
        Ok(rows::find::<WorkflowRow>(&*self.records, select).await?.map(|row| row.version))
    }
}
