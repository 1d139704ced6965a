//! Leases that have expired.
//!
//! A call that may be repeated goes back into its queue. Any other may have taken effect: its run hears that the outcome
//! is unknown, and the rules of the run decide. So does a call that too many workers lost, or whose run was stopped.

use super::lease::still;
use super::queues::wake_workers;
use crate::error::EngineError;
use crate::flow::Flow;
use crate::ledger::audit::{EventRecord, Writer};
use crate::port::CommitError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::{Signal, SignalKind, affinity};
use chimera_core::flow::tables::{WORK_ITEMS, WorkItemBrief, work_items};
use chimera_core::flow::work::{Elsewhere, WorkState, WorkStatus};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::limits;
use chimera_core::record::{Comparison, Direction, Scope, StoredRow, Tx, Update, Value as Cell};
use chimera_core::time::Timestamp;
use serde_json::json;

/// Ends every lease that has expired. Every process looks; of several, one wins each item.
pub(in crate::flow) async fn expire_leases(flow: &Flow) -> Result<(), EngineError> {
    let now = flow.inner.parts.clock.steady();
    let select = WorkItemBrief::select(Scope::System)
        .with(work_items::state, WorkState::Claimed)
        .filter(work_items::lease_until, Comparison::AtMost, now)
        .by(&[work_items::lease_until], Direction::Ascending)
        .take(limits::PAGE_ROWS_MAX);
    let expired = flow.inner.parts.records.read(select).await?.rows;
    for item in rows::decodable::<WorkItemBrief>(expired) {
        match expire(flow, &item, now).await {
            Ok(()) => {}
            Err(EngineError::Commit(CommitError::Conflict(_))) => {}
            Err(error @ EngineError::Commit(_)) => return Err(error),
            Err(error) => tracing::error!(item_id = %item.id, error = %error, "an expired lease could not be ended"),
        }
    }
    Ok(())
}

async fn expire(flow: &Flow, item: &WorkItemBrief, now: Timestamp) -> Result<(), EngineError> {
    let again = item.repeatable && item.claims < limits::WORK_CLAIMS_MAX && !item.cancel_requested;
    let again = again && item.deadline > now;
    let state = if again { WorkState::Queued } else { WorkState::Lost };
    let mut set = vec![(work_items::state, state.into()), (work_items::lease_until, Cell::Null)];
    if !again {
        set.extend([(work_items::settled_at, now.into()), (work_items::input, Cell::Null)]);
    }
    let mut expect = still(WorkState::Claimed, item.claims);
    expect.push((work_items::lease_until, item.lease_until.into()));
    let update = Update::new(&WORK_ITEMS, vec![item.id.into()], expect, set)?;
    let mut tx = Tx { updates: vec![update], affinity: affinity(item.run_id), ..Tx::default() };
    if !again {
        let signal = Signal::new(flow.inner.id(), lost(item));
        tx.inserts.push(signal.row(&item.tenant_id, item.run_id, flow.inner.parts.clock.now())?);
    }
    add_entry(flow, &mut tx, item, state)?;
    flow.inner.parts.records.commit(tx).await?;
    metrics::counter!("chimera_work_leases_expired_total").increment(1);
    if again {
        wake_workers(&flow.inner, &item.tenant_id, &item.queue);
    } else {
        flow.inner.wake(item.run_id);
    }
    Ok(())
}

/// What the run of a lost item hears.
fn lost(item: &WorkItemBrief) -> SignalKind {
    let who = item.claimed_by.as_deref().unwrap_or_default();
    let error = if item.cancel_requested {
        ErrorBody::new(
            Code::Cancelled,
            format!("the run was stopped, and the worker {who} did not report how far it came"),
        )
    } else {
        let message = format!("the lease of the worker {who} expired before it reported an outcome");
        ErrorBody { retryable: false, ..ErrorBody::new(Code::RequestTimeout, message) }
    };
    SignalKind::WorkEnded {
        step: item.step_id,
        work: Some(Elsewhere::Worker(item.id)),
        status: WorkStatus::Failed,
        result: None,
        error: Some(error),
        may_have_happened: true,
        took_ms: 0,
        changed_by: Vec::new(),
    }
}

fn add_entry(flow: &Flow, tx: &mut Tx, item: &WorkItemBrief, state: WorkState) -> Result<(), EngineError> {
    let writer = Writer { random: &*flow.inner.parts.random, clock: &*flow.inner.parts.clock };
    let data = json!({
        "queue": item.queue, "tool": item.tool, "step_id": item.step_id, "claims": item.claims,
        "claimed_by": item.claimed_by, "state": state.as_str(),
    });
    let event = EventRecord {
        tenant_id: item.tenant_id.clone(),
        subject_type: SubjectType::Other,
        subject_id: item.id.to_string(),
        event_type: "work.lease_expired".to_owned(),
        actor_type: ActorType::System,
        actor_id: None,
        data,
        run_id: None,
        run_seq: None,
        trace_id: None,
        operator_of: None,
    };
    writer.event(tx, event.of_run(item.run_id))?;
    Ok(())
}
