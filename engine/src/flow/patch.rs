//! Patches of a running graph: propose, preview, remove.
//!
//! The run itself applies a patch in its next turn. Whatever can be checked before is checked here, so that a patch
//! that can't work is refused at once.

use super::definitions::PinnedSpecs;
use super::signals::{RowVersion, RunSignal, check_unfinished};
use super::superseded_requests::SupersededRequests;
use super::{ChildWorkflows, Flow, load, lookup, review, share, signals, steps, view};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::error::invalid_document;
use crate::offload::CostFlag;
use crate::rows;
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::air::Graph;
use chimera_core::flow::patch::Patch;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::run::{
    Env, Event as RunEvent, Gate, LaneOwner, PatchPreview, Run, RunHead, SignalKind, SlotRequest, WorkflowRef,
    request_of_row,
};
use chimera_core::flow::status::{PatchStatus, RequestStatus};
use chimera_core::flow::tables::{
    ApprovalRow, PatchRow, RUN_PATCHES, RUNS, SignalBrief, run_patches, run_signals, runs,
};
use chimera_core::json::Digest32;
use chimera_core::limits;
use chimera_core::record::{
    Comparison, Condition, DamagedRows, Insert, Json, JsonError, RowCount, Scope, Step, StoredRow, Tx, Unstorable,
    Value as Cell,
};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

struct ClosedGate;

impl Gate for ClosedGate {
    fn enter(&mut self, _: SlotRequest<'_>) -> bool {
        false
    }
}

/// A request to patch a running graph.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchRequest {
    pub run: Uuid,
    /// The patch in its wire form.
    pub document: Value,
    /// The version of the run that the caller has seen; `None`: any.
    pub version: Option<i64>,
    /// Only preview it.
    pub dry_run: bool,
    /// A patch that its author could not run freely waits for a person. Otherwise it is refused.
    pub may_wait: bool,
}

