//! Looks workflows up: one request reads the row of a version once.
//!
//! What was found says whose document it is. So whoever starts a run names its author, checks the share and copies a
//! shared version without reading the row again. A stored version never changes, so it is cached with its graph; a
//! shared version is not cached before it is copied, because the tenant may still use its number for an own document.

use super::definitions::PinnedSpecs;
use super::share;
use super::share::is_own;
use super::workflows::{PLAN_PREFIX, Workflows};
use crate::error::EngineError;
use crate::flow::error::invalid_document;
use chimera_core::access::Claimant;
use chimera_core::flow::Children;
use chimera_core::flow::air::{self, ChildWorkflow, Graph, Node};
use chimera_core::flow::pins::Pins;
use chimera_core::flow::tables::WorkflowRow;
use chimera_core::limits;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A version of a workflow.
#[derive(Clone, Debug)]
pub(crate) struct FoundWorkflow {
    pub(crate) version: i64,
    pub(crate) graph: Arc<Graph>,
    pub(super) origin: Origin,
    /// The set of tools that it was compiled with.
    pub(super) generation: u64,
}

/// Whose document a version is.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// The tenant's own.
    Own { author: String },
    /// The tenant's copy of a shared one, and whether this lookup has found that it is still shared.
    Copy { is_shared: bool },
    /// A shared one that the tenant has no copy of: the row of the tenant that shares it.
    Shared(Arc<WorkflowRow>),
}

/// A workflow resolved for a request: everything is decided and started by these versions, without another lookup.
#[derive(Clone, Debug)]
pub struct ResolvedWorkflow {
    pub(crate) workflow: FoundWorkflow,
    pub(crate) inside: ChildWorkflows,
}

/// All child workflows of a graph, transitively.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildWorkflows {
    /// Their graphs, by requested id and version.
    pub(crate) children: Children,
    /// The resolved versions of those requested without one.
    pub(crate) pins: Pins,
    /// The same workflows, in no particular order.
    pub(super) found: Vec<FoundWorkflow>,
    /// A child workflow that does not exist.
    pub(super) missing: Option<(String, Option<i64>)>,
}

impl FoundWorkflow {
    pub(super) fn id(&self) -> &str {
        &self.graph.document.workflow_id
    }

    /// The author who counts as a contributor of its runs. Plans have none: every request creates its own. Neither have
    /// shared workflows: another tenant's people decide on nothing here.
    pub(crate) fn author(&self) -> Option<&str> {
        match &self.origin {
            Origin::Own { author } if !self.id().starts_with(PLAN_PREFIX) => Some(author),
            _ => None,
        }
    }

    /// A copy that was found by its share.
    fn found_by_share(mut self) -> Self {
        if let Origin::Copy { is_shared } = &mut self.origin {
            *is_shared = true;
        }
        self
    }
}

impl ChildWorkflows {
    /// Whether it contains the workflow that a node starts.
    pub(super) fn has(&self, child: &ChildWorkflow) -> bool {
        self.children.contains_key(&(child.workflow_id.clone(), child.version))
    }

    /// The authors of all child workflows, deduplicated. Starting a plan by name runs what somebody else wrote.
    pub(crate) fn authors(&self) -> BTreeSet<&str> {
        let own = self.found.iter().filter_map(|found| match &found.origin {
            Origin::Own { author } => Some(author.as_str()),
            Origin::Copy { .. } | Origin::Shared(_) => None,
        });
        own.collect()
    }
}

/// A version that can be started; the newest by default. Refuses one with tools that are not configured here.
pub(crate) async fn find_workflow(
    workflows: &Workflows,
    tenant: &str,
    id: &str,
    version: Option<i64>,
) -> Result<Option<FoundWorkflow>, EngineError> {
    let found = find_stored(workflows, tenant, id, version, &PinnedSpecs::none()).await?;
    let Some(found) = found else { return Ok(None) };
    // Copies are for existing runs; new runs need the share.
    if matches!(found.origin, Origin::Copy { is_shared: false }) && !share::is_shared_to(workflows, tenant, id).await? {
        return Ok(None);
    }
    workflows.check_tools(tenant, &found.graph)?;
    Ok(Some(found))
}

/// A version, whether or not its tools are still configured, with these definitions of its tools and the current ones
/// of all others.
pub(super) async fn find_stored(
    workflows: &Workflows,
    tenant: &str,
    id: &str,
    version: Option<i64>,
    pinned: &PinnedSpecs,
) -> Result<Option<FoundWorkflow>, EngineError> {
    let (asked, began) = (version, workflows.clock.steady());
    let version = version.or_else(|| workflows.newest.get(tenant, id, began));
    if let Some(version) = version
        && let Some(found) = cached(workflows, tenant, id, version, pinned)
    {
        return Ok(Some(found));
    }
    let Some(row) = workflows.row(tenant, id, version).await? else {
        return find_shared(workflows, tenant, id, version, pinned).await;
    };
    if asked.is_none() {
        workflows.newest.keep(tenant, id, row.version, began);
    }
    found_row(workflows, tenant, id, &row, pinned).await.map(Some)
}

