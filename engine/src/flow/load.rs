//! Loads a run from the store.

use super::decide::not_decider;
use super::definitions::PinnedSpecs;
use super::lookup::FoundWorkflow;
use super::{Workflows, lookup};
use crate::access::{APPROVALS_DECIDE, Permit, RUNS_MANAGE, RUNS_READ};
use crate::error::EngineError;
use crate::offload::CostFlag;
use crate::port::Records;
use crate::rows;
use chimera_core::access::{Actor, DeciderRefusal};
use chimera_core::error::Code;
use chimera_core::flow::air::Graph;
use chimera_core::flow::patch::{self, Inverse, Patch};
use chimera_core::flow::pins::Pins;
use chimera_core::flow::run::{
    Replay, ReplayMode, Run, RunHead, RunRecording, RunStatus, Signal, SignalKind, StepStatus, StoredPatch, StoredRun,
    with_descendants,
};
use chimera_core::flow::status::{EffectPurpose, PatchStatus};
use chimera_core::flow::tables::{
    ApprovalRow, EffectRow, PatchRow, RUNS, RunBrief, RunRow, SignalBrief, SignalRow, StepBrief, StepRow,
    WorkItemState, effects, run_patches, run_signals, runs, scoped_approvals, steps, work_items,
};
use chimera_core::flow::work::WorkKind;
use chimera_core::json;
use chimera_core::limits;
use chimera_core::record::{DamagedRows, Json, Row, Scope, Select, StoredRow};
use chimera_core::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Whether a row has so much JSON that working on it may take a lot of CPU.
pub(super) fn is_large(row: &impl StoredRow) -> bool {
    are_large(std::slice::from_ref(row))
}

/// The same for several rows.
pub(super) fn are_large<R: StoredRow>(rows: &[R]) -> bool {
    let bytes: usize = rows.iter().flat_map(R::documents).map(|document| document.as_str().len()).sum();
    bytes > limits::JSON_INLINE_BYTES_MAX
}

/// Approximate memory of the JSON in rows once it is parsed.
pub(super) fn weight<R: StoredRow>(rows: &[R]) -> usize {
    let documents = rows.iter().flat_map(R::documents);
    let weights = documents.map(|document| json::weight_of_text(document.as_str().as_bytes()));
    weights.fold(0, usize::saturating_add)
}

/// The row of a run, before it is decoded.
pub(super) async fn run_row(records: &dyn Records, run: Uuid) -> Result<Option<Row>, EngineError> {
    let select = Select::from(&RUNS, Scope::System).with(runs::id, run).take(1);
    Ok(records.read(select).await?.rows.into_iter().next())
}

/// A run without its documents.
pub(super) async fn find_run(records: &dyn Records, run: Uuid) -> Result<Option<RunBrief>, EngineError> {
    rows::find(records, RunBrief::select(Scope::System).with(runs::id, run)).await
}

/// A run that the caller may read.
pub(super) async fn readable_run(records: &dyn Records, permit: &Permit, run: Uuid) -> Result<RunRow, EngineError> {
    let row = run_of_tenant(records, permit, run).await?;
    if permit.sees(&row.actor) { Ok(row) } else { Err(EngineError::missing_scope(RUNS_READ)) }
}

/// A run that the caller may stop, undo or change.
pub(super) async fn manageable_run(records: &dyn Records, permit: &Permit, run: Uuid) -> Result<RunRow, EngineError> {
    let row = run_of_tenant(records, permit, run).await?;
    if permit.may_manage(&row.actor) { Ok(row) } else { Err(EngineError::missing_scope(RUNS_MANAGE)) }
}

/// A run that the caller may decide on: their own, or any with the scope.
pub(super) async fn decidable_run(records: &dyn Records, permit: &Permit, run: Uuid) -> Result<RunRow, EngineError> {
    let row = run_of_tenant(records, permit, run).await?;
    let may = row.actor == permit.actor() || permit.may(APPROVALS_DECIDE);
    if may { Ok(row) } else { Err(not_decider(&DeciderRefusal::LacksScope)) }
}

