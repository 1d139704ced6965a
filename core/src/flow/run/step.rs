//! One turn: applies all events that have arrived, then advances the run as far as possible.

use super::env::Env;
use super::event::{Effect, Event, Turn};
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace, RunStatus};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::limits;
use crate::record::{Unstorable, Value};
use std::sync::Arc;

impl Run {
    /// Applies the events and returns the turn to commit.
    pub fn step(&mut self, events: Vec<Event>, env: &mut Env<'_>) -> Result<Turn, Unstorable> {
        // Nothing is written with a timestamp before the restore.
        env.now = self.restored_at.map_or(env.now, |at| at.max(env.now));
        let mut book = TurnBuilder::default();
        self.count_work();
        self.advance(events, env, &mut book)?;
        self.finish_turn(env, book)
    }

    /// Adds the work of the previous turn to the run's total. Fails the run if it exceeds the limit.
    fn count_work(&mut self) {
        self.work_done = self.work_done.saturating_add(self.meter.reset());
        if self.work_done > limits::RUN_WORK_MAX && !self.is_stopping() && !self.status.is_final() {
            let message = "the run's expressions exceed the work limit of a run";
            self.fail_with(ErrorBody::new(Code::ValidationFailed, message));
        }
    }

    /// Whether its next turn may use much CPU time.
    #[must_use]
    pub fn may_take_long(&self) -> bool {
        self.graph.may_take_long || self.meter.is_share_spent()
    }

    /// Whether the turn has reached its limit of rows or work.
    pub(crate) fn is_turn_full(&self, book: &TurnBuilder) -> bool {
        book.row_count() >= limits::TURN_ROWS_MAX || self.meter.is_share_spent()
    }

    /// Applies events and advances as far as possible. Rows are written by `finish_turn`.
    pub(crate) fn advance(
        &mut self,
        events: Vec<Event>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        for event in events {
            self.apply_event(event, env, book)?;
        }
        self.drive_undo(env, book)?;
        if !self.is_stopping() {
            self.continue_draft(env, book)?;
        }
        self.handle_due(env, book)?;
        self.propagate_and_start(env, book)?;
        self.conclude(env, book)
    }

    fn apply_event(&mut self, event: Event, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        match event {
            Event::Claimed { alone } if self.version == 0 => {
                debug_assert!(alone, "a run that is nowhere yet has no other owner");
                self.begin(env, book)
            }
            Event::Claimed { alone } => self.resume_claimed(alone, env, book),
            Event::CallAnswered { at, call, answer, took_ms } => {
                self.apply_answer(at, call, answer, took_ms, env, book)
            }
            Event::CacheLookedUp { at, hit } => self.cache_looked_up(at, hit, env, book),
            Event::Signalled(signal) => self.apply_signal(signal, env, book),
            Event::Tick => Ok(()),
            Event::TurnRefused { answers, again } => self.reapply_answers(answers, again, env, book),
        }
    }

    /// Starts a new run with its root nodes, or with the draft.
    fn begin(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        self.status = RunStatus::Running;
        book.status = Some(RunStatus::Running);
        self.note_started(book);
        if self.version > 0 {
            self.pin(book);
        }
        if let Err(error) = self.check_inputs() {
            self.fail_with(error);
            return Ok(());
        }
        if self.is_stopping() {
            return Ok(());
        }
        if self.exceeds_call_limit() {
            Arc::make_mut(&mut self.head).level = Level::Draft;
            book.set_run_column("autonomy_level", Level::Draft.as_str());
        }
        if self.wants_draft() {
            return self.begin_draft(env, book);
        }
        self.begin_nodes();
        Ok(())
    }

    /// Records the workflow version and timeout of a child run. They are fixed when it is first claimed.
    fn pin(&self, book: &mut TurnBuilder) {
        book.set_run_column("workflow_version", self.head.workflow.version);
        book.set_run_column("workflow_digest", Value::Bytes(self.graph.digest.to_vec()));
        book.set_run_column("timeout_at", self.head.timeout_at);
    }

