//! Rebuilds a run from its rows.
//!
//! Rows hold what is durable: the steps that have started, and their status. Everything else is derived from
//! the graph: the edges of settled nodes are decided again, against what had settled by then and therefore
//! with the same result, and nodes without a row become ready as before.

use super::cancel::paused_by;
use super::edges::SettledNode;
use super::patch::RunPatch;
use super::pins::request_of_row;
use super::plan::{DraftedPlan, PlanEdit};
use super::requesters::merge_names;
use super::restore::is_written_since_restore;
use super::task::{MapProgress, StoredEffect, StoredStep, Task, TaskState};
use super::{
    EffectStatus, LaneOwner, Replay, ReplayMode, Run, RunHead, RunPlace, RunStatus, Source, StepStatus, WorkflowRef,
};
use crate::access::{Actor, Level};
use crate::error::{Code, ErrorBody};
use crate::flow::air::{Body, Graph};
use crate::flow::approval::{RequestState, RequestedAction, StoredApproval, current, newest_approved};
use crate::flow::patch::Patch;
use crate::json::Digest32;
use crate::record::{DamagedRows, Row};
use crate::time::Timestamp;
use crate::tool::EffectKind;
use serde_json::{Value, json};
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
            let json = |column| row.get(column).as_json().map(crate::record::Json::to_value);
            let item = row.get("map_index").as_int().and_then(|item| u32::try_from(item).ok());
            let output = Arc::new(json("output").unwrap_or_default());
            let error = json("error").filter(|_| row.text("status") == "failed");
            let unreadable = |_| ErrorBody::new(Code::Internal, "the error was not kept");
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

impl RunHead {
    /// Reads the head from a run's row.
    pub fn of_row(row: &Row) -> Result<Self, DamagedRows> {
        let word = |what: &str| DamagedRows { what: what.to_owned() };
        let replay = match row.get("replay_mode").as_text() {
            None => None,
            Some(mode) => Some(Replay {
                of: row.uuid("replay_of"),
                mode: ReplayMode::parse(mode).ok_or_else(|| word("replay_mode"))?,
                from: row.get("replay_from").as_text().map(str::to_owned),
            }),
        };
        let parent = row.get("parent_run_id").as_uuid().zip(row.get("parent_step_id").as_uuid());
        let json = |column| row.get(column).as_json().map(crate::record::Json::to_value);
        let (request, pins) = request_of_row(row);
        Ok(Self {
            id: row.uuid("id"),
            tenant: row.text("tenant_id").to_owned(),
            actor_kind: Actor::from_record(row.text("actor"), row.get("actor_kind").as_text()).kind,
            co_requesters: row.get("co_requesters").as_texts().to_vec(),
            actor: row.text("actor").to_owned(),
            level: Level::parse(row.text("autonomy_level")).ok_or_else(|| word("autonomy_level"))?,
            priority: i32::try_from(row.int("priority")).unwrap_or(5),
            dry_run: row.get("dry_run") == &crate::record::Value::Bool(true),
            source: Source::parse(row.text("source")).ok_or_else(|| word("source"))?,
            workflow: WorkflowRef {
                id: row.text("workflow_id").to_owned(),
                version: row.get("workflow_version").as_int(),
            },
            pins: Arc::new(pins),
            parent,
            depth: u32::try_from(row.int("depth")).unwrap_or(0),
            replay,
            inputs: Arc::new(json("inputs").unwrap_or_else(|| json!({}))),
            request: Arc::new(request),
            risk: json("risk").map(Arc::new),
            idempotency_key: row.get("idempotency_key").as_text().map(str::to_owned),
            correlation_id: row.get("correlation_id").as_text().map(str::to_owned),
            notify: json("notify"),
            created_at: row.get("created_at").as_time().unwrap_or(Timestamp::from_micros(0)),
            timeout_at: row.get("timeout_at").as_time(),
        })
    }
}

