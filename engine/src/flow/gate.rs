//! Who may call a tool now.
//!
//! Calls are bounded for the process, for each tenant and for each tool. Whoever finds no slot is
//! remembered; a freed slot goes to the tenant that has the fewest calls under way, so that none
//! starves another, then to the more urgent run, then to whoever asked first, and is kept until they
//! come for it. A synchronous structure without a clock: the simulator drives it as it is.

use chimera_core::flow::run::{At, Slot};
use chimera_core::limits;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// How many calls may be under way.
#[derive(Clone, Debug)]
pub struct Slots {
    /// In this process.
    pub total: usize,
    /// For one tenant.
    pub per_tenant: usize,
    /// For one tool.
    pub per_tool: usize,
    /// For tools with a limit of their own.
    pub tools: BTreeMap<String, usize>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            total: limits::CALLS_MAX,
            per_tenant: limits::TENANT_CALLS_MAX,
            per_tool: limits::TOOL_CALLS_MAX,
            tools: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    priority: i32,
    turn: u64,
    run: Uuid,
    at: At,
}

/// Whose call of which tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    tenant: String,
    tool: String,
}

/// The slots that are taken and those who wait for one.
#[derive(Debug, Default)]
pub struct Turnstile {
    slots: Slots,
    inside: BTreeMap<(Uuid, At), Kind>,
    /// Slots that were given to somebody who waited and has not come yet.
    granted: BTreeSet<(Uuid, At)>,
    tenants: BTreeMap<String, usize>,
    tools: BTreeMap<String, usize>,
    waiting: BTreeMap<Kind, BTreeSet<Wish>>,
    wishes: BTreeMap<(Uuid, At), (Kind, Wish)>,
    turn: u64,
}

impl Turnstile {
    /// A turnstile with these bounds.
    #[must_use]
    pub fn new(slots: Slots) -> Self {
        Self { slots, ..Self::default() }
    }

    /// Takes a slot, or remembers the wish.
    pub fn enter(&mut self, slot: Slot<'_>) -> bool {
        let key = (slot.run, slot.at);
        if self.inside.contains_key(&key) {
            self.granted.remove(&key);
            return true;
        }
        let kind = Kind { tenant: slot.tenant.to_owned(), tool: slot.tool.to_owned() };
        if self.has_room(&kind) {
            self.forget(&key);
            self.take(key, kind);
            return true;
        }
        if !self.wishes.contains_key(&key) {
            self.turn += 1;
            let wish = Wish { priority: slot.priority, turn: self.turn, run: slot.run, at: slot.at };
            self.waiting.entry(kind.clone()).or_default().insert(wish);
            self.wishes.insert(key, (kind, wish));
        }
        false
    }

    fn take(&mut self, key: (Uuid, At), kind: Kind) {
        *self.tenants.entry(kind.tenant.clone()).or_default() += 1;
        *self.tools.entry(kind.tool.clone()).or_default() += 1;
        self.inside.insert(key, kind);
    }

    fn has_room(&self, kind: &Kind) -> bool {
        let tool_max = self.slots.tools.get(&kind.tool).copied().unwrap_or(self.slots.per_tool);
        self.inside.len() < self.slots.total
            && self.tenants.get(&kind.tenant).is_none_or(|taken| *taken < self.slots.per_tenant)
            && self.tools.get(&kind.tool).is_none_or(|taken| *taken < tool_max)
    }

    /// Gives a slot back. It is kept for whoever comes next, so that nobody who asks later gets it
    /// first; gives the runs that may go on.
    pub fn leave(&mut self, run: Uuid, at: At) -> Vec<Uuid> {
        let Some(kind) = self.inside.remove(&(run, at)) else { return Vec::new() };
        self.granted.remove(&(run, at));
        count_down(&mut self.tenants, &kind.tenant);
        count_down(&mut self.tools, &kind.tool);
        let mut runs = Vec::new();
        while let Some((kind, wish)) = self.next() {
            let key = (wish.run, wish.at);
            self.forget(&key);
            self.take(key, kind);
            self.granted.insert(key);
            runs.push(wish.run);
        }
        runs
    }

    /// The slots that are kept for a run.
    #[must_use]
    pub fn granted(&self, run: Uuid) -> Vec<At> {
        self.granted.range(all_of(run)).map(|(_, at)| *at).collect()
    }

    /// Gives back what was kept for a run and is still not used; gives the runs that may go on.
    pub fn unused(&mut self, run: Uuid, granted: &[At]) -> Vec<Uuid> {
        let unused: Vec<At> = granted.iter().copied().filter(|at| self.granted.contains(&(run, *at))).collect();
        unused.into_iter().flat_map(|at| self.leave(run, at)).collect()
    }

    /// A run is gone from this process, and with it all its slots and wishes; gives the runs that
    /// may go on.
    pub fn forget_run(&mut self, run: Uuid) -> Vec<Uuid> {
        let wishes: Vec<_> = self.wishes.range(all_of(run)).map(|(key, _)| *key).collect();
        wishes.iter().for_each(|key| self.forget(key));
        let inside: Vec<_> = self.inside.range(all_of(run)).map(|(key, _)| *key).collect();
        inside.into_iter().flat_map(|(run, at)| self.leave(run, at)).collect()
    }

