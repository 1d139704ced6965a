//! Replays and patches: both are checked like a new request.

use super::Actions;
use super::assess::{LevelRequest, check_scopes, level};
use super::call_checks::check_policy;
use super::idempotency::{DuplicateRun, KeyCheck, RequestKey, lock_replay_key};
use super::propose::{GraphToRun, propose_graph};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{self, CheckedPatch, PatchRequest, ProposedPatch, ReplayOptions, RunHandle, RunKey};
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::plan::PlanStep;
use chimera_core::flow::policy::{Because, LevelDecision};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::{Replay, ReplayMode, too_many_with_patch};
use chimera_core::limits::{PATCH_TRIES_MAX, PLAN_STEPS_FREE_MAX};
use std::sync::Arc;
use uuid::Uuid;

/// Replays a run. What really executes is decided again for the current caller (scopes, risk, level), and never at
/// a higher level than the original run. In a shadow replay that is only what reads.
pub async fn replay(
    actions: &Actions,
    permit: &Permit,
    replay: Replay,
    idempotency_key: Option<RunKey>,
) -> Result<RunHandle, EngineError> {
    let again = decide_replay(actions, permit, &replay).await?;
    flow::replay(&actions.flow, permit, replay, ReplayOptions { idempotency_key, ..again }).await
}

/// The same, as a run with this id.
pub(crate) async fn replay_as(
    actions: &Actions,
    permit: &Permit,
    replay: Replay,
    run: Uuid,
) -> Result<RunHandle, EngineError> {
    let again = decide_replay(actions, permit, &replay).await?;
    flow::replay(&actions.flow, permit, replay, ReplayOptions { run_id: Some(run), ..again }).await
}

/// Checks whether a run can be replayed like this, without starting anything.
pub(crate) async fn check_replay(actions: &Actions, permit: &Permit, replay: &Replay) -> Result<(), EngineError> {
    let before = match decide_replay(actions, permit, replay).await?.looked_up {
        Some((before, _)) => before,
        None => flow::original_run(&actions.flow, permit, replay.of).await?,
    };
    flow::check_replay(&actions.flow, &before, replay).await
}

/// Decides about what a replay really executes.
async fn decide_replay(actions: &Actions, permit: &Permit, replay: &Replay) -> Result<ReplayOptions, EngineError> {
    if replay.mode == ReplayMode::Freeze {
        return Ok(ReplayOptions::default());
    }
    let before = flow::original_run(&actions.flow, permit, replay.of).await?;
    let (head, graph) = (&before.head, &before.workflow.graph);
    let to_run = GraphToRun { id: &head.workflow.id, graph, inputs: &head.inputs, pins: &before.pins };
    let mut proposal = propose_graph(actions, permit, to_run).await?;
    if replay.mode == ReplayMode::Shadow {
        proposal.retain_reads();
    }
    check_scopes(permit, &proposal)?;
    let score = proposal.score();
    let LevelDecision { level, reason: because } =
        level(actions, permit, &proposal, &score, LevelRequest::default()).await?;
    let level = level.min(head.level);
    check_policy(actions, permit, &proposal, level)?;
    Ok(ReplayOptions {
        level: Some(level),
        risk: Some(proposal.risk_document(&score, because)),
        looked_up: Some((before, proposal.inside)),
        ..ReplayOptions::default()
    })
}

/// The result of a request to repeat a run.
pub enum ReplayOutcome {
    Started(RunHandle),
    /// The key was already used, and the caller wants the existing run.
    Duplicate {
        run: Uuid,
        /// The earlier request was different.
        differs: bool,
    },
}

impl From<DuplicateRun> for ReplayOutcome {
    fn from(DuplicateRun { run, differs }: DuplicateRun) -> Self {
        Self::Duplicate { run, differs }
    }
}

/// Replays a run unless the key was already used; then the answer is about the run that used it.
pub async fn replay_once(
    actions: &Actions,
    permit: &Permit,
    again: Replay,
    asked: RequestKey,
) -> Result<ReplayOutcome, EngineError> {
    let guard = match lock_replay_key(actions, permit, asked, Arc::new(again.request())).await? {
        KeyCheck::Free(guard) => guard,
        KeyCheck::Used(duplicate) => return Ok(duplicate.into()),
    };
    let attempted = replay(actions, permit, again, Some(guard.run_key())).await.map(ReplayOutcome::Started);
    guard.answer(&actions.flow, permit, attempted).await
}

