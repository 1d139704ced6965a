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
use super::row::RowState;
use super::stopping::Stopping;
use super::tasks::task::{MapProgress, StoredEffect, StoredStep, Task, TaskState};
use super::{EffectStatus, ReplayMode, Run, RunHead, RunPlace, RunStatus, StepStatus, map_calls, requesters, rollback};
use crate::access::Actor;
use crate::error::{Code, ErrorBody};
use crate::flow::air::{Body, Graph};
use crate::flow::approval::{RequestState, StoredApproval, current, newest_approved};
use crate::flow::patch::Patch;
use crate::json::Digest32;
use crate::record::{DamagedRows, Json, Row};
use crate::time::Timestamp;
use crate::tool::EffectKind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// All stored data of a run.
pub struct StoredRun {
    /// The row in `runs`.
    pub run: Row,
    pub steps: Vec<Row>,
    pub effects: Vec<Row>,
    /// The rows in `scoped_approvals`.
    pub approvals: Vec<Row>,
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
    #[must_use]
    pub fn from_steps(steps: &[Row], mode: ReplayMode) -> Self {
        // A retry can't build on a step that was undone. A replay without effects may use its output.
        let counts = |status: &str| match status {
            "completed" | "failed" => true,
            "rolled_back" => mode != ReplayMode::Retry,
            _ => false,
        };
        let ended = steps.iter().filter(|row| counts(row.text("status")));
        let outputs = ended.map(|row| {
            let json = |column| row.get(column).as_json().map(Json::to_value);
            let item = row.get("map_index").as_int().and_then(|item| u32::try_from(item).ok());
            let output = Arc::new(json("output").unwrap_or_default());
            let error = json("error").filter(|_| row.text("status") == "failed");
            let unreadable = |_| ErrorBody::new(Code::Internal, "the stored error can't be read");
            let error = error.map(|error| serde_json::from_value(error).unwrap_or_else(unreadable));
            let input = digest(row, "input_digest");
            let tool_version = row.get("tool_version").as_text().map(str::to_owned);
            let sent = row.int("attempt") > 0;
            ((row.text("node_id").to_owned(), item), StepRecording { output, error, input, tool_version, sent })
        });
        Self { outputs: outputs.collect(), fresh: None }
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
    let mut head = RunHead::of_row(&stored.run)?;
    let row = &stored.run;
    let status = RunStatus::parse(row.text("status")).ok_or_else(|| DamagedRows { what: "status".to_owned() })?;
    head.workflow.version.get_or_insert(stored.version);
    if status == RunStatus::Pending {
        let own = RunHead::timeout_for(&stored.graph, head.created_at);
        head.timeout_at = Some(head.timeout_at.map_or(own, |end| end.min(own)));
    }
    let approvals = StoredApproval::of_rows(&stored.approvals)?;
    let (stored_row, mut graph) = (RowState::load(row, &head), stored.graph);
    let patches = load_patches(row, stored.patches, &approvals, &mut graph);
    let mut run = Run {
        status,
        result: row.get("result").as_json().map(|result| Arc::new(result.to_value())),
        completed_at: row.get("completed_at").as_time(),
        row: stored_row,
        approvals: Approvals::load(&approvals),
        drafting: Drafting::load(row, &approvals),
        patches,
        stopping: Stopping::load(row, status.is_final())?,
        ..Run::new(head, graph, stored.recorded)
    };
    requesters::add_co_requesters(&mut run, stored.author.as_deref());
    load_steps(&mut run, &stored.steps, &stored.effects, &approvals)?;
    run.budget.count_values(run.tasks.values(), &run.head.inputs);
    map_calls::load_listed(&mut run);
    rollback::loading::load(&mut run, row, &stored.steps, &stored.effects);
    run.doubts = Doubts::load(row, &stored.steps, &run.tasks);
    run.tasks.rebuild_queues(status.is_final());
    Ok(run)
}

/// Loads the patches. `graph` becomes the patched graph.
fn load_patches(row: &Row, stored: Vec<StoredPatch>, approvals: &[StoredApproval], graph: &mut Arc<Graph>) -> Patches {
    let mut patches = Patches::load(u32::try_from(row.int("patches")).unwrap_or(0));
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

fn load_steps(run: &mut Run, steps: &[Row], effects: &[Row], approvals: &[StoredApproval]) -> Result<(), DamagedRows> {
    let calls = effects.iter().filter(|row| row.text("kind") != "compensation");
    let effects: BTreeMap<Uuid, &Row> = calls.map(|row| (row.uuid("step_id"), row)).collect();
    // Parents first: items are stored in the state of their map.
    let (nodes, items): (Vec<&Row>, Vec<&Row>) = steps.iter().partition(|row| row.get("map_index").is_null());
    for row in nodes.into_iter().chain(items) {
        let (node, id) = (position(run, row)?, row.uuid("id"));
        let task = load_task(run, row, effects.get(&id).copied(), approvals)?;
        let item = row.get("map_index").as_int().map(|item| u32::try_from(item).unwrap_or(0));
        run.tasks.load_step(RunPlace { node, item }, id, task);
    }
    Ok(())
}

fn position(run: &Run, row: &Row) -> Result<usize, DamagedRows> {
    let name = row.text("node_id");
    run.tasks.graph().position(name).ok_or_else(|| DamagedRows { what: format!("there is no node {name}") })
}

fn load_task(run: &Run, row: &Row, effect: Option<&Row>, approvals: &[StoredApproval]) -> Result<Task, DamagedRows> {
    let id = row.uuid("id");
    let status = StepStatus::parse(row.text("status")).ok_or_else(|| DamagedRows { what: "step status".to_owned() })?;
    let json = |column| row.get(column).as_json().map(Json::to_value);
    let of_step = |approval: &StoredApproval| approval.step == Some(id);
    let approved = newest_approved(approvals, of_step);
    let asked = approvals.iter().filter(|approval| of_step(approval)).max_by_key(|approval| approval.order());
    let changed_by = asked.map(|asked| editors(run, row, asked)).unwrap_or_default();
    let attempt = u32::try_from(row.int("attempt")).unwrap_or(0);
    let counted = effect.and_then(|effect| u32::try_from(effect.int("attempt")).ok());
    Ok(Task {
        state: load_state(run, row, status, effect, approvals)?,
        step: Some(StoredStep { id, version: row.int("state_version") }),
        effect: effect.map(|effect| StoredEffect {
            id: effect.uuid("id"),
            version: effect.int("state_version"),
            status: EffectStatus::parse(effect.text("status")).unwrap_or(EffectStatus::Dispatched),
            since_restore: is_written_since_restore(effect, run.row.restored_at()),
        }),
        input: json("input").map(Arc::new),
        digest: digest(row, "input_digest"),
        attempt,
        resends: counted.map_or(0, |counted| attempt.saturating_sub(counted)),
        checks: 0,
        doubt: None,
        in_doubt: effect.is_some_and(|effect| effect.text("status") == EffectStatus::Unknown.as_str()),
        not_recorded: false,
        approved,
        changed_by,
        child: row.get("child_run_id").as_uuid(),
        started_at: row.get("started_at").as_time(),
    })
}

/// The editors of a step, according to its last approval request. Older requests don't name them: then, all
/// co-requesters of the request who are not requesters for another reason.
fn editors(run: &Run, step: &Row, asked: &StoredApproval) -> Vec<String> {
    if let Some(editors) = asked.data.edited_by() {
        return editors;
    }
    let patch = position(run, step).ok().and_then(|node| run.patches.of_node(node));
    let planned = run.drafting.editors_of(step.text("node_id"));
    let others = patch.into_iter().flat_map(RunPatch::writers).chain(planned);
    let known = merge_names(run.head.requesters(), others);
    asked.requesters.iter().skip(1).filter(|who| !known.contains(who)).cloned().collect()
}

fn load_state(
    run: &Run,
    row: &Row,
    status: StepStatus,
    effect: Option<&Row>,
    approvals: &[StoredApproval],
) -> Result<TaskState, DamagedRows> {
    let json = |column| row.get(column).as_json().map(Json::to_value);
    let error = || -> Box<ErrorBody> {
        let body = json("error").and_then(|error| serde_json::from_value(error).ok());
        Box::new(body.unwrap_or_else(|| ErrorBody::new(Code::Internal, "the stored error can't be read")))
    };
    let due = row.get("retry_at").as_time();
    let output = || Arc::new(json("output").unwrap_or_default());
    let id = row.uuid("id");
    Ok(match status {
        StepStatus::Pending => match due {
            Some(until) => TaskState::Delayed { until },
            // It was drafted and has not started.
            None => load_pending(run, row)?,
        },
        StepStatus::Ready | StepStatus::Judging | StepStatus::Paused => TaskState::Ready,
        StepStatus::AwaitingApproval => match current(approvals, |approval| approval.step == Some(id)) {
            Some(asked) => TaskState::AwaitingApproval(asked),
            None => return Err(DamagedRows { what: "an approval is missing".to_owned() }),
        },
        StepStatus::Running => load_running(run, row, effect),
        // The missing `effects` row would say whether the first attempt may have taken effect.
        StepStatus::RetryWait if effect.is_none() && writes(run, row) => {
            TaskState::Lost { deadline: due.unwrap_or(Timestamp::from_micros(0)) }
        }
        StepStatus::RetryWait => {
            TaskState::RetryWait { until: due.unwrap_or(Timestamp::from_micros(0)), error: error() }
        }
        StepStatus::OutcomeUnknown => TaskState::OutcomeUnknown { error: error() },
        StepStatus::Completed => {
            TaskState::Completed { output: output(), seq: row.int("completed_seq"), items: Vec::new() }
        }
        StepStatus::Failed => {
            let seq = row.get("completed_seq").as_int().unwrap_or(0);
            TaskState::Failed { error: error(), output: output(), seq, items: Vec::new() }
        }
        StepStatus::Skipped => TaskState::Skipped,
        StepStatus::Cancelled => TaskState::Cancelled { items: Vec::new() },
        StepStatus::RolledBack => TaskState::RolledBack { output: output() },
    })
}

fn load_pending(run: &Run, row: &Row) -> Result<TaskState, DamagedRows> {
    let incoming = run.tasks.graph().nodes[position(run, row)?].incoming.len();
    Ok(TaskState::Pending { undecided: u32::try_from(incoming).unwrap_or(u32::MAX), taken: false })
}

/// Whether the tool of a step is a write, so that every call has a row in `effects`.
fn writes(run: &Run, step: &Row) -> bool {
    let node = run.tasks.graph().position(step.text("node_id")).and_then(|at| run.tasks.graph().nodes.get(at));
    node.and_then(|node| node.tool.as_ref()).is_some_and(|spec| spec.effect == EffectKind::Write)
}

fn load_running(run: &Run, row: &Row, effect: Option<&Row>) -> TaskState {
    if let Some(child) = row.get("child_run_id").as_uuid() {
        return TaskState::AwaitingChild { run: child };
    }
    let node = run.tasks.graph().position(row.text("node_id")).and_then(|at| run.tasks.graph().nodes.get(at));
    if row.get("map_index").is_null() && node.is_some_and(|node| matches!(node.node.body, Body::Map(_))) {
        let input = row.get("input").as_json().map(Json::to_value).unwrap_or_default();
        let over = input.get("over").and_then(Value::as_array).cloned().unwrap_or_default();
        let open = over.len();
        return TaskState::Mapping(MapProgress { over: Arc::new(over), open, ..MapProgress::default() });
    }
    let lost = |effect: Option<&Row>| {
        let deadline = effect.and_then(|effect| effect.get("deadline").as_time());
        TaskState::Lost { deadline: row.get("retry_at").as_time().or(deadline).unwrap_or(Timestamp::from_micros(0)) }
    };
    match effect {
        Some(effect) if effect.text("status") == "dispatched" => lost(Some(effect)),
        // A write is recorded before it is made, so somebody deleted its row.
        None if writes(run, row) => lost(None),
        _ => TaskState::Ready,
    }
}

fn digest(row: &Row, column: &str) -> Option<Digest32> {
    Digest32::from_slice(row.get(column).as_bytes()?)
}
