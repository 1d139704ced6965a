//! The end of a turn: writes the rows of changed places and the next version of the run's row.

use super::env::Env;
use super::event::{CallMode, Signal, SignalKind, Turn};
use super::pins::with_pins;
use super::task::{StoredStep, Task, TaskState};
use super::turn_builder::TurnBuilder;
use super::{LaneOwner, Run, RunHead, RunPlace};
use crate::flow::tables::{RUN_SIGNALS, RUNS, STEPS};
use crate::json::Digest32;
use crate::record::{Insert, Json, JsonError, Unstorable, Update, Value};
use crate::time::Timestamp;
use crate::{id, limits};
use serde_json::json;
use uuid::Uuid;

/// Who continues a run after this turn. A row with work left always has an owner or a deadline, so that
/// it is found again if its process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuation {
    /// The owner of this lane drives it.
    Owned(LaneOwner),
    /// No owner. It is claimed again at `until` or when it gets a signal.
    Parked {
        until: Timestamp,
        /// It waits only for a slot.
        for_slot: bool,
    },
    Ended,
}

impl Continuation {
    const fn owner(self) -> Option<LaneOwner> {
        match self {
            Self::Owned(owner) => Some(owner),
            Self::Parked { .. } | Self::Ended => None,
        }
    }

    const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Parked { until, .. } => Some(until),
            Self::Owned(_) | Self::Ended => None,
        }
    }
}

impl Run {
    /// Marks a place as changed: its row is written at the end of the turn.
    pub(crate) fn mark_dirty(&mut self, at: RunPlace, env: &mut Env<'_>, book: &mut TurnBuilder) {
        self.ensure_step(at, env);
        book.dirty.insert(at);
    }

    /// The id of a place's step, created if it has none.
    pub(crate) fn ensure_step(&mut self, at: RunPlace, env: &mut Env<'_>) -> Uuid {
        if let Some(step) = self.step_id(at) {
            return step;
        }
        let Some(task) = self.task_mut(at) else { return Uuid::nil() };
        let id = (env.ids)();
        task.step = Some(StoredStep { id, version: 0 });
        self.places_by_step.insert(id, at);
        id
    }

    /// The id of a place's step, if it has one.
    pub(crate) fn step_id(&self, at: RunPlace) -> Option<Uuid> {
        self.task(at).and_then(|task| task.step).map(|step| step.id)
    }

    pub(crate) fn note_started(&self, book: &mut TurnBuilder) {
        let data = json!({
            "workflow_id": self.head.workflow.id,
            "workflow_version": self.head.workflow.version,
            "graph_digest": self.graph.digest,
            "inputs_digest": Digest32::of(&self.head.inputs),
            "autonomy_level": self.head.level.as_str(),
            "level_because": self.head.risk.as_ref().map(|risk| risk["level_because"].clone()),
            "risk_score": self.head.risk.as_ref().map(|risk| risk["score"].clone()),
            "source": self.head.source.as_str(),
            "dry_run": self.head.dry_run,
            "parent_run_id": self.head.parent.map(|(run, _)| run),
            "replay_of": self.head.replay.as_ref().map(|replay| replay.of),
        });
        book.add_note("run.started", None, Some(self.head.requester()), data);
    }

    /// Turns what the turn collected into a transaction.
    pub(crate) fn finish_turn(&mut self, env: &mut Env<'_>, mut book: TurnBuilder) -> Result<Turn, Unstorable> {
        let attendance = self.continuation(env, &book);
        let parked = !matches!(attendance, Continuation::Owned(_));
        let released = parked && self.owner.is_some();
        let changed = self.version == 0 || book.has_rows() || book.claim || released;
        let mut turn = Turn { status: book.status, more: book.more, parked, ..Turn::default() };
        turn.waits_for_slot = matches!(attendance, Continuation::Parked { for_slot: true, .. });
        if changed {
            let dirty = std::mem::take(&mut book.dirty);
            for at in &dirty {
                self.write_step(*at, env.now, &mut book)?;
            }
            for at in std::mem::take(&mut book.undoing).difference(&dirty) {
                self.write_undo_deadline(*at, &mut book)?;
            }
            let (notes, run_seq) = book.number_notes(self.run_seq);
            turn.notes = notes;
            self.run_seq = run_seq;
            self.write_run(attendance, &mut book)?;
            turn.tx = Some(book.tx(self.affinity()));
        }
        turn.effects = book.effects;
        turn.asked = book.requested;
        turn.unknown_outcomes = book.unknown_outcomes;
        Ok(turn)
    }

