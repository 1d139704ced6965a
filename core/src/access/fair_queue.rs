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
    asked: BTreeMap<u64, Ask>,
    /// Requests that have what they asked for.
    served: usize,
    taken: usize,
    tenants: BTreeMap<Arc<str>, TenantQueue>,
}

/// A request.
#[derive(Debug)]
struct Ask {
    who: Claimant,
    /// How many slots it needs.
    slots: usize,
    is_served: bool,
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

    /// Enqueues a request for so many slots; [`FairQueue::grant_next`] grants it. A request for more than there are gets
    /// all of them.
    pub fn ask(&mut self, who: &Claimant, slots: usize) -> u64 {
        self.turn += 1;
        let turn = self.turn;
        self.enqueue(turn, who, slots);
        turn
    }

    fn enqueue(&mut self, ask: u64, who: &Claimant, slots: usize) {
        let stand = || QueueShare { since: self.turn, ..QueueShare::default() };
        let tenant = self
            .tenants
            .entry(Arc::clone(&who.tenant))
            .or_insert_with(|| TenantQueue { stand: stand(), actors: BTreeMap::new() });
        tenant.stand.waiting += 1;
        let actor = tenant
            .actors
            .entry(Arc::clone(&who.actor))
            .or_insert_with(|| ActorQueue { stand: stand(), waiting: BTreeSet::new() });
        actor.waiting.insert(ask);
        let slots = slots.min(self.total);
        self.asked.insert(ask, Ask { who: who.clone(), slots, is_served: false });
    }

    /// Releases what a granted request holds, and enqueues it again for so many slots: before everything that its actor
    /// asked for later.
    pub fn ask_again(&mut self, ask: u64, slots: usize) {
        let Some(who) = self.asked.get(&ask).map(|asked| asked.who.clone()) else { return };
        self.release(ask);
        self.enqueue(ask, &who, slots);
    }

    /// Grants the next request, if what it needs is free. One that needs much is not passed by others meanwhile, but
    /// for those whose tenant has its share.
    #[must_use]
    pub fn grant_next(&mut self) -> Option<u64> {
        let may = |ask: u64, tenant: &TenantQueue| {
            let slots = self.asked.get(&ask).map_or(0, |ask| ask.slots);
            let pool = Pool { total: self.total, taken: self.taken, held: tenant.stand.held };
            pool.has_share(slots, self.shared).then_some((ask, slots))
        };
        let waiting =
            self.tenants.iter().filter_map(|(name, tenant)| Some((name, tenant, may(tenant.next()?, tenant)?)));
        let (name, _, (ask, slots)) = waiting.min_by_key(|(_, tenant, _)| (tenant.stand.held, tenant.stand.since))?;
        if self.taken.saturating_add(slots) > self.total {
            return None;
        }
        let name = Arc::clone(name);
        let served = self.asked.get_mut(&ask)?;
        let tenant = self.tenants.get_mut(&name)?;
        let actor = tenant.actors.get_mut(&served.who.actor)?;
        served.is_served = true;
        actor.waiting.remove(&ask);
        self.turn += 1;
        tenant.stand.waiting -= 1;
        for stand in [&mut tenant.stand, &mut actor.stand] {
            stand.held += slots;
            stand.since = self.turn;
        }
        self.served += 1;
        self.taken += slots;
        Some(ask)
    }

