//! Work elsewhere: the calls of a queue, leases, and what a step waits for.

use super::pages;
use crate::wire::{DateTime, JsonObject, wire, words};
use chimera_core::flow::work;
use chimera_engine::flow::view;
use chimera_engine::flow::work::{ClaimedCall, RenewedLease};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

words! {
    /// State of a call that workers execute.
    pub(crate) WorkStateWord from work::WorkState {
        Queued = "queued",
        Claimed = "claimed",
        Done = "done",
        Failed = "failed",
        Cancelled = "cancelled",
        /// Whoever claimed it did not report an outcome in time.
        Lost = "lost",
    }

    /// Who does the work that a step waits for.
    pub(crate) WaitsFor from view::WaitsFor {
        Run = "run",
        Job = "job",
        Worker = "worker",
    }
}

wire! {
    /// A call that a worker executes.
    pub(crate) WorkItemDocument from view::WorkItemView {
        /// Id of the work item.
        item_id: Uuid,
        /// Name of the queue.
        queue: String,
        /// Current state.
        state: WorkStateWord,
        /// Id of the run.
        run_id: Uuid,
        /// Id of the step.
        step_id: Uuid,
        /// Name of the tool.
        tool: String,
        /// Priority of the run: 1 is most urgent, 10 least.
        priority: i64,
        /// How often the call was claimed.
        claims: u32,
        /// Actor of the worker that claimed it last.
        claimed_by: Option<String>,
        /// What that worker calls itself.
        worker: Option<String>,
        /// When it was claimed last.
        claimed_at: Option<DateTime>,
        /// When the lease ends.
        lease_until: Option<DateTime>,
        /// The run was stopped, and the worker is asked to stop.
        cancel_requested: bool,
        /// When the run stops waiting.
        deadline: DateTime,
        /// When the call was queued.
        created_at: DateTime,
    }

    /// The work elsewhere that a step waits for.
    pub(crate) ElsewhereDocument from view::ElsewhereView {
        /// Who does it.
        kind: WaitsFor,
        /// Id of the child run, the job or the work item.
        id: Uuid,
        /// When the step stops waiting.
        until: Option<DateTime>,
        /// The call, if a worker executes it.
        item: Option<WorkItemDocument>,
    }

    /// A call that the worker holds.
    pub(crate) ClaimedCallDocument from ClaimedCall {
        /// Id of the work item, and of the call.
        id: Uuid,
        /// Name of the queue.
        queue: String,
        /// Token that proves the claim. Send it with every report about the call.
        lease_token: String,
        /// When the lease ends unless it is renewed.
        lease_until: DateTime,
        /// Name of the tool.
        tool: String,
        /// Input of the call.
        input: JsonObject,
        /// Key under which the call has one effect, the same for every attempt.
        idempotency_key: String,
        /// Attempt number of the step.
        attempt: u32,
        /// How often the call was claimed, with this claim. Above 1, an earlier worker may have begun with it.
        claims: u32,
        /// Id of the run.
        run_id: Uuid,
        /// Id of the step.
        step_id: Uuid,
        /// Actor who requested the run.
        actor: String,
        /// When the run stops waiting.
        deadline: DateTime,
        /// W3C trace context to propagate.
        traceparent: String,
    }

    /// A lease that goes on.
    pub(crate) RenewedLeaseDocument from RenewedLease {
        /// When the lease ends unless it is renewed.
        lease_until: DateTime,
        /// The run was stopped: stop as well, and report how far you came.
        cancelled: bool,
    }
}

/// The calls that the worker holds now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimedCallList {
    /// The most urgent calls first, then the oldest.
    pub(crate) items: Vec<ClaimedCallDocument>,
}

/// A recorded outcome.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reported {
    /// Id of the work item.
    pub(crate) item_id: Uuid,
    /// Always true: the run hears of the outcome.
    pub(crate) recorded: bool,
}

pages! {
    /// A page of calls that workers execute.
    pub WorkItemPage of WorkItemDocument from view::WorkItemView: "The oldest calls first.";
}
