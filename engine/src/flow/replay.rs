//! Replays a run: frozen, as a shadow, or for real from a node on.

use super::definitions::PinnedSpecs;
use super::first_turn::begin_once;
use super::{ChildWorkflows, Flow, FoundWorkflow, RunHandle, RunKey, load, lookup, notify_check, share};
use crate::access::Permit;
use crate::error::EngineError;
use crate::offload::CostFlag;
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::reservation::Facts;
use chimera_core::flow::run::{NewRun, Replay, ReplayMode, RunHead, Source};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// How a replay runs; by default at the original level.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The highest level allowed.
    pub level: Option<Level>,
    /// The current risk assessment.
    pub risk: Option<Arc<Value>>,
    /// The run and its child workflows, if they were already looked up.
    pub(crate) looked_up: Option<(OriginalRun, ChildWorkflows)>,
    pub idempotency_key: Option<RunKey>,
    /// The id of the new run. Generated if absent.
    pub run_id: Option<Uuid>,
}

/// A run that is about to be repeated.
#[derive(Clone, Debug)]
pub(crate) struct OriginalRun {
    pub(crate) head: RunHead,
    has_ended: bool,
    /// With every patch applied.
    pub(crate) workflow: FoundWorkflow,
    /// The pinned versions of child workflows, including those of its patches.
    pub(crate) pins: Pins,
}

/// A run and what it executes, for a caller who may manage it.
pub(crate) async fn original_run(flow: &Flow, permit: &Permit, run: Uuid) -> Result<OriginalRun, EngineError> {
    let records = &*flow.inner.parts.records;
    let row = load::manageable_run(records, permit, run).await?;
    let (head, has_ended) = (RunHead::of_row(&row)?, row.status.is_final());
    let repeated = Replay { of: run, mode: ReplayMode::Retry, from: None };
    let repeated = RunHead { replay: Some(repeated), ..head.clone() };
    // A repeated run is a new one: it uses the current definitions of its tools.
    let workflow = load::base_graph(records, &flow.inner.workflows, &repeated, &PinnedSpecs::none()).await?;
    flow.inner.workflows.check_tools(permit.tenant(), &workflow.graph)?;
    let pins = load::pins(records, &head, run).await?;
    Ok(OriginalRun { head, has_ended, workflow, pins })
}

/// Refuses a run that can't be replayed like this, or not now.
pub(crate) async fn check_replay(flow: &Flow, run: &OriginalRun, replay: &Replay) -> Result<(), EngineError> {
    let refused = |why: &str| Err(EngineError::refused(Code::InvalidTransition, why));
    if run.head.dry_run {
        return refused("a dry run did nothing that could be replayed");
    }
    if !run.has_ended {
        return refused("the run has not ended");
    }
    if replay.mode == ReplayMode::Retry {
        if run.head.replay.as_ref().is_some_and(|replay| replay.mode != ReplayMode::Retry) {
            return refused("a replay did nothing that could be retried; retry the original run");
        }
        // A rollback may have begun since the run was looked up.
        let records = &*flow.inner.parts.records;
        let row = load::find_run(records, replay.of).await?.ok_or_else(|| EngineError::unknown("run", replay.of))?;
        if load::is_undoing(records, &row).await? {
            return refused("a rollback is in progress");
        }
    }
    if let Some(from) = &replay.from
        && run.workflow.graph.position(from).is_none()
    {
        return Err(EngineError::refused(Code::MalformedArgs, format!("the workflow has no node {from}")));
    }
    Ok(())
}

/// Replays a run: frozen, as a shadow, or for real from a node on.
pub async fn replay(
    flow: &Flow,
    permit: &Permit,
    replay: Replay,
    options: ReplayOptions,
) -> Result<RunHandle, EngineError> {
    let records = &*flow.inner.parts.records;
    let (run, inside) = match options.looked_up {
        Some((run, inside)) => (run, Some(inside)),
        None => (original_run(flow, permit, replay.of).await?, None),
    };
    check_replay(flow, &run, &replay).await?;
    let OriginalRun { head: original, workflow, pins, .. } = run;
    let graph = Arc::clone(&workflow.graph);
    let costly = CostFlag::default();
    let recorded = Box::pin(load::recorded(records, &replay, &graph, &costly));
    let recorded = flow.inner.offload.run_when_costly(&permit.claimant(), &costly, recorded).await?;
    let inside = match inside {
        Some(inside) => inside,
        None => {
            let nodes = &graph.document.nodes;
            lookup::stored_children_of(&flow.inner.workflows, permit.tenant(), nodes, &pins).await?
        }
    };
    if replay.mode == ReplayMode::Retry {
        share::check_shared(&flow.inner.workflows, permit.tenant(), Some(&workflow), &inside).await?;
    }
    let graphs = inside.children.values().chain([&graph]).map(Arc::as_ref);
    let pins = flow.inner.workflows.pin_tools(inside.pins.clone(), graphs)?;
    let mut writers = load::patch_authors(records, replay.of).await?;
    writers.extend(workflow.author().into_iter().chain(inside.authors()).map(str::to_owned));
    let now = flow.inner.parts.clock.steady();
    let level = options.level.map_or(original.level, |level| level.min(original.level));
    let request = Arc::new(replay.request());
    let head = RunHead {
        id: options.run_id.unwrap_or_else(|| flow.inner.id()),
        actor: permit.actor().to_owned(),
        actor_kind: permit.kind(),
        co_requesters: original.co_requesters_of_replay(permit.actor(), &writers),
        source: Source::Replay,
        pins: Arc::new(pins),
        parent: None,
        depth: 0,
        // Simulated replays notify nobody.
        notify: original
            .notify
            .as_ref()
            .filter(|_| replay.mode == ReplayMode::Retry)
            .and_then(|notify| notify_check::retained_notify(flow, permit, level, &original.actor, notify)),
        replay: Some(replay),
        request,
        level,
        risk: options.risk,
        idempotency_key: None,
        created_at: now,
        timeout_at: Some(RunHead::timeout_for(&graph, now)),
        ..original
    };
    let new = NewRun { head, graph, recorded: Some(recorded), facts: Facts::default() };
    begin_once(flow, permit, options.idempotency_key, new).await
}
