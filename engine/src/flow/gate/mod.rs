//! Who may call a tool now.
//!
//! Calls are bounded for the process, for each tenant, for each tool and for each host. Of several tenants
//! each takes only its share of what is bounded for all ([`Pool`]), so that calls that never end take no
//! slot from the others. Whoever finds no slot is remembered; a freed slot goes to the tenant that has the fewest calls under way, so that
//! none starves another, there to the host with the fewest, then to the more urgent run, then to
//! whoever asked first, and is kept until they come for it. A run that only waits may be parked: it
//! leaves the memory of the process and its wishes stay here. A synchronous structure without a clock:
//! the simulator drives it as it is.

mod line;
#[cfg(test)]
mod tests;

use chimera_core::access::Pool;
use chimera_core::flow::run::{At, Slot};
use chimera_core::limits;
use line::{Line, Tally, Wish};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// How many calls may be under way, and how many may wait.
#[derive(Clone, Debug)]
pub struct Slots {
    /// In this process.
    pub total: usize,
    /// For one tenant.
    pub per_tenant: usize,
    /// For one tool.
    pub per_tool: usize,
    /// To one host, whichever tools and tenants call it.
    pub per_host: usize,
    /// For tools with a limit of their own.
    pub tools: BTreeMap<String, usize>,
    /// For hosts with a limit of their own.
    pub hosts: BTreeMap<String, usize>,
    /// Calls of one tool that are under way or waited for by runs in memory; the runs of more are
    /// parked at once.
    pub in_memory_per_tool: usize,
    /// Calls that may wait for one host, or for one tool without a host, before new runs are refused.
    pub waiting: usize,
    /// Waiting calls that are remembered while their runs are parked.
    pub remembered: usize,
}

impl Default for Slots {
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

/// Whose call of which tool, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    tenant: Arc<str>,
    tool: Arc<str>,
    host: Option<Arc<str>>,
}

type Key = (Uuid, At);

/// The slots that are taken and those who wait for one.
#[derive(Debug, Default)]
pub struct Turnstile {
    slots: Slots,
    inside: BTreeMap<Key, Kind>,
    /// Slots that were given to somebody who waited and has not come yet.
    granted: BTreeSet<Key>,
    taken: Tally,
    /// By tenant and tool.
    lines: BTreeMap<(Arc<str>, Arc<str>), Line>,
    wishes: BTreeMap<Key, (Kind, Wish)>,
    /// All wishes, and those of runs that are in memory.
    waiting: Tally,
    waiting_in_memory: Tally,
    /// Runs that were parked and whose wishes are kept.
    parked: BTreeSet<Uuid>,
    turn: u64,
    /// There are several tenants.
    shared: bool,
}

impl Turnstile {
    /// A turnstile with these bounds.
    #[must_use]
    pub fn new(slots: Slots) -> Self {
        Self { slots, ..Self::default() }
    }

    /// Says whether there are several tenants, each of which has its share.
    pub fn share(&mut self, shared: bool) {
        if self.shared == shared {
            return;
        }
        self.shared = shared;
        let hosts: BTreeSet<Arc<str>> = self.wishes.values().filter_map(|(kind, _)| kind.host.clone()).collect();
        hosts.iter().for_each(|host| self.host_changed(Some(host)));
    }

    /// Takes a slot, or remembers the wish; `host` is where the call goes.
    pub fn enter(&mut self, slot: Slot<'_>, host: Option<&str>) -> bool {
        let key = (slot.run, slot.at);
        if self.inside.contains_key(&key) {
            self.granted.remove(&key);
            return true;
        }
        let kind = Kind { tenant: slot.tenant.into(), tool: slot.tool.into(), host: host.map(Into::into) };
        if self.has_room(&kind.tenant, &kind.tool) && self.host_state(kind.host.as_deref(), &kind.tenant).1 {
            self.forget(&key);
            self.take(key, kind);
            return true;
        }
        if self.wishes.get(&key).is_none_or(|(before, _)| *before != kind) {
            self.forget(&key);
            self.turn += 1;
            let wish = Wish { priority: slot.priority, turn: self.turn, run: slot.run, at: slot.at };
            self.wish(key, kind, wish);
        }
        false
    }

    fn wish(&mut self, key: Key, kind: Kind, wish: Wish) {
        self.waiting.add(&kind);
        if !self.parked.contains(&key.0) {
            self.waiting_in_memory.add(&kind);
        }
        let (busy, open) = self.host_state(kind.host.as_deref(), &kind.tenant);
        let line = self.lines.entry((Arc::clone(&kind.tenant), Arc::clone(&kind.tool))).or_default();
        line.insert(kind.host.as_ref(), wish, busy, open);
        self.wishes.insert(key, (kind, wish));
    }

