//! The queue for one tool of one tenant, by host, and counters.

use super::CallTarget;
use chimera_core::flow::run::RunPlace;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// A request for a slot; the smallest is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuedCall {
    pub(super) priority: i32,
    pub(super) turn: u64,
    pub(super) run: Uuid,
    pub(super) at: RunPlace,
}

/// The calls waiting for one tool of one tenant. Those to a host at its limit are set aside and block nobody.
#[derive(Debug, Default)]
pub(super) struct ToolQueue {
    queues: BTreeMap<Option<Arc<str>>, HostQueue>,
    /// The first request of each available host, by its number of calls in flight.
    heads: BTreeSet<(usize, QueuedCall)>,
}

#[derive(Debug, Default)]
struct HostQueue {
    calls: BTreeSet<QueuedCall>,
    /// Its element in `heads`.
    head: Option<(usize, QueuedCall)>,
}

impl ToolQueue {
    pub(super) fn insert(&mut self, host: Option<&Arc<str>>, call: QueuedCall, busy: usize, open: bool) {
        self.queues.entry(host.cloned()).or_default().calls.insert(call);
        self.update_head(host, busy, open);
    }

    pub(super) fn remove(&mut self, host: Option<&Arc<str>>, call: &QueuedCall, busy: usize, open: bool) {
        if let Some(queue) = self.queues.get_mut(&host.cloned()) {
            queue.calls.remove(call);
        }
        self.update_head(host, busy, open);
    }

    /// Updates the head of a host's queue.
    pub(super) fn update_head(&mut self, host: Option<&Arc<str>>, busy: usize, open: bool) {
        let host = host.cloned();
        let Some(queue) = self.queues.get_mut(&host) else { return };
        let head = queue.calls.first().filter(|_| open).map(|call| (busy, *call));
        if queue.head != head {
            if let Some(before) = queue.head.take() {
                self.heads.remove(&before);
            }
            self.heads.extend(head);
            queue.head = head;
        }
        if queue.calls.is_empty() {
            self.queues.remove(&host);
        }
    }

    /// The first request whose host may be called.
    pub(super) fn first(&self) -> Option<QueuedCall> {
        self.heads.first().map(|(_, call)| *call)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

/// Number of calls by tenant, tool and host, and per tenant by tool and host.
#[derive(Debug, Default)]
pub(super) struct CallCounts {
    tenants: BTreeMap<Arc<str>, usize>,
    tools: BTreeMap<Arc<str>, TenantCounts>,
    hosts: BTreeMap<Arc<str>, TenantCounts>,
}

/// A count in total and by tenant.
#[derive(Debug, Default)]
struct TenantCounts {
    all: usize,
    tenants: BTreeMap<Arc<str>, usize>,
}

impl CallCounts {
    pub(super) fn add(&mut self, kind: &CallTarget) {
        count_up(&mut self.tenants, &kind.tenant);
        self.tools.entry(Arc::clone(&kind.tool)).or_default().add(&kind.tenant);
        if let Some(host) = &kind.host {
            self.hosts.entry(Arc::clone(host)).or_default().add(&kind.tenant);
        }
    }

    pub(super) fn remove(&mut self, kind: &CallTarget) {
        count_down(&mut self.tenants, &kind.tenant);
        remove(&mut self.tools, &kind.tool, &kind.tenant);
        kind.host.iter().for_each(|host| remove(&mut self.hosts, host, &kind.tenant));
    }

    pub(super) fn tenant(&self, name: &str) -> usize {
        self.tenants.get(name).copied().unwrap_or(0)
    }

    /// The calls of a tool, in total and by a tenant.
    pub(super) fn tool(&self, name: &str, tenant: &str) -> (usize, usize) {
        self.tools.get(name).map_or((0, 0), |shares| shares.of(tenant))
    }

    /// The calls to a host, in total and by a tenant. Calls without a host are not counted.
    pub(super) fn host(&self, name: Option<&str>, tenant: &str) -> (usize, usize) {
        name.and_then(|name| self.hosts.get(name)).map_or((0, 0), |shares| shares.of(tenant))
    }
}

impl TenantCounts {
    fn add(&mut self, tenant: &Arc<str>) {
        self.all += 1;
        count_up(&mut self.tenants, tenant);
    }

    fn of(&self, tenant: &str) -> (usize, usize) {
        (self.all, self.tenants.get(tenant).copied().unwrap_or(0))
    }
}

fn remove(all: &mut BTreeMap<Arc<str>, TenantCounts>, name: &Arc<str>, tenant: &Arc<str>) {
    let Some(shares) = all.get_mut(name) else { return };
    shares.all -= 1;
    count_down(&mut shares.tenants, tenant);
    if shares.all == 0 {
        all.remove(name);
    }
}

fn count_up(counts: &mut BTreeMap<Arc<str>, usize>, name: &Arc<str>) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(counts.insert(Arc::clone(name), 1)),
    }
}

fn count_down(counts: &mut BTreeMap<Arc<str>, usize>, name: &Arc<str>) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}