impl Run {
    /// Loads a run. Send it `Begun` next.
    pub fn load(stored: StoredRun) -> Result<Self, DamagedRows> {
        let mut head = RunHead::of_row(&stored.run)?;
        let row = &stored.run;
        let status = RunStatus::parse(row.text("status")).ok_or_else(|| DamagedRows { what: "status".to_owned() })?;
        head.workflow.version.get_or_insert(stored.version);
        if status == RunStatus::Pending {
            let own = RunHead::timeout_for(&stored.graph, head.created_at);
            head.timeout_at = Some(head.timeout_at.map_or(own, |end| end.min(own)));
        }
        let mut run = Self::new(head, Arc::clone(&stored.graph), stored.recorded);
        run.add_co_requesters(stored.author.as_deref());
        run.status = status;
        run.version = row.int("state_version");
        run.run_seq = row.int("run_seq");
        run.restored_at = row.get("restored_at").as_time();
        run.owner = row
            .get("owner_lane")
            .as_int()
            .zip(row.get("owner_epoch").as_int())
            .map(|(lane, epoch)| LaneOwner { lane, epoch });
        run.paused_by = paused_by(row);
        run.patches = u32::try_from(row.int("patches")).unwrap_or(0);
        let approvals = StoredApproval::of_rows(&stored.approvals)?;
        run.approvals = u32::try_from(approvals.len()).unwrap_or(u32::MAX);
        let asked_at = approvals.iter().filter_map(|approval| approval.created_at).max();
        run.last_request_at = asked_at.unwrap_or(run.last_request_at);
        run.result = row.get("result").as_json().map(crate::record::Json::to_value);
        run.completed_at = row.get("completed_at").as_time();
        run.load_stopping(row)?;
        run.load_patches(stored.patches, &approvals);
        run.load_plan(row, &approvals);
        run.load_steps(&stored.steps, &stored.effects, &approvals)?;
        run.count_values();
        run.load_listed();
        run.load_undo(row, &stored.steps, &stored.effects);
        run.load_doubts(row, &stored.steps);
        run.rebuild_queues();
        Ok(run)
    }

    fn load_patches(&mut self, patches: Vec<StoredPatch>, approvals: &[StoredApproval]) {
        for stored in patches {
            let before = stored.applied.map(|graph| std::mem::replace(&mut self.graph, graph));
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
            self.patches_by_number
                .insert(number, RunPatch { patch, by, version, asked, before, seq, risk, approved_by });
        }
        let incoming = |node: usize| self.graph.nodes[node].incoming.len();
        self.nodes = (0..self.graph.nodes.len())
            .map(|node| Task::pending(u32::try_from(incoming(node)).unwrap_or(u32::MAX)))
            .collect();
    }

    fn load_plan(&mut self, row: &Row, approvals: &[StoredApproval]) {
        let Some(document) = row.get("plan").as_json().map(crate::record::Json::to_value) else { return };
        let edits = document.get("edits").and_then(Value::as_object).into_iter().flatten();
        // Older rows hold a single name: that of the last editor.
        let by = |node: &str| match &document["edited_by"][node] {
            Value::String(one) => vec![one.clone()],
            several => {
                several.as_array().into_iter().flatten().filter_map(|by| Some(by.as_str()?.to_owned())).collect()
            }
        };
        self.edits =
            edits.map(|(node, input)| (node.clone(), PlanEdit { input: input.clone(), by: by(node) })).collect();
        let approved = !row.get("plan_digest").is_null();
        let of_plan = |approval: &StoredApproval| approval.step.is_none() && approval.action == RequestedAction::Plan;
        let by = newest_approved(approvals, of_plan).map(|approved| approved.by);
        let asked = if approved { None } else { current(approvals, of_plan) };
        self.plan = DraftedPlan::from_document(&document, asked, by.unwrap_or_default());
    }

