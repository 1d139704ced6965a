//! Cancels, pauses and resumes a run.

use super::approve::rejection_reason;
use super::env::Env;
use super::event::Effect;
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace};
use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::approval::RequestStatus;
use crate::ledger::ActorType;
use crate::limits;
use crate::record::{DamagedRows, Json, Row, Unstorable, Value};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Why a run is stopping, in `runs.error_data` until it has ended. A node that loads it after a crash ends it with the
/// same reason and actor.
#[derive(Serialize, Deserialize)]
struct StopReason {
    error: Option<ErrorBody>,
    cancelled_by: Option<Actor>,
    reason: Option<String>,
}

/// The reason of a child run that is cancelled with its parent. Compared with stored reasons, so it must not change.
const PARENT_STOPPED: &str = "the run that waits for it was stopped";

/// Who paused a run, according to its row. Rows written before this was recorded count as paused by a person, so that
/// only people can resume them.
#[must_use]
pub fn paused_by(row: &Row) -> Option<Actor> {
    if row.get("pause_requested") != &Value::Bool(true) {
        return None;
    }
    let name = row.get("paused_by").as_text();
    Some(name.map_or_else(|| Actor::person(""), |name| Actor::from_record(name, row.get("paused_by_kind").as_text())))
}

/// Whether an actor of this kind may take over or end a pause. A person's pause is reserved for people.
#[must_use]
pub fn may_change_pause(holder: Option<&Actor>, kind: ActorType) -> bool {
    kind == ActorType::Human || holder.is_none_or(|holder| holder.kind != ActorType::Human)
}

impl Run {
    /// Records why the run is stopping, once per reason.
    pub(crate) fn write_stopping(&mut self, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let reasons = (self.failure.is_some(), self.cancelled_by.is_some());
        if reasons == self.stop_reason_stored {
            return Ok(());
        }
        self.stop_reason_stored = reasons;
        let (cancelled_by, reason) = self.cancelled_by.clone().unzip();
        let stopping = StopReason { error: self.failure.as_deref().cloned(), cancelled_by, reason: reason.flatten() };
        book.set_run_column("error_data", Json::encode(&stopping)?);
        Ok(())
    }

    /// Loads why a run that has not ended was stopping.
    pub(crate) fn load_stopping(&mut self, row: &Row) -> Result<(), DamagedRows> {
        if self.status.is_final() {
            return Ok(());
        }
        if let Some(document) = row.get("error_data").as_json() {
            let damaged = |_| DamagedRows { what: "error_data".to_owned() };
            let stopping: StopReason = serde_json::from_value(document.to_value()).map_err(damaged)?;
            self.failure = stopping.error.map(Box::new);
            self.cancelled_by = stopping.cancelled_by.map(|by| (by, stopping.reason));
        }
        // An older version, which did not record the actor, has started to cancel it.
        if self.cancelled_by.is_none() && row.get("cancel_requested") == &Value::Bool(true) {
            self.cancelled_by = Some((Actor::system(), row.get("error_message").as_text().map(str::to_owned)));
        }
        self.stop_reason_stored = (self.failure.is_some(), self.cancelled_by.is_some());
        Ok(())
    }

    /// Cancels the run: nothing new starts, and calls in flight are cancelled.
    pub(crate) fn stop(
        &mut self,
        by: Actor,
        reason: Option<String>,
        _env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if self.status.is_final() || self.cancelled_by.is_some() {
            return Ok(());
        }
        book.add_note("run.cancel_requested", None, Some(by.clone()), json!({"reason": reason}));
        book.set_run_column("cancel_requested", true);
        book.set_run_column("error_message", reason.clone());
        self.cancelled_by = Some((by, reason));
        book.effects.extend(self.calls.iter().map(|at| Effect::Cancel(*at)));
        Ok(())
    }

