//! Limits over time: reads what they have counted before a call is made, and counts the call.
//!
//! A call without limits never gets here. For a limited one, the run takes a slot and asks for the windows (`Consult`);
//! a call that is executed elsewhere needs no slot. The turn that receives them checks the call, counts it and dispatches
//! it or hands it over, so what was read is never used later. What waits for its judge or for a person is not counted.
//! If the call no longer fits when the turn is committed, the run is loaded and asks again. A call that fits into what
//! this process wrote last is not asked about: the commit compares it.
//!
//! A retry finds the entry of its effect and counts once. Dry runs and recorded outputs count nothing; the reads that
//! a shadow sends count. Neither does an undo: it must be possible at any time, and what it undoes has happened.

use super::env::Env;
use super::event::{CallMode, Effect, GovernanceDecision};
use super::requesters;
use super::tasks::task::TaskState;
use super::turn_builder::{TurnBuilder, TurnContext};
use super::{Run, RunPlace, answer, projecting, start};
use crate::flow::approval::{ApprovalRequirement, Obligation};
use crate::flow::policy::Action;
use crate::flow::projection::Refusal;
use crate::flow::reservation::{BeyondLimit, BeyondReason, CountedCall, Facts, Limit, Reservation, Window, WindowKey};
use crate::id;
use crate::json::Digest32;
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::limits::CALL_LIMITS_MAX;
use crate::record::Unstorable;
use crate::tool::{EffectKind, Spec, is_dry_run};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// What a turn knows about limits, and the places that it takes within them.
#[derive(Default)]
pub(crate) struct TurnLimits {
    windows: BTreeMap<WindowKey, TurnWindow>,
    /// Places of the run that were consulted about and hold a slot until they are started.
    consulted: BTreeSet<RunPlace>,
    reserved: Vec<Reservation>,
    /// What the ledger is to record about calls that were counted.
    counted: BTreeMap<RunPlace, Value>,
}

/// A window in a turn.
struct TurnWindow {
    /// With the places of this turn.
    window: Window,
    /// As it was read for this turn. If it was not, it is what this process last wrote: nothing is refused by that.
    read: Option<Window>,
    is_changed: bool,
}

impl TurnLimits {
    /// Learns what limits have counted. Of one window, the newest row counts.
    pub(crate) fn learn(&mut self, facts: Facts) {
        for window in facts.0 {
            let is_newer = |known: &TurnWindow| known.window.version() < window.version();
            if self.windows.get(window.key()).is_none_or(is_newer) {
                let (key, read) = (window.key().clone(), Some(window.clone()));
                self.windows.insert(key, TurnWindow { window, read, is_changed: false });
            }
        }
    }

    /// The windows of some limits. None: one of them must be read.
    fn find(&mut self, limits: &[Limit], tenant: &str, env: &Env<'_>) -> Option<Vec<&TurnWindow>> {
        for limit in limits {
            if !self.windows.contains_key(&limit.key) {
                let window = env.windows.latest(tenant, &limit.key)?;
                self.windows.insert(limit.key.clone(), TurnWindow { window, read: None, is_changed: false });
            }
        }
        limits.iter().map(|limit| self.windows.get(&limit.key)).collect()
    }

    fn digest(&self, limits: &[Limit]) -> Digest32 {
        Facts::digest(limits.iter().filter_map(|limit| Some(&self.windows.get(&limit.key)?.window)))
    }

    /// The places that the turn takes, and their windows as they were read.
    pub(crate) fn into_reserved(mut self) -> (Vec<Reservation>, Vec<Window>) {
        let read = self.reserved.iter().filter_map(|reserved| self.windows.get_mut(&reserved.key)?.read.take());
        let read = read.collect();
        (self.reserved, read)
    }

    /// What the ledger records about the call at a place that was counted in this turn.
    pub(crate) fn take_counted(&mut self, at: RunPlace) -> Option<Value> {
        self.counted.remove(&at)
    }
}

/// Whether a call fits into its limits.
pub(crate) enum LimitCheck {
    /// It does, or has none.
    Fits,
    /// What they have counted must be read first.
    NotRead,
    /// It is made only after approval.
    Ask(ApprovalRequirement),
    Denied(Box<LimitRefusal>),
}

/// A limit that denies a call.
pub(crate) struct LimitRefusal {
    limit: Limit,
    why: BeyondReason,
}

/// The limits on the call at a place: those of the run's actor and of whoever wrote the call. Those of others who
/// contributed to its data don't apply: they did not ask for it.
pub(crate) fn limits_on(run: &Run, at: RunPlace, spec: &Spec, env: &Env<'_>) -> Vec<Limit> {
    if !env.policy.has_limits() {
        return Vec::new();
    }
    let Some(input) = run.tasks.input(at).filter(|input| !is_dry_run(input)) else { return Vec::new() };
    let (tenant, actor, level) = (run.head.tenant.as_str(), run.head.actor.as_str(), run.head.level);
    let action = Action { tenant, actor, level, node: run.tasks.name(at), tool: spec, input };
    let mut limits = env.policy.limits(&action);
    for who in requesters::writers_of(run, at).filter(|who| *who != actor) {
        for limit in env.policy.limits(&Action { actor: who, ..action }) {
            if !limits.iter().any(|known| known.key == limit.key && known.rule == limit.rule) {
                limits.push(limit);
            }
        }
    }
    limits
}