    /// Checks that the workflow is supported and accepts these inputs.
    fn check_inputs(&self) -> Result<(), ErrorBody> {
        if let Some(problem) = self.graph.unsupported_problem() {
            return Err(ErrorBody::new(Code::ValidationFailed, problem.reason));
        }
        let Some(schema) = &self.graph.input_schema else { return Ok(()) };
        schema.check(&self.head.inputs).map_err(|faults| {
            let faults = serde_json::to_value(faults).unwrap_or_default();
            ErrorBody::new(Code::ValidationFailed, "the inputs do not match the workflow's schema")
                .with("faults", faults)
        })
    }

    /// Queues the root nodes; each turn starts as many as fit.
    pub(crate) fn begin_nodes(&mut self) {
        self.pending_roots = self.graph.roots().collect();
    }

    /// Resumes a run that another process owned or that was parked. Whatever was in flight there is lost.
    fn resume_claimed(&mut self, alone: bool, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        book.claim = true;
        if alone {
            self.mark_undo_lost();
        }
        if self.status == RunStatus::Pending {
            return self.begin(env, book);
        }
        if self.status.is_final() {
            return Ok(());
        }
        if self.is_plan_pending() {
            return self.renew_plan(env, book);
        }
        self.renew_requests(env, book)?;
        if self.wants_draft() && !self.is_stopping() {
            return self.begin_draft(env, book);
        }
        self.begin_nodes();
        self.settle_maps(env, book)?;
        let lost: Vec<RunPlace> = self.places().filter(|at| self.is_lost(*at)).collect();
        for at in lost {
            if alone {
                self.settle_lost(at, env, book)?;
            }
        }
        Ok(())
    }

    pub(crate) fn is_lost(&self, at: RunPlace) -> bool {
        self.task(at).is_some_and(|task| matches!(task.state, TaskState::Lost { .. }))
    }

    /// All places: every node and every item of a map.
    pub(crate) fn places(&self) -> impl Iterator<Item = RunPlace> {
        self.nodes.iter().enumerate().flat_map(|(node, task)| {
            let items = 0..u32::try_from(task.items().len()).unwrap_or(u32::MAX);
            std::iter::once(RunPlace::node(node)).chain(items.map(move |item| RunPlace { node, item: Some(item) }))
        })
    }

    /// Handles everything that is due.
    fn handle_due(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        if self.status.is_final() {
            return Ok(());
        }
        if self.head.timeout_at.is_some_and(|end| end <= env.now) && !self.is_stopping() {
            self.fail_with(ErrorBody::new(Code::RequestTimeout, "the run timed out"));
            book.effects.extend(self.calls.iter().map(|at| Effect::Cancel(*at)));
        }
        self.expire_plan(env, book)?;
        self.expire_patches(env, book)?;
        self.renew_patches(env, book)?;
        while let Some((due, at)) = self.timers.first().copied().filter(|(due, _)| *due <= env.now) {
            self.timers.remove(&(due, at));
            if book.row_count() >= limits::TURN_ROWS_MAX {
                self.timers.insert((due, at));
                book.more = true;
                break;
            }
            self.handle_timer(at, env, book)?;
        }
        Ok(())
    }

    fn handle_timer(&mut self, at: RunPlace, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        match self.task(at).map(|task| &task.state) {
            Some(TaskState::Delayed { .. } | TaskState::RetryWait { .. }) => {
                self.enter(at, TaskState::Ready);
                self.ready.push_back(at);
                Ok(())
            }
            Some(TaskState::AwaitingApproval(asked)) => {
                let asked = asked.clone();
                self.expire(at, &asked, env, book)
            }
            Some(TaskState::Lost { .. }) => self.settle_lost(at, env, book),
            _ => Ok(()),
        }
    }

    /// Decides edges and starts what is ready, up to the limit of a turn.
    fn propagate_and_start(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        loop {
            self.propagate(env, book)?;
            self.start_ready(env, book)?;
            let rest = !self.settled.is_empty() || !self.pending_roots.is_empty();
            if !rest || self.is_turn_full(book) {
                book.more |= rest;
                return Ok(());
            }
        }
    }

    /// Fails the run. The first failure counts.
    pub(crate) fn fail_with(&mut self, error: ErrorBody) {
        if self.failure.is_none() {
            self.failure = Some(Box::new(error));
        }
    }
}
