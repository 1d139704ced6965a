//! Limits open event streams: in total, per actor, and, with several tenants, per tenant, so that one tenant cannot use
//! up the slots of the others.

use chimera_core::access::Pool;
use chimera_core::limits::{EVENT_STREAMS_MAX, EVENT_STREAMS_PER_ACTOR_MAX};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The event streams of this process.
#[derive(Clone)]
pub(crate) struct StreamLimiter {
    open: Arc<Mutex<OpenStreams>>,
    total_max: usize,
    per_actor_max: usize,
}

#[derive(Default)]
struct OpenStreams {
    total: usize,
    by_actor: BTreeMap<String, usize>,
    by_tenant: BTreeMap<String, usize>,
}

/// The slot of one stream, released on drop.
pub(crate) struct StreamSlot {
    open: Arc<Mutex<OpenStreams>>,
    tenant: String,
    actor: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamLimitReached {
    /// The total limit is reached.
    All,
    /// The actor has reached its limit.
    Actor(usize),
    /// The tenant has reached its share.
    Tenant(usize),
}

impl Default for StreamLimiter {
    fn default() -> Self {
        Self::bounded(EVENT_STREAMS_MAX, EVENT_STREAMS_PER_ACTOR_MAX)
    }
}

impl StreamLimiter {
    pub(crate) fn bounded(total_max: usize, per_actor_max: usize) -> Self {
        Self { open: Arc::default(), total_max, per_actor_max }
    }

    /// Takes a slot; `shared` if there are several tenants.
    pub(crate) fn acquire(&self, tenant: &str, actor: &str, shared: bool) -> Result<StreamSlot, StreamLimitReached> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let held = open.by_actor.get(actor).copied().unwrap_or(0);
        if held >= self.per_actor_max {
            return Err(StreamLimitReached::Actor(held));
        }
        let of_tenant = open.by_tenant.get(tenant).copied().unwrap_or(0);
        let pool = Pool { total: self.total_max, taken: open.total, held: of_tenant };
        if !pool.has_free_slot() {
            return Err(StreamLimitReached::All);
        }
        if !pool.may_take_slot(shared) {
            return Err(StreamLimitReached::Tenant(of_tenant));
        }
        open.total += 1;
        open.by_actor.insert(actor.to_owned(), held + 1);
        open.by_tenant.insert(tenant.to_owned(), of_tenant + 1);
        Ok(StreamSlot { open: Arc::clone(&self.open), tenant: tenant.to_owned(), actor: actor.to_owned() })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total = open.total.saturating_sub(1);
        decrement(&mut open.by_actor, &self.actor);
        decrement(&mut open.by_tenant, &self.tenant);
    }
}

fn decrement(counts: &mut BTreeMap<String, usize>, name: &str) {
    let left = counts.get(name).copied().unwrap_or(0).saturating_sub(1);
    match left {
        0 => drop(counts.remove(name)),
        left => drop(counts.insert(name.to_owned(), left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(streams: &StreamLimiter, actor: &str) -> Result<StreamSlot, StreamLimitReached> {
        streams.acquire("acme", actor, false)
    }

    #[test]
    fn one_actor_takes_only_its_share_and_gives_back_what_it_had() {
        let streams = StreamLimiter::bounded(3, 2);
        let mut ann: Vec<StreamSlot> = (0..2).map(|_| open(&streams, "user_ann").ok().unwrap()).collect();
        assert_eq!(open(&streams, "user_ann").err(), Some(StreamLimitReached::Actor(2)));
        let bob = open(&streams, "user_bob").ok().unwrap();
        assert_eq!(open(&streams, "user_cat").err(), Some(StreamLimitReached::All));
        drop((ann.pop(), bob));
        assert!(open(&streams, "user_ann").is_ok() && open(&streams, "user_cat").is_ok());
        drop(ann);
        let held = streams.open.lock().unwrap();
        assert!(held.by_actor.is_empty() && held.by_tenant.is_empty());
    }

    /// Also when it uses many actors.
    #[test]
    fn one_tenant_takes_only_its_share() {
        let streams = StreamLimiter::bounded(256, 32);
        let taken: Vec<StreamSlot> =
            (0..192).map(|n| streams.acquire("loud", &format!("user_{}", n % 8), true).ok().unwrap()).collect();
        assert_eq!(streams.acquire("loud", "user_9", true).err(), Some(StreamLimitReached::Tenant(192)));
        assert!(streams.acquire("quiet", "user_ann", true).is_ok());
        drop(taken);
        assert!(streams.acquire("loud", "user_9", true).is_ok());
    }
}
