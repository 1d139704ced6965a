//! Memory accounting: how much the runs in memory hold, and which run may take more.
//!
//! All runs of a process share one limit; with several tenants each has its share. A run that finds no room waits in
//! the store and frees what it held. The oldest waiting run is resumed first, and room is reserved for it. The oldest
//! run in memory always continues, and so does a run that is alone, so none waits forever. Results of calls in flight
//! may exceed the limit. So that a tenant does not wait because others exceed it, one run of each tenant continues
//! until twice the limit is taken. Synchronous and without a clock, so that the simulator can drive it.

use chimera_core::access::Pool;
use chimera_core::limits;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// What runs hold, and which runs wait.
#[derive(Debug, Default)]
pub(super) struct MemoryBudget {
    total: usize,
    shared: bool,
    taken: usize,
    /// Runs in memory that hold enough to be counted.
    held: BTreeMap<Uuid, MemoryUse>,
    tenants: BTreeMap<Arc<str>, usize>,
    /// Runs that found no room, still in memory or in the store.
    waiting: BTreeMap<Uuid, MemoryUse>,
}

/// What a run holds, or held when it was unloaded.
#[derive(Clone, Debug)]
struct MemoryUse {
    tenant: Arc<str>,
    bytes: usize,
}

/// What is reserved for runs that are not loaded yet.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    to_all: usize,
    to_tenant: usize,
}

const NOTHING_RESERVED: Reserved = Reserved { to_all: 0, to_tenant: 0 };

impl MemoryBudget {
    pub(super) fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// Sets whether there are several tenants, each with its share.
    pub(super) const fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// Bytes held in total.
    pub(super) const fn taken(&self) -> usize {
        self.taken
    }

    /// Records what a run in memory holds. Small amounts are not counted.
    pub(super) fn record(&mut self, run: Uuid, tenant: &str, bytes: usize) {
        self.drop_held(run);
        if bytes < limits::RUN_MEMORY_BYTES_COUNTED {
            return;
        }
        let tenant: Arc<str> = tenant.into();
        self.taken += bytes;
        *self.tenants.entry(Arc::clone(&tenant)).or_default() += bytes;
        self.held.insert(run, MemoryUse { tenant, bytes });
    }

    /// Whether a run in memory may take more. If not, it waits.
    pub(super) fn may_grow(&mut self, run: Uuid, tenant: &str, bytes: usize) -> bool {
        self.record(run, tenant, bytes);
        if self.is_exempt(run, tenant) || self.has_capacity(Some(run), tenant, NOTHING_RESERVED, 0) {
            self.waiting.remove(&run);
            return true;
        }
        if self.waiting.len() < limits::CALLS_REMEMBERED_MAX || self.waiting.contains_key(&run) {
            self.waiting.insert(run, MemoryUse { tenant: tenant.into(), bytes });
        }
        false
    }

    /// Whether a run continues regardless of the limit.
    fn is_exempt(&self, run: Uuid, tenant: &str) -> bool {
        let is_first = self.held.first_key_value().is_some_and(|(first, _)| *first == run);
        let mut of_tenant = self.held.iter().filter(|(_, weight)| &*weight.tenant == tenant);
        let is_spared = self.shared && self.taken <= self.taken_max();
        is_first || (is_spared && of_tenant.next().is_some_and(|(first, _)| *first == run))
    }

    /// The most that may be taken while more than one run continues.
    const fn taken_max(&self) -> usize {
        self.total.saturating_mul(2)
    }

