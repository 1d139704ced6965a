//! Whether those who approved something may still decide when it is about to be done.
//!
//! An approval is counted when it is given, and the call goes out later: after a slot, a timer, a retry, the steps before
//! it. Whoever was disabled or lost the right to decide meanwhile lets nothing out any more. Nobody has to look for
//! the runs of such a person: the policy is asked at every dispatch that hangs on an approval, and only there.

use super::demand::Demand;
use super::env::Env;
use super::requesters::also;
use super::task::Approvers;
use super::{At, ReplayMode, Run};
use crate::access::Level;

impl Run {
    /// Those of these people whose approval counts now. Whoever has got the name of one of them since is somebody else.
    pub(crate) fn still_counting(&self, by: &Approvers, env: &Env<'_>) -> Vec<String> {
        let (tenant, requester) = (self.head.tenant.as_str(), self.head.actor.as_str());
        let is_theirs = |who: &str| match (env.policy.held_since(who), by.at) {
            (Some(since), Some(at)) => since <= at,
            (since, _) => since.is_none(),
        };
        let counts = |who: &&String| is_theirs(who) && env.policy.may_decide(tenant, who, requester);
        by.names.iter().filter(counts).cloned().collect()
    }

    /// Whether people have approved exactly this call already, by itself or within the plan, were as many and the
    /// ones that are demanded now, and may decide still.
    pub(crate) fn is_met(&self, at: At, demand: &Demand, env: &Env<'_>) -> bool {
        let requesters = self.requesters_of(at);
        self.approvals_of(at).any(|by| {
            demand
                .is_met(&self.still_counting(by, env), &requesters, &|one, other| env.policy.is_same_person(one, other))
        })
    }

    /// A demand that is not met, with those named who approved and may decide no more.
    pub(crate) fn with_lapsed(&self, at: At, demand: Demand, env: &Env<'_>) -> Demand {
        let (mut by, mut counting) = (Vec::new(), Vec::new());
        for approved in self.approvals_of(at) {
            by = also(by, approved.names.iter().map(String::as_str));
            counting.extend(self.still_counting(approved, env));
        }
        match by.iter().any(|who| !counting.contains(who)) {
            true => demand.and(lapsed(&by, &counting)),
            false => demand,
        }
    }

    /// What a call demands that an approval of more than this call let out, once none of those who gave that approval
    /// may decide.
    pub(crate) fn demand_of_lapsed(&self, at: At, env: &Env<'_>) -> Option<Demand> {
        let by = self.covered_by(at)?;
        self.still_counting(by, env).is_empty().then(|| lapsed(&by.names, &[]))
    }

    /// Who approved exactly this call: by itself, and together with others.
    fn approvals_of(&self, at: At) -> impl Iterator<Item = &Approvers> {
        let content = self.action_digest(at);
        let own = self.task(at).and_then(|task| task.approved.as_ref()).filter(|own| own.is_about(content));
        own.map(|approved| &approved.by).into_iter().chain(self.planned_by(at))
    }

    /// Who approved what a call is a part of: the items of its map, the patch that it came with, or the plan.
    fn covered_by(&self, at: At) -> Option<&Approvers> {
        if let Some(listed) = at.item.and_then(|_| self.listed.get(&at.node)) {
            return Some(&listed.by);
        }
        let plans =
            self.head.level == Level::Draft && !matches!(self.replays(), Some(ReplayMode::Freeze | ReplayMode::Shadow));
        match self.patch_of_node(at.node).filter(|_| plans) {
            Some(overlay) => Some(&overlay.approved_by),
            None => self.plan.as_ref().filter(|plan| plans && plan.asked.is_none()).map(|plan| &plan.by),
        }
    }
}

fn lapsed(by: &[String], counting: &[String]) -> Demand {
    let gone: Vec<&str> = by.iter().filter(|who| !counting.contains(who)).map(String::as_str).collect();
    Demand::one(match gone.as_slice() {
        [] => "nobody has approved this step or what it is a part of".to_owned(),
        gone => format!("{} approved this and may not decide any more", gone.join(", ")),
    })
}
