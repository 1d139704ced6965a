//! Calls that go on while the run around them is read again.
//!
//! A turn that lost against somebody else's change leaves the run in memory worthless, but not the calls
//! that this process is making for it: if nobody has written the run since they began, they are still
//! its own, and the run that was read waits for their answers.

use super::task::{State, Task};
use super::{At, Run};

/// The calls of a run that were under way before a turn.
pub struct UnderWay {
    /// The version of the run's row then.
    version: i64,
    tasks: Vec<(At, Task)>,
}

impl Run {
    /// Its calls that are written down as under way. None: there are others too, of a draft or a rollback.
    #[must_use]
    pub fn under_way(&self) -> Option<UnderWay> {
        let mut tasks = Vec::new();
        for at in &self.calls {
            let task = self.task(*at)?;
            match task.state {
                State::Running { .. } if task.effect.is_some() => tasks.push((*at, task.clone())),
                // What is not written down is done over.
                State::Running { .. } | State::Recalling => {}
                _ => return None,
            }
        }
        Some(UnderWay { version: self.version, tasks })
    }

    /// Waits for calls that were under way before it was read, if nobody has written it meanwhile. False: they
    /// are not its calls any more.
    pub fn keep_calls(&mut self, before: UnderWay) -> bool {
        let is_same = |(at, task): &(At, Task)| {
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

    /// The places with something under way.
    #[must_use]
    pub fn busy_places(&self) -> Vec<At> {
        self.calls.iter().copied().collect()
    }
}