    fn forget(&mut self, key: &Key) {
        let Some((kind, wish)) = self.wishes.remove(key) else { return };
        self.waiting.remove(&kind);
        if !self.parked.contains(&key.0) {
            self.waiting_in_memory.remove(&kind);
        }
        let (busy, open) = self.host_state(kind.host.as_deref(), &kind.tenant);
        let name = (kind.tenant, kind.tool);
        if let Some(line) = self.lines.get_mut(&name) {
            line.remove(kind.host.as_ref(), &wish, busy, open);
            if line.is_empty() {
                self.lines.remove(&name);
            }
        }
    }

    fn take(&mut self, key: Key, kind: Kind) {
        self.taken.add(&kind);
        self.host_changed(kind.host.as_ref());
        self.inside.insert(key, kind);
    }

    /// The number of calls to a host is another: those who wait for it stand elsewhere in their lines.
    fn host_changed(&mut self, host: Option<&Arc<str>>) {
        if host.is_none() || self.lines.is_empty() {
            return;
        }
        let mut lines = std::mem::take(&mut self.lines);
        for ((tenant, _), line) in &mut lines {
            let (busy, open) = self.host_state(host.map(AsRef::as_ref), tenant);
            line.settle(host, busy, open);
        }
        self.lines = lines;
    }

    fn has_room(&self, tenant: &str, tool: &str) -> bool {
        let held = self.taken.tenant(tenant);
        let tool_max = self.slots.tools.get(tool).copied().unwrap_or(self.slots.per_tool);
        held < self.slots.per_tenant
            && self.has_share(self.slots.total, (self.inside.len(), held))
            && self.has_share(tool_max, self.taken.tool(tool, tenant))
    }

    /// Whether a tenant finds room where so many are taken, and so many of these its own.
    const fn has_share(&self, total: usize, (taken, held): (usize, usize)) -> bool {
        Pool { total, taken, held }.has_room(self.shared)
    }

    /// The same for one that is counted already.
    const fn had_share(&self, total: usize, (taken, held): (usize, usize)) -> bool {
        self.has_share(total, (taken.saturating_sub(1), held.saturating_sub(1)))
    }

    /// How many calls to a host are under way, and whether a tenant may call it now.
    fn host_state(&self, host: Option<&str>, tenant: &str) -> (usize, bool) {
        let Some(host) = host else { return (0, true) };
        let most = self.slots.hosts.get(host).copied().unwrap_or(self.slots.per_host);
        let (busy, held) = self.taken.host(Some(host), tenant);
        (busy, self.has_share(most, (busy, held)))
    }

    /// Gives a slot back. It is kept for whoever comes next, so that nobody who asks later gets it
    /// first; gives the runs that may go on.
    pub fn leave(&mut self, run: Uuid, at: At) -> Vec<Uuid> {
        let Some(kind) = self.inside.remove(&(run, at)) else { return Vec::new() };
        self.granted.remove(&(run, at));
        self.taken.remove(&kind);
        self.host_changed(kind.host.as_ref());
        let mut runs = Vec::new();
        while let Some(key) = self.next() {
            let Some((kind, _)) = self.wishes.get(&key).cloned() else { break };
            self.forget(&key);
            self.take(key, kind);
            self.granted.insert(key);
            runs.push(key.0);
        }
        runs
    }