async fn run_of_tenant(records: &dyn Records, permit: &Permit, run: Uuid) -> Result<RunRow, EngineError> {
    let select = RunRow::select(Scope::Tenant(permit.tenant().to_owned())).with(runs::id, run);
    rows::find(records, select).await?.ok_or_else(|| EngineError::unknown("run", run))
}

/// The pending signals of a run, up to one turn's limit, and whether there are more.
pub(super) async fn signals(records: &dyn Records, run: Uuid) -> Result<(Vec<Signal>, bool), EngineError> {
    let select = SignalRow::select(Scope::System).with(run_signals::run_id, run).take(limits::TURN_SIGNALS_MAX);
    let page = records.read(select).await?;
    Ok((rows::decodable(page.rows).map(Signal::of_row).collect(), page.next.is_some()))
}

/// The steps of a run, in graph order, each map before its items.
async fn steps(records: &dyn Records, run: Uuid) -> Result<Vec<StepRow>, EngineError> {
    let select = StepRow::select(Scope::System).with(steps::run_id, run);
    let select = select.by(&[steps::position], Default::default());
    let mut steps: Vec<StepRow> = rows::list(records, select, limits::RUN_ROWS_MAX).await?;
    steps.sort_by_key(|step| (step.position, step.map_index));
    Ok(steps)
}

/// The effects of a run that its state is rebuilt from: its tool calls and, once a rollback has begun, its undos. Those
/// of other kinds are not read.
async fn effects(records: &dyn Records, row: &RunRow) -> Result<Vec<EffectRow>, EngineError> {
    let mut found = Vec::new();
    for kind in EffectPurpose::needed_to_load(row.rollback.is_some()) {
        let select = EffectRow::select(Scope::System).with(effects::run_id, row.id).with(effects::kind, *kind);
        found.extend(rows::list::<EffectRow>(records, select, limits::RUN_ROWS_MAX).await?);
    }
    Ok(found)
}

/// The work items of a run, if its steps name some.
async fn work_items(records: &dyn Records, run: Uuid, steps: &[StepRow]) -> Result<Vec<WorkItemState>, EngineError> {
    if steps.iter().all(|step| step.work_kind != Some(WorkKind::Worker)) {
        return Ok(Vec::new());
    }
    let select = WorkItemState::select(Scope::System).with(work_items::run_id, run);
    rows::list(records, select, limits::RUN_ROWS_MAX).await
}

/// Loads the run of a row. Sets `costly` if its data is expensive to process.
pub(super) async fn load(
    records: &dyn Records,
    workflows: &Workflows,
    row: Row,
    costly: &CostFlag,
) -> Result<Run, EngineError> {
    load_decoded(records, workflows, RunRow::decode(row)?, costly).await
}

async fn load_decoded(
    records: &dyn Records,
    workflows: &Workflows,
    row: RunRow,
    costly: &CostFlag,
) -> Result<Run, EngineError> {
    costly.mark_costly(is_large(&row)).await;
    let head = RunHead::of_row(&row)?;
    let pinned = workflows.pinned_specs(&head.tenant, &head.pins).await?;
    let found = base_graph(records, workflows, &head, &pinned).await?;
    let author = found.author().map(str::to_owned);
    let (version, graph) = (found.version, found.graph);
    let steps = steps(records, head.id).await?;
    let effects = effects(records, &row).await?;
    let approvals = ApprovalRow::select(Scope::System).with(scoped_approvals::run_id, head.id);
    let approvals: Vec<ApprovalRow> = rows::list(records, approvals, limits::RUN_ROWS_MAX).await?;
    let work_items = work_items(records, head.id, &steps).await?;
    let any = row.patches > 0 || !approvals.is_empty();
    let patches = if any { patches_of(records, head.id).await? } else { Vec::new() };
    let patches = apply_patches(&patches, &graph, workflows, &with_patches(workflows, &head, &patches).await?)?;
    let recorded = match &head.replay {
        None => None,
        Some(replay) => Some(recorded(records, replay, &graph, costly).await?),
    };
    costly.mark_costly(are_large(&steps) || are_large(&approvals)).await;
    Ok(Run::load(StoredRun {
        run: row,
        steps,
        effects,
        work_items,
        approvals,
        patches,
        graph,
        version,
        author,
        recorded,
    })?)
}