    /// Who continues the run after this turn.
    fn continuation(&self, env: &mut Env<'_>, book: &TurnBuilder) -> Continuation {
        if book.more {
            return Continuation::Owned(env.owner);
        }
        if self.status.is_final() && self.undo.is_none() {
            return Continuation::Ended;
        }
        if self.waits_for_slot(env)
            && let Some(seconds) = env.gate.park(self.head.id)
        {
            let again = env.now.plus_seconds(seconds);
            let until = self.next_deadline().map_or(again, |due| due.min(again));
            return Continuation::Parked { until, for_slot: true };
        }
        if self.can_park(env) {
            let again = || env.now.plus_seconds(limits::SIGNAL_POLL_SECONDS);
            return Continuation::Parked { until: self.next_deadline().unwrap_or_else(again), for_slot: false };
        }
        Continuation::Owned(env.owner)
    }

    /// All turns of a run go through the same lane.
    #[must_use]
    pub fn affinity(&self) -> u64 {
        affinity(self.head.id)
    }

    fn write_run(&mut self, attendance: Continuation, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let new = self.version == 0;
        let (owner, until) = (attendance.owner(), attendance.until());
        if new || book.status.is_some() {
            book.set_run_column("status", self.status.as_str());
        }
        let failure = self.failure.as_deref();
        if book.ended {
            book.set_run_column("completed_at", self.completed_at);
            book.set_run_column("error_message", failure.map(|error| error.message.clone()));
        }
        book.set_run_column("run_seq", self.run_seq);
        if new || owner != self.owner {
            book.set_run_column("owner_lane", owner.map(|owner| owner.lane));
            book.set_run_column("owner_epoch", owner.map(|owner| owner.epoch));
        }
        // The row of an owned run has no deadline.
        if new || until.is_some() || self.owner.is_none() {
            book.set_run_column("next_deadline", until);
        }
        if book.ended {
            book.set_run_column("result", self.result.as_ref().map(Json::encode).transpose()?);
            book.set_run_column("error_data", failure.map(Json::encode).transpose()?);
        } else if !self.status.is_final() {
            self.write_stopping(book)?;
        }
        self.owner = owner;
        self.write_doubts(book);
        if !new && self.co_requesters_stored < self.head.co_requesters.len() {
            book.set_run_column("co_requesters", names_or_null(&self.head.co_requesters));
        }
        self.co_requesters_stored = self.head.co_requesters.len();
        let mut cells = book.take_run();
        if new {
            cells.extend(self.head.cells()?);
            cells.push(("workflow_digest", Value::Bytes(self.graph.digest.to_vec())));
            cells.push(("state_version", 1.into()));
            book.insert(Insert::new(&RUNS, cells)?);
        } else {
            book.update(Update::versioned(&RUNS, vec![self.head.id.into()], self.version, cells)?);
        }
        self.version += 1;
        Ok(())
    }

    fn write_step(&mut self, at: RunPlace, now: Timestamp, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let mut cells = self.step_cells(at, now)?;
        let since = self.unknown_outcomes.get(&at).copied();
        if since.is_some() || book.settled.contains(&at) {
            cells.push(("in_doubt_since", since.into()));
        }
        let parent = at.item.and_then(|_| self.step_id(RunPlace::node(at.node)));
        let (node, kind, tool) = self.step_names(at);
        let position = i64::try_from(at.node).unwrap_or(i64::MAX);
        let (run, tenant) = (self.head.id, self.head.tenant.clone());
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        let Some(step) = &mut task.step else { return Ok(()) };
        if step.version > 0 {
            // Its tool may have changed since the row was written: record the version that makes the call.
            if let (TaskState::Running { mode: CallMode::Execute, .. }, Some((_, version))) = (&task.state, tool) {
                cells.push(("tool_version", version.into()));
            }
            book.update(Update::versioned(&STEPS, vec![step.id.into()], step.version, cells)?);
            step.version += 1;
            return Ok(());
        }
        cells.extend([
            ("id", step.id.into()),
            ("run_id", run.into()),
            ("tenant_id", tenant.into()),
            ("node_id", node.into()),
            ("node_type", kind.into()),
            ("position", position.into()),
            ("parent_step_id", parent.into()),
            ("map_index", at.item.map(i64::from).into()),
            ("tool", tool.as_ref().map(|(name, _)| name.clone()).into()),
            ("tool_version", tool.map(|(_, version)| version).into()),
            ("created_at", now.into()),
            ("state_version", 1.into()),
        ]);
        step.version = 1;
        book.insert(Insert::new(&STEPS, cells)?);
        Ok(())
    }

