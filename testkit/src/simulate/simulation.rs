//! One simulation: a phase with faults and random actions, a phase without faults, and the report.

use super::fault_injector::FaultInjector;
use super::invariants::{InvariantChecker, StoreObserver};
use super::node::{Node, SimulationContext};
use super::people::{self, UserCommand};
use super::port_switch::{LinkState, PortSwitch};
use super::worker::SimulatedWorker;
use super::{settle, workflow};
use crate::build::NOON;
use crate::flow::{BroadcastBus, ExternalSystem};
use crate::memory::MemoryRecords;
use crate::seeded::Seeded;
use chimera_core::access::Level;
use chimera_core::access::tables::{TENANTS, tenants};
use chimera_core::flow::run::{Signal, affinity};
use chimera_core::record::{Insert, Tx};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::{self, Flow, RunKey, RunLimits, StartRun};
use chimera_engine::port::{Clock, Random, Records};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The timeout of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a simulation.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    /// Violated invariants.
    pub faults: Vec<String>,
    /// The trace, if it was requested.
    pub lines: Vec<String>,
    /// A digest of everything that happened, with order and time.
    pub digest: [u8; 32],
    /// Committed batches.
    pub commits: u64,
    /// Calls that reached the outside.
    pub sent: u64,
    /// Number of runs by final status.
    pub ends: BTreeMap<String, usize>,
}

/// Clock reads at one instant beyond which the engine counts as stuck in a busy loop.
const CLOCK_READS_MAX: u64 = 200_000;

struct SimClock {
    began: Instant,
    last: AtomicI64,
    asked: AtomicU64,
    busy_loop: AtomicBool,
    /// Error of the wall clock, in microseconds.
    wall_error_micros: AtomicI64,
}

