//! Starts the run of an assessed proposal: stores the plan, claims the key between nodes, and hands over to `flow`.

use super::Actions;
use super::assess::AssessedProposal;
use super::idempotency::claim_key;
use super::request::{ActOutcome, ActRequest, StartedAction};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::view::RiskView;
use crate::flow::{self, ResolvedWorkflow, RunKey, RunTrace, StartRun};
use chimera_core::access::Level;
use chimera_core::flow::run::Source;
use chimera_core::record::JsonError;
use serde::Deserialize;

/// Starts the run. At L0 and L1 it waits for approval, at L2 and L3 it proceeds. The name is that of
/// docs/conformance.md.
pub(super) async fn execute_with_autonomy(
    actions: &Actions,
    permit: &Permit,
    ask: ActRequest,
    key: Option<RunKey>,
    assessed: AssessedProposal,
) -> Result<ActOutcome, EngineError> {
    let AssessedProposal { proposal, level, risk } = assessed;
    let assessed = RiskView::deserialize(&*risk).map_err(JsonError::Serialise)?;
    let workflow = match proposal.stored {
        Some(stored) => stored,
        None => actions.flow.workflows().store_plan(permit, proposal.graph).await?,
    };
    let run_id = ask
        .run_id
        .unwrap_or_else(|| actions.access.directory.parts.random.row_id(actions.access.directory.parts.clock.now()));
    let shared = actions.access.directory.tenant(permit.tenant()).notify.as_ref();
    let own = permit.notify().or(shared).filter(|_| level != Level::ExecuteSilent).cloned();
    let start = StartRun {
        looked_up: Some(ResolvedWorkflow { workflow, inside: proposal.inside }),
        level,
        dry_run: ask.dry_run,
        source: Source::Act,
        request: Some(ask.request),
        risk: Some(risk),
        idempotency_key: key,
        correlation_id: ask.correlation_id,
        notify: ask.notify.or(own),
        trace: Some(RunTrace { run_id, parent_span: ask.parent_span }),
        priority: ask.priority.unwrap_or(chimera_core::limits::PRIORITY_DEFAULT),
        writers: ask.writers,
        ..StartRun::of(proposal.workflow_id, proposal.inputs)
    };
    let claim = match &start.idempotency_key {
        Some(key) => claim_key(actions, permit, key, run_id).await?,
        None => None,
    };
    let started = flow::start(&actions.flow, permit, start).await;
    if let Some(claim) = claim.filter(|_| started.is_err()) {
        claim.release(actions.access.directory.parts.clock.steady()).await;
    }
    let begun = StartedAction { started: started?, plan: proposal.plan, risk: assessed, dry_run: ask.dry_run };
    Ok(ActOutcome::Started(Box::new(begun)))
}