/// Proposes a patch of a running graph. The caller needs the scopes for what it adds, and can't use the run's level
/// to skip an approval that their own request would need.
pub async fn patch(actions: &Actions, permit: &Permit, request: PatchRequest) -> Result<ProposedPatch, EngineError> {
    patch_with(actions, permit, request, &|_| Ok(permit.clone())).await
}

/// The same; `permit_for` makes the permit for proposing a patch that was checked.
pub(crate) async fn patch_with(
    actions: &Actions,
    permit: &Permit,
    request: PatchRequest,
    permit_for: &(dyn Fn(&CheckedPatch) -> Result<Permit, EngineError> + Sync),
) -> Result<ProposedPatch, EngineError> {
    // The patch that is checked must be the one that is proposed: if the run advanced meanwhile, start over.
    for _ in 0..PATCH_TRIES_MAX {
        let mut look = flow::check_patch(&actions.flow, permit, &request).await?;
        let PatchAdditions { score, calls, excess } = check_patch_additions(actions, permit, &look).await?;
        match excess {
            Some(body) if !request.may_wait => return Err(body.into()),
            excess => look.patch.waits |= excess.is_some(),
        }
        look.risk = serde_json::to_value(score).ok();
        // The run itself does not know the workflows that the patch starts.
        look.patch.calls = look.patch.add_nodes.iter().any(|node| node.child().is_some()).then_some(calls);
        let permit = permit_for(&look)?;
        if let Some(proposed) = flow::propose_patch(&actions.flow, &permit, look, request.dry_run).await? {
            return Ok(proposed);
        }
    }
    Err(CheckedPatch::run_too_fast())
}

/// What a patch adds.
struct PatchAdditions {
    score: Score,
    calls: usize,
    /// Why its author could not run it freely.
    excess: Option<ErrorBody>,
}

/// Checks what a patch adds.
async fn check_patch_additions(
    actions: &Actions,
    permit: &Permit,
    look: &CheckedPatch,
) -> Result<PatchAdditions, EngineError> {
    let (patch, patched) = (&look.patch, &look.combined);
    let (graph, inputs) = (&patched.graph, &patched.inputs);
    let to_run = GraphToRun { id: &patched.workflow.id, graph, inputs, pins: &patched.pins };
    let mut added = propose_graph(actions, permit, to_run).await?;
    if added.plan.more {
        return Err(EngineError::refused(Code::PolicyDenied, "with this patch the run is too large to be checked"));
    }
    // Count the whole run, so that many small patches don't add up unnoticed.
    let whole = added.plan.calls();
    let own = |step: &PlanStep| patch.add_nodes.iter().any(|node| node.id == outermost(&step.id));
    added.plan.steps.retain(own);
    for step in &added.plan.steps {
        if let Some(tool) = added.tools.iter().find(|tool| tool.name == step.tool) {
            permit.require_tool(tool)?;
        }
    }
    check_policy(actions, permit, &added, patched.level)?;
    let score = added.score();
    if added.plan.steps.is_empty() {
        return Ok(PatchAdditions { score, calls: 0, excess: None });
    }
    let more = added.plan.calls();
    let calls = whole.max(look.calls.saturating_add(more));
    if calls > PLAN_STEPS_FREE_MAX && !patched.level.needs_approval() {
        let message = too_many_with_patch(calls, patched.level);
        let body = ErrorBody::new(Code::PolicyDenied, message).with("level", Level::Draft.as_str());
        let excess = Some(body.with("level_because", Because::ManySteps.as_str()));
        return Ok(PatchAdditions { score, calls: more, excess });
    }
    added.tools.retain(|tool| added.plan.steps.iter().any(|step| step.tool == tool.name));
    let LevelDecision { level, reason: because } =
        level(actions, permit, &added, &score, LevelRequest::default()).await?;
    if level < patched.level {
        let (would, goes_on) = (level.as_str(), patched.level.as_str());
        let message = format!(
            "your own request for this would get {would}, but the run is at {goes_on}; a patch may not raise the level"
        );
        let body = ErrorBody::new(Code::PolicyDenied, message).with("level", would);
        let excess = Some(body.with("level_because", because.as_str()));
        return Ok(PatchAdditions { score, calls: more, excess });
    }
    Ok(PatchAdditions { score, calls: more, excess: None })
}

/// The graph node that a plan step belongs to.
fn outermost(id: &str) -> &str {
    id.split(['[', '/']).next().unwrap_or(id)
}
