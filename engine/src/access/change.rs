//! Doing something again, and changing what runs: both are asking for something.

use super::AccessError;
use super::act::{Access, Proposal, told, tools_of};
use super::permit::Permit;
use crate::flow::{Again, Proposed, Started};
use chimera_core::access::{Decided, Plan, PlanStep};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Node;
use chimera_core::flow::patch::Patch;
use chimera_core::flow::run::{Replay, ReplayMode};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

impl Access {
    /// Runs a run over again. What happens for real is decided about anew, for whoever asks now: their
    /// scopes, its risk, their level; and it never runs more freely than it did.
    pub async fn replay(&self, permit: &Permit, replay: Replay) -> Result<Started, AccessError> {
        if replay.mode != ReplayMode::Retry {
            return Ok(self.flow.replay(permit, replay, Again::default()).await?);
        }
        let before = self.flow.before(permit, replay.of).await?;
        let id = before.workflow.id.as_str();
        let proposal = self.laid_out(permit, &before.graph, (id, before.workflow.version), &before.inputs).await?;
        self.check_scopes(permit, &proposal)?;
        let score = proposal.score();
        let Decided { level, because } = self.level(permit, None, &proposal, &score).await?;
        let level = level.min(before.level);
        self.check_policy(permit, &proposal, level)?;
        let again = Again { level: Some(level), risk: Some(Arc::new(told(&score, because))) };
        Ok(self.flow.replay(permit, replay, again).await?)
    }

    /// Proposes a patch of a running graph. It takes the scopes of what it adds, and nobody lets a run do
    /// more freely what they would have to ask for.
    pub async fn patch(
        &self,
        permit: &Permit,
        run: Uuid,
        document: Value,
        version: Option<i64>,
        dry_run: bool,
    ) -> Result<Proposed, AccessError> {
        // What is no patch is refused with all that is wrong with it, further on.
        if let Ok(patch) = Patch::from_value(document.clone()) {
            self.check_added(permit, run, &patch).await?;
        }
        Ok(self.flow.patch(permit, run, document, version, dry_run).await?)
    }

    async fn check_added(&self, permit: &Permit, run: Uuid, patch: &Patch) -> Result<(), AccessError> {
        let added = self.added(permit, patch).await?;
        for tool in &added.tools {
            permit.covers(tool)?;
        }
        if added.tools.is_empty() {
            return Ok(());
        }
        let before = self.flow.before(permit, run).await?;
        let Decided { level, because } = self.level(permit, None, &added, &added.score()).await?;
        if level < before.level {
            let (would, goes_on) = (level.as_str(), before.level.as_str());
            let message = format!("what it adds you would do at {would}, and the run goes on at {goes_on}");
            let body = ErrorBody::new(Code::PolicyDenied, message).with("level", level.as_str());
            return Err(body.with("level_because", because.as_str()).into());
        }
        Ok(())
    }

    /// What a patch adds; its inputs as they are written.
    async fn added(&self, permit: &Permit, patch: &Patch) -> Result<Proposal, AccessError> {
        let mut added = Proposal::default();
        for node in &patch.add_nodes {
            if let Some(function) = node.function() {
                let step = PlanStep {
                    id: node.id.clone(),
                    tool: function.tool.clone(),
                    input: function.inputs.clone().into(),
                };
                added.plan.steps.push(step);
                added.tools.extend(self.flow.registry().get(&function.tool).map(|tool| Arc::clone(tool.spec())));
            }
        }
        for child in patch.add_nodes.iter().filter_map(Node::child) {
            let found = self.flow.workflows().find(permit.tenant(), &child.workflow_id, child.version).await?;
            let Some((_, graph)) = found else { continue };
            let children = self.flow.workflows().inside(permit.tenant(), &graph).await?;
            let plan = Plan::of_graph(&graph, &child.inputs.clone().into(), &children);
            added.plan.more |= plan.more;
            added.plan.steps.extend(plan.steps);
            added.tools.extend(tools_of(&graph).chain(children.values().flat_map(|child| tools_of(child))));
        }
        Ok(added)
    }
}