    /// Whether so many runs wait that a new one of this tenant should be refused.
    pub(super) fn is_queue_full(&self, tenant: &str) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let held = self.waiting.values().filter(|weight| &*weight.tenant == tenant).count();
        !Pool { total: limits::CALLS_WAITING_MAX, taken: self.waiting.len(), held }.may_take_slot(self.shared)
    }

    /// Whether a run waits for memory.
    pub(super) fn waits(&self, run: Uuid) -> bool {
        self.waiting.contains_key(&run)
    }

    /// The number of runs that wait for memory.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is room to load a run from the store.
    pub(super) fn may_take_up(&self, run: Uuid, tenant: &str) -> bool {
        self.has_capacity(Some(run), tenant, NOTHING_RESERVED, self.waiting.get(&run).map_or(0, |weight| weight.bytes))
    }

    /// Whether there is room for a new run of a tenant.
    pub(super) fn has_capacity_for(&self, tenant: &str) -> bool {
        self.has_capacity(None, tenant, NOTHING_RESERVED, 0)
    }

    /// Whether there is room for `more` bytes, besides what is reserved and what the oldest waiting run needs.
    fn has_capacity(&self, run: Option<Uuid>, tenant: &str, promised: Reserved, more: usize) -> bool {
        let held = self.tenants.get(tenant).copied().unwrap_or(0).saturating_add(promised.to_tenant);
        let taken = self.taken.saturating_add(promised.to_all);
        let is_spared = self.shared && taken.saturating_add(more) <= self.taken_max();
        if taken == 0 || (held == 0 && (more == 0 || is_spared)) {
            return true;
        }
        let oldest = self.waiting.iter().find(|(id, _)| !self.held.contains_key(id));
        let kept = oldest.filter(|(id, _)| run.is_none_or(|run| **id < run)).map_or(0, |(_, weight)| weight.bytes);
        let taken = taken.saturating_add(more).saturating_add(kept);
        let Some(free) = self.total.checked_sub(taken) else { return false };
        let held = held.saturating_add(more);
        !self.shared || held == more || held <= free.saturating_mul(limits::TENANT_HELD_PER_FREE_MAX)
    }

    /// Removes a run. Returns the runs that may continue.
    pub(super) fn remove(&mut self, run: Uuid) -> Vec<Uuid> {
        self.waiting.remove(&run);
        self.drop_held(run);
        self.runnable()
    }

    /// Unloads a run that keeps waiting in the store. Returns the runs that may continue.
    pub(super) fn unload(&mut self, run: Uuid) -> Vec<Uuid> {
        self.drop_held(run);
        self.runnable()
    }

    /// The waiting runs that fit now, oldest first.
    fn runnable(&self) -> Vec<Uuid> {
        let (mut to_all, mut to_tenants, mut runs) = (0, BTreeMap::<&str, usize>::new(), Vec::new());
        for (run, weight) in &self.waiting {
            let new = if self.held.contains_key(run) { 0 } else { weight.bytes };
            let to_tenant = to_tenants.entry(&weight.tenant).or_default();
            let promised = Reserved { to_all, to_tenant: *to_tenant };
            if self.has_capacity(Some(*run), &weight.tenant, promised, new) {
                to_all += new;
                *to_tenant += new;
                runs.push(*run);
            }
        }
        runs
    }

    fn drop_held(&mut self, run: Uuid) {
        let Some(MemoryUse { tenant, bytes }) = self.held.remove(&run) else { return };
        self.taken -= bytes;
        if let Some(held) = self.tenants.get_mut(&tenant) {
            *held -= bytes;
            if *held == 0 {
                self.tenants.remove(&tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1024 * 1024;

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn a_run_that_finds_no_room_waits_and_is_called_when_there_is_some() {
        let mut memory = MemoryBudget::new(10 * MB);
        assert!(memory.may_grow(id(1), "a", 6 * MB) && memory.may_grow(id(2), "a", 4 * MB));
        assert!(!memory.may_grow(id(3), "a", 5 * MB), "15 of 10");
        assert!(!memory.may_grow(id(2), "a", 4 * MB) && memory.may_grow(id(1), "a", 6 * MB), "the first goes on");
        assert!(memory.unload(id(3)).contains(&id(2)));
        assert_eq!((memory.taken(), memory.waits(id(3))), (10 * MB, true));
        assert!(memory.may_grow(id(2), "a", 4 * MB) && !memory.may_take_up(id(3), "a"));
        assert_eq!(memory.remove(id(1)), [id(3)]);
        assert!(memory.may_take_up(id(3), "a") && memory.may_grow(id(3), "a", 5 * MB));
        assert_eq!(
            (memory.remove(id(2)), memory.remove(id(3)), memory.taken(), memory.waiting()),
            (vec![], vec![], 0, 0)
        );
    }

    #[test]
    fn room_is_kept_for_the_oldest_that_waits() {
        let mut memory = MemoryBudget::new(10 * MB);
        assert!(memory.may_grow(id(1), "a", 9 * MB) && !memory.may_grow(id(2), "a", 8 * MB));
        memory.unload(id(2));
        assert!(!memory.has_capacity_for("a"), "what is new would keep it waiting");
        assert!(!memory.may_grow(id(3), "a", 5 * MB), "and what is younger as well");
        memory.unload(id(3));
        assert_eq!(memory.remove(id(1)), [id(2)], "there is room for one of them");
    }

    #[test]
    fn of_several_tenants_none_has_all_and_one_with_nothing_finds_room() {
        let mut memory = MemoryBudget::new(8 * MB);
        memory.set_shared(true);
        assert!((1..=6).all(|n| memory.may_grow(id(n), "loud", MB)));
        assert!(!memory.may_grow(id(7), "loud", MB), "it leaves a quarter");
        memory.remove(id(7));
        assert!(memory.may_grow(id(8), "quiet", MB));
        assert!((9..20).all(|n| memory.may_grow(id(n), "small", limits::RUN_MEMORY_BYTES_COUNTED - 1)), "little");
        assert!(memory.may_grow(id(8), "quiet", 5 * MB), "one of its own goes on, though there is no room");
        assert!(!memory.may_grow(id(21), "quiet", MB), "and no second one");
        memory.record(id(1), "loud", 80 * MB);
        assert!(
            !memory.may_grow(id(2), "loud", MB) && memory.has_capacity_for("new") && !memory.has_capacity_for("loud")
        );
    }

    /// However much runs grow, and in whatever order they ask, one always continues.
    #[test]
    fn one_always_goes_on() {
        for total in [MB, 8 * MB, 64 * MB] {
            for step in [MB / 8, MB, 5 * MB, 100 * MB] {
                let mut memory = MemoryBudget::new(total);
                memory.set_shared(step % 2 == 0);
                let mut left: BTreeMap<u128, (usize, bool)> = (0..12).map(|n| (n, (0, true))).collect();
                for _ in 0..10_000 {
                    let mut went_on = false;
                    for n in 0..12 {
                        let Some((steps, inside)) = left.get(&n).copied() else { continue };
                        let (run, tenant) = (id(n), if n % 3 == 0 { "a" } else { "b" });
                        if !inside && !memory.may_take_up(run, tenant) {
                            continue;
                        }
                        if memory.may_grow(run, tenant, steps * step) {
                            went_on = true;
                            left.insert(n, (steps + 1, true));
                            if steps == 5 {
                                left.remove(&n);
                                memory.remove(run);
                            }
                        } else {
                            memory.unload(run);
                            left.insert(n, (steps, false));
                        }
                    }
                    assert!(went_on || left.is_empty(), "{total} {step} {left:?} {memory:?}");
                }
                assert!(left.is_empty() && memory.taken() == 0 && memory.waiting() == 0);
            }
        }
    }
}