    fn load_steps(&mut self, steps: &[Row], effects: &[Row], approvals: &[StoredApproval]) -> Result<(), DamagedRows> {
        let calls = effects.iter().filter(|row| row.text("kind") != "compensation");
        let effects: BTreeMap<Uuid, &Row> = calls.map(|row| (row.uuid("step_id"), row)).collect();
        // Parents first: items are stored in the state of their map.
        for row in steps.iter().filter(|row| row.get("map_index").is_null()) {
            let node = self.position(row)?;
            let task = self.load_task(row, effects.get(&row.uuid("id")).copied(), approvals)?;
            self.nodes[node] = task;
            self.places_by_step.insert(row.uuid("id"), RunPlace::node(node));
        }
        for row in steps.iter().filter(|row| !row.get("map_index").is_null()) {
            let node = self.position(row)?;
            let task = self.load_task(row, effects.get(&row.uuid("id")).copied(), approvals)?;
            let item = usize::try_from(row.int("map_index")).unwrap_or(0);
            let Some(items) = self.nodes[node].items_mut() else { continue };
            while items.len() <= item {
                items.push(Task { state: TaskState::Ready, ..Task::pending(0) });
            }
            items[item] = task;
            self.places_by_step.insert(row.uuid("id"), RunPlace { node, item: u32::try_from(item).ok() });
        }
        Ok(())
    }

    fn position(&self, row: &Row) -> Result<usize, DamagedRows> {
        let name = row.text("node_id");
        self.graph.position(name).ok_or_else(|| DamagedRows { what: format!("there is no node {name}") })
    }

