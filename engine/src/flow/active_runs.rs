//! The runs that this process drives, and their limits.
//!
//! Active runs are limited per process and per tenant; with several tenants each also has its share. A run that only
//! waits for a slot is unloaded; its waiters stay connected until it is active again.

use super::RunProgress;
use super::drive::WakeUp;
use chimera_core::access::Pool;
use chimera_core::limits;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

/// Limits on active runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    pub total: usize,
    pub per_tenant: usize,
    /// Estimated bytes that their values may take together.
    pub memory_bytes: usize,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            total: limits::ACTIVE_RUNS_MAX,
            per_tenant: limits::TENANT_RUNS_MAX,
            memory_bytes: limits::RUNS_MEMORY_BYTES_MAX,
        }
    }
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    Process {
        runs: usize,
    },
    Tenant {
        runs: usize,
    },
    /// Too many of the tenant's runs wait for memory.
    Memory,
}

struct ActiveRun {
    tenant: String,
    inbox: mpsc::Sender<WakeUp>,
    progress: watch::Receiver<RunProgress>,
}

pub(super) struct ActiveRuns {
    places: RunLimits,
    runs: Mutex<RunTable>,
}

#[derive(Default)]
struct RunTable {
    active: BTreeMap<Uuid, ActiveRun>,
    tenants: BTreeMap<String, usize>,
    /// Waiters of runs that wait in the store for a slot.
    watched: BTreeMap<Uuid, watch::Sender<RunProgress>>,
}

impl ActiveRuns {
    pub(super) fn new(places: RunLimits) -> Self {
        Self { places, runs: Mutex::default() }
    }

    fn runs(&self) -> MutexGuard<'_, RunTable> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn places(&self) -> &RunLimits {
        &self.places
    }

    pub(super) fn len(&self) -> usize {
        self.runs().active.len()
    }

    pub(super) fn contains(&self, run: Uuid) -> bool {
        self.runs().active.contains_key(&run)
    }

    /// Whether the process limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.places.total
    }

    /// The limit that keeps another run of a tenant from starting; `shared` if there are several tenants.
    pub(super) fn limit_reached(&self, tenant: &str, shared: bool) -> Option<LimitReached> {
        let runs = self.runs();
        let pool = Pool { total: self.places.total, taken: runs.active.len(), held: runs.of(tenant) };
        if !pool.has_free_slot() {
            return Some(LimitReached::Process { runs: pool.total });
        }
        let may_have = pool.held < self.places.per_tenant && pool.may_take_slot(shared);
        (!may_have).then_some(LimitReached::Tenant { runs: pool.held })
    }

    /// Whether half of the capacity is used: then runs that only wait are unloaded.
    pub(super) fn is_scarce(&self, tenant: &str) -> bool {
        let runs = self.runs();
        runs.active.len() * 2 >= self.places.total || runs.of(tenant) * 2 >= self.places.per_tenant
    }

    /// Registers a run and returns the sender of its status; `None` if it is already active.
    pub(super) fn register(
        &self,
        run: Uuid,
        tenant: &str,
        inbox: mpsc::Sender<WakeUp>,
        first: RunProgress,
    ) -> Option<watch::Sender<RunProgress>> {
        let mut runs = self.runs();
        if runs.active.contains_key(&run) {
            return None;
        }
        match runs.tenants.get_mut(tenant) {
            Some(count) => *count += 1,
            None => drop(runs.tenants.insert(tenant.to_owned(), 1)),
        }
        let sender = runs.watched.remove(&run).unwrap_or_else(|| watch::Sender::new(first));
        let active = ActiveRun { tenant: tenant.to_owned(), inbox, progress: sender.subscribe() };
        runs.active.insert(run, active);
        Some(sender)
    }

    pub(super) fn leave(&self, run: Uuid) {
        self.runs().leave(run);
    }

    /// Unloads a run that waits for a slot; its waiters are kept.
    pub(super) fn unload(&self, run: Uuid, progress: watch::Sender<RunProgress>) {
        let mut runs = self.runs();
        runs.leave(run);
        if progress.receiver_count() == 0 {
            return;
        }
        if runs.watched.len() >= limits::RUNS_WATCHED_MAX {
            runs.watched.retain(|_, progress| progress.receiver_count() > 0);
        }
        // Waiters beyond the limit learn at once, by a closed channel, that the run continues without them.
        if runs.watched.len() < limits::RUNS_WATCHED_MAX {
            runs.watched.insert(run, progress);
        }
    }

    /// Disconnects the waiters of runs that are not active.
    pub(super) fn unwatch(&self) {
        self.runs().watched.clear();
    }

    /// The status of a run that is active or waits for a slot.
    pub(super) fn progress(&self, run: Uuid) -> Option<watch::Receiver<RunProgress>> {
        let runs = self.runs();
        let active = runs.active.get(&run).map(|active| active.progress.clone());
        active.or_else(|| runs.watched.get(&run).map(watch::Sender::subscribe))
    }

    /// Wakes a run; false if it is not active here.
    pub(super) fn nudge(&self, run: Uuid, nudge: WakeUp) -> bool {
        match self.runs().active.get(&run) {
            // A full inbox means that enough wake-ups are pending.
            Some(active) => {
                let _ = active.inbox.try_send(nudge);
                true
            }
            None => false,
        }
    }
}

impl RunTable {
    fn of(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).copied().unwrap_or(0)
    }

    fn leave(&mut self, run: Uuid) {
        let Some(active) = self.active.remove(&run) else { return };
        if let Some(count) = self.tenants.get_mut(&active.tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&active.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::flow::run::RunStatus;

    #[test]
    fn of_several_tenants_none_has_all_places() {
        let driven = ActiveRuns::new(RunLimits { total: 8, per_tenant: 8, ..RunLimits::default() });
        let enter = |n: u128, tenant: &str| {
            let first = RunProgress { status: RunStatus::Running, is_resting: false, ended: None };
            driven.register(Uuid::from_u128(n), tenant, mpsc::channel(1).0, first).unwrap();
        };
        (0..6).for_each(|n| enter(n, "loud"));
        assert_eq!(driven.limit_reached("loud", true), Some(LimitReached::Tenant { runs: 6 }));
        assert_eq!(driven.limit_reached("loud", false), None, "alone it has them all");
        assert_eq!(driven.limit_reached("quiet", true), None);
        (6..8).for_each(|n| enter(n, "loud"));
        assert_eq!(driven.limit_reached("quiet", true), Some(LimitReached::Process { runs: 8 }));
    }
}
