//! Call slots: limit the tool calls in flight.
//!
//! Calls are limited per process, tenant, tool and host. With several tenants, each takes only its share of the common
//! limits ([`Pool`]), so that calls that hang don't take slots from other tenants. A call without a slot is queued. A
//! freed slot goes to the tenant with the fewest calls in flight, then to the host with the fewest, then by priority,
//! then by age, and is reserved until the run picks it up. A run that only waits may be parked: it is unloaded and its
//! requests stay here. Synchronous and without a clock, so that the simulator can drive it.

mod queue;
#[cfg(test)]
mod tests;

use chimera_core::access::Pool;
use chimera_core::flow::run::{RunPlace, SlotRequest};
use chimera_core::limits;
use queue::{CallCounts, QueuedCall, ToolQueue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// How many calls may be in flight, and how many may wait.
#[derive(Clone, Debug)]
pub struct CallLimits {
    pub total: usize,
    pub per_tenant: usize,
    pub per_tool: usize,
    /// Across tools and tenants.
    pub per_host: usize,
    /// Overrides per tool.
    pub tools: BTreeMap<String, usize>,
    /// Overrides per host.
    pub hosts: BTreeMap<String, usize>,
    /// Calls of one tool in flight or requested by runs in memory; beyond it, waiting runs are parked at once.
    pub in_memory_per_tool: usize,
    /// Calls that may wait for one host, or for one tool without a host, before new runs are refused.
    pub waiting: usize,
    /// Waiting calls that are tracked while their runs are parked.
    pub remembered: usize,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            total: limits::CALLS_MAX,
            per_tenant: limits::TENANT_CALLS_MAX,
            per_tool: limits::TOOL_CALLS_MAX,
            per_host: limits::HOST_CALLS_MAX,
            tools: BTreeMap::new(),
            hosts: BTreeMap::new(),
            in_memory_per_tool: limits::TOOL_RUNS_MAX,
            waiting: limits::CALLS_WAITING_MAX,
            remembered: limits::CALLS_REMEMBERED_MAX,
        }
    }
}

/// The tenant, tool and host of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallTarget {
    tenant: Arc<str>,
    tool: Arc<str>,
    host: Option<Arc<str>>,
}

type CallKey = (Uuid, RunPlace);

/// The slots in use and the queues for them.
#[derive(Debug, Default)]
pub struct CallSlots {
    slots: CallLimits,
    in_flight: BTreeMap<CallKey, CallTarget>,
    /// Slots that are reserved for a waiting run that has not picked them up yet.
    granted: BTreeSet<CallKey>,
    taken: CallCounts,
    /// By tenant and tool.
    lines: BTreeMap<(Arc<str>, Arc<str>), ToolQueue>,
    requests: BTreeMap<CallKey, (CallTarget, QueuedCall)>,
    /// All waiting requests; below, those of runs in memory.
    waiting: CallCounts,
    waiting_in_memory: CallCounts,
    /// Parked runs whose requests are kept.
    parked: BTreeSet<Uuid>,
    turn: u64,
    /// Whether there are several tenants.
    shared: bool,
}

impl CallSlots {
    #[must_use]
    pub fn new(slots: CallLimits) -> Self {
        Self { slots, ..Self::default() }
    }

    /// Sets whether there are several tenants, each with its share.
    pub fn set_shared(&mut self, shared: bool) {
        if self.shared == shared {
            return;
        }
        self.shared = shared;
        let hosts: BTreeSet<Arc<str>> = self.requests.values().filter_map(|(kind, _)| kind.host.clone()).collect();
        hosts.iter().for_each(|host| self.requeue_host(Some(host)));
    }

    /// Takes a slot, or queues a request; `host` is where the call goes.
    pub fn acquire(&mut self, slot: SlotRequest<'_>, host: Option<&str>) -> bool {
        let key = (slot.run, slot.at);
        if self.in_flight.contains_key(&key) {
            self.granted.remove(&key);
            return true;
        }
        let kind = CallTarget { tenant: slot.tenant.into(), tool: slot.tool.into(), host: host.map(Into::into) };
        if self.has_capacity(&kind.tenant, &kind.tool) && self.host_state(kind.host.as_deref(), &kind.tenant).1 {
            self.cancel_request(&key);
            self.take(key, kind);
            return true;
        }
        if self.requests.get(&key).is_none_or(|(before, _)| *before != kind) {
            self.cancel_request(&key);
            self.turn += 1;
            let call = QueuedCall { priority: slot.priority, turn: self.turn, run: slot.run, at: slot.at };
            self.enqueue(key, kind, call);
        }
        false
    }

    fn enqueue(&mut self, key: CallKey, kind: CallTarget, call: QueuedCall) {
        self.waiting.add(&kind);
        if !self.parked.contains(&key.0) {
            self.waiting_in_memory.add(&kind);
        }
        let (busy, open) = self.host_state(kind.host.as_deref(), &kind.tenant);
        let line = self.lines.entry((Arc::clone(&kind.tenant), Arc::clone(&kind.tool))).or_default();
        line.insert(kind.host.as_ref(), call, busy, open);
        self.requests.insert(key, (kind, call));
    }

