//! Who may call a tool now.
//!
//! Calls are bounded for the process, for each tenant and for each tool. Whoever finds no slot is
//! remembered; a freed slot goes to the tenant that has the fewest calls under way, so that none
//! starves another, then to the more urgent run, then to whoever asked first. A synchronous
//! structure without a clock: the simulator drives it as it is.

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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    priority: i32,
    turn: u64,
    run: Uuid,
    at: At,
    tool: String,
}

/// The slots that are taken and those who wait for one.
#[derive(Debug, Default)]
pub struct Turnstile {
    slots: Slots,
    inside: BTreeMap<(Uuid, At), (String, String)>,
    tenants: BTreeMap<String, usize>,
    tools: BTreeMap<String, usize>,
    waiting: BTreeMap<String, BTreeSet<Wish>>,
    wishes: BTreeMap<(Uuid, At), (String, Wish)>,
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
            return true;
        }
        if self.has_room(slot.tenant, slot.tool) {
            self.forget(&key);
            self.inside.insert(key, (slot.tenant.to_owned(), slot.tool.to_owned()));
            *self.tenants.entry(slot.tenant.to_owned()).or_default() += 1;
            *self.tools.entry(slot.tool.to_owned()).or_default() += 1;
            return true;
        }
        if !self.wishes.contains_key(&key) {
            self.turn += 1;
            let (priority, turn) = (slot.priority, self.turn);
            let wish = Wish { priority, turn, run: slot.run, at: slot.at, tool: slot.tool.to_owned() };
            self.waiting.entry(slot.tenant.to_owned()).or_default().insert(wish.clone());
            self.wishes.insert(key, (slot.tenant.to_owned(), wish));
        }
        false
    }

    fn has_room(&self, tenant: &str, tool: &str) -> bool {
        let tool_max = self.slots.tools.get(tool).copied().unwrap_or(self.slots.per_tool);
        self.inside.len() < self.slots.total
            && self.tenants.get(tenant).is_none_or(|taken| *taken < self.slots.per_tenant)
            && self.tools.get(tool).is_none_or(|taken| *taken < tool_max)
    }

    /// Gives a slot back; gives the runs that should ask again.
    pub fn leave(&mut self, run: Uuid, at: At) -> Option<Uuid> {
        let (tenant, tool) = self.inside.remove(&(run, at))?;
        count_down(&mut self.tenants, &tenant);
        count_down(&mut self.tools, &tool);
        self.next()
    }

    /// A run is gone from this process, and with it all its slots and wishes; gives the runs that
    /// should ask again.
    pub fn forget_run(&mut self, run: Uuid) -> Vec<Uuid> {
        let of_run = (run, At { node: 0, item: None })..=(run, At { node: usize::MAX, item: Some(u32::MAX) });
        let wishes: Vec<_> = self.wishes.range(of_run.clone()).map(|(key, _)| *key).collect();
        wishes.iter().for_each(|key| self.forget(key));
        let inside: Vec<_> = self.inside.range(of_run).map(|(key, _)| *key).collect();
        inside.into_iter().filter_map(|(run, at)| self.leave(run, at)).collect()
    }

    fn forget(&mut self, key: &(Uuid, At)) {
        if let Some((tenant, wish)) = self.wishes.remove(key)
            && let Some(queue) = self.waiting.get_mut(&tenant)
        {
            queue.remove(&wish);
            if queue.is_empty() {
                self.waiting.remove(&tenant);
            }
        }
    }

    /// The run whose wish comes next, if there is room for it.
    fn next(&self) -> Option<Uuid> {
        let busy = |tenant: &str| self.tenants.get(tenant).copied().unwrap_or(0);
        let candidates = self.waiting.iter().filter_map(|(tenant, queue)| {
            let wish = queue.iter().find(|wish| self.has_room(tenant, &wish.tool))?;
            Some(((busy(tenant), wish.priority, wish.turn), wish.run))
        });
        candidates.min_by_key(|(rank, _)| *rank).map(|(_, run)| run)
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
        assert_eq!(gate.leave(Uuid::from_u128(1), At::node(0)), Some(Uuid::from_u128(4)));
    }

    #[test]
    fn within_a_tenant_the_more_urgent_run_comes_first_then_the_older_wish() {
        let mut gate = narrow(1, 1, 1);
        assert!(gate.enter(slot(1, "a", "t", 5)));
        for (run, priority) in [(2, 7), (3, 2), (4, 2)] {
            assert!(!gate.enter(slot(run, "a", "t", priority)));
        }
        assert_eq!(gate.leave(Uuid::from_u128(1), At::node(0)), Some(Uuid::from_u128(3)));
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
        assert_eq!(gate.leave(Uuid::from_u128(3), At::node(0)), Some(Uuid::from_u128(4)));
    }
}
