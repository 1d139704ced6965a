//! Starts a ready place.
//!
//! In this order: render and check the input, use a recording if the run is a replay, let the node's judge decide on a
//! write, check the limits and the policy, request approval if required, look in the cache if the node allows it, take a
//! slot, read what the limits have counted, count the call and dispatch it. A call with external effects is recorded as
//! dispatched first; a pure one needs no row before its result.

use super::consult::{self, LimitCheck};
use super::env::{Env, SlotRequest};
use super::event::{Call, CallMode, Effect};
use super::patches::pins;
use super::replay::RecordedOutcome;
use super::scope::RunScope;
use super::tasks::task::{Task, TaskState};
use super::turn_builder::EffectRecord;
use super::turn_builder::{TurnBuilder, TurnContext};
use super::{
    EffectStatus, Run, RunPlace, answer, approve, children, elsewhere, judge, maps, policy_verdict, projecting, replay,
    restore, step, waits,
};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::flow::air::{Body, ChildWorkflow, MapItem};
use crate::flow::policy::PolicyVerdict;
use crate::id;
use crate::json::{CanonicalJson, Digest32, TooDeep, check_depth};
use crate::limits;
use crate::record::{Json, Unstorable, escapes_nul};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec, is_dry_run};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) enum Work {
    Tool(Arc<Spec>),
    Child { workflow: String, version: Option<i64> },
    Person,
    Map,
    Wait,
    Unsupported(&'static str),
}

/// Starts what is ready, as far as slots and the limits of the turn allow.
pub(crate) fn start_ready(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let mut held = Vec::new();
    while may_start(run) {
        if step::is_turn_full(run, &cx.turn) {
            cx.turn.more |= run.tasks.has_ready();
            break;
        }
        if run.tasks.calls().len() >= limits::RUN_CALLS_MAX || held.len() >= limits::RUN_CALLS_MAX {
            break;
        }
        let Some(at) = run.tasks.next_ready() else { break };
        if !run.tasks.task(at).is_some_and(|task| matches!(task.state(), TaskState::Ready)) {
            continue;
        }
        if !start(run, at, cx)? {
            held.push(at);
        }
    }
    for at in held.into_iter().rev() {
        run.tasks.push_ready_first(at);
    }
    Ok(())
}

pub(crate) fn may_start(run: &Run) -> bool {
    !run.stopping.is_paused()
        && run.stopping.cancellation().is_none()
        && run.stopping.failure().is_none()
        && !run.status.is_final()
        && !run.drafting.is_under_way()
        && !run.drafting.is_plan_pending()
}

pub(crate) fn work(run: &Run, at: RunPlace) -> Work {
    let compiled = &run.tasks.graph().nodes[at.node];
    let child = |child: &ChildWorkflow| Work::Child {
        workflow: child.workflow_id.clone(),
        version: child.version.or_else(|| pins::pinned(run, at.node, &child.workflow_id)),
    };
    let tool = || compiled.tool.clone().map_or(Work::Unsupported("function"), Work::Tool);
    match (&compiled.node.body, at.item) {
        (Body::Function(_), _) => tool(),
        (Body::Map(each), Some(_)) => match &each.item {
            MapItem::Function(_) => tool(),
            MapItem::Workflow(started) => child(started),
        },
        (Body::Map(_), None) => Work::Map,
        (Body::Workflow(started), _) => child(started),
        (Body::Hitl(_), _) => Work::Person,
        (Body::Wait(_), _) => Work::Wait,
        (Body::Agent(_), _) => Work::Unsupported("agent"),
        (Body::Swarm(_), _) => Work::Unsupported("swarm"),
    }
}

/// Starts one place. False: it stays ready, because no slot is free or it must wait to ask.
fn start(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    match work(run, at) {
        Work::Tool(spec) => start_tool(run, at, &spec, cx),
        Work::Person | Work::Child { .. } if must_wait_to_ask(run) => Ok(false),
        Work::Person => approve::start_person(run, at, cx).map(|()| true),
        Work::Child { workflow, version } => children::start_child(run, at, workflow, version, cx).map(|()| true),
        Work::Map => maps::start_map(run, at, cx),
        Work::Wait => waits::start_wait(run, at, cx).map(|()| true),
        Work::Unsupported(kind) => {
            let message = format!("nodes of type {kind} are not supported yet");
            answer::fail_step(run, at, ErrorBody::new(Code::ToolUnavailable, message), cx).map(|()| true)
        }
    }
}

fn start_tool(run: &mut Run, at: RunPlace, spec: &Arc<Spec>, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    if let Err(error) = prepare_input(run, at, spec) {
        return answer::fail_step(run, at, error, cx).map(|()| true);
    }
    match replay::recorded_outcome(run, at, Some(spec)) {
        RecordedOutcome::NotUsed => {}
        RecordedOutcome::Output(output) => {
            return answer::complete_without_call(run, at, output, "recorded", cx).map(|()| true);
        }
        RecordedOutcome::Failed(error) => return answer::fail_step(run, at, error, cx).map(|()| true),
        RecordedOutcome::Missing => return replay::not_recorded(run, at, cx).map(|()| true),
    }
    if run.tasks.graph().nodes[at.node].is_tool_absent {
        return answer::give_up(run, at, tool_absent(spec), cx).map(|()| true);
    }
    if !judge::judge_before_sending(run, at, spec, cx)? {
        return Ok(true);
    }
    start_judged(run, at, spec, cx)
}

/// Starts a call whose input is fixed and judged.
fn start_judged(run: &mut Run, at: RunPlace, spec: &Arc<Spec>, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    let limits = consult::limits_on(run, at, spec, &cx.env);
    let (beyond, is_read) = match consult::check(run, at, &limits, cx) {
        LimitCheck::Fits => (None, true),
        LimitCheck::NotRead => (None, false),
        LimitCheck::Ask(demand) => (Some(demand), true),
        LimitCheck::Denied(refusal) => return consult::refuse(run, at, *refusal, &limits, cx).map(|()| true),
    };
    match policy_verdict::evaluate_beyond_limit(run, at, spec, beyond, &cx.env) {
        PolicyVerdict::Allow => {}
        PolicyVerdict::Ask(_) if must_wait_to_ask(run) => return Ok(false),
        // A person who is asked is also told that the call is beyond a limit.
        PolicyVerdict::Ask(_) if !is_read => {
            let has_slot = elsewhere::is_executed_elsewhere(run, at, spec) || take_slot(run, at, spec, &mut cx.env);
            if has_slot {
                consult::request(run, at, limits, &mut cx.turn);
            }
            return Ok(has_slot);
        }
        PolicyVerdict::Ask(demand) => return approve::request_approval(run, at, &demand, cx).map(|()| true),
        PolicyVerdict::Deny { rule, reason } => {
            return policy_verdict::refuse_by_policy(run, at, rule, reason, cx).map(|()| true);
        }
    }
    if restore::may_be_already_done(run, at, spec) {
        return restore::resolve_before_dispatch(run, at, spec, cx);
    }
    if run.tasks.task(at).is_some_and(Task::may_be_cached) && look_in_cache(run, at, spec, &mut cx.turn) {
        return Ok(true);
    }
    // What is executed elsewhere takes no slot here.
    let is_elsewhere = elsewhere::is_executed_elsewhere(run, at, spec);
    if !is_elsewhere && !take_slot(run, at, spec, &mut cx.env) {
        return Ok(false);
    }
    if !is_read {
        consult::request(run, at, limits, &mut cx.turn);
        return Ok(true);
    }
    consult::reserve(run, at, spec, &limits, cx);
    if is_elsewhere {
        elsewhere::start(run, at, spec, cx)?;
    } else {
        dispatch(run, at, spec, CallMode::Execute, cx)?;
    }
    Ok(true)
}

/// Takes a slot for a call. False: none is free, and the request is queued.
pub(crate) fn take_slot(run: &Run, at: RunPlace, spec: &Spec, env: &mut Env<'_>) -> bool {
    let (id, tenant, priority) = (run.head.id, run.head.tenant.as_str(), run.priority_at(at));
    // The run's values grow only with the outputs of calls.
    if !env.gate.may_grow(id, run.memory_bytes()) {
        return false;
    }
    let input = run.tasks.input(at).filter(|_| spec.effect != EffectKind::Pure);
    env.gate.enter(SlotRequest { run: id, at, tenant, tool: &spec.name, version: &spec.version, input, priority })
}

/// At L0, steps are approved one at a time: each after the previous one has ended.
fn must_wait_to_ask(run: &Run) -> bool {
    let calls = run.tasks.calls().len() + run.tasks.calls_elsewhere();
    run.head.level == Level::Ask && (run.tasks.awaiting_approval() > 0 || calls > 0)
}

/// Renders, checks and fixes the input of a place.
fn prepare_input(run: &mut Run, at: RunPlace, spec: &Spec) -> Result<(), ErrorBody> {
    if run.tasks.task(at).is_some_and(|task| task.input().is_some()) {
        return Ok(());
    }
    let input = match run.drafting.edited_input(run.tasks.name(at), at) {
        Some(edited) => edited.clone(),
        None => render_inputs(run, at)?,
    };
    let input = validate_input(spec, input)?;
    run.budget.count_input(input.value(), run.tasks.name(at))?;
    run.tasks.fix_input(at, input);
    Ok(())
}

/// The inputs of a place, with all expressions rendered.
pub(crate) fn render_inputs(run: &Run, at: RunPlace) -> Result<Value, ErrorBody> {
    let Some(template) = &run.tasks.graph().nodes[at.node].inputs else { return Ok(json!({})) };
    template.render(&RunScope::at(run, at)).map_err(|error| {
        ErrorBody::new(
            Code::ValidationFailed,
            format!("the inputs of {} can't be resolved: {error}", run.tasks.name(at)),
        )
    })
}

/// Dispatches the call. It is recorded first if it has external effects.
pub(crate) fn dispatch(
    run: &mut Run,
    at: RunPlace,
    spec: &Arc<Spec>,
    mode: CallMode,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if let Some(made) = record_dispatch(run, at, spec, mode, cx)? {
        run.tasks.enter(at, TaskState::Running { call: made.id, mode: made.mode.clone() });
        run.tasks.call_started(at);
        cx.turn.effects.push(Effect::Call(made));
    }
    Ok(())
}

/// Records a call that is about to be made, if it has external effects.
pub(crate) fn record_dispatch(
    run: &mut Run,
    at: RunPlace,
    spec: &Arc<Spec>,
    mode: CallMode,
    cx: &mut TurnContext<'_>,
) -> Result<Option<Call>, Unstorable> {
    let deadline = call_deadline(run, at, spec, cx.env.now);
    let call = (cx.env.ids)();
    let step = run.tasks.ensure_step(at, &mut cx.env);
    let now = cx.env.now;
    let key = effect_key(run, at, &mode);
    let head = Arc::clone(&run.head);
    let Some(task) = run.tasks.task_mut(at) else { return Ok(None) };
    let attempt = task.begin_call(&mode, now);
    let queue = elsewhere::queue_of(spec, task.input());
    if mode == CallMode::Execute {
        task.set_work(None);
    }
    let input = task.shared_input();
    let digest = task.input_digest();
    // A check looks for the call as it was sent, even if the row of its effect is missing.
    let effect = if mode == CallMode::Check { id::effect(head.id, &key) } else { step };
    let mut made = Call { at, id: call, step, effect, key, attempt, tool: Arc::clone(spec), mode, input, deadline };
    if spec.effect != EffectKind::Pure && made.mode == CallMode::Execute {
        let (key, tool, status) = (made.key.as_str(), spec.name.as_str(), EffectStatus::Dispatched);
        made.effect = cx.turn.write_effect(&head, task, EffectRecord { key, tool, status, deadline, at: now })?;
        cx.turn.record_call_start(&head, &made, now)?;
        cx.turn.dirty.insert(at);
        let mut data = json!({
            "node": run.tasks.name(at), "item": at.item, "tool": spec.name, "attempt": attempt,
            "effect_id": made.effect, "input_digest": digest,
        });
        if let Some(queue) = queue {
            data["queue"] = queue.into();
        }
        note_dry(&mut data, &made.input);
        if let Some(counted) = cx.limits.take_counted(at) {
            data["limits"] = counted;
        }
        cx.turn.add_note("step.dispatched", Some(step), None, data);
    } else if let Some(stored) = task.effect() {
        made.effect = stored.id;
    }
    projecting::call_started(run, &made, cx)?;
    Ok(Some(made))
}

fn call_deadline(run: &Run, at: RunPlace, spec: &Spec, now: Timestamp) -> Timestamp {
    let node = &run.tasks.graph().nodes[at.node].node;
    let ms = node.timeout_seconds.map_or(spec.timeout_ms, |seconds| u64::from(seconds) * 1_000);
    Timestamp::from_micros(now.micros().saturating_add(i64::try_from(ms).unwrap_or(i64::MAX / 2_000) * 1_000))
}

/// The idempotency key of a call. It begins with the run id, so that keys grow over time.
pub(crate) fn effect_key(run: &Run, at: RunPlace, mode: &CallMode) -> String {
    let item = at.item.map(|item| format!("[{item}]")).unwrap_or_default();
    let undo = if matches!(mode, CallMode::Undo { .. }) { ":undo" } else { "" };
    // What a judge rejected is asked for anew, and must not be answered from the call before.
    let round = match run.tasks.task(at).map_or(0, Task::round) {
        0 => String::new(),
        round => format!(":{}", round + 1),
    };
    format!("{}:{}{item}{round}{undo}", run.head.id.simple(), run.tasks.name(at))
}

/// Looks in the cache if the node allows it.
fn look_in_cache(run: &mut Run, at: RunPlace, spec: &Spec, turn: &mut TurnBuilder) -> bool {
    if run.tasks.reach(at, spec) == EffectKind::Write || replay::replay_mode(run).is_some() {
        return false;
    }
    if run.tasks.function(at).is_none_or(|function| function.cache.is_none()) {
        return false;
    }
    let Some(digest) = run.tasks.input_digest(at) else { return false };
    let key = cache_key(run.tasks.name(at), spec, digest);
    run.tasks.enter(at, TaskState::LookingUpCache);
    run.tasks.call_started(at);
    turn.effects.push(Effect::LookUpCache { at, key });
    true
}

pub(crate) fn cache_looked_up(
    run: &mut Run,
    at: RunPlace,
    hit: Option<Value>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(TaskState::LookingUpCache) = run.tasks.state(at) else { return Ok(()) };
    run.tasks.call_ended(at);
    match hit {
        Some(output) => answer::use_cached(run, at, output, cx),
        None => {
            // It is evaluated again: the lookup took time.
            run.tasks.enter(at, TaskState::Ready);
            if let Some(task) = run.tasks.task_mut(at) {
                task.miss_cache();
            }
            run.tasks.push_ready_first(at);
            Ok(())
        }
    }
}

/// Marks the entry of a call whose own input asks for a dry run.
pub(crate) fn note_dry(data: &mut Value, input: &Value) {
    if is_dry_run(input) {
        data["dry_run"] = true.into();
    }
}

/// The key of a cached output.
pub(crate) fn cache_key(node: &str, spec: &Spec, digest: Digest32) -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    hasher.update(digest);
    hasher.update(spec.name.as_bytes());
    hasher.update([0]);
    hasher.update(spec.version.as_bytes());
    format!("{node}:sha256:{}", hex::encode(hasher.finalize()))
}