    /// Records only that its undo was sent or has ended. The step itself stays as it is.
    fn write_undo_deadline(&mut self, at: RunPlace, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let until = self.undo_sent_until(at);
        let Some(step) = self.task_mut(at).and_then(|task| task.step.as_mut()) else { return Ok(()) };
        let set = vec![("retry_at", until.into())];
        book.update(Update::versioned(&STEPS, vec![step.id.into()], step.version, set)?);
        step.version += 1;
        Ok(())
    }

    /// The columns that change with the state.
    fn step_cells(&self, at: RunPlace, now: Timestamp) -> Result<Vec<(&'static str, Value)>, Unstorable> {
        let Some(task) = self.task(at) else { return Ok(Vec::new()) };
        let output = match &task.state {
            TaskState::Completed { output, .. } | TaskState::Failed { output, .. } => Some(Json::encode(&**output)?),
            _ => None,
        };
        let error = match &task.state {
            TaskState::Failed { error, .. }
            | TaskState::OutcomeUnknown { error }
            | TaskState::RetryWait { error, .. } => Some(Json::encode(&**error)?),
            _ => None,
        };
        let settled = task.is_settled();
        let mut cells = vec![
            ("status", task.status().as_str().into()),
            ("attempt", i64::from(task.attempt).into()),
            ("input_digest", task.digest.map(|digest| Value::Bytes(digest.to_vec())).unwrap_or(Value::Null)),
            ("error", error.into()),
            ("retry_at", task.wait_until().or_else(|| self.undo_sent_until(at)).into()),
            ("started_at", task.started_at.into()),
            ("completed_at", settled.then_some(now).into()),
        ];
        if output.is_some() {
            cells.push(("output", output.into()));
        }
        if let TaskState::AwaitingChild { run } = &task.state {
            cells.push(("child_run_id", (*run).into()));
        }
        if let TaskState::Completed { seq, .. } | TaskState::Failed { seq, .. } = &task.state {
            cells.push(("completed_seq", (*seq).into()));
        }
        if task.needs_input_row() {
            cells.push(("input", task.input.as_deref().map(Json::encode).transpose()?.into()));
        }
        Ok(cells)
    }

    fn step_names(&self, at: RunPlace) -> (String, &'static str, Option<(String, String)>) {
        let compiled = &self.graph.nodes[at.node];
        let tool = compiled.tool.as_ref().map(|spec| (spec.name.clone(), spec.version.clone()));
        (compiled.node.id.clone(), compiled.node.body.kind(), tool)
    }
}

