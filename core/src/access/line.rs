//! A fair queue for slots that all tenants share.
//!
//! Each of several tenants gets only its share of the slots ([`Pool`]). A freed slot goes to the tenant with the
//! fewest slots, then to the one that was served least recently; within the tenant, to an actor by the same rule;
//! then first come, first served. However much one actor asks for, another waits for at most one task of each
//! competitor. A synchronous structure without a clock.

use super::Pool;
use crate::limits::{ACTOR_WORK_WAITING_MAX, TENANT_WORK_WAITING_MAX, WORK_WAITING_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Who requests a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The tenant whose share it counts against.
    pub tenant: Arc<str>,
    pub actor: Arc<str>,
}

impl Claimant {
    #[must_use]
    pub fn new(tenant: &str, actor: &str) -> Self {
        Self { tenant: tenant.into(), actor: actor.into() }
    }
}

/// Whose waiting limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFull {
    Actor,
    Tenant,
    /// All tenants together.
    Process,
}

/// The slots in use and the waiting requests.
#[derive(Debug, Default)]
pub struct FairQueue {
    total: usize,
    shared: bool,
    /// Sequence number of requests and grants.
    turn: u64,
    /// Requests by number, and whether each has a slot.
    asked: BTreeMap<u64, (Claimant, bool)>,
    taken: usize,
    tenants: BTreeMap<Arc<str>, TenantQueue>,
}

/// Slots held and requests waiting.
#[derive(Debug, Default)]
struct QueueShare {
    held: usize,
    waiting: usize,
    /// Sequence number of the last grant, or of the first request.
    since: u64,
}

#[derive(Debug, Default)]
struct TenantQueue {
    stand: QueueShare,
    actors: BTreeMap<Arc<str>, ActorQueue>,
}

#[derive(Debug, Default)]
struct ActorQueue {
    stand: QueueShare,
    waiting: BTreeSet<u64>,
}

impl FairQueue {
    /// A queue for `total` slots.
    #[must_use]
    pub fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// Sets whether there are several tenants, each with its share.
    pub fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// Whose waiting limit would refuse one more request of this claimant, if any.
    #[must_use]
    pub fn reached_limit(&self, who: &Claimant) -> Option<QueueFull> {
        let tenant = self.tenants.get(&who.tenant);
        let of_tenant = tenant.map_or(0, |tenant| tenant.stand.waiting);
        let of_actor = tenant.and_then(|tenant| tenant.actors.get(&who.actor)).map_or(0, |actor| actor.waiting.len());
        let pool = Pool { total: WORK_WAITING_MAX, taken: self.waiting(), held: of_tenant };
        if of_actor >= ACTOR_WORK_WAITING_MAX {
            Some(QueueFull::Actor)
        } else if !pool.has_free_slot() {
            Some(QueueFull::Process)
        } else if of_tenant >= TENANT_WORK_WAITING_MAX || !pool.may_take_slot(self.shared) {
            Some(QueueFull::Tenant)
        } else {
            None
        }
    }

    /// Enqueues a request; [`Line::serve_next`] grants it.
    pub fn ask(&mut self, who: &Claimant) -> u64 {
        self.turn += 1;
        let turn = self.turn;
        let tenant = self
            .tenants
            .entry(Arc::clone(&who.tenant))
            .or_insert_with(|| TenantQueue { stand: QueueShare { since: turn, ..QueueShare::default() }, actors: BTreeMap::new() });
        tenant.stand.waiting += 1;
        let actor = tenant
            .actors
            .entry(Arc::clone(&who.actor))
            .or_insert_with(|| ActorQueue { stand: QueueShare { since: turn, ..QueueShare::default() }, waiting: BTreeSet::new() });
        actor.waiting.insert(turn);
        self.asked.insert(turn, (who.clone(), false));
        turn
    }

    /// Grants a slot to the next request, if one is available to it.
    #[must_use]
    pub fn grant_next(&mut self) -> Option<u64> {
        let (total, taken, shared) = (self.total, self.taken, self.shared);
        let may = |tenant: &TenantQueue| Pool { total, taken, held: tenant.stand.held }.may_take_slot(shared);
        let waiting = self.tenants.values_mut().filter(|tenant| tenant.stand.waiting > 0 && may(tenant));
        let tenant = waiting.min_by_key(|tenant| (tenant.stand.held, tenant.stand.since))?;
        let waiting = tenant.actors.values_mut().filter(|actor| !actor.waiting.is_empty());
        let actor = waiting.min_by_key(|actor| (actor.stand.held, actor.stand.since))?;
        let ask = actor.waiting.pop_first()?;
        self.turn += 1;
        tenant.stand.waiting -= 1;
        for stand in [&mut tenant.stand, &mut actor.stand] {
            stand.held += 1;
            stand.since = self.turn;
        }
        self.taken += 1;
        if let Some((_, inside)) = self.asked.get_mut(&ask) {
            *inside = true;
        }
        Some(ask)
    }

