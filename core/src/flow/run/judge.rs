//! Judges: decides on what a step would send, or on what it returned.
//!
//! A call that may change something outside is judged before approval is requested and before it is sent. Everything
//! else is judged on its output, which the place holds back until then: no edge, expression, cache or parent sees it.
//! A judgement that may take long gets a turn of its own. What is judged is durable before it, so that a crash in
//! between repeats the judgement and never the call.

use super::event::GovernanceDecision;
use super::scope::RunScope;
use super::tasks::task::{HeldOutput, Task, TaskState};
use super::turn_builder::TurnContext;
use super::{ReplayMode, Run, RunPlace, answer, approve, demands, projecting, replay, stop};
use crate::error::{Code, ErrorBody};
use crate::flow::air::{Body, FailedCheck, JudgeScope, SharedJudge};
use crate::flow::approval::{ApprovalRequirement, Obligation};
use crate::flow::expr::{Judged, Scope, Template};
use crate::flow::judgement::{JudgeHistory, JudgedPart, Judgement, NextAction, Verdict};
use crate::flow::outputs;
use crate::flow::projection::Refusal;
use crate::json::{CanonicalJson, Digest32};
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::record::Unstorable;
use crate::tool::{EffectKind, Spec};
use serde_json::{Value, json};
use std::sync::Arc;

/// The judge of a place. A map node has none of its own: its judge decides on the items.
fn judge_of(run: &Run, at: RunPlace) -> Option<SharedJudge> {
    let compiled = run.tasks.graph().nodes.get(at.node)?;
    let is_list = at.item.is_none() && matches!(compiled.node.body, Body::Map(_));
    compiled.judge.clone().filter(|_| !is_list)
}

/// Judges the input of a call that may change something outside. True: it may go on, perhaps with an approval. False:
/// it has failed, or is judged in the next turn.
pub(crate) fn judge_before_sending(
    run: &mut Run,
    at: RunPlace,
    spec: &Spec,
    cx: &mut TurnContext<'_>,
) -> Result<bool, Unstorable> {
    let Some(judge) = judge_of(run, at).filter(|_| run.tasks.reach(at, spec) == EffectKind::Write) else {
        return Ok(true);
    };
    if run.tasks.task(at).and_then(Task::input_judgement).is_some() {
        return Ok(true);
    }
    if run.tasks.input(at).is_some_and(|input| judge.may_take_long(input)) {
        judge_later(run, at, cx);
        return Ok(false);
    }
    judge_input(run, at, &judge, cx)
}

/// What is judged is written first, and judged in the next turn.
fn judge_later(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) {
    run.tasks.enter(at, TaskState::Judging);
    run.tasks.mark_dirty(at, cx);
    run.tasks.push_judging(at);
    cx.turn.more = true;
}

/// Judges what earlier turns have written, as far as the turn's work allows.
pub(crate) fn proceed(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let mut queue = run.tasks.take_judging();
    // A run that stops cancels what waits for its judge.
    if run.status.is_final() || run.stopping.is_stopping() {
        return Ok(());
    }
    while let Some(at) = queue.pop_front() {
        if run.budget.is_spent() {
            run.tasks.push_judging(at);
            queue.into_iter().for_each(|at| run.tasks.push_judging(at));
            cx.turn.more = true;
            return Ok(());
        }
        let Some(TaskState::Judging) = run.tasks.state(at) else { continue };
        // A patch can't remove the judge of a node that has started.
        let Some(judge) = judge_of(run, at) else { continue };
        if run.tasks.task(at).is_some_and(|task| task.held().is_some()) {
            judge_output(run, at, &judge, cx)?;
        } else if judge_input(run, at, &judge, cx)? {
            run.tasks.enter(at, TaskState::Ready);
            run.tasks.mark_dirty(at, cx);
            run.tasks.push_ready_first(at);
        }
    }
    Ok(())
}

fn history(run: &Run, at: RunPlace, retries: u32) -> JudgeHistory {
    let attempts = run.tasks.task(at).map_or(0, Task::tries);
    match run.tasks.task(at).and_then(Task::judgement) {
        None => JudgeHistory { attempts, retries, ..JudgeHistory::default() },
        Some(made) => {
            let Judgement { rejections, round, attempts_before, .. } = *made;
            JudgeHistory { rejections, round, attempts_before, attempts, retries }
        }
    }
}

/// The checks that a part of a step fails.
fn failures(run: &Run, at: RunPlace, judge: &SharedJudge, judged: Judged<'_>) -> Vec<FailedCheck> {
    let scope = RunScope::at(run, at);
    judge.failures(judged.output.unwrap_or(judged.input), &JudgeScope { scope: &scope, judged })
}

/// Decides on the input of a place. False: the step has failed.
fn judge_input(run: &mut Run, at: RunPlace, judge: &SharedJudge, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    let Some((input, digest)) = run.tasks.task(at).map(|task| (task.shared_input(), task.input_digest())) else {
        return Ok(false);
    };
    let failed = failures(run, at, judge, Judged { input: &input, output: None });
    // The same input would be rejected again.
    let history = history(run, at, 0);
    let (judgement, next) = Judgement::decide(judge, JudgedPart::Input, digest, &failed, history);
    let error = rejected(run, at, &judgement);
    record(run, at, judgement, next, cx);
    if next == NextAction::Fail {
        projecting::refused(run, at, Refusal::Judge, &error, cx)?;
        answer::give_up(run, at, error, cx)?;
    }
    Ok(next != NextAction::Fail)
}

