//! Cancels runs in the transaction of another change.

use super::Flow;
use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::flow::run::{Signal, SignalKind};
use chimera_core::record::Tx;
use serde_json::json;
use uuid::Uuid;

/// Adds the cancellation of runs that the caller may manage. Wake them once the transaction is durable.
pub(crate) fn add_cancellations(
    flow: &Flow,
    permit: &Permit,
    runs: &[Uuid],
    reason: &str,
    tx: &mut Tx,
) -> Result<(), EngineError> {
    let parts = &flow.inner.parts;
    for run in runs {
        let kind = SignalKind::Cancel { by: permit.by(), reason: Some(reason.to_owned()) };
        let signal = Signal::new(flow.inner.id(), kind);
        tx.inserts.push(signal.row(permit.tenant(), *run, parts.clock.now())?);
        let data = json!({"kind": signal.kind.name(), "signal_id": signal.id});
        let writer = crate::ledger::audit::Writer { random: &*parts.random, clock: &*parts.clock };
        writer.event(tx, permit.event(*run, "run.signalled", data).of_run(*run))?;
    }
    Ok(())
}

/// Wakes runs that were sent a signal.
pub(crate) fn wake_runs(flow: &Flow, runs: &[Uuid]) {
    runs.iter().for_each(|run| flow.inner.wake(*run));
}
