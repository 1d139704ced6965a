//! Rebuilds a run from its rows.
//!
//! Rows hold what is durable: the steps that have started, and their status. Everything else is derived from
//! the graph: the edges of settled nodes are decided again, against what had settled by then and therefore
//! with the same result, and nodes without a row become ready as before.

use super::approvals::Approvals;
use super::doubts::Doubts;
use super::drafting::Drafting;
use super::patches::Patches;
use super::patches::apply::RunPatch;
use super::requesters::merge_names;
use super::restore::is_written_since_restore;
use super::row::WrittenRow;
use super::stopping::Stopping;
use super::tasks::task::{MapProgress, StoredEffect, StoredStep, Task, TaskState};
use super::{EffectStatus, ReplayMode, Run, RunHead, RunPlace, RunStatus, StepStatus, map_calls, requesters, rollback};
use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::air::{Body, Graph};
use crate::flow::approval::{RequestState, StoredApproval, current, newest_approved};
use crate::flow::patch::Patch;
use crate::flow::status::EffectPurpose;
use crate::flow::tables::{ApprovalRow, EffectRow, RunRow, StepRow};
use crate::json::Digest32;
use crate::record::{DamagedRows, Json};
use crate::time::Timestamp;
use crate::tool::EffectKind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// All stored data of a run.
pub struct StoredRun {
    pub run: RunRow,
    pub steps: Vec<StepRow>,
    pub effects: Vec<EffectRow>,
    pub approvals: Vec<ApprovalRow>,
    /// Applied and proposed patches, with the graph after each applied one.
    pub patches: Vec<StoredPatch>,
    /// The graph of its workflow, without patches.
    pub graph: Arc<Graph>,
    /// The workflow version, which the row of an unclaimed run may omit.
    pub version: i64,
    /// The author of that version. `None` for a plan, which is made for its requester.
    pub author: Option<String>,
    /// The outputs of the run that it replays.
    pub recorded: Option<RunRecording>,
}

/// A row in `run_patches`.
pub struct StoredPatch {
    pub number: u32,
    pub patch: Patch,
    /// The proposer.
    pub by: Actor,
    /// The version of its row.
    pub version: i64,
    /// The patched graph, if it was applied.
    pub applied: Option<Arc<Graph>>,
    /// The sequence number, within the run, of the ledger entry that applied it, if recorded.
    pub applied_seq: Option<i64>,
    /// Its approval request.
    pub approval: Option<Uuid>,
}

/// The recorded outputs of a run, for a replay.
#[derive(Clone, Debug, Default)]
pub struct RunRecording {
    /// By node and item.
    pub outputs: BTreeMap<(String, Option<u32>), StepRecording>,
    /// The nodes that are run again. `None`: all.
    pub fresh: Option<BTreeSet<usize>>,
}

/// The recording of one place.
#[derive(Clone, Debug)]
pub struct StepRecording {
    pub output: Arc<Value>,
    pub error: Option<ErrorBody>,
    /// The digest of its input.
    pub input: Option<Digest32>,
    pub tool_version: Option<String>,
    /// The run made the call itself, instead of using a cached or recorded output.
    pub sent: bool,
}

impl RunRecording {
    /// The recording of a run, from its steps.
    pub fn from_steps(steps: &[StepRow], mode: ReplayMode) -> Result<Self, DamagedRows> {
        // A retry can't build on a step that was undone. A replay without effects may use its output.
        let counts = |step: &&StepRow| match step.status {
            StepStatus::Completed | StepStatus::Failed => true,
            StepStatus::RolledBack => mode != ReplayMode::Retry,
            _ => false,
        };
        let recording = |row: &StepRow| {
            let error = row.error.as_ref().filter(|_| row.status == StepStatus::Failed);
            let recording = StepRecording {
                output: Arc::new(value_or_null(row.output.as_ref())?),
                error: error.map(Json::decode).transpose()?,
                input: row.input_digest,
                tool_version: row.tool_version.clone(),
                sent: row.attempt > 0,
            };
            Ok(((row.node_id.clone(), row.map_index), recording))
        };
        let outputs = steps.iter().filter(counts).map(recording).collect::<Result<_, DamagedRows>>()?;
        Ok(Self { outputs, fresh: None })
    }

    /// The same, with only these nodes and their descendants run again.
    #[must_use]
    pub fn rerun_from(mut self, graph: &Graph, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.fresh = Some(with_descendants(graph, nodes));
        self
    }
}

/// These nodes of a graph and all their descendants.
#[must_use]
pub fn with_descendants(graph: &Graph, nodes: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut queue: Vec<usize> = nodes.into_iter().collect();
    while let Some(node) = queue.pop() {
        if found.insert(node) {
            queue.extend(graph.nodes[node].outgoing.iter().map(|edge| graph.edges[*edge].to));
        }
    }
    found
}

