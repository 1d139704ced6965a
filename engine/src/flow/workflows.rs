//! The workflows of all tenants, by id and version.
//!
//! A version never changes, so its compiled graph is cached and shared by all its runs. Applying the same document
//! again returns the existing version.

use super::Registry;
use super::compiled::{Compiled, VersionKey};
use super::newest::NewestVersions;
use super::share::is_own;
use crate::access::{Permit, WORKFLOWS_READ, WORKFLOWS_WRITE, is_nonce_conflict};
use crate::error::EngineError;
use crate::flow::error::invalid_document;
use crate::ledger::audit::{EventRecord, Writer};
use crate::offload::Offload;
use crate::port::{Clock, CommitError, Random, Records};
use crate::rows;
use chimera_core::access::Claimant;
use chimera_core::error::Code;
use chimera_core::flow::Children;
use chimera_core::flow::air::{
    self, Body, Catalog, ChildWorkflow, Document, DocumentProblem, Graph, Node, ProblemCode, WorkflowInfo,
};
use chimera_core::flow::pins::Pins;
use chimera_core::flow::tables::{WORKFLOWS, WorkflowRow, workflows};
use chimera_core::json::Digest32;
use chimera_core::ledger::SubjectType;
use chimera_core::limits;
use chimera_core::record::{Comparison, Direction, Insert, Json, Scope, Select, StoredRow, Tx, Value};
use chimera_core::time::Timestamp;
use chimera_core::tool::Spec;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// The name prefix of plans.
pub(crate) const PLAN_PREFIX: &str = "act.";

pub struct Workflows {
    pub(super) records: Arc<dyn Records>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) registry: Arc<Registry>,
    graphs: Mutex<Compiled>,
    /// The author of each version.
    authors: Mutex<BTreeMap<VersionKey, String>>,
    newest: NewestVersions,
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

/// A workflow resolved for a request: everything is decided and started by this version, without another lookup.
#[derive(Clone, Debug)]
pub struct ResolvedWorkflow {
    pub(crate) version: i64,
    pub(crate) graph: Arc<Graph>,
    pub(crate) inside: ChildWorkflows,
}

/// All child workflows of a graph, transitively.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildWorkflows {
    /// Their graphs, by requested id and version.
    pub(crate) children: Children,
    /// The resolved versions of those requested without one.
    pub(crate) pins: Pins,
    /// A child workflow that does not exist.
    pub(super) missing: Option<(String, Option<i64>)>,
}

impl ChildWorkflows {
    /// Whether it contains the workflow that a node starts.
    pub(super) fn has(&self, child: &ChildWorkflow) -> bool {
        self.children.contains_key(&(child.workflow_id.clone(), child.version))
    }
}

/// The catalog for compiling a document: the tools of this process and the workflows that it names.
pub struct ToolCatalog<'a> {
    registry: &'a Registry,
    /// Restricts the tools to a tenant's; `None`: all, for a graph that was already authorized.
    tenant: Option<&'a str>,
    children: BTreeMap<(String, Option<i64>), WorkflowInfo>,
    /// The answer for workflows that were not looked up.
    unknown: WorkflowInfo,
    /// Missing tools are replaced by placeholders.
    stands_in: bool,
}

impl<'a> ToolCatalog<'a> {
    /// For a graph that is already running: its children are looked up when they start.
    #[must_use]
    pub const fn running(registry: &'a Registry) -> Self {
        Self { registry, tenant: None, children: BTreeMap::new(), unknown: WorkflowInfo::Exists, stands_in: false }
    }

    /// For a stored graph, all of whose tools existed when it was stored.
    const fn stored(registry: &'a Registry) -> Self {
        Self { registry, tenant: None, children: BTreeMap::new(), unknown: WorkflowInfo::Exists, stands_in: true }
    }
}

