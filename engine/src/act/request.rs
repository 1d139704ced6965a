//! A request to act: an authenticated caller asks for something to be done.
//!
//! It passes through one stage after the other: actor, idempotency key (`idempotency`), plan (`propose`), scopes, risk,
//! level, rules and notification targets (`assess`), and then the run with its limits (`start`). A refusal starts no
//! run and leaves a ledger entry; the stored plan may stay.

use super::Actions;
use super::assess::{LevelRequest, assess};
use super::idempotency::{DuplicateRun, KeyCheck, RequestKey, handle_idempotency};
use super::propose::propose;
use super::start::execute_with_autonomy;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::view::RiskView;
use crate::flow::{self, RunHandle, RunKey};
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::plan::Plan;
use chimera_core::flow::trace::SpanId;
use chimera_core::json::Digest32;
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub enum Objective {
    /// A goal in natural language.
    Goal {
        goal: String,
        /// Values that the goal leaves open.
        inputs: Value,
    },
    Workflow {
        id: String,
        /// `None`: the newest.
        version: Option<i64>,
        inputs: Value,
    },
    /// Sequential tool calls: tool name and input.
    Steps(Vec<(String, Value)>),
}

/// A request to act.
#[derive(Clone, Debug)]
pub struct ActRequest {
    /// Must match the token if given.
    pub actor: Option<String>,
    pub what: Objective,
    /// The requested autonomy level.
    pub level: Option<Level>,
    /// Only simulate.
    pub dry_run: bool,
    pub key: Option<RequestKey>,
    pub notify: Option<Value>,
    /// 1 is the most urgent, 10 the least.
    pub priority: Option<i32>,
    /// The caller's own id.
    pub correlation_id: Option<String>,
    /// Also the trace id.
    pub run_id: Option<Uuid>,
    pub parent_span: Option<SpanId>,
    /// The request without what differs between retries, masked.
    pub request: Arc<Value>,
    /// Who wrote what is requested, besides the caller: stored inputs, for example. They count as requesters, so the
    /// rules about them apply, and none of them can approve what somebody else must approve.
    pub writers: Vec<String>,
    /// What limits the level, besides the caller's rights.
    pub ceiling: LevelCeiling,
}

/// The limits of a request that somebody made earlier: it is not carried out more freely than it was meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelCeiling {
    /// The level at which it would have been carried out then.
    pub level: Option<Level>,
    /// What the workflow and its child workflows were then. What others have changed since is drafted for approval.
    pub confirmed: Option<ConfirmedWorkflow>,
}

/// What somebody has confirmed of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmedWorkflow {
    Nothing,
    /// The digest of the workflow and its child workflows.
    Digest(Digest32),
}

impl ActRequest {
    /// A request with default options. `request` is the document that is stored with the run.
    #[must_use]
    pub fn of(what: Objective, request: Value) -> Self {
        Self {
            actor: None,
            what,
            level: None,
            dry_run: false,
            key: None,
            notify: None,
            priority: None,
            correlation_id: None,
            run_id: None,
            parent_span: None,
            request: Arc::new(request),
            writers: Vec::new(),
            ceiling: LevelCeiling::default(),
        }
    }
}

/// The result of an action request.
pub enum ActOutcome {
    Started(Box<StartedAction>),
    /// The key was already used, and the caller wants the existing run.
    Duplicate {
        run: Uuid,
        /// The earlier request was different.
        differs: bool,
    },
}

impl From<DuplicateRun> for ActOutcome {
    fn from(DuplicateRun { run, differs }: DuplicateRun) -> Self {
        Self::Duplicate { run, differs }
    }
}

pub struct StartedAction {
    pub started: RunHandle,
    pub plan: Plan,
    pub risk: RiskView,
    pub dry_run: bool,
}

/// Executes a request unless its key was already used; then the answer is about the run that used it.
pub async fn act(actions: &Actions, permit: &Permit, mut ask: ActRequest) -> Result<ActOutcome, EngineError> {
    if let Some(actor) = ask.actor.as_deref().filter(|actor| *actor != permit.actor()) {
        let message = format!("the token belongs to {}, not to {actor}", permit.actor());
        return Err(ErrorBody::new(Code::RbacForbidden, message).with("pointer", "/actor").into());
    }
    let Some(key) = ask.key.take() else { return attempt(actions, permit, ask, None).await };
    let guard = match handle_idempotency(actions, permit, key, &mut ask).await? {
        KeyCheck::Free(guard) => guard,
        KeyCheck::Used(duplicate) => return Ok(duplicate.into()),
    };
    let attempted = attempt(actions, permit, ask, Some(guard.run_key())).await;
    guard.answer(&actions.flow, permit, attempted).await
}

/// Plans and checks a request without starting anything.
pub(crate) async fn check(actions: &Actions, permit: &Permit, ask: ActRequest) -> Result<(), EngineError> {
    let request = LevelRequest::of(&ask);
    let proposal = propose(actions, permit, ask.what.clone()).await?;
    let slot = actions.flow.acquire_work_slot(&permit.claimant(), proposal.graph.may_take_long).await?;
    flow::check_inputs(slot, &proposal.graph, &proposal.inputs)?;
    assess(actions, permit, proposal, request).await.map(drop)
}

/// Plans, checks and starts.
async fn attempt(
    actions: &Actions,
    permit: &Permit,
    mut ask: ActRequest,
    key: Option<RunKey>,
) -> Result<ActOutcome, EngineError> {
    // The proposal has the inputs: large ones are not kept twice.
    let what = std::mem::replace(&mut ask.what, Objective::Steps(Vec::new()));
    let proposal = propose(actions, permit, what).await?;
    let assessed = assess(actions, permit, proposal, LevelRequest::of(&ask)).await?;
    execute_with_autonomy(actions, permit, ask, key, assessed).await
}
