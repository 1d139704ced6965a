//! Replaces approval requests that are outdated because a tool has changed since.
//!
//! Such a request can't be approved, so when a node claims the run with the new tool, it is superseded by a new one.

use super::env::Env;
use super::start::Work;
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace};
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, RequestStatus};
use crate::flow::policy::PolicyVerdict;
use crate::record::Unstorable;

const CHANGED: &str = "the tool has changed since approval was requested";

impl Run {
    /// Requests approval again for every step whose tool has changed since its request.
    pub(crate) fn renew_requests(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        if self.is_stopping() {
            return Ok(());
        }
        let outdated: Vec<(RunPlace, ApprovalRequest)> =
            self.places().filter_map(|at| Some((at, self.outdated(at)?))).collect();
        for (at, asked) in outdated {
            book.close_approval_request(&asked, RequestStatus::Superseded, env.now)?;
            match self.judge_again(at, env) {
                PolicyVerdict::Deny { rule, reason } => self.refuse_by_policy(at, rule, reason, env, book)?,
                PolicyVerdict::Ask(demand) => self.request_approval(at, &demand, env, book)?,
                PolicyVerdict::Allow => {
                    self.request_approval(at, &ApprovalRequirement::one_approval(CHANGED), env, book)?
                }
            }
        }
        Ok(())
    }

    /// The pending request of a place, if its tool has changed since.
    fn outdated(&self, at: RunPlace) -> Option<ApprovalRequest> {
        let TaskState::AwaitingApproval(asked) = &self.task(at)?.state else { return None };
        let calls = matches!(self.work(at), Work::Tool(_) | Work::Map);
        let known = calls && asked.is_pending() && !self.graph.nodes.get(at.node)?.is_tool_absent;
        (known && !asked.is_about(self.action_digest(at))).then(|| asked.clone())
    }

    fn judge_again(&self, at: RunPlace, env: &Env<'_>) -> PolicyVerdict {
        match self.work(at) {
            Work::Tool(spec) => self.judge(at, &spec, env),
            _ => self.demand_of_map(at.node, env).map_or(PolicyVerdict::Allow, PolicyVerdict::Ask),
        }
    }

    /// Drafts a pending plan again if one of its tools has changed.
    pub(crate) fn renew_plan(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let Some(plan) = self.plan.as_ref().filter(|plan| plan.asked.as_ref().is_some_and(ApprovalRequest::is_pending))
        else {
            return Ok(());
        };
        let changed = |node: &crate::flow::air::Node, version: &str| {
            plan.node(&node.id)
                .is_some_and(|planned| !planned.tool_version.is_empty() && planned.tool_version != version)
        };
        let outdated = self.graph.nodes.iter().any(|compiled| {
            let tool = compiled.tool.as_ref().filter(|_| !compiled.is_tool_absent);
            tool.is_some_and(|tool| changed(&compiled.node, &tool.version))
        });
        let Some(asked) = plan.asked.clone().filter(|_| outdated && !self.is_stopping()) else { return Ok(()) };
        book.close_approval_request(&asked, RequestStatus::Superseded, env.now)?;
        self.withdraw_patches(|_| true, RequestStatus::Cancelled, CHANGED, env.now, book)?;
        self.plan = None;
        self.begin_draft(env, book)
    }
}