/// A shared version, after the tenant turned out to have none of its own.
async fn find_shared(
    workflows: &Workflows,
    tenant: &str,
    id: &str,
    asked: Option<i64>,
    pinned: &PinnedSpecs,
) -> Result<Option<FoundWorkflow>, EngineError> {
    let Some(row) = share::shared_row(workflows, tenant, id, asked).await? else { return Ok(None) };
    let version = row.version;
    if asked.is_none() {
        if let Some(found) = cached(workflows, tenant, id, version, pinned) {
            return Ok(Some(found.found_by_share()));
        }
        if let Some(copy) = workflows.row(tenant, id, Some(version)).await?
            && copy.digest == row.digest
        {
            return Ok(Some(found_row(workflows, tenant, id, &copy, pinned).await?.found_by_share()));
        }
    }
    let (graph, generation) = compile_row(workflows, tenant, &row, pinned).await?;
    Ok(Some(FoundWorkflow { version, graph, origin: Origin::Shared(Arc::new(row)), generation }))
}

/// What a tenant's row holds.
async fn found_row(
    workflows: &Workflows,
    tenant: &str,
    id: &str,
    row: &WorkflowRow,
    pinned: &PinnedSpecs,
) -> Result<FoundWorkflow, EngineError> {
    let version = row.version;
    if let Some(found) = cached(workflows, tenant, id, version, pinned) {
        return Ok(found);
    }
    let (graph, generation) = compile_row(workflows, tenant, row, pinned).await?;
    let origin = match is_own(row) {
        true => Origin::Own { author: row.created_by.clone() },
        false => Origin::Copy { is_shared: false },
    };
    let found = FoundWorkflow { version, graph, origin, generation };
    // With definitions that new runs do not use, it is for the runs that began with them alone.
    if pinned.are_current(&workflows.registry, tenant) {
        cache(workflows, tenant, found.clone(), row);
    }
    Ok(found)
}

/// The graph of a row, and the set of tools that it was compiled with.
async fn compile_row(
    workflows: &Workflows,
    tenant: &str,
    row: &WorkflowRow,
    pinned: &PinnedSpecs,
) -> Result<(Arc<Graph>, u64), EngineError> {
    let text = row.document.as_str();
    let document = air::parse(text).map_err(|problems| invalid_document("the stored workflow", &problems))?;
    let who = Claimant::new(tenant, "");
    let place = workflows.offload.acquire(&who, text.len() > limits::COMPILE_INLINE_BYTES_MAX).await;
    let catalog = workflows.stored(tenant).pinned(pinned);
    let graph = place
        .run(|| air::compile(document, &catalog))
        .map_err(|problems| invalid_document("the stored workflow", &problems))?;
    Ok((Arc::new(graph), catalog.generation()))
}

fn cached(workflows: &Workflows, tenant: &str, id: &str, version: i64, pinned: &PinnedSpecs) -> Option<FoundWorkflow> {
    let generation = workflows.registry.snapshot().generation;
    let found = workflows.compiled().get(&(tenant.to_owned(), id.to_owned(), version), generation);
    found.filter(|found| pinned.fit(&found.graph))
}

/// Caches a version that a tenant has in this row.
pub(super) fn cache(workflows: &Workflows, tenant: &str, found: FoundWorkflow, row: &WorkflowRow) {
    let key = (tenant.to_owned(), found.id().to_owned(), found.version);
    workflows.compiled().keep(key, found, row.document.as_str().len());
}

/// The child workflows of a graph. Refuses those with tools that are not configured here.
pub(crate) async fn children_of(
    workflows: &Workflows,
    tenant: &str,
    graph: &Graph,
    pins: &Pins,
) -> Result<ChildWorkflows, EngineError> {
    let found = stored_children_of(workflows, tenant, &graph.document.nodes, pins).await?;
    found.children.values().try_for_each(|graph| workflows.check_tools(tenant, graph))?;
    Ok(found)
}

/// The child workflows of nodes, transitively: in the version they name, else the pinned one, else the newest.
pub(super) async fn stored_children_of(
    workflows: &Workflows,
    tenant: &str,
    nodes: &[Node],
    pins: &Pins,
) -> Result<ChildWorkflows, EngineError> {
    let mut inside = ChildWorkflows::default();
    add_children(workflows, &mut inside, tenant, nodes, pins).await?;
    Ok(inside)
}

/// The same, where some of them are found already.
pub(super) async fn add_children(
    workflows: &Workflows,
    inside: &mut ChildWorkflows,
    tenant: &str,
    nodes: &[Node],
    pins: &Pins,
) -> Result<(), EngineError> {
    let children = |nodes: &[Node]| -> Vec<(String, Option<i64>)> {
        nodes.iter().filter_map(Node::child).map(|child| (child.workflow_id.clone(), child.version)).collect()
    };
    let mut queue = children(nodes);
    while let Some(asked) = queue.pop() {
        if inside.children.contains_key(&asked) {
            continue;
        }
        let version = asked.1.or_else(|| pins.get(&asked.0));
        let known = inside.found.iter().position(|found| found.id() == asked.0 && Some(found.version) == version);
        let at = match known {
            Some(at) => at,
            None => {
                let found = find_stored(workflows, tenant, &asked.0, version, &PinnedSpecs::none()).await?;
                let Some(found) = found else {
                    inside.missing = Some(asked);
                    continue;
                };
                inside.found.push(found);
                inside.found.len() - 1
            }
        };
        let FoundWorkflow { version, graph, .. } = &inside.found[at];
        if asked.1.is_none() {
            inside.pins.pin(&asked.0, *version);
        }
        queue.extend(children(&graph.document.nodes));
        inside.children.insert(asked, Arc::clone(graph));
    }
    Ok(())
}
