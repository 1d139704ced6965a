//! Workers that die, work slowly, report late or twice, and repeat what may not have arrived.
//!
//! A worker acts only while it holds its lease, like a tool that acts only before its deadline. Whatever happens to its
//! reports, what it did must be known in the end.

use super::invariants::InvariantChecker;
use super::node::SimulationContext;
use super::people::actor;
use crate::flow::ExternalSystem;
use crate::memory::MemoryRecords;
use crate::seeded::Seeded;
use chimera_core::error::Code;
use chimera_core::flow::call::Sent;
use chimera_core::flow::run::EffectStatus;
use chimera_core::flow::tables::{EffectRow, effects};
use chimera_engine::flow::Flow;
use chimera_engine::flow::work::{self, ClaimRequest, ClaimedCall, FailureReport, Lease};
use chimera_engine::port::Clock;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The queue of all workers, and their lease.
pub(super) const QUEUE: &str = "desk";
pub(super) const LEASE_SECONDS: u32 = 10;

/// How often a worker repeats a report that may not have arrived.
const REPORTS_MAX: usize = 4;

/// The timeout of a worker's request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How a worker behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Good,
    /// It reports an error before it has done anything.
    Refuses,
    /// It does the work and can't tell.
    Unsure,
    /// It dies before or after its work.
    DiesBefore,
    DiesAfter,
    /// It reports when its lease has long expired.
    Late,
    /// It reports twice.
    Twice,
}

const BEHAVIOURS: [Behaviour; 10] = [
    Behaviour::Good,
    Behaviour::Good,
    Behaviour::Good,
    Behaviour::Good,
    Behaviour::Refuses,
    Behaviour::Unsure,
    Behaviour::DiesBefore,
    Behaviour::DiesAfter,
    Behaviour::Late,
    Behaviour::Twice,
];

/// One worker that claims once.
pub(super) struct SimulatedWorker {
    /// The nodes that it can reach, the one for its claim first.
    flows: Vec<Flow>,
    clock: Arc<dyn Clock>,
    outside: Arc<ExternalSystem>,
    judge: Arc<InvariantChecker>,
    disk: Arc<MemoryRecords>,
    behaviour: Behaviour,
    delay: Duration,
}

impl SimulatedWorker {
    pub(super) fn new(
        flows: Vec<Flow>,
        ground: &SimulationContext,
        disk: &Arc<MemoryRecords>,
        dice: &Seeded,
        calm: bool,
    ) -> Self {
        Self {
            flows,
            clock: Arc::clone(&ground.clock),
            outside: Arc::clone(&ground.outside),
            judge: Arc::clone(&ground.judge),
            disk: Arc::clone(disk),
            behaviour: if calm { Behaviour::Good } else { *dice.pick(&BEHAVIOURS) },
            delay: Duration::from_millis(dice.below(if calm { 500 } else { 6_000 })),
        }
    }

    pub(super) async fn run(self) {
        let Some(flow) = self.flows.first() else { return };
        let request = ClaimRequest {
            queue: QUEUE.to_owned(),
            limit: 2,
            worker: None,
            wait_seconds: 1,
            wait_max: Duration::MAX,
            claim_id: None,
        };
        let claimed = tokio::time::timeout(TIMEOUT, work::claim(flow, &actor("worker_1"), &request)).await;
        let Ok(Ok(claimed)) = claimed else { return };
        for call in claimed {
            self.judge.trace(|| format!("worker {:?} has {} of {}", self.behaviour, call.id, call.idempotency_key));
            self.handle(&call).await;
        }
    }

    async fn handle(&self, call: &ClaimedCall) {
        match self.behaviour {
            Behaviour::DiesBefore => {}
            Behaviour::Refuses => {
                tokio::time::sleep(self.delay).await;
                self.fail(call, Sent::No).await;
            }
            Behaviour::Unsure => {
                let acted = self.act(call).await;
                self.fail(call, if acted { Sent::Maybe } else { Sent::No }).await;
            }
            Behaviour::DiesAfter => drop(self.act(call).await),
            Behaviour::Good | Behaviour::Late | Behaviour::Twice => {
                if !self.act(call).await {
                    return;
                }
                if self.behaviour == Behaviour::Late {
                    tokio::time::sleep(Duration::from_secs(u64::from(LEASE_SECONDS)) * 2).await;
                }
                self.complete(call).await;
                if self.behaviour == Behaviour::Twice {
                    self.complete(call).await;
                }
            }
        }
    }

    /// Does the work if the lease is still held. Reports a violation if it must not be done.
    async fn act(&self, call: &ClaimedCall) -> bool {
        tokio::time::sleep(self.delay).await;
        if self.clock.steady() >= call.lease_until {
            return false;
        }
        let key = &call.idempotency_key;
        self.judge.sent(&call.tool, key, "work");
        let recorded = self.disk.list::<EffectRow>().into_iter().find(|row| row.idempotency_key == *key);
        if !recorded.is_some_and(|row| row.status == EffectStatus::Dispatched) {
            self.judge.report_violation(format!("{} {} was done before {} says so", call.tool, key, effects::status));
        }
        let before = self.outside.sent().into_iter().any(|sent| sent.key == *key && sent.tool == call.tool);
        if before && call.tool == "errand" {
            self.judge.report_violation(format!("{key} was done twice"));
        }
        if !before || self.outside.find(&call.tool, key).is_none() {
            let input = call.input.value().unwrap_or_default();
            self.outside.record(&call.tool, key, &input, json!({"tool": call.tool}));
        }
        true
    }

    async fn complete(&self, call: &ClaimedCall) {
        self.report(|flow| {
            let lease = lease(call);
            async move { work::complete(&flow, &actor("worker_1"), &lease, json!({"done": true})).await.is_ok() }
        })
        .await;
    }

    async fn fail(&self, call: &ClaimedCall, sent: Sent) {
        self.report(|flow| {
            let lease = lease(call);
            let failure = FailureReport {
                code: Code::ExternalServiceError,
                message: "not now".to_owned(),
                retryable: None,
                retry_after_seconds: None,
                sent,
            };
            async move { work::fail(&flow, &actor("worker_1"), &lease, failure).await.is_ok() }
        })
        .await;
    }

    /// Reports until a node says that it is recorded, at most a few times, to one node after the other.
    async fn report<F: Future<Output = bool>>(&self, send: impl Fn(Flow) -> F) {
        for flow in self.flows.iter().cycle().take(REPORTS_MAX) {
            if tokio::time::timeout(TIMEOUT, send(flow.clone())).await == Ok(true) {
                return;
            }
        }
    }
}

fn lease(call: &ClaimedCall) -> Lease {
    Lease { item: call.id, token: call.lease_token.clone() }
}
