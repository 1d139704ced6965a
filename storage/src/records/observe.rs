//! Metrics and log lines of the committers.

use chimera_engine::commit::{Batch, BatchOutcome, TxRejection};

/// Records the queue length of a lane while it executes a batch.
pub(super) fn queue(store: &'static str, batch: &Batch, txs: usize) {
    metrics::gauge!("chimera_commit_queue_txs", "store" => store, "lane" => batch.lane.id.to_string()).set(txs as f64);
}

/// Counts a batch and logs an outcome that needs attention.
pub(super) fn executed(store: &'static str, batch: &Batch, outcome: &BatchOutcome) {
    let lane = batch.lane.id;
    let word = match outcome {
        BatchOutcome::Committed { .. } => "committed",
        BatchOutcome::Lost(_) => "lost",
        BatchOutcome::Contended => "contended",
        BatchOutcome::Refused(_) => "refused",
        BatchOutcome::Lacking(_) => "lacking",
        BatchOutcome::Fenced => "fenced",
        BatchOutcome::Unavailable(_) => "unavailable",
        BatchOutcome::Unknown { .. } => "unsure",
    };
    metrics::counter!("chimera_commit_batches_total", "store" => store, "outcome" => word).increment(1);
    if let BatchOutcome::Committed { lost, .. } = outcome {
        let committed = batch.txs.len().saturating_sub(lost.len());
        metrics::counter!("chimera_commit_txs_total", "store" => store).increment(committed as u64);
        metrics::histogram!("chimera_commit_batch_txs", "store" => store).record(batch.txs.len() as f64);
    }
    if let BatchOutcome::Committed { lost, .. } | BatchOutcome::Lost(lost) = outcome {
        let lacking = lost.iter().find_map(|(_, loss)| match loss {
            TxRejection::Lacking(reason) => Some(reason),
            TxRejection::Conflict(_) | TxRejection::Rejected(_) => None,
        });
        if let Some(reason) = lacking {
            tracing::error!(critical = true, store, lane, %reason, "a change and its audit entry can't be written");
        }
    }
    match outcome {
        BatchOutcome::Unavailable(reason) => {
            tracing::error!(critical = true, store, lane, %reason, "changes and their audit entries can't be written");
        }
        BatchOutcome::Refused(rule) if batch.txs.len() <= 1 => {
            tracing::error!(critical = true, store, lane, rule, "the database refused a change or its audit entry");
        }
        BatchOutcome::Lacking(reason) if batch.txs.len() <= 1 => {
            tracing::error!(critical = true, store, lane, %reason, "a change and its audit entry can't be written");
        }
        BatchOutcome::Fenced => tracing::warn!(store, lane, "the lane was taken over by another node"),
        BatchOutcome::Unknown { .. } => tracing::warn!(store, lane, "the answer to a commit was lost"),
        BatchOutcome::Committed { .. }
        | BatchOutcome::Lost(_)
        | BatchOutcome::Contended
        | BatchOutcome::Refused(_)
        | BatchOutcome::Lacking(_) => {}
    }
}