impl SimClock {
    fn begin() -> Self {
        let (last, asked) = (AtomicI64::new(0), AtomicU64::new(0));
        let wall_error_micros = AtomicI64::new(0);
        Self { began: Instant::now(), last, asked, busy_loop: AtomicBool::new(false), wall_error_micros }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.steady().micros() + self.wall_error_micros.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Timestamp {
        let since = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let moved = self.last.swap(since, Ordering::Relaxed) != since;
        let asked = if moved { 0 } else { self.asked.load(Ordering::Relaxed) + 1 };
        self.asked.store(asked % CLOCK_READS_MAX, Ordering::Relaxed);
        if asked == CLOCK_READS_MAX {
            self.busy_loop.store(true, Ordering::Relaxed);
            // Time advances only once the busy task ends.
            panic!("busy loop: the clock was read too often at one instant");
        }
        Timestamp::from_micros(NOON.micros() + since)
    }
}

/// Runs the simulation of a seed. `tells` keeps a trace.
#[must_use]
pub fn simulate(seed: u64, tells: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread");
    runtime.block_on(async {
        let mut story = Simulation::begin(seed, tells).await;
        story.run_fault_phase().await;
        story.run_recovery_phase().await;
        story.report(seed).await
    })
}

#[derive(Clone, Copy)]
enum SimulationEvent {
    Start,
    UserCommand,
    Answer,
    DuplicateSignal,
    Crash,
    Stop,
    Restart,
    Freeze,
    Partition,
    Outage,
    ClockJump,
    Worker,
}

/// The weight of each event: each kind of fault is absent, rare or common.
fn draw_weights(dice: &Seeded) -> Vec<(SimulationEvent, u64)> {
    let trouble = [
        SimulationEvent::Crash,
        SimulationEvent::Stop,
        SimulationEvent::Freeze,
        SimulationEvent::Partition,
        SimulationEvent::Outage,
        SimulationEvent::DuplicateSignal,
        SimulationEvent::ClockJump,
    ];
    let troubles = trouble.into_iter().map(|happening| (happening, *dice.pick(&[0, 1, 3])));
    let usual = [
        (SimulationEvent::Start, 4),
        (SimulationEvent::UserCommand, *dice.pick(&[0, 4, 12])),
        (SimulationEvent::Answer, 16),
        (SimulationEvent::Restart, 6),
        (SimulationEvent::Worker, *dice.pick(&[2, 10, 30])),
    ];
    usual.into_iter().chain(troubles).collect()
}

struct Simulation {
    time: Arc<SimClock>,
    odds: Vec<(SimulationEvent, u64)>,
    ground: SimulationContext,
    dice: Seeded,
    disk: Arc<MemoryRecords>,
    nodes: Vec<Option<Node>>,
    /// Nodes that are shutting down.
    leaving: Vec<JoinHandle<()>>,
    workflows: u64,
    started: u64,
}

impl Simulation {
    async fn begin(seed: u64, tells: bool) -> Self {
        let dice = Seeded::new(seed);
        let time = Arc::new(SimClock::begin());
        let clock: Arc<dyn Clock> = Arc::clone(&time) as _;
        let judge = InvariantChecker::new(Arc::clone(&clock), tells);
        let alone = dice.below(3) == 0;
        let disk = Arc::new(MemoryRecords::leased(1 + usize::from(!alone && dice.below(2) == 0), Arc::clone(&clock)));
        let weather = Arc::new(FaultInjector::from_seed(seed));
        let wide = dice.below(2) == 0;
        let slots = if wide {
            CallLimits::default()
        } else {
            CallLimits { total: 3, per_tenant: 2, per_tool: 1, per_host: 1, ..CallLimits::default() }
        };
        let outside = Arc::new(ExternalSystem::default());
        let random = Arc::new(Seeded::new(!seed));
        // One seed in three has few slots for runs, so runs that get none are parked in the store at once.
        let places = if seed.is_multiple_of(3) {
            RunLimits { total: 5, per_tenant: 4, ..RunLimits::default() }
        } else {
            RunLimits::default()
        };
        let hints = BroadcastBus::default();
        let ground = SimulationContext { clock, weather, outside, judge, random, hints, slots, places, alone };
        let row = vec![(tenants::id, "acme".into()), (tenants::slug, "acme".into()), (tenants::name, "Acme".into())];
        let tx = Tx { inserts: vec![Insert::new(&TENANTS, row).expect("a tenant")], ..Tx::default() };
        disk.commit(tx).await.expect("a store without faults");
        disk.watch(Box::new(StoreObserver(Arc::clone(&ground.judge))));
        let faults = Arc::clone(&ground.weather);
        disk.inject_batch_fault(Box::new(move |batch| faults.draw_batch(batch)));
        let claims = Arc::clone(&ground.weather);
        disk.inject_claim_fault(Box::new(move || claims.draw_claim()));
        let count = if alone { 1 } else { 1 + dice.below(2) };
        let mut nodes = vec![Some(Node::start(&ground, Arc::clone(&disk)))];
        nodes.extend((1..count).map(|_| Some(Node::start(&ground, Arc::new(disk.second_node())))));
        let odds = draw_weights(&dice);
        let mut story = Self { time, odds, ground, dice, disk, nodes, leaving: Vec::new(), workflows: 0, started: 0 };
        story.apply().await;
        story
    }

    async fn apply(&mut self) {
        let flow = self.nodes[0].as_ref().expect("a first node").flow.clone();
        self.workflows = 1 + self.dice.below(2);
        let mut documents = vec![workflow::leaf(&self.dice)];
        documents.extend((0..self.workflows).map(|at| workflow::workflow(&format!("w{at}"), &self.dice)));
        for document in documents {
            let id = document["workflow_id"].as_str().unwrap_or_default().to_owned();
            let applied = flow.workflows().apply(&people::actor("admin"), &id, &document.to_string()).await;
            if let Err(error) = applied {
                self.ground.judge.report_violation(format!("cannot apply {document}: {error:?}"));
            }
            self.ground.judge.trace(|| format!("workflow {document}"));
        }
    }

    /// The phase with faults: random events at random times.
    async fn run_fault_phase(&mut self) {
        self.ground.weather.calm(false);
        self.start();
        let hurry = *self.dice.pick(&[30, 200, 1_000]);
        for _ in 0..30 + self.dice.below(80) {
            let pause = if self.dice.below(20) == 0 { 20_000 } else { hurry };
            tokio::time::sleep(Duration::from_millis(self.dice.below(pause) + 1)).await;
            self.run_event();
        }
    }