impl PatchRequest {
    /// For the current version of the run.
    #[must_use]
    pub const fn new(run: Uuid, document: Value) -> Self {
        Self { run, document, version: None, dry_run: false, may_wait: false }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProposedPatch {
    /// `None` for a dry run.
    pub number: Option<u32>,
    /// What it changes, and its inverse.
    pub preview: view::PatchChanges,
}

/// A patch checked against one version of a run. Exactly what was checked is proposed, or nothing.
pub(crate) struct CheckedPatch {
    run: Uuid,
    /// The run's version.
    version: i64,
    number: u32,
    /// With `current` resolved, and the versions of all workflows that it starts.
    pub(crate) patch: Patch,
    preview: Value,
    /// Why the rules refuse the patch, if they do.
    refused: Option<String>,
    /// The run with this patch and all proposed ones that are not applied yet.
    pub(crate) combined: RunDefinition,
    /// The number of calls of the run without it, as far as known.
    pub(crate) calls: usize,
    /// The risk of what it adds.
    pub(crate) risk: Option<Value>,
}

/// What a run executes.
pub(crate) struct RunDefinition {
    /// With every patch applied.
    pub(crate) graph: Arc<Graph>,
    pub(crate) inputs: Arc<Value>,
    pub(crate) workflow: WorkflowRef,
    pub(crate) level: Level,
    /// The pinned versions of child workflows, including those of its patches.
    pub(crate) pins: Pins,
}

impl CheckedPatch {
    /// The number that the patch gets within the run.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Whether a person must approve it: its author could not run it freely, or the run follows an approved plan.
    pub(crate) fn waits(&self) -> bool {
        self.patch.waits || self.combined.level == Level::Draft
    }

    /// The run advances faster than the patch can be checked.
    pub(crate) fn run_too_fast() -> EngineError {
        let message = "the run changes faster than the patch can be checked; pause the run and propose the patch again";
        EngineError::refused(Code::OccConflict, message)
    }
}

/// Proposes a patch of a running graph, or previews it.
pub async fn patch(flow: &Flow, permit: &Permit, request: PatchRequest) -> Result<ProposedPatch, EngineError> {
    for _ in 0..limits::PATCH_TRIES_MAX {
        let look = check_patch(flow, permit, &request).await?;
        if let Some(proposed) = propose_patch(flow, permit, look, request.dry_run).await? {
            return Ok(proposed);
        }
    }
    Err(CheckedPatch::run_too_fast())
}

/// Checks a patch against the current run, and refuses one that can't be applied.
pub(crate) async fn check_patch(
    flow: &Flow,
    permit: &Permit,
    request: &PatchRequest,
) -> Result<CheckedPatch, EngineError> {
    let run = request.run;
    let row = signals::unfinished_run(flow, permit, run).await?;
    let (records, costly) = (&*flow.inner.parts.records, CostFlag::default());
    let loaded = Box::pin(load::snapshot(records, &flow.inner.workflows, row, &costly));
    let (row, copy) = flow.inner.offload.run_when_costly(&permit.claimant(), &costly, loaded).await?;
    check_unfinished(&row)?;
    let seen = row.state_version;
    if request.version.is_some_and(|version| version != seen) {
        return Err(EngineError::refused(
            Code::OccConflict,
            format!("the run is at version {seen} now; fetch it again"),
        ));
    }
    let patch = Patch::from_value(request.document.clone());
    let mut patch = patch.map_err(|problems| invalid_document("the patch", &problems))?;
    let known = patches_of(flow, permit, run).await?;
    if known.len() >= usize::try_from(limits::RUN_PATCHES_MAX).unwrap_or(0) {
        return Err(EngineError::refused(Code::ValidationFailed, "the run has reached its limit of patches"));
    }
    let counts = |row: &&PatchRow| matches!(row.status, PatchStatus::Applied | PatchStatus::Proposed);
    let kept = load::merge_pins(&request_of_row(&row)?.1, known.iter().filter(counts))?;
    pin(flow, permit, &mut patch, &kept).await?;
    let (looked, refused, head, calls) = on_copy(flow, copy, |run, env| {
        let mut refused = run.check_patch_rules(&patch, permit.actor(), env).err();
        if refused.is_some() && request.may_wait {
            patch.waits = true;
            refused = run.check_patch_rules(&patch, permit.actor(), env).err();
        }
        (run.preview_patch(&patch, env), refused, Arc::clone(run.head()), run.calls_reserved())
    })?;
    let looked = looked.map_err(|problems| invalid_document("the patch", &problems))?;
    let PatchPreview { patch, graph, preview } = looked;
    check_no_duplicate_nodes(&known, &patch)?;
    let together = RunDefinition {
        graph: Arc::new(with_proposed(flow, &head, graph, &known)?),
        inputs: Arc::clone(&head.inputs),
        workflow: head.workflow.clone(),
        level: head.level,
        pins: kept.and(&patch.pins),
    };
    let number = known.iter().map(|row| row.number).max().unwrap_or(0) + 1;
    Ok(CheckedPatch { run, version: seen, number, patch, preview, refused, combined: together, calls, risk: None })
}

/// Pins the versions of all workflows that a patch starts, so that what is checked is what runs. Child workflows
/// that the run already pinned keep their versions.
async fn pin(flow: &Flow, permit: &Permit, patch: &mut Patch, kept: &Pins) -> Result<(), EngineError> {
    let mut inside = ChildWorkflows::default();
    for node in &mut patch.add_nodes {
        let Some(child) = node.child() else { continue };
        let found =
            lookup::find_workflow(&flow.inner.workflows, permit.tenant(), &child.workflow_id, child.version).await?;
        let Some(found) = found else {
            let message = format!("there is no workflow {}", child.workflow_id);
            return Err(EngineError::refused(Code::MalformedArgs, message));
        };
        node.pin(found.version);
        inside.found.push(found);
    }
    lookup::add_children(&flow.inner.workflows, &mut inside, permit.tenant(), &patch.add_nodes, kept).await?;
    share::copy_shared(&flow.inner.workflows, permit.tenant(), None, &inside).await?;
    patch.authors = inside.authors().into_iter().map(str::to_owned).collect();
    // What the run already pins stays as it is.
    let graphs = inside.children.values().map(Arc::as_ref);
    let tools = flow.inner.workflows.pin_tools(Pins::default(), graphs)?.tools().clone().into_iter();
    patch.tools = tools.filter(|(name, _)| kept.tool(name).is_none()).collect();
    patch.pins = inside.pins;
    Ok(())
}

/// The graph with every proposed patch that is not applied yet.
fn with_proposed(flow: &Flow, head: &RunHead, mut graph: Graph, known: &[PatchRow]) -> Result<Graph, EngineError> {
    let pinned = PinnedSpecs::of_graph(&head.pins, &graph);
    let catalog = flow.inner.workflows.running(&head.tenant).pinned(&pinned);
    for row in known.iter().filter(|row| row.status == PatchStatus::Proposed) {
        let unfit = || {
            let message = format!("this patch conflicts with patch {}, which is not applied yet", row.number);
            EngineError::refused(Code::OccConflict, message)
        };
        let patch = load::patch_of(row)?;
        let nodes: Vec<&str> = graph.nodes.iter().map(|node| node.node.id.as_str()).collect();
        // Which node is current does not affect the calls.
        let current = nodes.get(..1).unwrap_or_default();
        graph = chimera_core::flow::patch::apply(&graph, &patch, current, &nodes, &catalog).map_err(|_| unfit())?;
    }
    Ok(graph)
}

/// Proposes a checked patch; `None` if the run or its proposed patches changed since.
pub(crate) async fn propose_patch(
    flow: &Flow,
    permit: &Permit,
    look: CheckedPatch,
    dry_run: bool,
) -> Result<Option<ProposedPatch>, EngineError> {
    let CheckedPatch { run, version, number, patch, preview, refused, risk, .. } = look;
    let preview = serde_json::from_value(preview).map_err(JsonError::Serialise)?;
    if let Some(why) = refused {
        return Err(EngineError::refused(Code::PolicyDenied, why));
    }
    if dry_run {
        return Ok(Some(ProposedPatch { number: None, preview }));
    }
    // Of two concurrent proposals one gets the number.
    let row = patch_row(flow, permit, run, number, &patch)?;
    let kind = SignalKind::Patch { number, patch: patch.to_value(), by: permit.by(), risk };
    let is = |column, value: Cell| Condition { column, compare: Comparison::Is, value };
    let unchanged = Step::Lock {
        table: &RUNS,
        conditions: vec![is(runs::id, run.into()), is(runs::state_version, version.into())],
        rows: RowCount::Exactly(1),
    };
    let tx = Tx { inserts: vec![row], steps: vec![unchanged], ..Tx::default() };
    let sent = signals::try_send_signal(flow, permit, RunSignal::new(run, kind), tx).await?;
    Ok(sent.then_some(ProposedPatch { number: Some(number), preview }))
}

/// Inspects a copy of a run.
pub(super) fn on_copy<T>(flow: &Flow, mut run: Run, look: impl FnOnce(&Run, &Env<'_>) -> T) -> Result<T, EngineError> {
    let tenant = run.head().tenant.clone();
    let parts = &flow.inner.parts;
    let pinned = PinnedSpecs::of_graph(&run.head().pins, run.graph());
    let (now, catalog) = (parts.clock.steady(), flow.inner.workflows.running(&tenant).pinned(&pinned));
    let mut env = Env {
        now,
        ids: &mut || parts.random.row_id(now),
        gate: &mut ClosedGate,
        policy: &*parts.policy,
        catalog: &catalog,
        projection: &*parts.projection,
        jobs: &*parts.jobs,
        windows: &(),
        // The copy is never written.
        owner: LaneOwner { lane: 0, epoch: 0 },
    };
    // What is in flight without its own row reappears in this copy, and goes no further.
    run.step(vec![RunEvent::Claimed { owns_all_calls: false }], &mut env)?;
    Ok(look(&run, &env))
}

fn patch_row(flow: &Flow, permit: &Permit, run: Uuid, number: u32, patch: &Patch) -> Result<Insert, EngineError> {
    let digest = chimera_core::flow::patch::digest(Digest32::ZERO, patch);
    let row = Insert::new(
        &RUN_PATCHES,
        vec![
            (run_patches::run_id, run.into()),
            (run_patches::number, number.into()),
            (run_patches::tenant_id, permit.tenant().into()),
            (run_patches::patch, Json::encode(&patch.to_value()).map_err(Unstorable::from)?.into()),
            (run_patches::digest, Cell::Bytes(digest.to_vec())),
            (run_patches::status, PatchStatus::Proposed.into()),
            (run_patches::actor, permit.actor().into()),
            (run_patches::actor_kind, permit.kind().into()),
            (run_patches::justification, patch.justification.as_str().into()),
            (run_patches::created_at, flow.inner.parts.clock.now().into()),
            (run_patches::state_version, 1.into()),
        ],
    );
    Ok(row.map_err(Unstorable::from)?)
}

/// Removes the last applied patch, unless one of its nodes has started.
pub async fn withdraw_patch(flow: &Flow, permit: &Permit, run: Uuid, number: u32) -> Result<(), EngineError> {
    signals::unfinished_run(flow, permit, run).await?;
    let records = &*flow.inner.parts.records;
    let known = patches_of(flow, permit, run).await?;
    let row = known.iter().find(|row| row.number == number);
    let row = row.ok_or_else(|| EngineError::unknown("patch", number))?;
    let refused = |why: String| Err(EngineError::refused(Code::InvalidTransition, why));
    if row.status != PatchStatus::Applied {
        let status = row.status.as_str();
        return refused(format!("patch {number} is {status}: only an applied patch can be removed"));
    }
    let applied = known.iter().filter(|row| row.status == PatchStatus::Applied);
    let applied = applied.map(|row| Ok((load::applied_seq(row)?, row.number))).collect::<Result<Vec<_>, DamagedRows>>();
    if let Some((_, last)) = applied?.into_iter().max().filter(|(_, last)| *last != number) {
        return refused(format!("patch {last} was applied later and must be removed first"));
    }
    for node in added_nodes(row)? {
        if steps::find_step(flow, permit, run, &node).await.is_ok() {
            return refused(format!("its node {node} has started"));
        }
    }
    let select = SignalBrief::select(Scope::Tenant(permit.tenant().to_owned()));
    let select = select.with(run_signals::run_id, run).with(run_signals::kind, "unpatch");
    if rows::find::<SignalBrief>(records, select).await?.is_some() {
        return Err(EngineError::refused(Code::OccConflict, "the last patch is already being removed"));
    }
    let requests = review::requests_of(flow, permit.tenant(), run).await?;
    check_none_approved(&known, &requests)?;
    // The other pending patches change with it.
    let superseded = SupersededRequests::of_reverted_patch(&requests)?;
    let key = vec![row.run_id.into(), row.number.into()];
    let at = RowVersion { table: &RUN_PATCHES, key, version: row.state_version };
    let kind = SignalKind::Unpatch { number, by: permit.by() };
    signals::send_signal_once(flow, permit, RunSignal { run, kind, superseded }, &at).await
}

async fn patches_of(flow: &Flow, permit: &Permit, run: Uuid) -> Result<Vec<PatchRow>, EngineError> {
    let select = PatchRow::select(Scope::Tenant(permit.tenant().to_owned())).with(run_patches::run_id, run);
    rows::list(&*flow.inner.parts.records, select, limits::RUN_ROWS_MAX).await
}

/// The nodes that a patch adds.
fn added_nodes(row: &PatchRow) -> Result<Vec<String>, DamagedRows> {
    Ok(load::patch_of(row)?.add_nodes.into_iter().map(|node| node.id).collect())
}

/// Refuses to remove a patch while an approved one is about to be applied on top of it.
fn check_none_approved(known: &[PatchRow], requests: &[ApprovalRow]) -> Result<(), EngineError> {
    let is_request_approved = |id: Uuid| {
        let mut approved = requests.iter().filter(|request| request.status == RequestStatus::Approved);
        approved.any(|request| request.approval_request_id == id)
    };
    let is_approved = |row: &&PatchRow| {
        row.status == PatchStatus::Proposed && row.approval_request_id.is_some_and(is_request_approved)
    };
    let Some(row) = known.iter().find(is_approved) else { return Ok(()) };
    let message = format!("patch {} was approved and is being applied; remove it first", row.number);
    Err(EngineError::refused(Code::OccConflict, message))
}

/// Refuses a patch that adds a node which a pending patch also adds: only one of them could be applied.
fn check_no_duplicate_nodes(known: &[PatchRow], patch: &Patch) -> Result<(), EngineError> {
    for row in known.iter().filter(|row| row.status == PatchStatus::Proposed) {
        let twice = added_nodes(row)?.into_iter().find(|id| patch.add_nodes.iter().any(|node| node.id == *id));
        if let Some(id) = twice {
            let message = format!("patch {}, which is not applied yet, also adds a node {id}", row.number);
            return Err(EngineError::refused(Code::OccConflict, message));
        }
    }
    Ok(())
}