    /// Releases a slot, or withdraws a waiting request.
    pub fn release(&mut self, ask: u64) {
        let Some((who, inside)) = self.asked.remove(&ask) else { return };
        let Some(tenant) = self.tenants.get_mut(&who.tenant) else { return };
        let Some(actor) = tenant.actors.get_mut(&who.actor) else { return };
        if inside {
            self.taken -= 1;
            tenant.stand.held -= 1;
            actor.stand.held -= 1;
        } else {
            tenant.stand.waiting -= 1;
            actor.waiting.remove(&ask);
        }
        if actor.stand.held == 0 && actor.waiting.is_empty() {
            tenant.actors.remove(&who.actor);
        }
        if tenant.actors.is_empty() {
            self.tenants.remove(&who.tenant);
        }
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.asked.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(total: usize) -> FairQueue {
        let mut line = FairQueue::new(total);
        line.set_shared(true);
        line
    }

    /// Serves one request after the other, and returns whose turn it was.
    fn served(line: &mut FairQueue, names: &BTreeMap<u64, &'static str>) -> Vec<&'static str> {
        let mut order = Vec::new();
        while let Some(ask) = line.grant_next() {
            order.push(names[&ask]);
            line.release(ask);
        }
        order
    }

    #[test]
    fn a_tenant_with_one_request_comes_next_however_many_another_has() {
        let (mut line, mut names) = (line(1), BTreeMap::new());
        for _ in 0..100 {
            names.insert(line.ask(&Claimant::new("bob", "a")), "bob");
        }
        let first = line.grant_next().unwrap();
        assert_eq!(line.grant_next(), None, "there is one place");
        for _ in 0..2 {
            names.insert(line.ask(&Claimant::new("acme", "a")), "acme");
        }
        line.release(first);
        let order = served(&mut line, &names);
        assert_eq!(&order[..5], ["bob", "acme", "bob", "acme", "bob"], "bob's turn came before acme asked");
        assert_eq!(order.len(), 101);
        assert!(line.tenants.is_empty() && line.asked.is_empty() && line.taken == 0);
    }

    #[test]
    fn within_a_tenant_actors_take_turns() {
        let (mut line, mut names) = (line(1), BTreeMap::new());
        for _ in 0..3 {
            names.insert(line.ask(&Claimant::new("bob", "loud")), "loud");
        }
        names.insert(line.ask(&Claimant::new("bob", "quiet")), "quiet");
        assert_eq!(served(&mut line, &names), ["loud", "quiet", "loud", "loud"]);
    }

    #[test]
    fn of_several_places_one_tenant_leaves_some_and_the_one_with_the_fewest_comes_first() {
        let mut line = line(4);
        let bobs: Vec<u64> = (0..8).map(|_| line.ask(&Claimant::new("bob", "a"))).collect();
        assert_eq!(
            [line.grant_next(), line.grant_next(), line.grant_next(), line.grant_next()].map(|ask| ask.is_some()),
            [true, true, true, false]
        );
        let acme = line.ask(&Claimant::new("acme", "a"));
        let more = line.ask(&Claimant::new("acme", "a"));
        assert_eq!((line.grant_next(), line.grant_next()), (Some(acme), None));
        line.release(bobs[0]);
        assert_eq!(line.grant_next(), None, "the last place is for whoever has none");
        line.release(bobs[1]);
        assert_eq!(
            (line.grant_next(), line.grant_next()),
            (Some(bobs[3]), None),
            "both hold one, and bob was served longer ago"
        );
        line.set_shared(false);
        assert_eq!((line.grant_next(), line.grant_next()), (Some(more), None), "acme has fewer");
    }

    #[test]
    fn whoever_stops_waiting_takes_nobodys_turn() {
        let mut line = line(1);
        let asks: Vec<u64> = (0..3).map(|_| line.ask(&Claimant::new("bob", "a"))).collect();
        assert_eq!(line.grant_next(), Some(asks[0]));
        line.release(asks[1]);
        line.release(asks[0]);
        line.release(asks[0]);
        assert_eq!((line.grant_next(), line.waiting()), (Some(asks[2]), 0));
    }

    #[test]
    fn so_many_wait_of_an_actor_of_a_tenant_and_of_all() {
        let mut line = line(1);
        let ask = |line: &mut FairQueue, tenant: &str, actor: &str| {
            let who = Claimant::new(tenant, actor);
            let full = line.reached_limit(&who);
            if full.is_none() {
                line.ask(&who);
            }
            full
        };
        for _ in 0..ACTOR_WORK_WAITING_MAX {
            assert_eq!(ask(&mut line, "bob", "0"), None);
        }
        assert_eq!(ask(&mut line, "bob", "0"), Some(QueueFull::Actor));
        for n in 0..TENANT_WORK_WAITING_MAX - ACTOR_WORK_WAITING_MAX {
            assert_eq!(ask(&mut line, "bob", &format!("{}", 1 + n / ACTOR_WORK_WAITING_MAX)), None);
        }
        assert_eq!(ask(&mut line, "bob", "other"), Some(QueueFull::Tenant));
        for tenant in 0..WORK_WAITING_MAX {
            while ask(&mut line, &format!("t{tenant}"), "a").is_none() {}
        }
        assert!(line.waiting() <= WORK_WAITING_MAX);
        assert_eq!(ask(&mut line, "late", "a"), Some(QueueFull::Process));
    }
}