    fn forget(&mut self, key: &(Uuid, At)) {
        if let Some((kind, wish)) = self.wishes.remove(key)
            && let Some(queue) = self.waiting.get_mut(&kind)
        {
            queue.remove(&wish);
            if queue.is_empty() {
                self.waiting.remove(&kind);
            }
        }
    }

    /// The wish that comes next, if there is room for one. Only the first of each kind is looked at.
    fn next(&self) -> Option<(Kind, Wish)> {
        let busy = |kind: &Kind| self.tenants.get(&kind.tenant).copied().unwrap_or(0);
        let fitting = self.waiting.iter().filter(|(kind, _)| self.has_room(kind));
        let first = fitting.filter_map(|(kind, queue)| Some((kind, *queue.first()?)));
        let best = first.min_by_key(|(kind, wish)| (busy(kind), wish.priority, wish.turn));
        best.map(|(kind, wish)| (kind.clone(), wish))
    }

    /// How many calls are under way.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.inside.len()
    }

    /// How many wishes wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wishes.len()
    }
}

fn all_of(run: Uuid) -> std::ops::RangeInclusive<(Uuid, At)> {
    (run, At { node: 0, item: None })..=(run, At { node: usize::MAX, item: Some(u32::MAX) })
}

fn count_down(counts: &mut BTreeMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot<'a>(run: u128, tenant: &'a str, tool: &'a str, priority: i32) -> Slot<'a> {
        Slot { run: Uuid::from_u128(run), at: At::node(0), tenant, tool, priority }
    }

    fn narrow(total: usize, per_tenant: usize, per_tool: usize) -> Turnstile {
        Turnstile::new(Slots { total, per_tenant, per_tool, tools: BTreeMap::new() })
    }

    #[test]
    fn a_freed_slot_goes_to_the_tenant_with_the_fewest_calls() {
        let mut gate = narrow(2, 2, 2);
        assert!(gate.enter(slot(1, "loud", "t", 5)) && gate.enter(slot(2, "loud", "t", 5)));
        assert!(!gate.enter(slot(3, "loud", "t", 1)));
        assert!(!gate.enter(slot(4, "quiet", "t", 9)));
        assert_eq!(gate.leave(Uuid::from_u128(1), At::node(0)), [Uuid::from_u128(4)]);
        assert!(!gate.enter(slot(5, "third", "t", 1)), "the slot is kept for whom it was given to");
        assert!(gate.enter(slot(4, "quiet", "t", 9)));
    }

    #[test]
    fn what_is_kept_for_a_run_that_does_not_want_it_any_more_goes_to_the_next() {
        let mut gate = narrow(1, 1, 1);
        assert!(gate.enter(slot(1, "a", "t", 5)));
        assert!(!gate.enter(slot(2, "a", "t", 5)) && !gate.enter(slot(3, "a", "t", 5)));
        assert_eq!(gate.leave(Uuid::from_u128(1), At::node(0)), [Uuid::from_u128(2)]);
        let granted = gate.granted(Uuid::from_u128(2));
        assert_eq!(gate.unused(Uuid::from_u128(2), &granted), [Uuid::from_u128(3)]);
        assert!(gate.enter(slot(3, "a", "t", 5)));
        assert_eq!((gate.taken(), gate.waiting()), (1, 0));
    }

    #[test]
    fn one_slot_may_let_two_go_on_that_waited_for_different_reasons() {
        let mut gate = narrow(9, 1, 1);
        assert!(gate.enter(slot(1, "a", "t", 5)));
        assert!(!gate.enter(slot(2, "a", "u", 5)), "its tenant has no slot");
        assert!(!gate.enter(slot(3, "b", "t", 5)), "its tool has no slot");
        let mut runs = gate.leave(Uuid::from_u128(1), At::node(0));
        runs.sort_unstable();
        assert_eq!(runs, [Uuid::from_u128(2), Uuid::from_u128(3)]);
    }

    #[test]
    fn within_a_tenant_the_more_urgent_run_comes_first_then_the_older_wish() {
        let mut gate = narrow(1, 1, 1);
        assert!(gate.enter(slot(1, "a", "t", 5)));
        for (run, priority) in [(2, 7), (3, 2), (4, 2)] {
            assert!(!gate.enter(slot(run, "a", "t", priority)));
        }
        assert_eq!(gate.leave(Uuid::from_u128(1), At::node(0)), [Uuid::from_u128(3)]);
        assert!(gate.enter(slot(3, "a", "t", 2)));
        assert_eq!(gate.forget_run(Uuid::from_u128(3)), [Uuid::from_u128(4)]);
    }

    #[test]
    fn a_busy_tool_does_not_hold_up_another() {
        let mut gate = narrow(4, 4, 1);
        assert!(gate.enter(slot(1, "a", "slow", 5)));
        assert!(!gate.enter(slot(2, "a", "slow", 5)));
        assert!(gate.enter(slot(3, "a", "fast", 5)));
        assert!(!gate.enter(slot(4, "a", "fast", 5)));
        assert_eq!(gate.leave(Uuid::from_u128(3), At::node(0)), [Uuid::from_u128(4)]);
    }
}
