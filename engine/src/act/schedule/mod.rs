//! Schedules: workflows that are started by the clock, in the name of their owner.
//!
//! A tick is an ordinary request to act by the schedule's owner, with the rights that the owner has at that moment and
//! never more than the token had that created the schedule, nor more freely than a run that started then. It is refused
//! when the owner's key of that request has ended, and counts in the owner's rate limit. So scopes, risk, level, rules and approvals apply as
//! for `/act`, and an owner who lost a right is refused.
//!
//! The run of a tick commits in one transaction with the change of the schedule's row, which is compared by its
//! version, and has an idempotency key made of schedule and tick. So a tick starts one run, however many nodes there
//! are and whenever one of them dies.

mod changes;
mod definition;
mod reading;
mod records;
mod tick;
mod ticker;
mod ticks;
mod view;

pub use changes::{create, pause, remove, replace, resume};
pub use definition::ScheduleDefinition;
pub use reading::{list, next_ticks, show};
pub use tick::run_now;
pub use ticker::{run_due, run_ticker};
pub use view::{LastTick, ScheduleStatus, ScheduleView};

use super::Actions;
use crate::heartbeat::Heartbeat;
use crate::ledger::audit::Writer;
use crate::port::Records;
use chimera_core::time::Timestamp;
use std::sync::Arc;
use tokio::sync::Notify;

/// The schedules of all tenants.
pub struct Schedules {
    actions: Arc<Actions>,
    /// Wakes the loop: a schedule may be due earlier than it knows.
    changed: Notify,
    pulse: Heartbeat,
}

impl Schedules {
    #[must_use]
    pub fn new(actions: Arc<Actions>) -> Self {
        let pulse = Heartbeat::start(actions.access.directory.parts.clock.steady());
        Self { actions, changed: Notify::new(), pulse }
    }

    /// What ticks are made of, to share it.
    #[must_use]
    pub fn shared_actions(&self) -> Arc<Actions> {
        Arc::clone(&self.actions)
    }

    /// What ticks are made of.
    #[must_use]
    pub fn actions(&self) -> &Actions {
        &self.actions
    }

    /// When due schedules were last looked for.
    #[must_use]
    pub const fn pulse(&self) -> &Heartbeat {
        &self.pulse
    }

    fn records(&self) -> &dyn Records {
        &*self.actions.access.directory.parts.records
    }

    /// Wall time: schedules follow the clock on the wall.
    fn now(&self) -> Timestamp {
        self.actions.access.directory.parts.clock.now()
    }

    fn writer(&self) -> Writer<'_> {
        let parts = &self.actions.access.directory.parts;
        Writer { random: &*parts.random, clock: &*parts.clock }
    }
}
