//! Requests about what would not run any more: a tool was changed while people were asked about a call of it.
//!
//! Nobody can approve such a request, so when the run is taken up with the new tool, people are asked anew.

use super::demand::Demand;
use super::env::Env;
use super::rows::Book;
use super::start::Work;
use super::task::{Asked, State};
use super::{At, Run};
use crate::flow::policy::PolicyVerdict;
use crate::record::Unstorable;

const CHANGED: &str = "the tool was changed since it was asked for";

impl Run {
    /// Asks anew about every step whose tool is another one than it was asked for with.
    pub(crate) fn renew_requests(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        if self.is_stopping() {
            return Ok(());
        }
        let outdated: Vec<(At, Asked)> = self.places().filter_map(|at| Some((at, self.outdated(at)?))).collect();
        for (at, asked) in outdated {
            book.approval_closed(&asked, "superseded", env.now)?;
            match self.demand_anew(at, env) {
                PolicyVerdict::Deny { rule, reason } => self.refuse(at, rule, reason, env, book)?,
                PolicyVerdict::Ask(demand) => self.ask(at, &demand, env, book)?,
                PolicyVerdict::Allow => self.ask(at, &Demand::one(CHANGED), env, book)?,
            }
        }
        Ok(())
    }

    /// The open request of a place about another tool than the one that would be called now.
    fn outdated(&self, at: At) -> Option<Asked> {
        let State::Asking(asked) = &self.task(at)?.state else { return None };
        let calls = matches!(self.work(at), Work::Tool(_) | Work::Map);
        let known = calls && asked.open && !self.graph.nodes.get(at.node)?.is_tool_absent;
        (known && !asked.is_about(self.action_digest(at))).then(|| asked.clone())
    }

    fn demand_anew(&self, at: At, env: &Env<'_>) -> PolicyVerdict {
        match self.work(at) {
            Work::Tool(spec) => self.judge(at, &spec, env),
            _ => self.demand_of_map(at.node, env).map_or(PolicyVerdict::Allow, PolicyVerdict::Ask),
        }
    }

    /// Drafts a plan anew that waits for people and has a tool that was changed.
    pub(crate) fn renew_plan(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some(plan) = self.plan.as_ref().filter(|plan| plan.asked.as_ref().is_some_and(|asked| asked.open)) else {
            return Ok(());
        };
        let changed = |node: &crate::flow::air::Node, version: &str| {
            plan.of(&node.id).is_some_and(|planned| !planned.tool_version.is_empty() && planned.tool_version != version)
        };
        let outdated = self.graph.nodes.iter().any(|compiled| {
            let tool = compiled.tool.as_ref().filter(|_| !compiled.is_tool_absent);
            tool.is_some_and(|tool| changed(&compiled.node, &tool.version))
        });
        let Some(asked) = plan.asked.clone().filter(|_| outdated && !self.is_stopping()) else { return Ok(()) };
        book.approval_closed(&asked, "superseded", env.now)?;
        self.withdraw_patches(|_| true, "cancelled", CHANGED, env.now, book)?;
        self.plan = None;
        self.begin_draft(env, book)
    }
}