    /// Pauses or resumes the run.
    pub(crate) fn set_paused(&mut self, pause: bool, by: Actor, book: &mut TurnBuilder) {
        // A second pause only changes who paused the run.
        if self.status.is_final() || (self.paused_by.is_none() && !pause) {
            return;
        }
        if !may_change_pause(self.paused_by.as_ref(), by.kind) {
            let refused = if pause { "run.pause_refused" } else { "run.resume_refused" };
            book.add_note(refused, None, Some(by), json!({"reason": "a person has paused the run"}));
            return;
        }
        let holder = pause.then(|| by.clone());
        book.set_run_column("pause_requested", pause);
        book.set_run_column("paused_by", holder.as_ref().map(|by| by.id.clone()));
        book.set_run_column("paused_by_kind", holder.as_ref().map(|by| by.kind.as_str().to_owned()));
        self.paused_by = holder;
        book.add_note(if pause { "run.paused" } else { "run.resumed" }, None, Some(by), json!({}));
    }

    /// Cancels a place before it has done its work.
    pub(crate) fn stop_step(
        &mut self,
        at: RunPlace,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let asked = match self.task(at).map(|task| &task.state) {
            Some(TaskState::AwaitingApproval(asked)) => Some(asked.clone()),
            _ => None,
        };
        if let Some(asked) = asked {
            book.close_approval_request(&asked, RequestStatus::Cancelled, env.now)?;
        }
        if self.may_have_happened(at) {
            return self.outcome_unknown(at, "the run was stopped before the outcome was known", env, book);
        }
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            book.settle_effect(task, super::EffectStatus::Failed, now)?;
        }
        let recorded = self.task(at).is_some_and(|task| task.step.is_some());
        // The items of a map stay: their rows are written, and what they did can be undone.
        let items = self.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
        self.enter(at, TaskState::Cancelled { items });
        if recorded {
            self.mark_dirty(at, env, book);
        }
        if at.item.is_none() {
            self.open_nodes = self.open_nodes.saturating_sub(1);
        }
        Ok(())
    }

    /// Who cancelled the run. The system, if it stops because of a failure.
    fn stopped_by(&self) -> Actor {
        self.cancelled_by.as_ref().map_or_else(Actor::system, |(by, _)| by.clone())
    }

    /// Who cancelled the run with a reason in their own words, which the parent run may use.
    pub(crate) fn canceller_with_reason(&self) -> Option<&str> {
        let (by, reason) = self.cancelled_by.as_ref().filter(|(by, _)| by.kind != ActorType::System)?;
        let given = [PARENT_STOPPED.to_owned(), rejection_reason(by, false), rejection_reason(by, true)];
        reason.as_ref().filter(|reason| !given.contains(reason)).map(|_| by.id.as_str())
    }

    fn is_mapping(&self, node: usize) -> bool {
        matches!(self.nodes[node].state, TaskState::Mapping(_))
    }

    /// Cancels everything that only waits. Returns whether something is still in flight.
    pub(crate) fn cancel_waiting(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<bool, Unstorable> {
        let mut under_way = !self.calls.is_empty();
        self.ready.clear();
        let places: Vec<RunPlace> = self.places().collect();
        for at in places {
            if book.row_count() >= limits::TURN_ROWS_MAX {
                book.more = true;
                return Ok(true);
            }
            let Some(task) = self.task(at) else { continue };
            match &task.state {
                TaskState::Delayed { .. }
                | TaskState::Ready
                | TaskState::AwaitingApproval(_)
                | TaskState::RetryWait { .. } => {
                    under_way |= self.may_have_happened(at);
                    self.stop_step(at, env, book)?;
                }
                TaskState::AwaitingChild { run } => {
                    under_way = true;
                    let child = *run;
                    if self.stopped_children.insert(child) {
                        let reason = Some(PARENT_STOPPED.to_owned());
                        let by = self.stopped_by();
                        book.send_signal(&self.head.tenant, child, &super::SignalKind::Cancel { by, reason }, env)?;
                        book.effects.push(Effect::Wake(child));
                    }
                }
                TaskState::Lost { .. } | TaskState::OutcomeUnknown { .. } => under_way = true,
                _ => {}
            }
        }
        if !under_way {
            let maps: Vec<usize> = (0..self.nodes.len()).filter(|node| self.is_mapping(*node)).collect();
            maps.into_iter().try_for_each(|node| self.stop_step(RunPlace::node(node), env, book))?;
        }
        Ok(under_way)
    }
}
