//! Whether a proposal may start, and how freely: scopes, risk and level, rules, notification targets.

use super::Actions;
use super::call_checks::{check_limits, check_policy};
use super::propose::{Proposal, WITHIN_DIGEST, propose_workflow};
use super::request::{ActRequest, ConfirmedWorkflow, LevelCeiling};
use crate::access::{AUTONOMY_OVERRIDE, Permit, missing_scope_error};
use crate::error::EngineError;
use crate::flow::{self, check_inputs, named};
use chimera_core::access::Level;
use chimera_core::act::{AutonomyFacts, determine_autonomy_level};
use chimera_core::flow::policy::{Because, LevelDecision};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{RunRisk, runs};
use chimera_core::json::Digest32;
use chimera_core::limits::FIRST_TIME_RUNS_MAX;
use chimera_core::record::{Direction, Json, Scope, StoredRow, Value as Cell};
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;

/// What a request itself says about the level. The default says nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct LevelRequest<'a> {
    level: Option<Level>,
    /// Whom it wants notified.
    notify: Option<&'a Value>,
    ceiling: LevelCeiling,
    /// It only simulates, so limits do not apply.
    dry_run: bool,
}

impl<'a> LevelRequest<'a> {
    pub(super) const fn of(ask: &'a ActRequest) -> Self {
        Self { level: ask.level, notify: ask.notify.as_ref(), ceiling: ask.ceiling, dry_run: ask.dry_run }
    }
}

/// A proposal that may start at this level.
pub(super) struct AssessedProposal {
    pub(super) proposal: Proposal,
    pub(super) level: Level,
    /// The risk document that the run stores.
    pub(super) risk: Arc<Value>,
}

/// Decides whether a request may start, and at which level.
pub(super) async fn assess(
    actions: &Actions,
    permit: &Permit,
    proposal: Proposal,
    request: LevelRequest<'_>,
) -> Result<AssessedProposal, EngineError> {
    check_scopes(permit, &proposal)?;
    let score = proposal.score();
    let decided = level(actions, permit, &proposal, &score, request).await?;
    let LevelDecision { level, reason: because } = within_ceiling(permit, &proposal, request.ceiling, decided);
    check_policy(actions, permit, &proposal, level)?;
    if !request.dry_run {
        check_limits(&actions.flow, permit, &proposal, level).await?;
    }
    flow::check_notify(&actions.flow, permit, level, request.notify)?;
    let risk = proposal.risk_document(&score, because);
    Ok(AssessedProposal { proposal, level, risk })
}

/// Lowers a level to the ceiling of the request.
fn within_ceiling(
    permit: &Permit,
    proposal: &Proposal,
    ceiling: LevelCeiling,
    decided: LevelDecision,
) -> LevelDecision {
    let is_confirmed = match ceiling.confirmed {
        None => true,
        Some(ConfirmedWorkflow::Nothing) => false,
        Some(ConfirmedWorkflow::Digest(digest)) => proposal.content_digest() == digest,
    };
    let mut lowest = decided;
    if let Some(level) = ceiling.level.filter(|level| *level < lowest.level) {
        lowest = LevelDecision { level, reason: Because::Schedule };
    }
    if !is_confirmed && lowest.level > Level::Draft && !proposal.is_written_by(permit.actor()) {
        lowest = LevelDecision { level: Level::Draft, reason: Because::UnconfirmedWorkflow };
    }
    lowest
}

/// What a caller could start at this moment.
pub(super) struct StartableWorkflow {
    pub(super) version: i64,
    /// The digest of the workflow and its child workflows.
    pub(super) digest: Digest32,
    /// The level of a run that starts now, without the caution for what is done for the first time.
    pub(super) level: Level,
}

/// Refuses a workflow that the caller could not start now with these inputs. Rules are decided when it is started.
pub(super) async fn check_startable(
    actions: &Actions,
    permit: &Permit,
    id: &str,
    version: Option<i64>,
    inputs: &Value,
) -> Result<StartableWorkflow, EngineError> {
    let proposal = propose_workflow(actions, permit, id, version, inputs).await?;
    check_scopes(permit, &proposal)?;
    let work_slot = actions.flow.acquire_work_slot(&permit.claimant(), proposal.graph.may_take_long).await?;
    check_inputs(work_slot, &proposal.graph, inputs)?;
    let rated = RatedProposal { proposal: &proposal, score: &proposal.score(), first_time: false };
    let LevelDecision { level, .. } = decide_level(actions, permit, &rated, LevelRequest::default())?;
    let version = proposal.stored.as_ref().map_or(0, |found| found.version);
    Ok(StartableWorkflow { version, digest: proposal.content_digest(), level })
}