    fn cancel_request(&mut self, key: &CallKey) {
        let Some((kind, call)) = self.requests.remove(key) else { return };
        self.waiting.remove(&kind);
        if !self.parked.contains(&key.0) {
            self.waiting_in_memory.remove(&kind);
        }
        let (busy, open) = self.host_state(kind.host.as_deref(), &kind.tenant);
        let name = (kind.tenant, kind.tool);
        if let Some(line) = self.lines.get_mut(&name) {
            line.remove(kind.host.as_ref(), &call, busy, open);
            if line.is_empty() {
                self.lines.remove(&name);
            }
        }
    }

    fn take(&mut self, key: CallKey, kind: CallTarget) {
        self.taken.add(&kind);
        self.requeue_host(kind.host.as_ref());
        self.in_flight.insert(key, kind);
    }

    /// The number of calls to a host changed: reorders the queues that wait for it.
    fn requeue_host(&mut self, host: Option<&Arc<str>>) {
        if host.is_none() || self.lines.is_empty() {
            return;
        }
        let mut lines = std::mem::take(&mut self.lines);
        for ((tenant, _), line) in &mut lines {
            let (busy, open) = self.host_state(host.map(AsRef::as_ref), tenant);
            line.update_head(host, busy, open);
        }
        self.lines = lines;
    }

    fn has_capacity(&self, tenant: &str, tool: &str) -> bool {
        let held = self.taken.tenant(tenant);
        let tool_max = self.slots.tools.get(tool).copied().unwrap_or(self.slots.per_tool);
        held < self.slots.per_tenant
            && self.has_share(self.slots.total, (self.in_flight.len(), held))
            && self.has_share(tool_max, self.taken.tool(tool, tenant))
    }

    /// Whether a tenant may take one more, with so many taken in total and by the tenant.
    const fn has_share(&self, total: usize, (taken, held): (usize, usize)) -> bool {
        Pool { total, taken, held }.may_take_slot(self.shared)
    }

    /// The same for a request that is already counted.
    const fn has_share_counted(&self, total: usize, (taken, held): (usize, usize)) -> bool {
        self.has_share(total, (taken.saturating_sub(1), held.saturating_sub(1)))
    }

    /// The number of calls to a host in flight, and whether a tenant may call it now.
    fn host_state(&self, host: Option<&str>, tenant: &str) -> (usize, bool) {
        let Some(host) = host else { return (0, true) };
        let most = self.slots.hosts.get(host).copied().unwrap_or(self.slots.per_host);
        let (busy, held) = self.taken.host(Some(host), tenant);
        (busy, self.has_share(most, (busy, held)))
    }

    /// Releases a slot and reserves it for the next in line, so that later requests can't overtake. Returns the runs
    /// that may continue.
    pub fn release(&mut self, run: Uuid, at: RunPlace) -> Vec<Uuid> {
        let Some(kind) = self.in_flight.remove(&(run, at)) else { return Vec::new() };
        self.granted.remove(&(run, at));
        self.taken.remove(&kind);
        self.requeue_host(kind.host.as_ref());
        let mut runs = Vec::new();
        while let Some(key) = self.next() {
            let Some((kind, _)) = self.requests.get(&key).cloned() else { break };
            self.cancel_request(&key);
            self.take(key, kind);
            self.granted.insert(key);
            runs.push(key.0);
        }
        runs
    }

    /// The next request that fits. Only the first of each queue is considered.
    fn next(&self) -> Option<CallKey> {
        let fitting = self.lines.iter().filter(|((tenant, tool), _)| self.has_capacity(tenant, tool));
        let first = fitting.filter_map(|((tenant, _), line)| Some((tenant, line.first()?)));
        let best = first.min_by_key(|(tenant, call)| (self.taken.tenant(tenant), call.priority, call.turn));
        best.map(|(_, call)| (call.run, call.at))
    }

    /// The slots that are reserved for a run.
    #[must_use]
    pub fn granted(&self, run: Uuid) -> Vec<RunPlace> {
        self.granted.range(all_of(run)).map(|(_, at)| *at).collect()
    }

    /// Releases the reserved slots that a run did not use. Returns the runs that may continue.
    pub fn release_unused(&mut self, run: Uuid, granted: &[RunPlace]) -> Vec<Uuid> {
        let unused: Vec<RunPlace> = granted.iter().copied().filter(|at| self.granted.contains(&(run, *at))).collect();
        unused.into_iter().flat_map(|at| self.release(run, at)).collect()
    }