/// Loads a run.
pub(crate) fn load(stored: StoredRun) -> Result<Run, DamagedRows> {
    let row = &stored.run;
    let (mut head, status) = (RunHead::of_row(row)?, row.status);
    head.workflow.version.get_or_insert(stored.version);
    if status == RunStatus::Pending {
        let own = RunHead::timeout_for(&stored.graph, head.created_at);
        head.timeout_at = Some(head.timeout_at.map_or(own, |end| end.min(own)));
    }
    let approvals = StoredApproval::of_rows(&stored.approvals)?;
    let (stored_row, mut graph) = (WrittenRow::load(row, &head), stored.graph);
    let patches = load_patches(row, stored.patches, &approvals, &mut graph);
    let mut run = Run {
        status,
        result: row.result.as_ref().map(Json::value).transpose()?,
        completed_at: row.completed_at,
        row: stored_row,
        approvals: Approvals::load(&approvals),
        drafting: Drafting::load(row, &approvals)?,
        patches,
        stopping: Stopping::load(row, status.is_final())?,
        ..Run::new(head, graph, stored.recorded)
    };
    requesters::add_co_requesters(&mut run, stored.author.as_deref());
    load_steps(&mut run, &stored.steps, &stored.effects, &approvals)?;
    run.budget.count_values(run.tasks.values(), &run.head.inputs);
    map_calls::load_listed(&mut run);
    rollback::loading::load(&mut run, row, &stored.steps, &stored.effects)?;
    run.doubts = Doubts::load(row, &stored.steps, &run.tasks);
    run.tasks.rebuild_queues(status.is_final());
    Ok(run)
}

/// Loads the patches. `graph` becomes the patched graph.
fn load_patches(
    row: &RunRow,
    stored: Vec<StoredPatch>,
    approvals: &[StoredApproval],
    graph: &mut Arc<Graph>,
) -> Patches {
    let mut patches = Patches::load(row.patches);
    for stored in stored {
        let before = stored.applied.map(|patched| std::mem::replace(graph, patched));
        let asked = stored
            .approval
            .filter(|_| before.is_none())
            .and_then(|id| current(approvals, |approval| approval.id == id));
        let request = approvals.iter().find(|approval| Some(approval.id) == stored.approval);
        let risk = request.and_then(|approval| approval.data.risk()).cloned();
        let approved_by = match request.map(|approval| &approval.state) {
            Some(RequestState::Approved { by, .. }) => by.clone(),
            _ => Vec::new(),
        };
        let StoredPatch { number, patch, by, version, applied_seq, .. } = stored;
        // Older rows have no sequence number; they were applied in the order of their patch numbers.
        let seq = applied_seq.unwrap_or(if before.is_some() { -1 } else { i64::MAX });
        patches.load_patch(number, RunPatch { patch, by, version, asked, before, seq, risk, approved_by });
    }
    patches
}

/// The document of a column, `null` if it has none.
fn value_or_null(document: Option<&Json>) -> Result<Value, DamagedRows> {
    document.map_or(Ok(Value::Null), Json::value)
}

fn load_steps(
    run: &mut Run,
    steps: &[StepRow],
    effects: &[EffectRow],
    approvals: &[StoredApproval],
) -> Result<(), DamagedRows> {
    let calls = effects.iter().filter(|row| row.kind != EffectPurpose::Compensation);
    let effects: BTreeMap<Uuid, &EffectRow> = calls.map(|row| (row.step_id, row)).collect();
    // Parents first: items are stored in the state of their map.
    let (nodes, items): (Vec<&StepRow>, Vec<&StepRow>) = steps.iter().partition(|row| row.map_index.is_none());
    for row in nodes.into_iter().chain(items) {
        let stored = StoredTask { row, node: position(run, row)?, effect: effects.get(&row.id).copied(), approvals };
        let task = load_task(run, &stored)?;
        run.tasks.load_step(RunPlace { node: stored.node, item: row.map_index }, row.id, task);
    }
    Ok(())
}

/// What is stored of one place.
struct StoredTask<'a> {
    row: &'a StepRow,
    node: usize,
    /// The effect of its call, if it has one.
    effect: Option<&'a EffectRow>,
    /// The requests of the run.
    approvals: &'a [StoredApproval],
}

fn position(run: &Run, row: &StepRow) -> Result<usize, DamagedRows> {
    let name = &row.node_id;
    run.tasks.graph().position(name).ok_or_else(|| DamagedRows { what: format!("there is no node {name}") })
}

fn load_task(run: &Run, stored: &StoredTask<'_>) -> Result<Task, DamagedRows> {
    let StoredTask { row, effect, approvals, .. } = *stored;
    let of_step = |approval: &StoredApproval| approval.step == Some(row.id);
    let asked = approvals.iter().filter(|approval| of_step(approval)).max_by_key(|approval| approval.order());
    Ok(Task {
        state: load_state(run, stored)?,
        step: Some(StoredStep { id: row.id, version: row.state_version }),
        effect: effect.map(|effect| StoredEffect {
            id: effect.id,
            version: effect.state_version,
            status: effect.status,
            since_restore: is_written_since_restore(effect, run.row.restored_at()),
        }),
        input: row.input.as_ref().map(Json::value).transpose()?.map(Arc::new),
        digest: row.input_digest,
        attempt: row.attempt,
        resends: effect.map_or(0, |effect| row.attempt.saturating_sub(effect.attempt)),
        checks: 0,
        doubt: None,
        in_doubt: effect.is_some_and(|effect| effect.status == EffectStatus::Unknown),
        not_recorded: false,
        approved: newest_approved(approvals, of_step),
        changed_by: asked.map(|asked| editors(run, stored, asked)).unwrap_or_default(),
        child: row.child_run_id,
        started_at: row.started_at,
    })
}

