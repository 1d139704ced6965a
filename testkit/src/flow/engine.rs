//! The flow engine on any store, with scripted tools.

use super::bus::BroadcastBus;
use super::external_system::ExternalSystem;
use super::full_permit;
use crate::flow::external_tool::{BehaviorScript, CallBehavior, ExternalTool, ExternalToolKind};
use crate::seeded::Seeded;
use async_trait::async_trait;
use chimera_core::access::tables::{TENANTS, tenants};
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_core::record::{Insert, Tx};
use chimera_core::time::Timestamp;
use chimera_core::tool::EffectKind;
use chimera_engine::access::Permit;
use chimera_engine::act::rules::Rules;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::port::{DeliveryReceipt, Message, Notifier, ToolError};
use chimera_engine::flow::{Asking, Flow, FlowPorts, ProcessLog, ToolRegistry};
use chimera_engine::port::{Clock, NoSpans, Records};
use std::sync::Arc;
use tokio::time::Instant;

/// Accepts and drops every message about runs.
pub struct NullNotifier;

#[async_trait]
impl Notifier for NullNotifier {
    fn check(&self, _: &str, _: &str) -> Result<(), ToolError> {
        Ok(())
    }

    async fn send(&self, _: &Message) -> Result<DeliveryReceipt, ToolError> {
        Ok(DeliveryReceipt::default())
    }
}

/// The runtime's clock, which a test may pause and advance.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let since = i64::try_from(self.0.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(crate::build::NOON.micros() + since)
    }

    fn steady(&self) -> Timestamp {
        self.now()
    }
}

/// What survives an engine crash: the outside, the scripts of the tools, the clock and the ids.
#[derive(Clone)]
pub struct World {
    pub outside: Arc<ExternalSystem>,
    pub script: BehaviorScript,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<Seeded>,
}

impl World {
    /// Every tool succeeds.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            outside: Arc::default(),
            script: Arc::new(|_, _, _| CallBehavior::Work),
            clock: Arc::new(RuntimeClock(Instant::now())),
            random: Arc::new(Seeded::new(seed)),
        }
    }

    #[must_use]
    pub fn with(mut self, script: impl Fn(&str, &str, u32) -> CallBehavior + Send + Sync + 'static) -> Self {
        self.script = Arc::new(script);
        self
    }

    /// A permit for everything in tenant `acme`.
    #[must_use]
    pub fn actor(&self, name: &str) -> Permit {
        full_permit("acme", name)
    }

    /// Creates tenant `acme` unless it exists.
    pub async fn create_tenant(&self, records: &dyn Records) {
        let row = vec![(tenants::id, "acme".into()), (tenants::slug, "acme".into()), (tenants::name, "Acme".into())];
        let tx = Tx { inserts: vec![Insert::new(&TENANTS, row).expect("a tenant")], ..Tx::default() };
        // A conflict means that it exists.
        let _ = records.commit(tx).await;
    }

    /// The tools: `pure`, `read`, `once` (neither idempotent nor checkable), `again` (idempotent)
    /// and `checked` (checkable).
    #[must_use]
    pub fn registry(&self) -> ToolRegistry {
        let mut registry = ToolRegistry::default();
        let tools = [
            ExternalToolKind { name: "pure", effect: EffectKind::Pure, idempotent: true, checkable: false },
            ExternalToolKind { name: "read", effect: EffectKind::Read, idempotent: true, checkable: false },
            ExternalToolKind { name: "once", effect: EffectKind::Write, idempotent: false, checkable: false },
            ExternalToolKind { name: "again", effect: EffectKind::Write, idempotent: true, checkable: false },
            ExternalToolKind { name: "checked", effect: EffectKind::Write, idempotent: false, checkable: true },
        ];
        for kind in tools {
            let tool = ExternalTool::new(kind, Arc::clone(&self.outside), Arc::clone(&self.script));
            registry.add(Arc::new(tool)).expect("a name of its own");
        }
        registry
    }
}

#[must_use]
pub fn engine(world: &World, records: Arc<dyn Records>) -> Flow {
    engine_with(world, records, true, Rules::default())
}

/// An engine with policy rules. `alone` says that no other node uses the store.
#[must_use]
pub fn engine_with(world: &World, records: Arc<dyn Records>, alone: bool, rules: Rules) -> Flow {
    Flow::new(FlowPorts {
        call_log: Arc::new(ProcessLog),
        records,
        clock: Arc::clone(&world.clock),
        random: Arc::clone(&world.random) as _,
        bus: Arc::new(BroadcastBus::default()),
        notifier: Arc::new(NullNotifier),
        spans: Arc::new(NoSpans),
        jobs: Arc::new(NoJobs),
        asking: Asking::default(),
        registry: Arc::new(world.registry()),
        projection: Arc::new(ExecutionLog),
        policy: Arc::new(rules),
        slots: CallLimits::default(),
        alone,
    })
}
