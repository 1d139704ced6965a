//! One node of a simulation: an engine, its keeper, and the task that renews its leases.

use super::fault_injector::{FaultInjector, FaultyRecords};
use super::invariants::InvariantChecker;
use super::limits;
use super::port_switch::{LinkState, PortSwitch, SwitchedRecords};
use super::tool::{SimulatedTool, specs};
use crate::flow::{BroadcastBus, ExternalSystem, NullNotifier};
use crate::memory::MemoryRecords;
use crate::seeded::Seeded;
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::{self, Asking, Flow, FlowPorts, ProcessLog, RunLimits, ToolRegistry};
use chimera_engine::port::{Clock, NoSpans, Records};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::task::JoinHandle;

const RENEW_EVERY: Duration = Duration::from_secs(4);

/// What all nodes of a simulation share.
pub struct SimulationContext {
    pub clock: Arc<dyn Clock>,
    pub weather: Arc<FaultInjector>,
    pub outside: Arc<ExternalSystem>,
    pub judge: Arc<InvariantChecker>,
    pub random: Arc<Seeded>,
    pub hints: BroadcastBus,
    /// Limits on concurrent calls per node.
    pub slots: CallLimits,
    /// Limits on active runs per node.
    pub places: RunLimits,
    /// At most one node runs at a time.
    pub alone: bool,
}

pub struct Node {
    pub flow: Flow,
    /// Its connection to everything outside; cutting it is a crash.
    pub wire: Arc<PortSwitch>,
    /// Partitioned from the store.
    pub partitioned: Arc<AtomicBool>,
    pub records: Arc<MemoryRecords>,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    #[must_use]
    pub fn start(ground: &SimulationContext, records: Arc<MemoryRecords>) -> Self {
        let wire = Arc::new(PortSwitch::default());
        let partitioned = Arc::new(AtomicBool::new(false));
        let weathered =
            FaultyRecords::new(Arc::clone(&records) as _, Arc::clone(&ground.weather), Arc::clone(&partitioned));
        let wired: Arc<dyn Records> = Arc::new(SwitchedRecords::new(Arc::new(weathered), Arc::clone(&wire)));
        let parts = FlowPorts {
            call_log: Arc::new(ProcessLog),
            records: wired,
            clock: Arc::clone(&ground.clock),
            random: Arc::clone(&ground.random) as _,
            bus: Arc::new(ground.hints.clone()),
            notifier: Arc::new(NullNotifier),
            spans: Arc::new(NoSpans),
            jobs: Arc::new(NoJobs),
            asking: Asking::default(),
            registry: Arc::new(registry(ground, &records, &wire)),
            projection: Arc::new(ExecutionLog),
            policy: Arc::new(limits::rules()),
            slots: ground.slots.clone(),
            alone: ground.alone,
        };
        let flow = Flow::bounded(parts, ground.places);
        let keeper = flow.clone();
        let (lease, held) = (Arc::clone(&wire), Arc::clone(&records));
        let (weather, unreachable) = (Arc::clone(&ground.weather), Arc::clone(&partitioned));
        let tasks = vec![
            tokio::spawn(async move { flow::run_keeper(&keeper).await }),
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(RENEW_EVERY).await;
                    lease.pass().await;
                    if weather.is_disabled() || !unreachable.load(std::sync::atomic::Ordering::Relaxed) {
                        held.renew();
                    }
                }
            }),
        ];
        Self { flow, wire, partitioned, records, tasks }
    }

    /// Shuts it down gracefully: starts nothing new, waits for calls in flight, then releases the lanes.
    pub async fn stop(self, grace: Duration) {
        self.flow.drain();
        tokio::time::sleep(grace).await;
        self.flow.stop();
        self.tasks.iter().for_each(JoinHandle::abort);
        self.records.close().await;
        self.wire.set(LinkState::Cut);
    }

    /// Crashes it.
    pub fn crash(self) {
        self.wire.set(LinkState::Cut);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.flow.stop();
    }
}

fn registry(ground: &SimulationContext, disk: &Arc<MemoryRecords>, wire: &Arc<PortSwitch>) -> ToolRegistry {
    let mut registry = ToolRegistry::default();
    for spec in specs() {
        let tool = SimulatedTool {
            spec: Arc::clone(spec),
            wire: Arc::clone(wire),
            outside: Arc::clone(&ground.outside),
            weather: Arc::clone(&ground.weather),
            disk: Arc::clone(disk),
            judge: Arc::clone(&ground.judge),
        };
        registry.add(Arc::new(tool)).expect("a name of its own");
    }
    registry
}