impl Catalog for ToolCatalog<'_> {
    fn tool(&self, name: &str) -> Option<Arc<Spec>> {
        let tool = match self.tenant {
            Some(tenant) => self.registry.tool_of(tenant, name),
            None => self.registry.get(name),
        };
        tool.map(|tool| Arc::clone(tool.spec()))
    }

    fn workflow(&self, id: &str, version: Option<i64>) -> WorkflowInfo {
        self.children.get(&(id.to_owned(), version)).unwrap_or(&self.unknown).clone()
    }

    fn unavailable_reason(&self, name: &str) -> Option<String> {
        self.registry.why_absent(self.tenant?, name).map(str::to_owned)
    }

    fn allows_placeholders(&self) -> bool {
        self.stands_in
    }

    fn tool_names(&self) -> Vec<String> {
        match self.tenant {
            Some(tenant) => self.registry.specs_of(tenant).map(|spec| spec.name.clone()).collect(),
            None => self.registry.specs().map(|spec| spec.name.clone()).collect(),
        }
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
        registry: Arc<Registry>,
    ) -> Self {
        let tenants = Arc::clone(&registry);
        let offload = Arc::new(Offload::new(move || tenants.is_shared()));
        Self {
            records,
            clock,
            random,
            registry,
            graphs: Mutex::default(),
            authors: Mutex::default(),
            newest: NewestVersions::default(),
            offload,
        }
    }

    /// The catalog for a tenant's running graphs.
    #[must_use]
    pub fn running<'a>(&'a self, tenant: &'a str) -> ToolCatalog<'a> {
        ToolCatalog { tenant: Some(tenant), ..ToolCatalog::running(&self.registry) }
    }

    /// The catalog for stored graphs: a tool that is no longer configured is replaced by a placeholder, so that their
    /// runs can still be viewed and stopped.
    pub(super) fn stored<'a>(&'a self, tenant: &'a str) -> ToolCatalog<'a> {
        ToolCatalog { tenant: Some(tenant), ..ToolCatalog::stored(&self.registry) }
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
        let document = air::parse(text).map_err(|problems| invalid_document("the workflow", &problems))?;
        self.check_recursion(permit.tenant(), &document).await?;
        let mut children = BTreeMap::new();
        for child in document.nodes.iter().filter_map(Node::child) {
            let key = (child.workflow_id.clone(), child.version);
            if let std::collections::btree_map::Entry::Vacant(entry) = children.entry(key) {
                // Plans can't be child workflows: every request creates its own.
                let found = match child.workflow_id.starts_with(PLAN_PREFIX) {
                    true => None,
                    false => self.find(permit.tenant(), &child.workflow_id, child.version).await?,
                };
                entry.insert(found.map_or(WorkflowInfo::Missing, |(_, graph)| graph.info()));
            }
        }
        let (who, large) = (permit.claimant(), text.len() > limits::COMPILE_INLINE_BYTES_MAX);
        self.offload.admit(&who, large)?;
        let place = self.offload.acquire(&who, large).await;
        let tenant = Some(permit.tenant());
        let catalog = ToolCatalog {
            registry: &self.registry,
            tenant,
            children,
            unknown: WorkflowInfo::Missing,
            stands_in: false,
        };
        let graph = place
            .run(|| air::compile(document, &catalog))
            .map_err(|problems| invalid_document("the workflow", &problems))?;
        Ok(Arc::new(graph))
    }

    /// Refuses a document whose runs would recursively start themselves, as far as the current versions show it. An
    /// older version of itself, by its number, is another workflow.
    async fn check_recursion(&self, tenant: &str, document: &Document) -> Result<(), EngineError> {
        let refused = |at: usize, code, reason: String| {
            let inside = if matches!(document.nodes[at].body, Body::Map(_)) { "/do" } else { "" };
            let problem = DocumentProblem::new(code, format!("/nodes/{at}{inside}/workflow_id"), reason);
            Err(invalid_document("the workflow", &[problem]))
        };
        let own = document.workflow_id.as_str();
        let direct = document.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.child()?.clone())));
        let mut queue: VecDeque<(usize, ChildWorkflow, String)> =
            direct.map(|(at, child)| (at, child, own.to_owned())).collect();
        let mut seen = BTreeSet::new();
        while let Some((at, child, trail)) = queue.pop_front() {
            let trail = format!("{trail} → {}", child.workflow_id);
            if child.workflow_id == own && child.version.is_none() {
                return refused(at, ProblemCode::Cycle, format!("runs of {own} would start runs of {own}: {trail}"));
            }
            if !seen.insert((child.workflow_id.clone(), child.version)) {
                continue;
            }
            if seen.len() > limits::WORKFLOW_DESCENDANTS_MAX {
                let max = limits::WORKFLOW_DESCENDANTS_MAX;
                return refused(at, ProblemCode::TooLarge, format!("it starts more than {max} workflows in total"));
            }
            let Some((_, graph)) = self.find(tenant, &child.workflow_id, child.version).await? else { continue };
            let next = graph.document.nodes.iter().filter_map(Node::child);
            queue.extend(next.map(|child| (at, child.clone(), trail.clone())));
        }
        Ok(())
    }

    /// The child workflows of a graph. Refuses those with tools that are not configured here.
    pub(crate) async fn children_of(
        &self,
        tenant: &str,
        graph: &Graph,
        pins: &Pins,
    ) -> Result<ChildWorkflows, EngineError> {
        let found = self.stored_children_of(tenant, &graph.document.nodes, pins).await?;
        found.children.values().try_for_each(|graph| self.check_tools(tenant, graph))?;
        Ok(found)
    }

    /// The child workflows of nodes, transitively: in the version they name, else the pinned one, else the newest.
    pub(super) async fn stored_children_of(
        &self,
        tenant: &str,
        nodes: &[Node],
        pins: &Pins,
    ) -> Result<ChildWorkflows, EngineError> {
        let children = |nodes: &[Node]| -> Vec<(String, Option<i64>)> {
            nodes.iter().filter_map(Node::child).map(|child| (child.workflow_id.clone(), child.version)).collect()
        };
        let mut found = ChildWorkflows::default();
        let mut queue = children(nodes);
        while let Some(asked) = queue.pop() {
            if found.children.contains_key(&asked) {
                continue;
            }
            let version = asked.1.or_else(|| pins.get(&asked.0));
            let Some((version, graph)) = self.find_stored(tenant, &asked.0, version).await? else {
                found.missing = Some(asked);
                continue;
            };
            queue.extend(children(&graph.document.nodes));
            if asked.1.is_none() {
                found.pins.pin(&asked.0, version);
            }
            found.children.insert(asked, graph);
        }
        Ok(found)
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
    ) -> Result<(Option<i64>, Arc<Graph>), EngineError> {
        match self.find(permit.tenant(), id, None).await? {
            Some((version, graph)) => Ok((Some(version), graph)),
            None => Ok((None, self.compile(permit, &document.to_string()).await?)),
        }
    }

    /// Stores a plan under a name reserved for plans; returns its version.
    pub(crate) async fn store_plan(&self, permit: &Permit, id: &str, graph: &Graph) -> Result<i64, EngineError> {
        Ok(self.store(&permit.for_side_effects(), id, graph).await?.version)
    }

    async fn store(&self, permit: &Permit, id: &str, graph: &Graph) -> Result<AppliedWorkflow, EngineError> {
        if graph.document.workflow_id != id {
            let message = format!("the document belongs to {}, not to {id}", graph.document.workflow_id);
            return Err(EngineError::refused(Code::MalformedArgs, message));
        }
        for _ in 0..limits::APPLY_TRIES_MAX {
            let last = self.row(permit.tenant(), id, None).await?;
            let applied =
                |version, is_new| AppliedWorkflow { workflow_id: id.to_owned(), version, digest: graph.digest, is_new };
            if let Some(row) = &last
                && row.digest == graph.digest
            {
                return Ok(applied(row.version, false));
            }
            let last = match last {
                Some(row) if !self.is_guest(permit.tenant()) => row.version,
                _ => self.last_version(permit.tenant(), id).await?,
            };
            let version = last + 1;
            match self.records.commit(self.insert(permit, graph, version)?).await {
                Ok(_) => {
                    self.newest.keep(permit.tenant(), id, version, self.clock.steady());
                    return Ok(applied(version, true));
                }
                Err(error @ CommitError::Conflict(_)) if !is_nonce_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::refused(Code::OccConflict, "the workflow was changed concurrently; try again"))
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
        let event = EventRecord {
            tenant_id: permit.tenant().to_owned(),
            subject_type: SubjectType::Other,
            subject_id: id.to_owned(),
            event_type: "workflow.applied".to_owned(),
            actor_type: permit.kind(),
            actor_id: Some(permit.actor().to_owned()),
            data: json!({"version": version, "digest": graph.digest}),
            run_id: None,
            run_seq: None,
            trace_id: None,
        };
        Writer { random: &*self.random, clock: &*self.clock }.event(&mut tx, event)?;
        permit.add_nonces(&mut tx);
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

    /// The highest version of a tenant, copies included; 0 if there is none.
    async fn last_version(&self, tenant: &str, id: &str) -> Result<i64, EngineError> {
        let row: Option<WorkflowRow> = rows::find(&*self.records, versions(tenant, id)).await?;
        Ok(row.map_or(0, |row| row.version))
    }

    /// The author of a version. Plans have none: every request creates its own. Neither have shared workflows: another
    /// tenant's people decide on nothing here.
    pub(super) async fn author(&self, tenant: &str, id: &str, version: i64) -> Result<Option<String>, EngineError> {
        match id.starts_with(PLAN_PREFIX) {
            true => Ok(None),
            false => self.first_author(tenant, id, version).await,
        }
    }

    /// The author of a version, plans included.
    async fn first_author(&self, tenant: &str, id: &str, version: i64) -> Result<Option<String>, EngineError> {
        let key = (tenant.to_owned(), id.to_owned(), version);
        let known = self.authors.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(row) = self.row(tenant, id, Some(version)).await?.filter(is_own) else { return Ok(None) };
        let author = row.created_by;
        let mut authors = self.authors.lock().unwrap_or_else(PoisonError::into_inner);
        if authors.len() >= limits::WORKFLOWS_CACHED_MAX {
            authors.pop_first();
        }
        authors.insert(key, author.clone());
        Ok(Some(author))
    }

    /// The authors of all child workflows, deduplicated.
    pub(super) async fn authors(&self, tenant: &str, inside: &ChildWorkflows) -> Result<Vec<String>, EngineError> {
        let mut authors = BTreeSet::new();
        for (id, asked) in inside.children.keys() {
            let Some(version) = asked.or_else(|| inside.pins.get(id)) else { continue };
            // Starting a plan by name runs what somebody else wrote.
            authors.extend(self.first_author(tenant, id, version).await?);
        }
        Ok(authors.into_iter().collect())
    }

    /// The newest version at a time; `None` if there was none. Only used for runs from before pins were stored: a
    /// version may be dated before it is visible.
    pub(super) async fn newest_at(&self, tenant: &str, id: &str, at: Timestamp) -> Result<Option<i64>, EngineError> {
        let select = versions(tenant, id).with(workflows::shared_from, Value::Null);
        let select = select.filter(workflows::created_at, Comparison::AtMost, at);
        Ok(rows::find::<WorkflowRow>(&*self.records, select).await?.map(|row| row.version))
    }

    /// The compiled graph of a version that can be started, and the version. Refuses one with tools that are not
    /// configured here.
    pub async fn find(
        &self,
        tenant: &str,
        id: &str,
        version: Option<i64>,
    ) -> Result<Option<(i64, Arc<Graph>)>, EngineError> {
        // Copies are for existing runs; new runs need the share.
        if version.is_some() && self.is_guest(tenant) && self.readable(tenant, id, version).await?.is_none() {
            return Ok(None);
        }
        let found = self.find_stored(tenant, id, version).await?;
        found.iter().try_for_each(|(_, graph)| self.check_tools(tenant, graph))?;
        Ok(found)
    }

    /// The compiled graph of a version, whether or not its tools are still configured.
    pub(super) async fn find_stored(
        &self,
        tenant: &str,
        id: &str,
        version: Option<i64>,
    ) -> Result<Option<(i64, Arc<Graph>)>, EngineError> {
        let (asked, began) = (version, self.clock.steady());
        let version = version.or_else(|| self.newest.get(tenant, id, began));
        if let Some(version) = version
            && let Some(graph) = self.cached_graph(tenant, id, version)
        {
            return Ok(Some((version, graph)));
        }
        let own = self.row(tenant, id, version).await?;
        let is_kept = own.is_some();
        let shared = if is_kept { None } else { self.shared_row(tenant, id, version).await? };
        let Some(row) = own.or(shared) else { return Ok(None) };
        let version = row.version;
        if asked.is_none() && is_kept {
            self.newest.keep(tenant, id, version, began);
        }
        if let Some(graph) = self.cached_graph(tenant, id, version) {
            return Ok(Some((version, graph)));
        }
        let text = row.document.as_str();
        let document = air::parse(text).map_err(|problems| invalid_document("the stored workflow", &problems))?;
        let who = Claimant::new(tenant, "");
        let place = self.offload.acquire(&who, text.len() > limits::COMPILE_INLINE_BYTES_MAX).await;
        let graph = place
            .run(|| air::compile(document, &self.stored(tenant)))
            .map_err(|problems| invalid_document("the stored workflow", &problems))?;
        let graph = Arc::new(graph);
        if !is_kept && self.row(tenant, id, Some(version)).await?.is_none() {
            // Not cached before it is copied: the tenant may still use this version number for its own document.
            return Ok(Some((version, graph)));
        }
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.keep((tenant.to_owned(), id.to_owned(), version), Arc::clone(&graph), text.len());
        Ok(Some((version, graph)))
    }

    fn cached_graph(&self, tenant: &str, id: &str, version: i64) -> Option<Arc<Graph>> {
        let key = (tenant.to_owned(), id.to_owned(), version);
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
    }
}