/// Whether the call fits into its limits, by what this turn knows.
pub(crate) fn check(run: &Run, at: RunPlace, limits: &[Limit], cx: &mut TurnContext<'_>) -> LimitCheck {
    if limits.is_empty() {
        return LimitCheck::Fits;
    }
    let effect = effect_of(run, at);
    let Some(windows) = cx.limits.find(limits, &run.head.tenant, &cx.env) else { return LimitCheck::NotRead };
    let (mut asks, mut are_read): (Option<ApprovalRequirement>, bool) = (None, true);
    let mut denied = None;
    for (position, (limit, known)) in limits.iter().zip(windows).enumerate() {
        are_read &= known.read.is_some();
        let fits = match position < CALL_LIMITS_MAX {
            true => limit.check(&known.window, effect, cx.env.now),
            false => Err(BeyondReason::too_many_limits()),
        };
        match (fits, &limit.beyond) {
            (Ok(()), _) => {}
            (Err(why @ BeyondReason::Reached(_)), BeyondLimit::Ask(demand)) => {
                let demand = ApprovalRequirement { reason: limit.refusal(&why), ..demand.clone() };
                let demand = demand.because_of(Obligation::limit(limit));
                asks = Some(asks.map_or(demand.clone(), |asked| asked.and(demand)));
            }
            (Err(why), _) => denied = denied.or(Some(LimitRefusal { limit: limit.clone(), why })),
        }
    }
    if !are_read && (asks.is_some() || denied.is_some()) {
        // Others may have given places back since this process last wrote them.
        cx.limits.windows.retain(|_, known| known.read.is_some() || known.is_changed);
        return LimitCheck::NotRead;
    }
    cx.limits.consulted.insert(at);
    match (denied, asks) {
        (Some(refusal), _) => LimitCheck::Denied(Box::new(refusal)),
        (None, Some(demand)) => LimitCheck::Ask(demand),
        (None, None) => LimitCheck::Fits,
    }
}

fn effect_of(run: &Run, at: RunPlace) -> Uuid {
    id::effect(run.head.id, &start::effect_key(run, at, &CallMode::Execute))
}

/// Asks what the limits on a call have counted.
pub(crate) fn request(run: &mut Run, at: RunPlace, limits: Vec<Limit>, turn: &mut TurnBuilder) {
    run.tasks.enter(at, TaskState::Consulting);
    run.tasks.call_started(at);
    turn.effects.push(Effect::Consult { at, limits });
}

/// The answer: the place is started again in this turn.
pub(crate) fn consulted(run: &mut Run, at: RunPlace, facts: Facts, limits: &mut TurnLimits) {
    let Some(TaskState::Consulting) = run.tasks.state(at) else { return };
    run.tasks.call_ended(at);
    limits.learn(facts);
    limits.consulted.insert(at);
    run.tasks.enter(at, TaskState::Ready);
    run.tasks.push_ready_first(at);
}

/// Releases the slots of places that were consulted about and not started.
pub(crate) fn release_unused(run: &Run, cx: &mut TurnContext<'_>) {
    for at in std::mem::take(&mut cx.limits.consulted) {
        if !run.tasks.calls().contains(&at) {
            cx.turn.effects.push(Effect::Release(at));
        }
    }
}

/// Counts a call that is about to be dispatched.
pub(crate) fn reserve(run: &Run, at: RunPlace, spec: &Spec, limits: &[Limit], cx: &mut TurnContext<'_>) {
    if limits.is_empty() {
        return;
    }
    let (effect, now) = (effect_of(run, at), cx.env.now);
    let is_write = run.tasks.reach(at, spec) == EffectKind::Write;
    let rules: Vec<&str> = limits.iter().map(|limit| limit.rule.as_str()).collect();
    let counted = json!({"rules": rules, "facts_digest": cx.limits.digest(limits)});
    cx.limits.counted.insert(at, counted);
    for limit in limits {
        let (Ok(amount), Some(known)) = (&limit.amount, cx.limits.windows.get_mut(&limit.key)) else { continue };
        let entry = CountedCall { effect: Some(effect), at: now, amount: *amount, is_write };
        let is_approved_beyond = known.window.check(effect, *amount, limit.most, now).is_err();
        known.is_changed = true;
        known.window.reserve(entry, now);
        let (key, rule, most) = (limit.key.clone(), limit.rule.clone(), limit.most);
        cx.limits.reserved.push(Reservation { key, rule, most, entry, is_approved_beyond });
    }
}

/// Records the calls that were counted in this turn and have no other entry.
pub(crate) fn note_counted(run: &Run, cx: &mut TurnContext<'_>) {
    for (at, counted) in std::mem::take(&mut cx.limits.counted) {
        let data = json!({"node": run.tasks.name(at), "item": at.item, "limits": counted});
        cx.turn.add_note("step.reserved", run.tasks.step_id(at), None, data);
    }
}

/// Refuses a call that a limit denies.
pub(crate) fn refuse(
    run: &mut Run,
    at: RunPlace,
    refusal: LimitRefusal,
    limits: &[Limit],
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let LimitRefusal { limit, why } = refusal;
    let digest = cx.limits.digest(limits);
    let error = limit.error(&why);
    run.tasks.mark_dirty(at, cx);
    cx.turn.add_decision(
        "step.refused",
        run.tasks.step_id(at),
        json!({"node": run.tasks.name(at), "rule": limit.rule, "limit": error.details["limit"], "facts_digest": digest}),
        GovernanceDecision {
            source: DecisionSource::Policy,
            outcome: Outcome::Rejected,
            rationale: error.message.clone(),
            policies: vec![limit.rule],
        },
    );
    projecting::refused(run, at, Refusal::Policy, &error, cx)?;
    answer::give_up(run, at, error, cx)
}