    /// Parks a run that can only wait for slots. Returns in how many seconds to check it again, or `None` if it should
    /// stay in memory: it may be unloaded when `at_once` is set, or when too many runs in memory wait for its tool. Its
    /// requests are kept up to a limit.
    pub fn park(&mut self, run: Uuid, at_once: bool) -> Option<i64> {
        let wishes: Vec<CallKey> = self.requests.range(all_of(run)).map(|(key, _)| *key).collect();
        if wishes.is_empty() || self.granted.range(all_of(run)).next().is_some() {
            return None;
        }
        let kinds: Vec<CallTarget> = wishes.iter().filter_map(|key| Some(self.requests.get(key)?.0.clone())).collect();
        if !at_once && !kinds.iter().any(|kind| self.exceeds_memory_share(kind) || self.is_queue_full(kind)) {
            return None;
        }
        if !self.may_remember(&kinds) {
            wishes.iter().for_each(|key| self.cancel_request(key));
        } else if self.parked.insert(run) {
            kinds.iter().for_each(|kind| self.waiting_in_memory.remove(kind));
        }
        Some(recheck_delay(self.requests.len(), run))
    }

    /// Whether so many runs in memory call or wait for a tool that a waiting one should be unloaded.
    fn exceeds_memory_share(&self, kind: &CallTarget) -> bool {
        let (taken, waiting) = (&self.taken, &self.waiting_in_memory);
        let (inside, held) = taken.tool(&kind.tool, &kind.tenant);
        let (outside, wished) = waiting.tool(&kind.tool, &kind.tenant);
        !self.has_share_counted(self.slots.in_memory_per_tool, (inside + outside, held + wished))
    }

    /// Whether the requests of a parked run are kept.
    fn may_remember(&self, kinds: &[CallTarget]) -> bool {
        let counts = |kind: &CallTarget| (self.requests.len(), self.waiting.tenant(&kind.tenant));
        kinds.iter().all(|kind| self.has_share_counted(self.slots.remembered, counts(kind)))
    }

    /// Records that a run is in memory again. Returns whether it was parked.
    pub fn resume(&mut self, run: Uuid) -> bool {
        if !self.parked.remove(&run) {
            return false;
        }
        for (_, (kind, _)) in self.requests.range(all_of(run)) {
            self.waiting_in_memory.add(kind);
        }
        true
    }

    /// What a run waits for, if its queue is over the limit.
    #[must_use]
    pub fn full_queue(&self, run: Uuid) -> Option<SlotQueueFull> {
        let mut wishes = self.requests.range(all_of(run)).map(|(_, (kind, _))| kind);
        let kind = wishes.find(|kind| self.is_queue_full(kind))?;
        let (waiting, held) = self.queue_length(kind);
        let is_full = waiting > self.slots.waiting;
        Some(SlotQueueFull {
            tool: kind.tool.to_string(),
            host: kind.host.as_deref().map(str::to_owned),
            waiting: if is_full { self.slots.waiting } else { held.saturating_sub(1) },
            tenant: (!is_full).then(|| kind.tenant.to_string()),
        })
    }

    fn is_queue_full(&self, kind: &CallTarget) -> bool {
        !self.has_share_counted(self.slots.waiting, self.queue_length(kind))
    }

    /// The number of requests for the same host or tool, including this one, and how many are the tenant's.
    fn queue_length(&self, kind: &CallTarget) -> (usize, usize) {
        match kind.host.as_deref() {
            None => self.waiting.tool(&kind.tool, &kind.tenant),
            host => self.waiting.host(host, &kind.tenant),
        }
    }

    /// Drops all slots and requests of a run. Returns the runs that may continue.
    pub fn drop_run(&mut self, run: Uuid) -> Vec<Uuid> {
        let wishes: Vec<CallKey> = self.requests.range(all_of(run)).map(|(key, _)| *key).collect();
        wishes.iter().for_each(|key| self.cancel_request(key));
        self.parked.remove(&run);
        let inside: Vec<CallKey> = self.in_flight.range(all_of(run)).map(|(key, _)| *key).collect();
        inside.into_iter().flat_map(|(run, at)| self.release(run, at)).collect()
    }

    /// The number of calls in flight.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.in_flight.len()
    }

    /// The number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.requests.len()
    }
}

/// A queue that is over its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotQueueFull {
    pub tool: String,
    /// `None` if the tool has no particular host.
    pub host: Option<String>,
    /// How many calls may wait there: in all, or of the tenant.
    pub waiting: usize,
    /// The tenant, if only its share is exhausted.
    pub tenant: Option<String>,
}

/// When to check a parked run again unless something wakes it. The more runs wait, the later, so that polling costs the
/// same however many there are. The times are spread, so that the checks don't coincide.
pub(super) fn recheck_delay(waiting: usize, run: Uuid) -> i64 {
    let spread = u64::try_from(waiting / limits::SLOT_POLLS_PER_SECOND).unwrap_or(u64::MAX);
    let seconds = limits::SLOT_POLL_SECONDS_MIN.saturating_add(spread);
    let (_, dice) = run.as_u64_pair();
    i64::try_from(seconds + dice % seconds).unwrap_or(i64::MAX)
}

fn all_of(run: Uuid) -> std::ops::RangeInclusive<CallKey> {
    (run, RunPlace { node: 0, item: None })..=(run, RunPlace { node: usize::MAX, item: Some(u32::MAX) })
}
