//! The rows that keep publishers and waits from missing each other.
//!
//! A wait that begins replaces the row of its channel; one that ends leaves it. A publisher reads the channel first and
//! the waits after it, and commits only if the channel is still the same. So a wait is either seen by the publisher, or
//! begins after the event is in the store, where the run looks right after its wait is durable. Old channels are
//! deleted by age: no publisher takes that long.

use crate::flow::tables::{EVENT_CHANNELS, EVENT_WAITS, event_channels, event_waits};
use crate::record::{Comparison, Condition, Insert, InvalidTx, RowCount, Step, Value};
use crate::time::Timestamp;
use uuid::Uuid;

/// Name and key of an event, in a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventChannel<'a> {
    pub tenant: &'a str,
    pub name: &'a str,
    pub key: &'a str,
}

/// A step that begins to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewWait {
    pub(crate) run: Uuid,
    pub(crate) step: Uuid,
    pub(crate) at: Timestamp,
}

fn is(column: &'static str, value: impl Into<Value>) -> Condition {
    Condition { column, compare: Comparison::Is, value: value.into() }
}

impl EventChannel<'_> {
    fn conditions(&self) -> Vec<Condition> {
        vec![
            is(event_channels::tenant_id, self.tenant),
            is(event_channels::event_name, self.name),
            is(event_channels::event_key, self.key),
        ]
    }

    /// Lets a transaction commit only if no wait has begun since `last` was read.
    #[must_use]
    pub fn unchanged(&self, last: Option<Uuid>) -> Step {
        let mut conditions = self.conditions();
        conditions.extend(last.map(|wait| is(event_channels::last_wait, wait)));
        let rows = RowCount::Exactly(u64::from(last.is_some()));
        Step::Lock { table: &EVENT_CHANNELS, conditions, rows }
    }

    /// The row of a wait that begins.
    pub(crate) fn wait_row(&self, wait: NewWait) -> Result<Insert, InvalidTx> {
        Insert::new(
            &EVENT_WAITS,
            vec![
                (event_waits::step_id, wait.step.into()),
                (event_waits::run_id, wait.run.into()),
                (event_waits::tenant_id, self.tenant.into()),
                (event_waits::event_name, self.name.into()),
                (event_waits::event_key, self.key.into()),
                (event_waits::created_at, wait.at.into()),
            ],
        )
    }

    /// Marks the channel: a wait has begun.
    pub(crate) fn mark(&self, wait: NewWait) -> Result<[Step; 2], InvalidTx> {
        let replaced =
            Step::Delete { table: &EVENT_CHANNELS, conditions: self.conditions(), rows: RowCount::AtMost(1) };
        let mark = Insert::new(
            &EVENT_CHANNELS,
            vec![
                (event_channels::tenant_id, self.tenant.into()),
                (event_channels::event_name, self.name.into()),
                (event_channels::event_key, self.key.into()),
                (event_channels::last_wait, wait.step.into()),
                (event_channels::updated_at, wait.at.into()),
            ],
        )?;
        Ok([replaced, Step::Insert(mark)])
    }
}

/// Deletes the row of a wait that has ended.
pub(crate) fn end_of_wait(step: Uuid) -> Step {
    let conditions = vec![is(event_waits::step_id, step)];
    Step::Delete { table: &EVENT_WAITS, conditions, rows: RowCount::AtMost(1) }
}