/// A consistent copy of a run that another task or process may be driving. Its rows are read one after another; if a
/// turn was committed in between, they are read again.
pub(super) async fn snapshot(
    records: &dyn Records,
    workflows: &Workflows,
    mut row: RunRow,
    costly: &CostFlag,
) -> Result<(RunRow, Run), EngineError> {
    for _ in 0..limits::SNAPSHOT_TRIES_MAX {
        let (id, version) = (row.id, row.state_version);
        let loaded = load_decoded(records, workflows, row, costly).await;
        row = RunRow::decode(run_row(records, id).await?.ok_or_else(|| EngineError::unknown("run", id))?)?;
        if row.state_version == version {
            return loaded.map(|run| (row, run));
        }
    }
    Err(EngineError::refused(Code::OccConflict, "the run changes faster than it can be read; try again"))
}

/// When a run without pinned versions was authorized: when its outermost parent was requested.
async fn authorized_at(records: &dyn Records, head: &RunHead) -> Result<Timestamp, EngineError> {
    let (mut at, mut next) = (head.created_at, head.parent.map(|(run, _)| run));
    for _ in 0..limits::RUN_DEPTH_MAX {
        let Some(around) = next else { break };
        let Some(row) = find_run(records, around).await? else { break };
        at = row.created_at.unwrap_or(at);
        next = row.parent_run_id;
    }
    Ok(at)
}

/// The definitions of the tools that a run began with, and those that its applied patches were applied with.
async fn with_patches(workflows: &Workflows, head: &RunHead, patches: &[PatchRow]) -> Result<PinnedSpecs, EngineError> {
    let pins = merge_pins(&head.pins, patches.iter().filter(|row| is_applied(row)))?;
    workflows.pinned_specs(&head.tenant, &pins).await
}

/// The workflow of a run, with the initial graph of the run: the workflow's own or, for a replay, that of the original
/// run with every patch applied there. Its tools have these definitions, all others the current ones.
pub(super) async fn base_graph(
    records: &dyn Records,
    workflows: &Workflows,
    head: &RunHead,
    pinned: &PinnedSpecs,
) -> Result<FoundWorkflow, EngineError> {
    let version = match head.workflow.version {
        Some(version) => Some(version),
        None => workflows.newest_at(&head.tenant, &head.workflow.id, authorized_at(records, head).await?).await?,
    };
    let found = lookup::find_stored(workflows, &head.tenant, &head.workflow.id, version, pinned).await?;
    let mut found = found.ok_or_else(|| DamagedRows { what: "its workflow does not exist any more".to_owned() })?;
    let mut before = Vec::new();
    let mut replay = head.replay.as_ref().map(|replay| replay.of);
    while let Some(run) = replay {
        if before.len() >= limits::REPLAY_CHAIN_MAX {
            return Err(EngineError::refused(Code::ValidationFailed, "the chain of replays is too long"));
        }
        before.push(run);
        replay = find_run(records, run).await?.and_then(|row| row.replay_of);
    }
    for run in before.into_iter().rev() {
        let patches = apply_patches(&patches_of(records, run).await?, &found.graph, workflows, pinned)?;
        if let Some(graph) = patches.into_iter().filter_map(|patch| patch.applied).next_back() {
            found.graph = graph;
        }
    }
    Ok(found)
}

/// The graph of a run with every applied patch.
pub(super) async fn graph(
    records: &dyn Records,
    workflows: &Workflows,
    row: &RunRow,
) -> Result<Arc<Graph>, EngineError> {
    let head = RunHead::of_row(row)?;
    let pinned = workflows.pinned_specs(&head.tenant, &head.pins).await?;
    let graph = base_graph(records, workflows, &head, &pinned).await?.graph;
    let patches = patches_of(records, head.id).await?;
    let patches = apply_patches(&patches, &graph, workflows, &with_patches(workflows, &head, &patches).await?)?;
    Ok(patches.into_iter().filter_map(|patch| patch.applied).next_back().unwrap_or(graph))
}

