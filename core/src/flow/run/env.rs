//! The environment of a turn: the time, fresh ids, free slots and the current policy.

use super::LaneOwner;
use super::event::RunPlace;
use crate::flow::air::Catalog;
use crate::flow::policy::Policy;
use crate::flow::projection::Projection;
use crate::flow::reservation::{Window, WindowKey};
use crate::flow::work::Jobs;
use crate::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// The environment of one turn.
pub struct Env<'a> {
    pub now: Timestamp,
    /// Returns a fresh, time-ordered id.
    pub ids: &'a mut dyn FnMut() -> Uuid,
    /// Bounds the calls in flight.
    pub gate: &'a mut dyn Gate,
    pub policy: &'a dyn Policy,
    /// The tools and workflows that a patch may name.
    pub catalog: &'a dyn Catalog,
    /// Derives rows of other rooms, for runs whose workflow asks for them.
    pub projection: &'a dyn Projection,
    /// Starts and cancels sandboxed jobs.
    pub jobs: &'a dyn Jobs,
    /// What limits have counted, as far as this process knows.
    pub windows: &'a dyn KnownWindows,
    /// The lane that this turn is committed through.
    pub owner: LaneOwner,
}

/// Windows of limits that a process has written, as it wrote them.
pub trait KnownWindows {
    /// The last state that this process wrote; another process may have changed it since. A call that fits is counted
    /// only if the row is compared, so this saves a read. No call is refused by it.
    fn latest(&self, tenant: &str, key: &WindowKey) -> Option<Window>;
}

/// No window is known.
impl KnownWindows for () {
    fn latest(&self, _tenant: &str, _key: &WindowKey) -> Option<Window> {
        None
    }
}

/// A request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRequest<'a> {
    pub run: Uuid,
    pub at: RunPlace,
    pub tenant: &'a str,
    pub tool: &'a str,
    /// The version of the tool that the call is for.
    pub version: &'a str,
    /// The input of the call, if it may reach an external system: it determines the host.
    pub input: Option<&'a Value>,
    /// One is most urgent, ten least.
    pub priority: i32,
}

/// Bounds the number of calls in flight.
pub trait Gate {
    /// Takes a slot. If none is free, queues the request; the run gets a `Tick` when one becomes free.
    fn enter(&mut self, slot: SlotRequest<'_>) -> bool;

    /// Whether a run with values of this size may use more memory. If not, it waits as for a slot.
    fn may_grow(&mut self, _run: Uuid, _memory_bytes: usize) -> bool {
        true
    }

    /// Called when all that a run can do is wait for queued slots. Returns after how many seconds to
    /// check it again if it need not stay in memory until then. If a slot is reserved for it earlier, it is
    /// resumed earlier.
    fn park(&mut self, _run: Uuid) -> Option<i64> {
        None
    }
}
