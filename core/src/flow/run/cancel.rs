//! How a run is stopped, held and let go on.

use super::env::Env;
use super::event::Effect;
use super::rows::{Book, Unstorable};
use super::task::State;
use super::{At, Run};
use crate::limits;
use serde_json::json;

impl Run {
    /// Somebody wants the run stopped: nothing new starts, calls are told to stop.
    pub(crate) fn stop(
        &mut self,
        by: String,
        reason: Option<String>,
        _env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        if self.status.is_final() || self.cancelled_by.is_some() {
            return Ok(());
        }
        book.note("run.cancel_requested", None, Some(by.clone()), json!({"reason": reason}));
        book.set("cancel_requested", true);
        book.set("error_message", reason.clone());
        self.cancelled_by = Some((by, reason));
        book.effects.extend(self.calls.iter().map(|at| Effect::Cancel(*at)));
        Ok(())
    }

    /// Somebody holds the run, or lets it go on.
    pub(crate) fn hold(&mut self, pause: bool, by: String, book: &mut Book) {
        // A second pause changes only who holds the run.
        if self.status.is_final() || (!self.paused && !pause) {
            return;
        }
        self.paused = pause;
        book.set("pause_requested", pause);
        book.note(if pause { "run.paused" } else { "run.resumed" }, None, Some(by), json!({}));
    }

    /// A place that never gets to do its work.
    pub(crate) fn stop_step(&mut self, at: At, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let asked = match self.task(at).map(|task| &task.state) {
            Some(State::Asking(asked)) => Some(asked.clone()),
            _ => None,
        };
        if let Some(asked) = asked {
            book.approval_closed(&asked, "cancelled", env.now)?;
        }
        if self.may_have_happened(at) {
            return self.outcome_unknown(at, "the run was stopped before anybody knew", env, book);
        }
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            book.settle_effect(task, super::EffectStatus::Failed, now)?;
        }
        let recorded = self.task(at).is_some_and(|task| task.step.is_some());
        // The items of a map stay: their rows are written, and what they did can be undone.
        let items = self.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
        self.enter(at, State::Cancelled { items });
        if recorded {
            self.keep(at, env, book);
        }
        if at.item.is_none() {
            self.open = self.open.saturating_sub(1);
        }
        Ok(())
    }

    fn is_mapping(&self, node: usize) -> bool {
        matches!(self.nodes[node].state, State::Mapping(_))
    }

    /// Stops everything that only waits; gives whether something is still under way.
    pub(crate) fn stop_waiting(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<bool, Unstorable> {
        let mut under_way = !self.calls.is_empty();
        self.ready.clear();
        let places: Vec<At> = self.places().collect();
        for at in places {
            if book.rows() >= limits::TURN_ROWS_MAX {
                book.more = true;
                return Ok(true);
            }
            let Some(task) = self.task(at) else { continue };
            match &task.state {
                State::Delayed { .. } | State::Ready | State::Asking(_) | State::RetryWait { .. } => {
                    under_way |= self.may_have_happened(at);
                    self.stop_step(at, env, book)?;
                }
                State::Child { run } => {
                    under_way = true;
                    let child = *run;
                    if self.stopped_children.insert(child) {
                        let reason = Some("the run that waits for it was stopped".to_owned());
                        let by = self.head.actor.clone();
                        book.signal(&self.head.tenant, child, &super::Told::Cancel { by, reason }, env)?;
                        book.effects.push(Effect::Wake(child));
                    }
                }
                State::Lost { .. } | State::Unknown { .. } => under_way = true,
                _ => {}
            }
        }
        if !under_way {
            let maps: Vec<usize> = (0..self.nodes.len()).filter(|node| self.is_mapping(*node)).collect();
            maps.into_iter().try_for_each(|node| self.stop_step(At::node(node), env, book))?;
        }
        Ok(under_way)
    }
}
