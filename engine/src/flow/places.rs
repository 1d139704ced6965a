//! The runs that this process drives, each in a place, and how many there may be.
//!
//! Places are bounded for the process and for each tenant, which also has its share where there are several. A run that only waits for a slot gives its
//! place up; whoever waits here for what comes of it stays connected to it until it has one again.

use super::Standing;
use super::drive::Nudge;
use chimera_core::access::Pool;
use chimera_core::limits;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

/// How many runs may be driven at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// In this process.
    pub total: usize,
    /// For one tenant.
    pub per_tenant: usize,
    /// Bytes of memory that their values may take together, as they are estimated.
    pub memory_bytes: usize,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            total: limits::ACTIVE_RUNS_MAX,
            per_tenant: limits::TENANT_RUNS_MAX,
            memory_bytes: limits::RUNS_MEMORY_BYTES_MAX,
        }
    }
}

/// Who has as many runs as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The process.
    Process { runs: usize },
    /// The tenant that was asked about.
    Tenant { runs: usize },
    /// Too many runs of that tenant wait for memory.
    Memory,
}

/// A run that is driven.
struct Active {
    tenant: String,
    inbox: mpsc::Sender<Nudge>,
    standing: watch::Receiver<Standing>,
}

/// The runs that are driven.
pub(super) struct Driven {
    places: Places,
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    active: BTreeMap<Uuid, Active>,
    tenants: BTreeMap<String, usize>,
    /// Those who wait for what comes of a run that waits in the store for a slot.
    watched: BTreeMap<Uuid, watch::Sender<Standing>>,
}

impl Driven {
    pub(super) fn new(places: Places) -> Self {
        Self { places, runs: Mutex::default() }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there may be.
    pub(super) const fn places(&self) -> &Places {
        &self.places
    }

    pub(super) fn len(&self) -> usize {
        self.runs().active.len()
    }

    pub(super) fn contains(&self, run: Uuid) -> bool {
        self.runs().active.contains_key(&run)
    }

    /// Whether no tenant can have another run driven.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.places.total
    }

    /// What keeps another run of a tenant from being driven; `shared` if there are several tenants.
    pub(super) fn full_for(&self, tenant: &str, shared: bool) -> Option<Full> {
        let runs = self.runs();
        let pool = Pool { total: self.places.total, taken: runs.active.len(), held: runs.of(tenant) };
        if !pool.has_place() {
            return Some(Full::Process { runs: pool.total });
        }
        let may_have = pool.held < self.places.per_tenant && pool.has_room(shared);
        (!may_have).then_some(Full::Tenant { runs: pool.held })
    }

    /// Whether half of the places are taken: then none is given to a run that only waits.
    pub(super) fn is_scarce(&self, tenant: &str) -> bool {
        let runs = self.runs();
        runs.active.len() * 2 >= self.places.total || runs.of(tenant) * 2 >= self.places.per_tenant
    }

    /// Gives a run a place, and whoever drives it the way to tell where it stands; none: it has a place.
    pub(super) fn enter(
        &self,
        run: Uuid,
        tenant: &str,
        inbox: mpsc::Sender<Nudge>,
        first: Standing,
    ) -> Option<watch::Sender<Standing>> {
        let mut runs = self.runs();
        if runs.active.contains_key(&run) {
            return None;
        }
        match runs.tenants.get_mut(tenant) {
            Some(count) => *count += 1,
            None => drop(runs.tenants.insert(tenant.to_owned(), 1)),
        }
        let sender = runs.watched.remove(&run).unwrap_or_else(|| watch::Sender::new(first));
        let active = Active { tenant: tenant.to_owned(), inbox, standing: sender.subscribe() };
        runs.active.insert(run, active);
        Some(sender)
    }

    pub(super) fn leave(&self, run: Uuid) {
        self.runs().leave(run);
    }

    /// A run leaves its place to wait for a slot; it is still told to those who wait for it.
    pub(super) fn leave_to_wait(&self, run: Uuid, standing: watch::Sender<Standing>) {
        let mut runs = self.runs();
        runs.leave(run);
        if standing.receiver_count() == 0 {
            return;
        }
        if runs.watched.len() >= limits::RUNS_WATCHED_MAX {
            runs.watched.retain(|_, standing| standing.receiver_count() > 0);
        }
        // Whoever can't be kept is told at once that the run goes on without them.
        if runs.watched.len() < limits::RUNS_WATCHED_MAX {
            runs.watched.insert(run, standing);
        }
    }

    /// Nobody is told any more about runs that are not driven.
    pub(super) fn unwatch(&self) {
        self.runs().watched.clear();
    }

    /// What is told about a run that is driven, or waits for a slot.
    pub(super) fn standing(&self, run: Uuid) -> Option<watch::Receiver<Standing>> {
        let runs = self.runs();
        let active = runs.active.get(&run).map(|active| active.standing.clone());
        active.or_else(|| runs.watched.get(&run).map(watch::Sender::subscribe))
    }

    /// Tells a run to look up; false: it is not driven here.
    pub(super) fn nudge(&self, run: Uuid, nudge: Nudge) -> bool {
        match self.runs().active.get(&run) {
            // A full inbox means that the run has been told often enough.
            Some(active) => {
                let _ = active.inbox.try_send(nudge);
                true
            }
            None => false,
        }
    }
}

impl Runs {
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
        let driven = Driven::new(Places { total: 8, per_tenant: 8, ..Places::default() });
        let enter = |n: u128, tenant: &str| {
            let first = Standing { status: RunStatus::Running, rests: false, ended: None };
            driven.enter(Uuid::from_u128(n), tenant, mpsc::channel(1).0, first).unwrap();
        };
        (0..6).for_each(|n| enter(n, "loud"));
        assert_eq!(driven.full_for("loud", true), Some(Full::Tenant { runs: 6 }));
        assert_eq!(driven.full_for("loud", false), None, "alone it has them all");
        assert_eq!(driven.full_for("quiet", true), None);
        (6..8).for_each(|n| enter(n, "loud"));
        assert_eq!(driven.full_for("quiet", true), Some(Full::Process { runs: 8 }));
    }
}