async fn patches_of(records: &dyn Records, run: Uuid) -> Result<Vec<PatchRow>, EngineError> {
    let select = PatchRow::select(Scope::System).with(run_patches::run_id, run);
    rows::list(records, select, limits::RUN_ROWS_MAX).await
}

fn is_applied(row: &PatchRow) -> bool {
    row.status == PatchStatus::Applied
}

/// The authors of a run's applied patches: a replay runs their changes too.
pub(super) async fn patch_authors(records: &dyn Records, run: Uuid) -> Result<Vec<String>, EngineError> {
    let rows = patches_of(records, run).await?;
    Ok(rows.into_iter().filter(is_applied).map(|row| row.actor).collect())
}

/// The pinned versions of child workflows that a run was authorized with, and those of its patches.
pub(super) async fn pins(records: &dyn Records, head: &RunHead, run: Uuid) -> Result<Pins, EngineError> {
    let rows = patches_of(records, run).await?;
    merge_pins(&head.pins, rows.iter().filter(|row| is_applied(row)))
}

/// Pins with those of patches added.
pub(super) fn merge_pins<'a>(
    pins: &Pins,
    mut patches: impl Iterator<Item = &'a PatchRow>,
) -> Result<Pins, EngineError> {
    patches.try_fold(pins.clone(), |pins, row| {
        let patch = patch_of(row)?;
        Ok(pins.and(&patch.pins).and_tools(&patch.tools))
    })
}

/// The patch in a row.
pub(super) fn patch_of(row: &PatchRow) -> Result<Patch, DamagedRows> {
    Patch::from_stored(row.patch.value()?).map_err(|_| damaged_patch(row))
}

fn damaged_patch(row: &PatchRow) -> DamagedRows {
    DamagedRows { what: format!("patch {} can't be read", row.number) }
}

/// The recorded outputs of the original run.
pub(super) async fn recorded(
    records: &dyn Records,
    replay: &Replay,
    graph: &Graph,
    costly: &CostFlag,
) -> Result<RunRecording, EngineError> {
    let steps = steps(records, replay.of).await?;
    costly.mark_costly(are_large(&steps)).await;
    let recorded = RunRecording::from_steps(&steps, replay.mode)?;
    let Some(from) = replay.from.as_deref() else { return Ok(recorded) };
    let mut fresh: BTreeSet<usize> = graph.position(from).into_iter().collect();
    if replay.mode == ReplayMode::Retry {
        fresh.extend(undone_nodes(records, graph, replay.of).await?);
    }
    Ok(recorded.rerun_from(graph, fresh))
}

/// The nodes whose work was undone since, in this run or in those whose work it reused.
async fn undone_nodes(records: &dyn Records, graph: &Graph, run: Uuid) -> Result<BTreeSet<usize>, EngineError> {
    let mut undone = BTreeSet::new();
    let mut own = BTreeSet::new();
    let mut next = Some(run);
    for _ in 0..limits::REPLAY_CHAIN_MAX {
        let Some(row) = (match next {
            Some(run) => find_run(records, run).await?,
            None => None,
        }) else {
            break;
        };
        let whole = row.status == RunStatus::RolledBack;
        let select = StepBrief::select(Scope::System).with(steps::run_id, row.id);
        for step in rows::list::<StepBrief>(records, select, limits::RUN_ROWS_MAX).await? {
            let Some(node) = graph.position(&step.node_id).filter(|node| !own.contains(node)) else { continue };
            if whole || step.status == StepStatus::RolledBack || is_child_undone(records, &step).await? {
                undone.insert(node);
            }
        }
        // A retry's own work does not depend on the run before it.
        next = row.replay_of.filter(|_| row.replay_mode == Some(ReplayMode::Retry));
        match row.replay_from.as_deref() {
            Some(from) => own.extend(with_descendants(graph, graph.position(from))),
            None => next = None,
        }
    }
    Ok(undone)
}