    /// The wish that comes next, if there is room for one. Only the first of each line is looked at.
    fn next(&self) -> Option<Key> {
        let fitting = self.lines.iter().filter(|((tenant, tool), _)| self.has_room(tenant, tool));
        let first = fitting.filter_map(|((tenant, _), line)| Some((tenant, line.first()?)));
        let best = first.min_by_key(|(tenant, wish)| (self.taken.tenant(tenant), wish.priority, wish.turn));
        best.map(|(_, wish)| (wish.run, wish.at))
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

    /// All that a run can do is wait for its wishes. Gives in how many seconds it is looked at again if
    /// it may leave the memory until then: when somebody says `at_once`, or when too many runs in memory
    /// wait for its tool already. Its wishes are kept, unless more are kept than may be.
    pub fn park(&mut self, run: Uuid, at_once: bool) -> Option<i64> {
        let wishes: Vec<Key> = self.wishes.range(all_of(run)).map(|(key, _)| *key).collect();
        if wishes.is_empty() || self.granted.range(all_of(run)).next().is_some() {
            return None;
        }
        let kinds: Vec<Kind> = wishes.iter().filter_map(|key| Some(self.wishes.get(key)?.0.clone())).collect();
        if !at_once && !kinds.iter().any(|kind| self.crowds_memory(kind) || self.is_crowded(kind)) {
            return None;
        }
        if !self.may_remember(&kinds) {
            wishes.iter().for_each(|key| self.forget(key));
        } else if self.parked.insert(run) {
            kinds.iter().for_each(|kind| self.waiting_in_memory.remove(kind));
        }
        Some(look_again_in(self.wishes.len(), run))
    }

    /// Whether so many runs in memory call or wait for a tool that one which waits for it should leave.
    fn crowds_memory(&self, kind: &Kind) -> bool {
        let (taken, waiting) = (&self.taken, &self.waiting_in_memory);
        let (inside, held) = taken.tool(&kind.tool, &kind.tenant);
        let (outside, wished) = waiting.tool(&kind.tool, &kind.tenant);
        !self.had_share(self.slots.in_memory_per_tool, (inside + outside, held + wished))
    }

    /// Whether wishes of a parked run are kept.
    fn may_remember(&self, kinds: &[Kind]) -> bool {
        let counts = |kind: &Kind| (self.wishes.len(), self.waiting.tenant(&kind.tenant));
        kinds.iter().all(|kind| self.had_share(self.slots.remembered, counts(kind)))
    }

    /// A run is in memory again; gives whether it was parked.
    pub fn resume(&mut self, run: Uuid) -> bool {
        if !self.parked.remove(&run) {
            return false;
        }
        for (_, (kind, _)) in self.wishes.range(all_of(run)) {
            self.waiting_in_memory.add(kind);
        }
        true
    }

    /// What a run waits for if more wait for that already than may.
    #[must_use]
    pub fn crowded(&self, run: Uuid) -> Option<Crowded> {
        let mut wishes = self.wishes.range(all_of(run)).map(|(_, (kind, _))| kind);
        let kind = wishes.find(|kind| self.is_crowded(kind))?;
        let (waiting, held) = self.waiting_beside(kind);
        let is_full = waiting > self.slots.waiting;
        Some(Crowded {
            tool: kind.tool.to_string(),
            host: kind.host.as_deref().map(str::to_owned),
            waiting: if is_full { self.slots.waiting } else { held.saturating_sub(1) },
            tenant: (!is_full).then(|| kind.tenant.to_string()),
        })
    }

    fn is_crowded(&self, kind: &Kind) -> bool {
        !self.had_share(self.slots.waiting, self.waiting_beside(kind))
    }

    /// How many wait for what one waits for, itself among them, and how many of these are its tenant's.
    fn waiting_beside(&self, kind: &Kind) -> (usize, usize) {
        match kind.host.as_deref() {
            None => self.waiting.tool(&kind.tool, &kind.tenant),
            host => self.waiting.host(host, &kind.tenant),
        }
    }

    /// A run is gone from this process, and with it all its slots and wishes; gives the runs that
    /// may go on.
    pub fn forget_run(&mut self, run: Uuid) -> Vec<Uuid> {
        let wishes: Vec<Key> = self.wishes.range(all_of(run)).map(|(key, _)| *key).collect();
        wishes.iter().for_each(|key| self.forget(key));
        self.parked.remove(&run);
        let inside: Vec<Key> = self.inside.range(all_of(run)).map(|(key, _)| *key).collect();
        inside.into_iter().flat_map(|(run, at)| self.leave(run, at)).collect()
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

/// What too many calls wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crowded {
    /// The tool.
    pub tool: String,
    /// The host, if the tool says which one it calls.
    pub host: Option<String>,
    /// How many may wait.
    pub waiting: usize,
    /// Whose calls these are, if others may still wait.
    pub tenant: Option<String>,
}

/// When a parked run is looked at again if nobody tells it to go on. The more wait the later, so that
/// looking costs the same however many there are; each at another time, so that they don't come at once.
pub(super) fn look_again_in(waiting: usize, run: Uuid) -> i64 {
    let spread = u64::try_from(waiting / limits::SLOT_LOOKS_PER_SECOND).unwrap_or(u64::MAX);
    let seconds = limits::SLOT_LOOK_SECONDS.saturating_add(spread);
    let (_, dice) = run.as_u64_pair();
    i64::try_from(seconds + dice % seconds).unwrap_or(i64::MAX)
}

fn all_of(run: Uuid) -> std::ops::RangeInclusive<Key> {
    (run, At { node: 0, item: None })..=(run, At { node: usize::MAX, item: Some(u32::MAX) })
}