/// Checks that the judge would not fail a step with this input, which a person wants to give it.
pub(crate) fn check_edit(
    run: &Run,
    at: RunPlace,
    spec: &Spec,
    input: CanonicalJson,
) -> Result<CanonicalJson, ErrorBody> {
    let Some(judge) = judge_of(run, at).filter(|_| spec.effect_of(input.value()) == EffectKind::Write) else {
        return Ok(input);
    };
    let failed = failures(run, at, &judge, Judged { input: input.value(), output: None });
    match Judgement::decide(&judge, JudgedPart::Input, input.digest(), &failed, JudgeHistory::default()) {
        (judgement, NextAction::Fail) => Err(rejected(run, at, &judgement)),
        _ => Ok(input),
    }
}

/// Judges the input of a step that waits for approval and was edited.
pub(crate) fn judge_edited(
    run: &mut Run,
    at: RunPlace,
    spec: &Spec,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(judge) = judge_of(run, at).filter(|_| run.tasks.reach(at, spec) == EffectKind::Write) else {
        return Ok(());
    };
    if run.tasks.task(at).and_then(Task::input_judgement).is_none() {
        judge_input(run, at, &judge, cx)?;
    }
    Ok(())
}

pub(crate) fn has_judge(run: &Run, at: RunPlace) -> bool {
    judge_of(run, at).is_some()
}

/// What the judge of a tool call decides on, as far as the constants of its template tell. `None` without a judge.
pub(crate) fn part_judged(run: &Run, at: RunPlace, spec: &Spec) -> Option<JudgedPart> {
    judge_of(run, at)?;
    let template = run.tasks.function(at).map(|function| Value::Object(function.inputs.clone()));
    let reach = template.map_or(spec.effect, |template| spec.effect_of(&template));
    Some(if reach == EffectKind::Write { JudgedPart::Input } else { JudgedPart::Output })
}

/// What the judge would decide about the input of a write that a dry run knows. `None` if a check depends on what it
/// does not know, or the call is judged on its output.
pub(crate) fn judged_input(
    run: &Run,
    at: RunPlace,
    spec: &Spec,
    input: &Value,
    scope: &dyn Scope,
) -> Option<Judgement> {
    let judge = judge_of(run, at).filter(|_| spec.effect_of(input) == EffectKind::Write)?;
    let failed = judge.preview_failures(input, &JudgeScope { scope, judged: Judged { input, output: None } })?;
    Some(Judgement::decide(&judge, JudgedPart::Input, Digest32::of(input), &failed, JudgeHistory::default()).0)
}

/// The approval that a judgement of a dry run asks for, so that whoever approves the plan may also let this call through.
pub(crate) fn demand_if_escalated(run: &Run, at: RunPlace, judgement: &Judgement) -> Option<ApprovalRequirement> {
    let judge = judge_of(run, at).filter(|_| judgement.verdict == Verdict::Escalated)?;
    Some(escalation(&judge, judgement))
}

/// The approval that an escalated input needs. It comes on top of what rules, node and level require.
pub(crate) fn demand_of_judge(run: &Run, at: RunPlace) -> Option<ApprovalRequirement> {
    let judgement = run.tasks.task(at).and_then(Task::input_judgement)?;
    let judge = judge_of(run, at).filter(|_| judgement.verdict == Verdict::Escalated)?;
    Some(escalation(&judge, judgement))
}

/// Whether a person decides about a place because its judge escalated.
pub(crate) fn is_escalated(run: &Run, at: RunPlace) -> bool {
    let Some(task) = run.tasks.task(at) else { return false };
    let judgement = if task.held().is_some() { task.judgement() } else { task.input_judgement() };
    judgement.is_some_and(|judgement| judgement.verdict == Verdict::Escalated)
}

/// The demand of a held output that a person decides about.
pub(crate) fn demand_of_held(run: &Run, at: RunPlace) -> Option<ApprovalRequirement> {
    let task = run.tasks.task(at).filter(|task| task.held().is_some())?;
    Some(escalation(&judge_of(run, at)?, task.judgement()?))
}

/// The approval that an escalation requires.
pub(crate) fn escalation(judge: &SharedJudge, judgement: &Judgement) -> ApprovalRequirement {
    let (part, reasons) = (judgement.of.as_str(), judgement.reasons());
    demands::demand(&judge.judge.approval, &format!("the judge escalated the {part}: {reasons}"))
        .because_of(Obligation::judgement(judgement))
}

