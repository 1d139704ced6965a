//! Rebuilds a run from its rows.
//!
//! Rows hold what is durable: the steps that have started, and their status. Everything else is derived from
//! the graph: the edges of settled nodes are decided again, against what had settled by then and therefore
//! with the same result, and nodes without a row become ready as before.

use super::approvals::Approvals;
use super::doubts::Doubts;
use super::drafting::Drafting;
use super::patches::Patches;
use super::row::WrittenRow;
use super::stopping::Stopping;
use super::{ReplayMode, Run, RunHead, RunStatus, StepStatus, map_calls, requesters, rollback, tasks};
use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::air::Graph;
use crate::flow::approval::StoredApproval;
use crate::flow::patch::Patch;
use crate::flow::tables::{ApprovalRow, EffectRow, RunRow, StepRow, WorkItemState};
use crate::json::Digest32;
use crate::record::{DamagedRows, Json};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// All stored data of a run.
pub struct StoredRun {
    pub run: RunRow,
    pub steps: Vec<StepRow>,
    pub effects: Vec<EffectRow>,
    /// The work items that its steps name.
    pub work_items: Vec<WorkItemState>,
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
    let patches = Patches::load(row.patches, stored.patches, &approvals, &mut graph);
    let mut run = Run {
        status,
        result: row.result.as_ref().map(Json::value).transpose()?.map(Arc::new),
        completed_at: row.completed_at,
        row: stored_row,
        approvals: Approvals::load(&approvals),
        drafting: Drafting::load(row, &approvals)?,
        patches,
        stopping: Stopping::load(row, status.is_final())?,
        ..Run::new(head, graph, stored.recorded)
    };
    requesters::add_co_requesters(&mut run, stored.author.as_deref());
    tasks::loading::load(&mut run, &stored.steps, &stored.effects, &stored.work_items, &approvals)?;
    run.budget.count_values(run.tasks.values(), &run.head.inputs);
    map_calls::load_listed(&mut run);
    rollback::loading::load(&mut run, row, &stored.steps, &stored.effects)?;
    run.doubts = Doubts::load(row, &stored.steps, &run.tasks);
    run.tasks.rebuild_queues(status.is_final());
    Ok(run)
}

/// The document of a column, `null` if it has none.
pub(super) fn value_or_null(document: Option<&Json>) -> Result<Value, DamagedRows> {
    document.map_or(Ok(Value::Null), Json::value)
}