    fn load_task(&self, row: &Row, effect: Option<&Row>, approvals: &[StoredApproval]) -> Result<Task, DamagedRows> {
        let id = row.uuid("id");
        let status =
            StepStatus::parse(row.text("status")).ok_or_else(|| DamagedRows { what: "step status".to_owned() })?;
        let json = |column| row.get(column).as_json().map(crate::record::Json::to_value);
        let of_step = |approval: &StoredApproval| approval.step == Some(id);
        let approved = newest_approved(approvals, of_step);
        let asked = approvals.iter().filter(|approval| of_step(approval)).max_by_key(|approval| approval.order());
        let changed_by = asked.map(|asked| self.editors(row, asked)).unwrap_or_default();
        let attempt = u32::try_from(row.int("attempt")).unwrap_or(0);
        let counted = effect.and_then(|effect| u32::try_from(effect.int("attempt")).ok());
        Ok(Task {
            state: self.load_state(row, status, effect, approvals)?,
            step: Some(StoredStep { id, version: row.int("state_version") }),
            effect: effect.map(|effect| StoredEffect {
                id: effect.uuid("id"),
                version: effect.int("state_version"),
                status: EffectStatus::parse(effect.text("status")).unwrap_or(EffectStatus::Dispatched),
                since_restore: is_written_since_restore(effect, self.restored_at),
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
    fn editors(&self, step: &Row, asked: &StoredApproval) -> Vec<String> {
        if let Some(editors) = asked.data.edited_by() {
            return editors;
        }
        let patch = self.position(step).ok().and_then(|node| self.patch_of_node(node));
        let planned = self.edits.get(step.text("node_id")).into_iter().flat_map(|edit| &edit.by);
        let others = patch.into_iter().flat_map(RunPatch::writers).chain(planned.map(String::as_str));
        let known = merge_names(self.head.requesters(), others);
        asked.requesters.iter().skip(1).filter(|who| !known.contains(who)).cloned().collect()
    }

    fn load_state(
        &self,
        row: &Row,
        status: StepStatus,
        effect: Option<&Row>,
        approvals: &[StoredApproval],
    ) -> Result<TaskState, DamagedRows> {
        let json = |column| row.get(column).as_json().map(crate::record::Json::to_value);
        let error = || -> Box<ErrorBody> {
            let body = json("error").and_then(|error| serde_json::from_value(error).ok());
            Box::new(body.unwrap_or_else(|| ErrorBody::new(Code::Internal, "the error was not kept")))
        };
        let due = row.get("retry_at").as_time();
        let output = || Arc::new(json("output").unwrap_or_default());
        let id = row.uuid("id");
        Ok(match status {
            StepStatus::Pending => match due {
                Some(until) => TaskState::Delayed { until },
                // It was drafted and has not started.
                None => self.load_pending(row)?,
            },
            StepStatus::Ready | StepStatus::Judging | StepStatus::Paused => TaskState::Ready,
            StepStatus::AwaitingApproval => match current(approvals, |approval| approval.step == Some(id)) {
                Some(asked) => TaskState::AwaitingApproval(asked),
                None => return Err(DamagedRows { what: "an approval is missing".to_owned() }),
            },
            StepStatus::Running => self.load_running(row, effect),
            // The missing `effects` row would say whether the first attempt may have taken effect.
            StepStatus::RetryWait if effect.is_none() && self.writes(row) => {
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

    fn load_pending(&self, row: &Row) -> Result<TaskState, DamagedRows> {
        let incoming = self.graph.nodes[self.position(row)?].incoming.len();
        Ok(TaskState::Pending { undecided: u32::try_from(incoming).unwrap_or(u32::MAX), taken: false })
    }

    /// Whether the tool of a step is a write, so that every call has a row in `effects`.
    fn writes(&self, step: &Row) -> bool {
        let node = self.graph.position(step.text("node_id")).and_then(|at| self.graph.nodes.get(at));
        node.and_then(|node| node.tool.as_ref()).is_some_and(|spec| spec.effect == EffectKind::Write)
    }

    fn load_running(&self, row: &Row, effect: Option<&Row>) -> TaskState {
        if let Some(run) = row.get("child_run_id").as_uuid() {
            return TaskState::AwaitingChild { run };
        }
        let node = self.graph.position(row.text("node_id")).and_then(|at| self.graph.nodes.get(at));
        if row.get("map_index").is_null() && node.is_some_and(|node| matches!(node.node.body, Body::Map(_))) {
            let input = row.get("input").as_json().map(crate::record::Json::to_value).unwrap_or_default();
            let over = input.get("over").and_then(Value::as_array).cloned().unwrap_or_default();
            let open = over.len();
            return TaskState::Mapping(MapProgress { over: Arc::new(over), open, ..MapProgress::default() });
        }
        let lost = |effect: Option<&Row>| {
            let deadline = effect.and_then(|effect| effect.get("deadline").as_time());
            TaskState::Lost {
                deadline: row.get("retry_at").as_time().or(deadline).unwrap_or(Timestamp::from_micros(0)),
            }
        };
        match effect {
            Some(effect) if effect.text("status") == "dispatched" => lost(Some(effect)),
            // A write is recorded before it is made, so somebody deleted its row.
            None if self.writes(row) => lost(None),
            _ => TaskState::Ready,
        }
    }

    /// Puts the queues right: what was settled decides its edges again, what was ready is ready.
    fn rebuild_queues(&mut self) {
        let mut settled = Vec::new();
        self.open_nodes = self.nodes.iter().filter(|task| !task.is_settled()).count();
        if self.status.is_final() {
            return;
        }
        let places: Vec<RunPlace> = self.places().collect();
        for at in places {
            let Some(task) = self.task(at) else { continue };
            let (due, ready) = (task.deadline(), matches!(task.state, TaskState::Ready));
            if task.is_settled() && at.item.is_none() {
                settled.push((task.seq(), at.node));
            }
            let asks = matches!(task.state, TaskState::AwaitingApproval(_));
            if let Some(due) = due {
                self.timers.insert((due, at));
            }
            if ready {
                self.ready.push_back(at);
            }
            self.approvals_pending += usize::from(asks);
        }
        // In the order in which they settled: the first unhandled failure counts.
        settled.sort_unstable();
        self.settled.extend(settled.into_iter().map(|(_, node)| SettledNode::new(node)));
        for node in 0..self.nodes.len() {
            let TaskState::Mapping(mapping) = &mut self.nodes[node].state else { continue };
            let ended = mapping.items.iter().filter(|item| item.is_settled()).count();
            mapping.open = mapping.over.len() - ended;
            mapping.busy = mapping.items.len() - ended;
            let failed =
                mapping.items.iter().enumerate().filter(|(_, item)| matches!(item.state, TaskState::Failed { .. }));
            let first = failed.min_by_key(|(_, item)| item.seq()).map(|(item, _)| item);
            mapping.failed = first.and_then(|item| u32::try_from(item).ok());
            if mapping.failed.is_none() {
                self.start_items(node);
            }
        }
    }
}

fn digest(row: &Row, column: &str) -> Option<Digest32> {
    Digest32::from_slice(row.get(column).as_bytes()?)
}