/// Whether the child run of a step was undone, at least in part.
async fn is_child_undone(records: &dyn Records, step: &StepBrief) -> Result<bool, EngineError> {
    let Some(child) = step.child_run_id else { return Ok(false) };
    let Some(row) = find_run(records, child).await? else { return Ok(false) };
    let rollback = row.rollback.as_ref().map(Json::value).transpose()?.unwrap_or_default();
    let part = rollback["undone"].as_array().is_some_and(|undone| !undone.is_empty());
    Ok(part || row.status == RunStatus::RolledBack)
}

/// Whether a rollback of the run has begun and not ended.
pub(super) fn is_rolling_back(row: &RunBrief) -> Result<bool, DamagedRows> {
    let rollback = row.rollback.as_ref().map(Json::value).transpose()?;
    Ok(rollback.is_some_and(|rollback| rollback["ended"] == false))
}

/// Whether a run is being undone, or has a signal to undo.
pub(super) async fn is_undoing(records: &dyn Records, row: &RunBrief) -> Result<bool, EngineError> {
    if is_rolling_back(row)? {
        return Ok(true);
    }
    for kind in SignalKind::UNDO_KINDS {
        let pending =
            SignalBrief::select(Scope::System).with(run_signals::run_id, row.id).with(run_signals::kind, kind);
        if !records.read(pending.take(1)).await?.rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The run sequence number at which a patch was applied, if known.
pub(super) fn applied_seq(row: &PatchRow) -> Result<Option<i64>, DamagedRows> {
    let Some(inverse) = &row.inverse else { return Ok(None) };
    Ok(Inverse::take_applied_at(&mut inverse.value()?))
}

/// The patches of a run in order, each with the resulting graph.
fn apply_patches(
    rows: &[PatchRow],
    graph: &Arc<Graph>,
    workflows: &Workflows,
    pinned: &PinnedSpecs,
) -> Result<Vec<StoredPatch>, EngineError> {
    let mut graph = Arc::clone(graph);
    let mut patches = Vec::new();
    for row in in_order_of_application(rows)? {
        let patch = patch_of(row)?;
        let (mut applied, mut applied_seq) = (None, None);
        if is_applied(row) {
            let mut inverse = row.inverse.as_ref().ok_or_else(|| damaged_patch(row))?.value()?;
            applied_seq = Inverse::take_applied_at(&mut inverse);
            let inverse = Inverse::from_value(inverse).map_err(|_| damaged_patch(row))?;
            let resolved = Patch { add_edges: inverse.remove_edges, ..patch.clone() };
            let known: Vec<&str> = graph.nodes.iter().map(|node| node.node.id.as_str()).collect();
            let catalog = workflows.stored(&row.tenant_id).pinned(pinned);
            let next = patch::apply(&graph, &resolved, &[], &known, &catalog).map_err(|_| damaged_patch(row))?;
            graph = Arc::new(next);
            applied = Some(Arc::clone(&graph));
        }
        patches.push(StoredPatch {
            number: row.number,
            patch,
            by: Actor::from_record(&row.actor, row.actor_kind),
            version: row.state_version,
            applied,
            applied_seq,
            approval: row.approval_request_id,
        });
    }
    Ok(patches)
}

/// The patches that the run knows, in the order of application, which may differ from their numbers. A proposed patch
/// without an approval request is still a pending signal.
fn in_order_of_application(rows: &[PatchRow]) -> Result<Vec<&PatchRow>, DamagedRows> {
    let mut known = Vec::new();
    for row in rows {
        match row.status {
            PatchStatus::Applied => known.push((applied_seq(row)?.unwrap_or(-1), row)),
            PatchStatus::Proposed if row.approval_request_id.is_some() => known.push((i64::MAX, row)),
            _ => {}
        }
    }
    known.sort_by_key(|(seq, row)| (*seq, row.number));
    Ok(known.into_iter().map(|(_, row)| row).collect())
}