pub(super) fn check_scopes(permit: &Permit, proposal: &Proposal) -> Result<(), EngineError> {
    for tool in &proposal.tools {
        if let Some(missing) = permit.missing_scope(tool) {
            let at = proposal.plan.steps.iter().position(|step| step.tool == tool.name);
            let mut body = missing_scope_error(missing).with("tool", tool.name.as_str());
            if let Some(at) = at {
                body = body.with("pointer", format!("/steps/{at}"));
            }
            return Err(body.into());
        }
    }
    Ok(())
}

pub(super) async fn level(
    actions: &Actions,
    permit: &Permit,
    proposal: &Proposal,
    score: &Score,
    request: LevelRequest<'_>,
) -> Result<LevelDecision, EngineError> {
    let cautious = actions.access.directory.settings.cautious;
    let first_time = cautious && is_first_time(actions, permit, proposal).await?;
    decide_level(actions, permit, &RatedProposal { proposal, score, first_time }, request)
}

/// A proposal, its risk, and whether the actor never completed it.
struct RatedProposal<'a> {
    proposal: &'a Proposal,
    score: &'a Score,
    first_time: bool,
}

fn decide_level(
    actions: &Actions,
    permit: &Permit,
    rated: &RatedProposal<'_>,
    request: LevelRequest<'_>,
) -> Result<LevelDecision, EngineError> {
    let RatedProposal { proposal, score, first_time } = *rated;
    let tools: Vec<&Spec> = proposal.tools.iter().map(|tool| &**tool).collect();
    let tenant = actions.access.directory.tenant(permit.tenant());
    let notified = request.notify.into_iter().flat_map(named);
    let mut strangers =
        notified.filter(|(channel, target)| flow::is_unregistered(&actions.flow, permit, channel, target));
    let facts = AutonomyFacts {
        actor: permit.actor(),
        default: permit.level(),
        may_override: permit.may(AUTONOMY_OVERRIDE),
        requested: request.level,
        tools: &tools,
        deletes: proposal.deletes(),
        messages_outsiders: proposal.messages_outsiders(tenant)
            || strangers.any(|(_, target)| tenant.is_outside(target)),
        steps: proposal.plan.calls(),
        score,
        cautious: actions.access.directory.settings.cautious,
        first_time,
    };
    Ok(determine_autonomy_level(&facts).map_err(|forbidden| {
        missing_scope_error(AUTONOMY_OVERRIDE)
            .with("asked", forbidden.asked.as_str())
            .with("granted", forbidden.granted.as_str())
            .with("pointer", "/autonomy_level")
    })?)
}

/// Whether the actor never completed exactly this: the same workflow with the same child workflows.
async fn is_first_time(actions: &Actions, permit: &Permit, proposal: &Proposal) -> Result<bool, EngineError> {
    let mut select = RunRisk::select(Scope::Tenant(permit.tenant().to_owned()))
        .by(&[], Direction::Descending)
        .with(runs::actor, permit.actor())
        .with(runs::workflow_id, proposal.workflow_id.as_str())
        .with(runs::status, RunStatus::Completed)
        .with(runs::dry_run, false)
        .with(runs::replay_of, Cell::Null);
    let mut within = None;
    if let Some((own, inside)) = proposal.digests {
        select = select.with(runs::workflow_digest, Cell::Bytes(own.to_vec()));
        within = inside;
    }
    let Some(within) = within.map(|digest| Value::from(digest.to_string())) else {
        return Ok(actions.access.directory.parts.records.read(select.take(1)).await?.rows.is_empty());
    };
    let (done, _) = actions.access.directory.parts.records.first(select, FIRST_TIME_RUNS_MAX).await?;
    for row in done {
        let risk = RunRisk::decode(row)?.risk.as_ref().map(Json::value).transpose()?;
        if risk.is_some_and(|risk| risk[WITHIN_DIGEST] == within) {
            return Ok(false);
        }
    }
    Ok(true)
}
