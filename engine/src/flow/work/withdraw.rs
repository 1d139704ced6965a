//! Withdrawing a call whose unknown outcome a person resolves.
//!
//! The item is changed in the transaction of the resolution, and compared as reports compare it: of a person and a late
//! worker, the store accepts one.

use super::lease::still;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::Flow;
use crate::rows;
use chimera_core::error::Code;
use chimera_core::flow::run::{Signal, SignalKind};
use chimera_core::flow::tables::{SignalRow, StepWork, WORK_ITEMS, WorkItemState, run_signals, steps, work_items};
use chimera_core::flow::work::{Elsewhere, WorkKind, WorkState};
use chimera_core::record::{Scope, StoredRow, Tx, Update, Value as Cell};
use uuid::Uuid;

/// The changes that withdraw the call of a step in doubt, which was read before, from its worker. Refuses if the worker
/// has reported an outcome that the run has not applied yet.
pub(in crate::flow) async fn withdraw(flow: &Flow, permit: &Permit, step: Uuid) -> Result<Tx, EngineError> {
    let records = &*flow.inner.parts.records;
    let scope = || Scope::Tenant(permit.tenant().to_owned());
    let step: Option<StepWork> = rows::find(records, StepWork::select(scope()).with(steps::id, step)).await?;
    let Some(StepWork { run_id, work_kind: Some(WorkKind::Worker), work_id: Some(id), .. }) = step else {
        return Ok(Tx::default());
    };
    let item: Option<WorkItemState> =
        rows::find(records, WorkItemState::select(scope()).with(work_items::id, id)).await?;
    let Some(item) = item else { return Ok(Tx::default()) };
    match item.state {
        WorkState::Queued | WorkState::Claimed | WorkState::Lost => {
            let set = vec![
                (work_items::state, WorkState::Cancelled.into()),
                (work_items::settled_at, flow.inner.parts.clock.steady().into()),
                (work_items::lease_until, Cell::Null),
                (work_items::input, Cell::Null),
            ];
            let update = Update::new(&WORK_ITEMS, vec![id.into()], still(item.state, item.claims), set)?;
            Ok(Tx { updates: vec![update], ..Tx::default() })
        }
        WorkState::Done | WorkState::Failed if is_report_pending(flow, run_id, id).await? => {
            let message = "the worker has just reported the outcome of this call; fetch the run again";
            Err(EngineError::refused(Code::OccConflict, message))
        }
        WorkState::Done | WorkState::Failed | WorkState::Cancelled => Ok(Tx::default()),
    }
}

/// Whether the run has not applied the end of a call yet. If it does so now, the version of the step changes.
async fn is_report_pending(flow: &Flow, run: Uuid, item: Uuid) -> Result<bool, EngineError> {
    let select = SignalRow::select(Scope::System).with(run_signals::run_id, run);
    let mut pending = false;
    rows::each(&*flow.inner.parts.records, select, |row: SignalRow| {
        let signal = Signal::of_row(row);
        pending |= matches!(signal.kind, SignalKind::WorkEnded { work: Some(Elsewhere::Worker(id)), .. } if id == item);
        Ok(())
    })
    .await?;
    Ok(pending)
}