    /// Releases the slots of a request, or withdraws a waiting one.
    pub fn release(&mut self, ask: u64) {
        let Some(Ask { who, slots, is_served }) = self.asked.remove(&ask) else { return };
        if is_served {
            self.served -= 1;
            self.taken -= slots;
        }
        let Some(tenant) = self.tenants.get_mut(&who.tenant) else { return };
        let Some(actor) = tenant.actors.get_mut(&who.actor) else { return };
        if is_served {
            tenant.stand.held -= slots;
            actor.stand.held -= slots;
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

    /// Releases what a granted request holds beyond so many slots.
    pub fn shrink(&mut self, ask: u64, slots: usize) {
        let Some(asked) = self.asked.get_mut(&ask).filter(|asked| asked.is_served) else { return };
        let Some(rest) = asked.slots.checked_sub(slots) else { return };
        asked.slots = slots;
        self.taken -= rest;
        let Some(tenant) = self.tenants.get_mut(&asked.who.tenant) else { return };
        tenant.stand.held -= rest;
        if let Some(actor) = tenant.actors.get_mut(&asked.who.actor) {
            actor.stand.held -= rest;
        }
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.asked.len() - self.served
    }
}

impl TenantQueue {
    /// The request whose turn it is.
    fn next(&self) -> Option<u64> {
        let waiting = self.actors.values().filter(|actor| !actor.waiting.is_empty());
        waiting.min_by_key(|actor| (actor.stand.held, actor.stand.since))?.waiting.first().copied()
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
            names.insert(line.ask(&Claimant::new("bob", "a"), 1), "bob");
        }
        let first = line.grant_next().unwrap();
        assert_eq!(line.grant_next(), None, "there is one place");
        for _ in 0..2 {
            names.insert(line.ask(&Claimant::new("acme", "a"), 1), "acme");
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
            names.insert(line.ask(&Claimant::new("bob", "loud"), 1), "loud");
        }
        names.insert(line.ask(&Claimant::new("bob", "quiet"), 1), "quiet");
        assert_eq!(served(&mut line, &names), ["loud", "quiet", "loud", "loud"]);
    }

    #[test]
    fn of_several_places_one_tenant_leaves_some_and_the_one_with_the_fewest_comes_first() {
        let mut line = line(4);
        let bobs: Vec<u64> = (0..8).map(|_| line.ask(&Claimant::new("bob", "a"), 1)).collect();
        assert_eq!(
            [line.grant_next(), line.grant_next(), line.grant_next(), line.grant_next()].map(|ask| ask.is_some()),
            [true, true, true, false]
        );
        let acme = line.ask(&Claimant::new("acme", "a"), 1);
        let more = line.ask(&Claimant::new("acme", "a"), 1);
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

    /// What needs everything waits until it is alone, and nobody passes it more than once.
    #[test]
    fn requests_for_several_slots_never_hold_more_than_there_are() {
        let mut line = line(100);
        let small: Vec<u64> = (0..3).map(|_| line.ask(&Claimant::new("bob", "a"), 20)).collect();
        assert_eq!([line.grant_next(), line.grant_next(), line.grant_next()], [0, 1, 2].map(|n| Some(small[n])));
        let all = line.ask(&Claimant::new("acme", "a"), 1_000);
        let more = line.ask(&Claimant::new("bob", "a"), 10);
        assert_eq!((line.grant_next(), line.taken), (None, 60));
        line.release(small[0]);
        line.release(small[1]);
        assert_eq!(line.grant_next(), None);
        line.release(small[2]);
        assert_eq!((line.grant_next(), line.grant_next()), (Some(more), None), "bob was served before acme asked");
        let last = line.ask(&Claimant::new("bob", "a"), 10);
        line.release(more);
        assert_eq!((line.grant_next(), line.grant_next(), line.taken), (Some(all), None, 100));
        line.release(all);
        assert_eq!((line.grant_next(), line.taken, line.waiting()), (Some(last), 10, 0));
    }

    #[test]
    fn a_tenant_leaves_a_quarter_of_the_slots_whatever_its_requests_need() {
        let mut line = line(100);
        let bobs: Vec<u64> = (0..10).map(|_| line.ask(&Claimant::new("bob", "a"), 25)).collect();
        assert_eq!([line.grant_next(), line.grant_next(), line.grant_next()], [0, 1, 2].map(|n| Some(bobs[n])));
        assert_eq!(line.grant_next(), None);
        let acme = line.ask(&Claimant::new("acme", "a"), 25);
        assert_eq!((line.grant_next(), line.taken), (Some(acme), 100));
    }

    #[test]
    fn what_a_request_gives_back_is_granted_to_the_next() {
        let mut line = line(100);
        let (bob, acme) = (line.ask(&Claimant::new("bob", "a"), 80), line.ask(&Claimant::new("acme", "a"), 60));
        line.shrink(acme, 1);
        assert_eq!((line.grant_next(), line.grant_next()), (Some(bob), None));
        line.shrink(bob, 90);
        assert_eq!((line.grant_next(), line.taken), (None, 80), "nobody gets more than was granted");
        line.shrink(bob, 30);
        assert_eq!((line.grant_next(), line.taken), (Some(acme), 90));
        line.release(bob);
        line.release(acme);
        assert!(line.tenants.is_empty() && line.asked.is_empty() && line.taken == 0);
    }

    #[test]
    fn whoever_asks_again_comes_before_what_was_asked_for_later() {
        let mut line = line(100);
        let bob = Claimant::new("bob", "a");
        let asks: Vec<u64> = (0..3).map(|_| line.ask(&bob, 60)).collect();
        assert_eq!((line.grant_next(), line.grant_next()), (Some(asks[0]), None));
        line.shrink(asks[0], 0);
        assert_eq!((line.grant_next(), line.grant_next()), (Some(asks[1]), None));
        line.ask_again(asks[0], 80);
        assert_eq!((line.grant_next(), line.waiting()), (None, 2));
        line.release(asks[1]);
        assert_eq!((line.grant_next(), line.taken), (Some(asks[0]), 80));
        line.release(asks[0]);
        assert_eq!((line.grant_next(), line.taken), (Some(asks[2]), 60));
    }

    #[test]
    fn whoever_stops_waiting_takes_nobodys_turn() {
        let mut line = line(1);
        let asks: Vec<u64> = (0..3).map(|_| line.ask(&Claimant::new("bob", "a"), 1)).collect();
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
                line.ask(&who, 1);
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