/// The error of a place whose tool is not configured here.
pub(crate) fn tool_absent(placeholder: &Spec) -> ErrorBody {
    let message = format!("{}; configure it and retry the run", placeholder.description);
    ErrorBody::new(Code::ToolUnavailable, message).with("tool", placeholder.name.as_str())
}

/// Checks an input against the tool's schema and the limits.
pub(crate) fn validate_input(spec: &Spec, input: Value) -> Result<CanonicalJson, ErrorBody> {
    check_input(spec, &input)?;
    CanonicalJson::new(input).map_err(|error| too_deep("the input", &error))
}

/// The error of a value that is nested too deeply.
pub(crate) fn too_deep(what: &str, error: &TooDeep) -> ErrorBody {
    ErrorBody::new(Code::ValidationFailed, format!("{what} is {error}"))
}

/// Checks that the tool accepts this input and that it can be stored.
pub(crate) fn check_input(spec: &Spec, input: &Value) -> Result<(), ErrorBody> {
    check_depth(input, limits::JSON_DEPTH_MAX).map_err(|error| too_deep("the input", &error))?;
    spec.input.check(input).map_err(|faults| {
        let message = format!("the input does not match the schema of {}", spec.name);
        let faults = serde_json::to_value(faults).unwrap_or_default();
        ErrorBody::new(Code::ValidationFailed, message).with("faults", faults)
    })?;
    let text = Json::encode(input).map_err(|error| ErrorBody::new(Code::ValidationFailed, error.to_string()))?;
    if escapes_nul(text.as_str()) {
        return Err(ErrorBody::new(Code::ValidationFailed, "the input of a step has a character that can't be stored"));
    }
    if text.as_str().len() > limits::RUN_INPUT_BYTES_MAX {
        return Err(ErrorBody::new(Code::PayloadTooLarge, "the input of a step is too large"));
    }
    Ok(())
}