    fn run_event(&mut self) {
        match self.draw_event() {
            SimulationEvent::Start if self.started < 6 => self.start(),
            SimulationEvent::Outage => {
                self.ground.weather.set_outage(true);
                let (weather, ends) = (Arc::clone(&self.ground.weather), 1 + self.dice.below(8_000));
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ends)).await;
                    weather.set_outage(false);
                });
            }
            SimulationEvent::Crash => {
                let at = self.random_node();
                if let Some(node) = self.nodes[at].take() {
                    self.ground.judge.trace(|| format!("node {at} crashes"));
                    node.crash();
                }
            }
            SimulationEvent::Stop => {
                let at = self.random_node();
                if let Some(node) = self.nodes[at].take() {
                    self.ground.judge.trace(|| format!("node {at} is stopped"));
                    let grace = Duration::from_millis(self.dice.below(3_000));
                    self.leaving.push(tokio::spawn(node.stop(grace)));
                }
            }
            SimulationEvent::Restart => self.restart(),
            SimulationEvent::Freeze => {
                self.apply_temporary_fault(|node| node.wire.set(LinkState::Frozen), |wire, _| wire.set(LinkState::Up))
            }
            SimulationEvent::Partition => {
                self.apply_temporary_fault(
                    |node| node.partitioned.store(true, Ordering::Relaxed),
                    |_, away| away.store(false, Ordering::Relaxed),
                );
            }
            SimulationEvent::DuplicateSignal => self.duplicate_signal(),
            SimulationEvent::ClockJump => self.jump(),
            SimulationEvent::Worker => self.work(false),
            SimulationEvent::UserCommand | SimulationEvent::Start => {
                if let Some(wish) = people::random_command(&self.dice, &self.disk, &self.ground.outside) {
                    self.send(wish);
                }
            }
            SimulationEvent::Answer => {
                let answers = people::answers(&self.disk, &self.ground.outside);
                if !answers.is_empty() {
                    self.send(self.dice.pick(&answers).clone());
                }
            }
        }
    }

    fn draw_event(&self) -> SimulationEvent {
        let sum: u64 = self.odds.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.dice.below(sum);
        for (happening, weight) in &self.odds {
            if drawn < *weight {
                return *happening;
            }
            drawn -= weight;
        }
        SimulationEvent::Answer
    }

    /// Applies a fault to a random node, and removes it after a while.
    fn apply_temporary_fault(&self, begin: impl Fn(&Node), end: impl Fn(&PortSwitch, &AtomicBool) + Send + 'static) {
        let Some(node) = &self.nodes[self.random_node()] else { return };
        self.ground.judge.trace(|| "a node is frozen or partitioned".to_owned());
        begin(node);
        let (wire, away, ends) = (Arc::clone(&node.wire), Arc::clone(&node.partitioned), 1 + self.dice.below(40_000));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ends)).await;
            end(&wire, &away);
        });
    }

    fn random_node(&self) -> usize {
        usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or_default()
    }

    fn restart(&mut self) {
        self.leaving.retain(|leaving| !leaving.is_finished());
        if self.ground.alone && !self.leaving.is_empty() {
            // The data folder is still locked.
            return;
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].is_none() {
                self.ground.judge.trace(|| format!("node {at} starts"));
                let records = if self.ground.alone { self.disk.replacement_node() } else { self.disk.second_node() };
                self.nodes[at] = Some(Node::start(&self.ground, Arc::new(records)));
            }
        }
    }

    fn start(&mut self) {
        let Some(node) = &self.nodes[self.random_node()] else { return };
        self.started += 1;
        let dice = &self.dice;
        let list: Vec<u64> = (0..dice.below(4)).collect();
        let level =
            *dice.pick(&[Level::ExecuteSilent, Level::ExecuteSilent, Level::ExecuteNotify, Level::Ask, Level::Draft]);
        let who = people::actor("user_ann");
        let key = |said: String| RunKey::new(&Secret::new("the seal"), &who, &said).ok();
        let ask = StartRun {
            level,
            dry_run: dice.below(12) == 0,
            idempotency_key: (dice.below(2) == 0).then(|| key(format!("key-{}", dice.below(4)))).flatten(),
            ..StartRun::of(
                format!("w{}", dice.below(self.workflows)),
                json!({"flag": dice.below(2) == 0, "list": list}),
            )
        };
        let (flow, judge) = (node.flow.clone(), Arc::clone(&self.ground.judge));
        // A client may give up before it gets the answer.
        let patience = *dice.pick(&[CLIENT_TIMEOUT, CLIENT_TIMEOUT, Duration::from_millis(1 + dice.below(60))]);
        tokio::spawn(async move {
            let started = tokio::time::timeout(patience, flow::start(&flow, &who, ask)).await;
            judge.trace(|| format!("started: {:?}", started.map(|started| started.map(|started| started.run_id))));
        });
    }

    fn send(&self, wish: UserCommand) {
        let Some(node) = &self.nodes[self.random_node()] else { return };
        let (flow, judge) = (node.flow.clone(), Arc::clone(&self.ground.judge));
        tokio::spawn(async move {
            let said = format!("{wish:?}");
            let told = tokio::time::timeout(CLIENT_TIMEOUT, wish.send(&flow)).await;
            judge.trace(|| format!("{said}: {told:?}"));
        });
    }

    /// A worker claims from a random node, and reports to any.
    fn work(&self, calm: bool) {
        let mut flows: Vec<Flow> = self.nodes.iter().flatten().map(|node| node.flow.clone()).collect();
        if flows.is_empty() {
            return;
        }
        let first = usize::try_from(self.dice.below(flows.len() as u64)).unwrap_or_default();
        flows.rotate_left(first);
        tokio::spawn(SimulatedWorker::new(flows, &self.ground, &self.disk, &self.dice, calm).run());
    }

    /// The wall clock jumps, and is corrected after a while.
    fn jump(&self) {
        let (by, ends) = (*self.dice.pick(&[86_400, 7, -7, -3_600]), 1 + self.dice.below(40_000));
        self.ground.judge.trace(|| format!("the clock jumps by {by} seconds"));
        self.time.wall_error_micros.store(by * 1_000_000, Ordering::Relaxed);
        let time = Arc::clone(&self.time);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ends)).await;
            time.wall_error_micros.store(0, Ordering::Relaxed);
        });
    }

    /// Inserts a duplicate signal.
    fn duplicate_signal(&self) {
        let Some((run, told)) = people::duplicate_signal(&self.dice, &self.disk) else { return };
        let now = self.ground.clock.now();
        let signal = Signal::new(self.ground.random.row_id(now), told);
        let row = signal.row("acme", run, now).expect("a signal that was there before");
        let tx = Tx { inserts: vec![row], affinity: affinity(run), ..Tx::default() };
        let node = self.nodes.iter().flatten().next().map(|node| Arc::clone(&node.records));
        if let Some(records) = node {
            tokio::spawn(async move { records.commit(tx).await });
        }
    }

    /// The phase without faults: people answer everything until no work is left.
    async fn run_recovery_phase(&mut self) {
        self.ground.judge.trace(|| "no more faults".to_owned());
        self.ground.weather.calm(true);
        futures::future::join_all(self.leaving.drain(..)).await;
        self.restart();
        self.nodes.iter().flatten().for_each(|node| {
            node.wire.set(LinkState::Up);
            node.partitioned.store(false, Ordering::Relaxed);
        });
        self.come_to_rest().await;
        // In some worlds everything is undone in the end, as far as that can be.
        if self.dice.below(2) == 0 {
            people::regrets(&self.disk).into_iter().for_each(|wish| self.send(wish));
            self.come_to_rest().await;
        }
    }

    async fn come_to_rest(&self) {
        let end = Instant::now() + Duration::from_secs(3_600);
        loop {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let left = settle::unfinished_work(&self.disk);
            if left.is_empty() {
                return;
            }
            if Instant::now() > end {
                return left.into_iter().for_each(|left| self.ground.judge.report_violation(left));
            }
            for wish in people::answers(&self.disk, &self.ground.outside) {
                self.send(wish);
            }
            self.work(true);
        }
    }

    async fn report(self, seed: u64) -> Report {
        settle::check(&self.disk, &self.ground).await;
        if self.time.busy_loop.load(Ordering::Relaxed) {
            self.ground.judge.report_violation("busy loop: the clock was read too often at one instant".to_owned());
        }
        let (commits, sent, digest) = self.ground.judge.digest();
        let (faults, lines) = self.ground.judge.violations_and_trace();
        Report { seed, faults, lines, digest, commits, sent, ends: settle::count_by_status(&self.disk) }
    }
}
