//! Calls that stay in flight while their run is loaded again.
//!
//! A turn that lost against a concurrent change invalidates the run in memory, but not the calls that
//! this process is making for it. If the run was not written since they started, they still belong to
//! it, and the reloaded run waits for their answers.

use super::Tasks;
use super::task::{Task, TaskState};
use crate::flow::run::RunPlace;

/// The calls of a run that were in flight before a turn.
pub struct CallsInFlight {
    /// The version of the run's row at that time.
    version: i64,
    tasks: Vec<(RunPlace, Task)>,
}

impl CallsInFlight {
    /// The calls of a run that are recorded as dispatched. `None` if there are others too, of a draft or a rollback.
    pub(crate) fn of(run: &Tasks, version: i64) -> Option<Self> {
        let mut tasks = Vec::new();
        for at in run.calls() {
            let task = run.task(*at)?;
            match task.state {
                TaskState::Running { .. } if task.effect.is_some() => tasks.push((*at, task.clone())),
                // What is not recorded is repeated.
                TaskState::Running { .. }
                | TaskState::LookingUpCache
                | TaskState::Consulting
                | TaskState::Waiting(_) => {}
                _ => return None,
            }
        }
        Some(Self { version, tasks })
    }

    /// Lets the loaded run wait for them. False: it was written meanwhile, and they no longer belong to it.
    pub(crate) fn adopt(self, run: &mut Tasks, version: i64) -> bool {
        let is_same = |(at, task): &(RunPlace, Task)| {
            let ids = |task: &Task| task.effect.map(|effect| (effect.id, effect.version));
            run.is_lost(*at) && run.task(*at).is_some_and(|stored| ids(stored) == ids(task))
        };
        if version != self.version || !self.tasks.iter().all(is_same) {
            return false;
        }
        for (at, task) in self.tasks {
            run.enter(at, task.state.clone());
            run.call_started(at);
            if let Some(stored) = run.task_mut(at) {
                *stored = task;
            }
        }
        true
    }
}
