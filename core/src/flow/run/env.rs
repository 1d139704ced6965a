//! What a run is given when it decides: the time, fresh ids, free slots, the policy of the moment.

use super::Owner;
use super::event::At;
use crate::flow::air::Catalog;
use crate::flow::policy::Policy;
use crate::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// The world as a run sees it in one turn.
pub struct Env<'a> {
    /// What time it is.
    pub now: Timestamp,
    /// Gives a fresh, time-ordered id.
    pub ids: &'a mut dyn FnMut() -> Uuid,
    /// Who may call a tool now.
    pub gate: &'a mut dyn Gate,
    /// What the rules say.
    pub policy: &'a dyn Policy,
    /// Tools and workflows that a patch may name.
    pub catalog: &'a dyn Catalog,
    /// The lane that this turn is committed through: without one nothing is decided.
    pub owner: Owner,
}

/// What a slot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// Which run.
    pub run: Uuid,
    /// Where in it.
    pub at: At,
    /// Whose it is.
    pub tenant: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// What it is called with, if the call may reach outside: the tool knows which host that is.
    pub input: Option<&'a Value>,
    /// One is most urgent, ten least.
    pub priority: i32,
}

/// Bounds how many calls are under way.
pub trait Gate {
    /// Takes a slot, or remembers who wants one: then the run gets a `Tick` when one is free.
    fn enter(&mut self, slot: Slot<'_>) -> bool;

    /// Whether a run whose values take so much memory may take more. If not, it waits as for a slot.
    fn may_grow(&mut self, _run: Uuid, _memory_bytes: usize) -> bool {
        true
    }

    /// All that a run can do is wait for slots that it asked for. Gives in how many seconds it is to be
    /// looked at again if it need not stay in memory until then; when a slot is kept for it before
    /// that, it is taken up.
    fn park(&mut self, _run: Uuid) -> Option<i64> {
        None
    }
}
