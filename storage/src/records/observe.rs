//! What operators see of the committers: metrics and the log lines of what went wrong.

use chimera_engine::commit::{Batch, Loss, Outcome};

/// What waits in a lane while a batch of it is carried out.
pub(super) fn queue(store: &'static str, batch: &Batch, txs: usize) {
    metrics::gauge!("chimera_commit_queue_txs", "store" => store, "lane" => batch.lane.id.to_string()).set(txs as f64);
}

/// Counts a batch and reports an outcome that somebody should look at.
pub(super) fn executed(store: &'static str, batch: &Batch, outcome: &Outcome) {
    let lane = batch.lane.id;
    let word = match outcome {
        Outcome::Committed { .. } => "committed",
        Outcome::Lost(_) => "lost",
        Outcome::Contended => "contended",
        Outcome::Refused(_) => "refused",
        Outcome::Lacking(_) => "lacking",
        Outcome::Fenced => "fenced",
        Outcome::Unavailable(_) => "unavailable",
        Outcome::Unsure { .. } => "unsure",
    };
    metrics::counter!("chimera_commit_batches_total", "store" => store, "outcome" => word).increment(1);
    if let Outcome::Committed { lost, .. } = outcome {
        let committed = batch.txs.len().saturating_sub(lost.len());
        metrics::counter!("chimera_commit_txs_total", "store" => store).increment(committed as u64);
        metrics::histogram!("chimera_commit_batch_txs", "store" => store).record(batch.txs.len() as f64);
    }
    if let Outcome::Committed { lost, .. } | Outcome::Lost(lost) = outcome {
        let lacking = lost.iter().find_map(|(_, loss)| match loss {
            Loss::Lacking(reason) => Some(reason),
            Loss::Conflict(_) | Loss::Rejected(_) => None,
        });
        if let Some(reason) = lacking {
            tracing::error!(critical = true, store, lane, %reason, "a change and its audit entry can't be written");
        }
    }
    match outcome {
        Outcome::Unavailable(reason) => {
            tracing::error!(critical = true, store, lane, %reason, "changes and their audit entries can't be written");
        }
        Outcome::Refused(rule) if batch.txs.len() <= 1 => {
            tracing::error!(critical = true, store, lane, rule, "the database refused a change or its audit entry");
        }
        Outcome::Lacking(reason) if batch.txs.len() <= 1 => {
            tracing::error!(critical = true, store, lane, %reason, "a change and its audit entry can't be written");
        }
        Outcome::Fenced => tracing::warn!(store, lane, "the lane was taken over by another node"),
        Outcome::Unsure { .. } => tracing::warn!(store, lane, "the answer to a commit was lost"),
        Outcome::Committed { .. }
        | Outcome::Lost(_)
        | Outcome::Contended
        | Outcome::Refused(_)
        | Outcome::Lacking(_) => {}
    }
}
