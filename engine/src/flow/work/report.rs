//! Reporting an outcome: the item's change and the signal to its run, in one transaction.

use super::lease::{Lease, lease_lost, leased_item, unchanged};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{Flow, signals};
use crate::port::CommitError;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::{Signal, SignalKind, affinity};
use chimera_core::flow::tables::{WORK_ITEMS, WorkItemRow, work_items};
use chimera_core::flow::work::{Elsewhere, WorkState, WorkStatus};
use chimera_core::json::Digest32;
use chimera_core::limits;
use chimera_core::record::{Tx, Update, Value as Cell};
use chimera_core::time::Timestamp;
use serde_json::{Value, json};

/// What a worker reports.
#[derive(Clone, Debug)]
pub(super) enum Report {
    Output(Value),
    Failure { error: Box<ErrorBody>, may_have_happened: bool },
}

impl Report {
    const fn state(&self) -> WorkState {
        match self {
            Self::Output(_) => WorkState::Done,
            Self::Failure { .. } => WorkState::Failed,
        }
    }

    /// Identifies the report, so that a repeated one is recognized.
    fn digest(&self) -> Digest32 {
        match self {
            Self::Output(output) => Digest32::of(&json!({"output": output})),
            Self::Failure { error, may_have_happened } => Digest32::of(&json!({
                "code": error.code, "message": error.message, "retryable": error.retryable,
                "may_have_happened": may_have_happened,
            })),
        }
    }

    fn signal(&self, item: &WorkItemRow, now: Timestamp) -> SignalKind {
        let took = item.claimed_at.map_or(0, |since| now.millis().saturating_sub(since.millis()).max(0));
        let (status, result, error, sent) = match self {
            Self::Output(output) => (WorkStatus::Completed, Some(output.clone()), None, false),
            Self::Failure { error, may_have_happened } => {
                (WorkStatus::Failed, None, Some((**error).clone()), *may_have_happened)
            }
        };
        SignalKind::WorkEnded {
            step: item.step_id,
            work: Some(Elsewhere::Worker(item.id)),
            status,
            result,
            error,
            // An earlier worker may have got further than this one.
            may_have_happened: sent || (self.state() == WorkState::Failed && item.claims > 1),
            took_ms: took,
            changed_by: Vec::new(),
        }
    }
}

/// Records the outcome of a call and tells its run. Repeating a report changes nothing.
pub(super) async fn report(flow: &Flow, permit: &Permit, lease: &Lease, report: &Report) -> Result<(), EngineError> {
    for _ in 0..limits::DECIDE_TRIES_MAX {
        let item = leased_item(flow, permit, lease).await?;
        let digest = report.digest();
        match item.state {
            // Nobody has claimed it since, even if the lease has expired.
            WorkState::Claimed | WorkState::Queued | WorkState::Lost => {}
            WorkState::Done | WorkState::Failed if item.result_digest == Some(digest) => return Ok(()),
            WorkState::Done | WorkState::Failed => {
                return Err(lease_lost(&item, "another outcome of this call was already reported"));
            }
            WorkState::Cancelled => return Err(lease_lost(&item, "the run no longer waits for this call")),
        }
        let now = flow.inner.parts.clock.steady();
        let set = vec![
            (work_items::state, report.state().into()),
            (work_items::settled_at, now.into()),
            (work_items::lease_until, Cell::Null),
            (work_items::result_digest, Cell::Bytes(digest.to_vec())),
            (work_items::input, Cell::Null),
        ];
        let update = Update::new(&WORK_ITEMS, vec![item.id.into()], unchanged(&item), set)?;
        let mut tx = Tx { updates: vec![update], affinity: affinity(item.run_id), ..Tx::default() };
        let signal = Signal::new(flow.inner.id(), report.signal(&item, now));
        tx.inserts.push(signal.row(permit.tenant(), item.run_id, flow.inner.parts.clock.now())?);
        let event_type = if report.state() == WorkState::Done { "work.completed" } else { "work.failed" };
        let data = json!({
            "queue": item.queue, "tool": item.tool, "step_id": item.step_id, "result_digest": digest,
            "late": item.state != WorkState::Claimed,
        });
        signals::record(flow, &mut tx, permit, permit.event(item.id, event_type, data).of_run(item.run_id))?;
        match flow.inner.parts.records.commit(tx).await {
            Ok(_) => {
                flow.inner.wake(item.run_id);
                return Ok(());
            }
            Err(error @ CommitError::Conflict(_)) if !permit.is_alongside_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(EngineError::refused(Code::OccConflict, "the call was changed concurrently; report the outcome again"))
}