/// A place has an output: holds it for the judge, or releases it if there is none.
pub(crate) fn output_arrived(
    run: &mut Run,
    at: RunPlace,
    output: Value,
    how: &'static str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let judge = judge_of(run, at).filter(|_| judges_output(run, at) && !is_as_recorded(run, at, &output));
    let Some(judge) = judge else { return answer::release_output(run, at, output, how, cx) };
    let takes_long = judge.may_take_long(&output) && !run.stopping.is_stopping();
    if let Some(task) = run.tasks.task_mut(at) {
        task.hold(Arc::new(output), how);
    }
    if takes_long {
        judge_later(run, at, cx);
        return Ok(());
    }
    judge_output(run, at, &judge, cx)
}

/// Whether a place is judged on its output: it starts a child run, or calls a tool that changes nothing outside.
fn judges_output(run: &Run, at: RunPlace) -> bool {
    run.tasks.tool(at).is_none_or(|spec| run.tasks.reach(at, spec) != EffectKind::Write)
}

/// Whether a simulated replay got the same output as the original run, where it was judged. A retry really acts on the
/// output, and what the judge compares it with may have changed.
fn is_as_recorded(run: &Run, at: RunPlace, output: &Value) -> bool {
    if replay::replay_mode(run) == Some(ReplayMode::Retry) {
        return false;
    }
    let recorded = replay::recording(run, at).filter(|recording| recording.error.is_none());
    recorded.is_some_and(|recording| *recording.output == outputs::completed(output.clone()))
}

/// Decides on the held output of a place.
fn judge_output(run: &mut Run, at: RunPlace, judge: &SharedJudge, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some((task, held)) = run.tasks.task(at).and_then(|task| Some((task, task.held()?.clone()))) else {
        return Ok(());
    };
    let input = task.shared_input();
    let failed = failures(run, at, judge, Judged { input: &input, output: Some(&held.output) });
    // A child run may have changed something outside: it is not started again.
    let retries = if run.tasks.tool(at).is_some() && !run.stopping.is_stopping() { judge.judge.retries } else { 0 };
    let digest = Digest32::of(&held.output);
    let history = history(run, at, retries);
    let (judgement, next) = Judgement::decide(judge, JudgedPart::Output, digest, &failed, history);
    let (error, demand) = (rejected(run, at, &judgement), escalation(judge, &judgement));
    record(run, at, judgement, next, cx);
    match next {
        NextAction::Release => release(run, at, held, cx),
        NextAction::Retry => try_again(run, at, cx),
        NextAction::Fail => {
            projecting::refused(run, at, Refusal::Judge, &error, cx)?;
            answer::fail_step(run, at, error, cx)
        }
        NextAction::Ask if run.stopping.is_stopping() => stop::stop_step(run, at, cx),
        NextAction::Ask => approve::request_approval(run, at, &demand, cx),
    }
}

/// The judge or a person lets the output through.
pub(crate) fn release(
    run: &mut Run,
    at: RunPlace,
    held: HeldOutput,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if let Some(task) = run.tasks.task_mut(at) {
        task.take_held();
    }
    answer::release_output(run, at, Arc::unwrap_or_clone(held.output), held.how, cx)
}

/// The step is tried again, and may use what the judge said.
fn try_again(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let reads = run.tasks.graph().nodes[at.node].inputs.as_ref().is_some_and(Template::reads_judge);
    if let Some(task) = run.tasks.task_mut(at) {
        task.try_again(reads);
    }
    run.tasks.enter(at, TaskState::Ready);
    run.tasks.mark_dirty(at, cx);
    run.tasks.push_ready(at);
    Ok(())
}

/// The error of a step that its judge rejected.
fn rejected(run: &Run, at: RunPlace, judgement: &Judgement) -> ErrorBody {
    let (part, node) = (judgement.of.as_str(), run.tasks.name(at));
    let message = format!("the judge rejected the {part} of {node}: {}", judgement.reasons());
    let details = json!({"of": part, "rejections": judgement.rejections, "failed": judgement.failed});
    ErrorBody::new(Code::ValidationFailed, message).with("judge", details)
}

/// Records a judgement with the step and in the ledger.
fn record(run: &mut Run, at: RunPlace, judgement: Judgement, next: NextAction, cx: &mut TurnContext<'_>) {
    run.tasks.mark_dirty(at, cx);
    let failed: Vec<String> = judgement.failed.iter().map(|failure| failure.check.clone()).collect();
    let rationale = match judgement.verdict {
        Verdict::Passed => "all checks passed".to_owned(),
        Verdict::Rejected | Verdict::Escalated => judgement.reasons(),
    };
    let data = json!({
        "node": run.tasks.name(at), "item": at.item, "of": judgement.of, "verdict": judgement.verdict,
        "digest": judgement.digest, "rejections": judgement.rejections, "failed": failed,
        "retried": next == NextAction::Retry,
    });
    let outcome = match judgement.verdict {
        Verdict::Passed => Outcome::Approved,
        Verdict::Rejected => Outcome::Rejected,
        Verdict::Escalated => Outcome::Deferred,
    };
    let decision = GovernanceDecision { source: DecisionSource::Output, outcome, rationale, policies: failed };
    cx.turn.add_decision("step.judged", run.tasks.step_id(at), data, decision);
    if let Some(task) = run.tasks.task_mut(at) {
        task.judged(judgement);
    }
}
