//! Deletes what intents no longer need: sightings and idempotency records that have expired.

use super::router::IntentRouter;
use crate::error::EngineError;
use chimera_core::intent::tables::{INTENT_SIGHTINGS, intent_sightings};
use chimera_core::ledger::tables::{IDEMPOTENCY_RECORDS, idempotency_records};
use chimera_core::limits::EXPIRED_SWEEP_SECONDS;
use chimera_core::record::{Comparison, Condition, RowCount, Step, Table, Tx};
use std::time::Duration;
use tokio::sync::watch;

/// Deletes expired rows now and then, until stopped.
pub async fn run_sweeper(router: &IntentRouter, mut stopped: watch::Receiver<bool>) {
    let interval = Duration::from_secs(u64::try_from(EXPIRED_SWEEP_SECONDS).unwrap_or(u64::MAX));
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(interval) => {}
        }
        if let Err(error) = delete_expired(router).await {
            tracing::warn!(error = %error, "expired rows of intents could not be deleted");
        }
    }
}

/// Deletes expired rows. What is deleted too early could be used again.
pub async fn delete_expired(router: &IntentRouter) -> Result<(), EngineError> {
    let access = router.actions.access();
    let now = access.directory().parts.clock.earlier();
    let over = |(table, column): (&'static Table, &'static str)| Step::Delete {
        table,
        conditions: vec![Condition { column, compare: Comparison::AtMost, value: now.into() }],
        rows: RowCount::AtMost(u64::MAX),
    };
    let expiring =
        [(&INTENT_SIGHTINGS, intent_sightings::expires_at), (&IDEMPOTENCY_RECORDS, idempotency_records::expires_at)];
    access.records().commit(Tx { steps: expiring.map(over).to_vec(), ..Tx::default() }).await?;
    Ok(())
}