impl RunHead {
    /// The columns of `runs` that are written once, with the first row. Only `co_requesters` changes later.
    pub(crate) fn cells(&self) -> Result<Vec<(&'static str, Value)>, Unstorable> {
        // In table order, so that each column is found at once.
        Ok(vec![
            ("id", self.id.into()),
            ("actor", self.actor.as_str().into()),
            ("request_payload", with_pins(&self.request, &self.pins)?.into()),
            ("autonomy_level", self.level.as_str().into()),
            ("trace_id", id::trace_id(self.id).into()),
            ("idempotency_key", self.idempotency_key.clone().into()),
            ("created_at", self.created_at.into()),
            ("tenant_id", self.tenant.as_str().into()),
            ("source", self.source.as_str().into()),
            ("workflow_id", self.workflow.id.as_str().into()),
            ("workflow_version", self.workflow.version.into()),
            ("inputs", Json::encode(&*self.inputs)?.into()),
            ("priority", i64::from(self.priority).into()),
            ("dry_run", self.dry_run.into()),
            ("correlation_id", self.correlation_id.clone().into()),
            ("parent_run_id", self.parent.map(|(run, _)| run).into()),
            ("parent_step_id", self.parent.map(|(_, step)| step).into()),
            ("replay_of", self.replay.as_ref().map(|replay| replay.of).into()),
            ("replay_mode", self.replay.as_ref().map(|replay| replay.mode.as_str().to_owned()).into()),
            ("notify", self.notify.as_ref().map(Json::encode).transpose()?.into()),
            ("risk", self.risk.as_deref().map(Json::encode).transpose()?.into()),
            ("depth", i64::from(self.depth).into()),
            ("replay_from", self.replay.as_ref().and_then(|replay| replay.from.clone()).into()),
            ("timeout_at", self.timeout_at.into()),
            ("actor_kind", self.actor_kind.as_str().into()),
            ("co_requesters", names_or_null(&self.co_requesters)),
        ])
    }
}

/// A list of names, null if empty.
pub(crate) fn names_or_null(names: &[String]) -> Value {
    if names.is_empty() { Value::Null } else { names.to_vec().into() }
}

/// The member of a signal's payload that names the approval requests withdrawn with it.
const TAKEN_BACK: &str = "taken_back";

impl Signal {
    /// A signal that withdraws no requests.
    #[must_use]
    pub const fn new(id: Uuid, told: SignalKind) -> Self {
        Self { id, told, withdrawn: Vec::new() }
    }

    pub fn row(&self, tenant: &str, run: Uuid, now: Timestamp) -> Result<Insert, Unstorable> {
        Ok(Insert::new(
            &RUN_SIGNALS,
            vec![
                ("run_id", run.into()),
                ("id", self.id.into()),
                ("tenant_id", tenant.into()),
                ("kind", self.told.kind().into()),
                ("payload", self.payload()?.into()),
                ("created_at", now.into()),
            ],
        )?)
    }

    fn payload(&self) -> Result<Json, Unstorable> {
        if self.withdrawn.is_empty() {
            return Ok(Json::encode(&self.told)?);
        }
        let mut payload = serde_json::to_value(&self.told).map_err(JsonError::Serialise)?;
        payload[TAKEN_BACK] = self.withdrawn.iter().map(Uuid::to_string).collect();
        Ok(Json::encode(&payload)?)
    }

    /// Reads the signal of a row. An unreadable one becomes `Unreadable`, which the run records in the ledger.
    #[must_use]
    pub fn of_row(row: &crate::record::Row) -> Self {
        let payload = row.get("payload").as_json().map(Json::to_value).unwrap_or_default();
        let unreadable = |_| SignalKind::Unreadable { kind: row.text("kind").to_owned() };
        let requests = payload.get(TAKEN_BACK).and_then(serde_json::Value::as_array).into_iter().flatten();
        let withdrawn = requests.filter_map(|id| Uuid::parse_str(id.as_str()?).ok()).collect();
        Self { id: row.uuid("id"), told: serde_json::from_value(payload).unwrap_or_else(unreadable), withdrawn }
    }
}

impl Task {
    /// The value of `steps.retry_at`.
    const fn wait_until(&self) -> Option<Timestamp> {
        match &self.state {
            TaskState::Delayed { until } | TaskState::RetryWait { until, .. } => Some(*until),
            TaskState::Lost { deadline } => Some(*deadline),
            _ => None,
        }
    }

    /// Whether the step's row must hold the input: as long as it has no result. The input of a finished
    /// call is in `tool_calls`.
    const fn needs_input_row(&self) -> bool {
        match self.state {
            TaskState::Completed { .. }
            | TaskState::Failed { .. }
            | TaskState::Skipped
            | TaskState::Cancelled { .. } => false,
            _ => self.input.is_some(),
        }
    }
}

/// All turns of a run go through the same lane.
#[must_use]
pub fn affinity(run: Uuid) -> u64 {
    u64::from_be_bytes(*run.as_bytes().last_chunk().unwrap_or(&[0; 8]))
}