/// The editors of a step, according to its last approval request. Older requests don't name them: then, all
/// co-requesters of the request who are not requesters for another reason.
fn editors(run: &Run, stored: &StoredTask<'_>, asked: &StoredApproval) -> Vec<String> {
    if let Some(editors) = asked.data.edited_by() {
        return editors;
    }
    let planned = run.drafting.editors_of(&stored.row.node_id);
    let others = run.patches.of_node(stored.node).into_iter().flat_map(RunPatch::writers).chain(planned);
    let known = merge_names(run.head.requesters(), others);
    asked.requesters.iter().skip(1).filter(|who| !known.contains(who)).cloned().collect()
}

fn load_state(run: &Run, stored: &StoredTask<'_>) -> Result<TaskState, DamagedRows> {
    let StoredTask { row, effect, approvals, .. } = *stored;
    let error = || -> Result<Box<ErrorBody>, DamagedRows> {
        let missing = || DamagedRows { what: "a step has failed without an error".to_owned() };
        Ok(Box::new(row.error.as_ref().ok_or_else(missing)?.decode()?))
    };
    let output = || value_or_null(row.output.as_ref()).map(Arc::new);
    let (due, seq) = (row.retry_at, row.completed_seq.unwrap_or(0));
    Ok(match row.status {
        StepStatus::Pending => match due {
            Some(until) => TaskState::Delayed { until },
            // It was drafted and has not started.
            None => load_pending(run, stored),
        },
        StepStatus::Ready | StepStatus::Judging | StepStatus::Paused => TaskState::Ready,
        StepStatus::AwaitingApproval => match current(approvals, |approval| approval.step == Some(row.id)) {
            Some(asked) => TaskState::AwaitingApproval(asked),
            None => return Err(DamagedRows { what: "an approval is missing".to_owned() }),
        },
        StepStatus::Running => load_running(run, stored)?,
        // The missing `effects` row would say whether the first attempt may have taken effect.
        StepStatus::RetryWait if effect.is_none() && writes(run, stored) => {
            TaskState::Lost { deadline: due.unwrap_or(Timestamp::from_micros(0)) }
        }
        StepStatus::RetryWait => {
            TaskState::RetryWait { until: due.unwrap_or(Timestamp::from_micros(0)), error: error()? }
        }
        StepStatus::OutcomeUnknown => TaskState::OutcomeUnknown { error: error()? },
        StepStatus::Completed => TaskState::Completed { output: output()?, seq, items: Vec::new() },
        StepStatus::Failed => TaskState::Failed { error: error()?, output: output()?, seq, items: Vec::new() },
        StepStatus::Skipped => TaskState::Skipped,
        StepStatus::Cancelled => TaskState::Cancelled { items: Vec::new() },
        StepStatus::RolledBack => TaskState::RolledBack { output: output()? },
    })
}

fn load_pending(run: &Run, stored: &StoredTask<'_>) -> TaskState {
    let incoming = run.tasks.graph().nodes[stored.node].incoming.len();
    TaskState::Pending { undecided: u32::try_from(incoming).unwrap_or(u32::MAX), taken: false }
}

/// Whether the tool of a step is a write, so that every call has a row in `effects`.
fn writes(run: &Run, stored: &StoredTask<'_>) -> bool {
    let tool = run.tasks.graph().nodes[stored.node].tool.as_ref();
    tool.is_some_and(|spec| spec.effect == EffectKind::Write)
}

fn load_running(run: &Run, stored: &StoredTask<'_>) -> Result<TaskState, DamagedRows> {
    let StoredTask { row, node, effect, .. } = *stored;
    if let Some(child) = row.child_run_id {
        return Ok(TaskState::AwaitingChild { run: child });
    }
    if row.map_index.is_none() && matches!(run.tasks.graph().nodes[node].node.body, Body::Map(_)) {
        let mut input = value_or_null(row.input.as_ref())?;
        let over = input.get_mut("over").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let open = over.len();
        return Ok(TaskState::Mapping(MapProgress { over: Arc::new(over), open, ..MapProgress::default() }));
    }
    let lost = |effect: Option<&EffectRow>| {
        let deadline = effect.and_then(|effect| effect.deadline);
        TaskState::Lost { deadline: row.retry_at.or(deadline).unwrap_or(Timestamp::from_micros(0)) }
    };
    Ok(match effect {
        Some(effect) if effect.status == EffectStatus::Dispatched => lost(Some(effect)),
        // A write is recorded before it is made, so somebody deleted its row.
        None if writes(run, stored) => lost(None),
        _ => TaskState::Ready,
    })
}
