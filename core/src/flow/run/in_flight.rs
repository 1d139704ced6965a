//! Calls that stay in flight while their run is loaded again.
//!
//! A turn that lost against a concurrent change invalidates the run in memory, but not the calls that
//! this process is making for it. If the run was not written since they started, they still belong to
//! it, and the reloaded run waits for their answers.

use super::task::{Task, TaskState};
use super::{Run, RunPlace};

/// The calls of a run that were in flight before a turn.
pub struct CallsInFlight {
    /// The version of the run's row at that time.
    version: i64,
    tasks: Vec<(RunPlace, Task)>,
}

impl Run {
    /// Its calls that are recorded as dispatched. `None` if there are others too, of a draft or a rollback.
    #[must_use]
    pub fn calls_in_flight(&self) -> Option<CallsInFlight> {
        let mut tasks = Vec::new();
        for at in &self.calls {
            let task = self.task(*at)?;
            match task.state {
                TaskState::Running { .. } if task.effect.is_some() => tasks.push((*at, task.clone())),
                // What is not recorded is repeated.
                TaskState::Running { .. } | TaskState::LookingUpCache => {}
                _ => return None,
            }
        }
        Some(CallsInFlight { version: self.version, tasks })
    }

    /// Waits for calls that were in flight before it was loaded. False: the run was written meanwhile, and they no
    /// longer belong to it.
    pub fn adopt_calls(&mut self, before: CallsInFlight) -> bool {
        let is_same = |(at, task): &(RunPlace, Task)| {
            let ids = |task: &Task| task.effect.map(|effect| (effect.id, effect.version));
            self.is_lost(*at) && self.task(*at).is_some_and(|stored| ids(stored) == ids(task))
        };
        if self.version != before.version || !before.tasks.iter().all(is_same) {
            return false;
        }
        for (at, task) in before.tasks {
            self.enter(at, task.state.clone());
            self.calls.insert(at);
            if let Some(stored) = self.task_mut(at) {
                *stored = task;
            }
        }
        true
    }

    /// The places with a call or lookup in flight.
    #[must_use]
    pub fn places_in_flight(&self) -> Vec<RunPlace> {
        self.calls.iter().copied().collect()
    }
}
