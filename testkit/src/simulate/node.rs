//! One node of a simulation: an engine, its keeper, and the task that renews its leases.

use super::judge::Judge;
use super::tool::{Simulated, specs};
use super::weather::{Weather, Weathered};
use super::wire::{Link, Wire, WiredRecords};
use crate::flow::{HintBus, Nobody, Outside};
use crate::memory::MemoryRecords;
use crate::seeded::Seeded;
use chimera_engine::act::rules::Rules;
use chimera_engine::flow::gate::CallLimits;
use chimera_engine::flow::{Asking, Flow, FlowPorts, RunLimits, Registry};
use chimera_engine::port::{Clock, NoSpans, Records};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::task::JoinHandle;

const RENEW_EVERY: Duration = Duration::from_secs(4);

/// What all nodes of a simulation share.
pub struct Ground {
    pub clock: Arc<dyn Clock>,
    pub weather: Arc<Weather>,
    pub outside: Arc<Outside>,
    pub judge: Arc<Judge>,
    pub random: Arc<Seeded>,
    pub hints: HintBus,
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
    pub wire: Arc<Wire>,
    /// Partitioned from the store.
    pub away: Arc<AtomicBool>,
    pub records: Arc<MemoryRecords>,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    #[must_use]
    pub fn start(ground: &Ground, records: Arc<MemoryRecords>) -> Self {
        let wire = Arc::new(Wire::default());
        let away = Arc::new(AtomicBool::new(false));
        let weathered = Weathered::new(Arc::clone(&records) as _, Arc::clone(&ground.weather), Arc::clone(&away));
        let wired: Arc<dyn Records> = Arc::new(WiredRecords::new(Arc::new(weathered), Arc::clone(&wire)));
        let parts = FlowPorts {
            records: wired,
            clock: Arc::clone(&ground.clock),
            random: Arc::clone(&ground.random) as _,
            bus: Arc::new(ground.hints.clone()),
            notifier: Arc::new(Nobody),
            spans: Arc::new(NoSpans),
            asking: Asking::default(),
            registry: Arc::new(registry(ground, &records, &wire)),
            policy: Arc::new(Rules::default()),
            slots: ground.slots.clone(),
            alone: ground.alone,
        };
        let flow = Flow::bounded(parts, ground.places);
        let keeper = flow.clone();
        let (lease, held) = (Arc::clone(&wire), Arc::clone(&records));
        let (weather, unreachable) = (Arc::clone(&ground.weather), Arc::clone(&away));
        let tasks = vec![
            tokio::spawn(async move { keeper.keep().await }),
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(RENEW_EVERY).await;
                    lease.pass().await;
                    if weather.is_calm() || !unreachable.load(std::sync::atomic::Ordering::Relaxed) {
                        held.renew();
                    }
                }
            }),
        ];
        Self { flow, wire, away, records, tasks }
    }

    /// Shuts it down gracefully: starts nothing new, waits for calls in flight, then releases the lanes.
    pub async fn stop(self, grace: Duration) {
        self.flow.drain();
        tokio::time::sleep(grace).await;
        self.flow.stop();
        self.tasks.iter().for_each(JoinHandle::abort);
        self.records.close().await;
        self.wire.set(Link::Cut);
    }

    /// Crashes it.
    pub fn crash(self) {
        self.wire.set(Link::Cut);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.flow.stop();
    }
}

fn registry(ground: &Ground, disk: &Arc<MemoryRecords>, wire: &Arc<Wire>) -> Registry {
    let mut registry = Registry::default();
    for spec in specs() {
        let tool = Simulated {
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
