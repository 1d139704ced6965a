//! Wait nodes: until a time, or for an event from outside.
//!
//! A waiting place uses no slot. Its row in `event_waits` lets a publisher find the run; the event comes as a signal.
//! Once that row is durable, the run looks for an event that was published before. It does so again when it is claimed,
//! and a last time after its timeout, so that an event which was accepted before is never missed.

use super::event::{Effect, EventQuery};
use super::replay::RecordedOutcome;
use super::start::too_deep;
use super::tasks::task::{Task, TaskState};
use super::turn_builder::{TurnBuilder, TurnContext};
use super::{Run, RunPlace, answer, children, replay, requesters, start};
use crate::error::{Code, ErrorBody};
use crate::flow::air::{Body, TimeoutPolicy, Wait};
use crate::flow::event::rows::{EventChannel, NewWait};
use crate::flow::event::{EventLookup, ReceivedEvent, check_event_key};
use crate::flow::outputs;
use crate::json::{CanonicalJson, Digest32};
use crate::limits;
use crate::record::Unstorable;
use crate::time::Timestamp;
use serde_json::{Value, json};

/// What a place waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WaitState {
    /// The time that it waits for, or the timeout of its event.
    pub(crate) until: Option<Timestamp>,
    event: Option<AwaitedEvent>,
    /// The timeout has passed. The last lookup decides.
    is_late: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct AwaitedEvent {
    name: String,
    key: String,
}

impl WaitState {
    const fn until(until: Timestamp) -> Self {
        Self { until: Some(until), event: None, is_late: false }
    }

    /// The wait of a stored step.
    pub(crate) fn load(input: &Value, until: Option<Timestamp>) -> Self {
        let text = |member: &str| input["event"][member].as_str().map(str::to_owned);
        let event = text("name").zip(text("key")).map(|(name, key)| AwaitedEvent { name, key });
        Self { until, event, is_late: false }
    }

    /// When it has to be looked at.
    pub(crate) const fn timer(&self) -> Option<Timestamp> {
        if self.is_late { None } else { self.until }
    }
}

/// Starts to wait, or completes the node if its time has passed.
pub(crate) fn start_wait(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    match replay::recorded_outcome(run, at, None) {
        RecordedOutcome::NotUsed => {}
        RecordedOutcome::Output(output) => return children::complete_nested(run, at, output, "recorded", cx),
        RecordedOutcome::Failed(error) => return answer::fail_step(run, at, error, cx),
        RecordedOutcome::Missing => return replay::not_recorded(run, at, cx),
    }
    let wait = match resolve(run, at, cx.env.now) {
        Ok(wait) => wait,
        Err(error) => return answer::fail_step(run, at, error, cx),
    };
    let step = run.tasks.ensure_step(at, &mut cx.env);
    if let Some(task) = run.tasks.task_mut(at) {
        task.begin(cx.env.now);
    }
    let event = wait.event.clone();
    let until = wait.until;
    run.tasks.enter(at, TaskState::Waiting(wait));
    run.tasks.mark_dirty(at, cx);
    let Some(AwaitedEvent { name, key }) = event else {
        if until.is_some_and(|until| until <= cx.env.now) {
            return time_has_come(run, at, cx);
        }
        let data = json!({"node": run.tasks.name(at), "until": until});
        cx.turn.add_note("step.wait_started", Some(step), None, data);
        return Ok(());
    };
    let data = json!({"node": run.tasks.name(at), "event": {"name": name, "key": key}, "until": until});
    cx.turn.add_note("step.wait_started", Some(step), None, data);
    let channel = EventChannel { tenant: &run.head.tenant, name: &name, key: &key };
    cx.turn.begin_wait(channel, NewWait { run: run.head.id, step, at: cx.env.now })?;
    look_up(run, at, false, &mut cx.turn);
    Ok(())
}

/// Renders what the node waits for, and fixes it as the input of its step.
fn resolve(run: &mut Run, at: RunPlace, now: Timestamp) -> Result<WaitState, ErrorBody> {
    let invalid = |reason: String| ErrorBody::new(Code::ValidationFailed, reason);
    let name = run.tasks.name(at).to_owned();
    let input = start::render_inputs(run, at)?;
    let timeout = run.tasks.graph().nodes[at.node].node.timeout_seconds;
    let wait = if let Some(until) = input.get("until") {
        let until = until.as_str().and_then(|text| text.parse().ok());
        WaitState::until(until.ok_or_else(|| invalid(format!("{name} can't wait: until is not an RFC 3339 time")))?)
    } else if let Some(seconds) = input.get("for_seconds") {
        let seconds = seconds.as_i64().filter(|seconds| (0..=i64::from(limits::FLOW_SECONDS_MAX)).contains(seconds));
        let most = limits::FLOW_SECONDS_MAX;
        let reason = || invalid(format!("{name} can't wait: for_seconds is not an integer from 0 to {most}"));
        WaitState::until(now.plus_seconds(seconds.ok_or_else(reason)?))
    } else {
        let until = timeout.map(|seconds| now.plus_seconds(i64::from(seconds)));
        let wait = WaitState::load(&input, until);
        let key = wait.event.as_ref().map(|event| event.key.as_str()).unwrap_or_default();
        check_event_key(key).map_err(|reason| invalid(format!("{name} can't wait: {reason}")))?;
        wait
    };
    let input = CanonicalJson::new(input).map_err(|error| too_deep("the input", &error))?;
    run.budget.count_input(input.value(), &name)?;
    run.tasks.fix_input(at, input);
    Ok(wait)
}

/// Looks for an event that is already in the store, unless that is under way.
fn look_up(run: &mut Run, at: RunPlace, last: bool, turn: &mut TurnBuilder) {
    let Some(TaskState::Waiting(WaitState { event: Some(event), .. })) = run.tasks.state(at) else { return };
    if run.tasks.calls().contains(&at) {
        return;
    }
    if run.tasks.calls().len() >= limits::RUN_CALLS_MAX {
        return run.tasks.queue_lookup(at, last);
    }
    let (name, key) = (event.name.clone(), event.key.clone());
    let received = received_ids(run).map(str::to_owned).collect();
    run.tasks.call_started(at);
    turn.effects.push(Effect::LookUpEvent(EventQuery { at, name, key, received, last }));
}

/// Starts lookups that waited for calls in flight.
pub(crate) fn start_lookups(run: &mut Run, cx: &mut TurnContext<'_>) {
    while let Some((at, last)) = run.tasks.next_lookup() {
        look_up(run, at, last, &mut cx.turn);
    }
}

/// The run was loaded: an event may have come between its wait and its first lookup.
pub(crate) fn resume(run: &mut Run, cx: &mut TurnContext<'_>) {
    let waiting = |at: &RunPlace| matches!(run.tasks.state(*at), Some(TaskState::Waiting(_)));
    let places: Vec<RunPlace> = run.tasks.places().filter(waiting).collect();
    for at in places {
        look_up(run, at, false, &mut cx.turn);
    }
}

/// The ids of the events that the run has received.
fn received_ids(run: &Run) -> impl Iterator<Item = &str> {
    let nodes = run.tasks.graph().nodes.iter().zip(run.tasks.nodes());
    let waits = nodes.filter(|(compiled, _)| matches!(compiled.node.body, Body::Wait(Wait::Event(_))));
    waits.filter_map(|(_, task)| task.output()?.get("event_id")?.as_str())
}

/// A lookup ended.
pub(crate) fn looked_up(
    run: &mut Run,
    at: RunPlace,
    last: bool,
    found: EventLookup,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    run.tasks.call_ended(at);
    let Some(TaskState::Waiting(wait)) = run.tasks.state(at) else { return Ok(()) };
    let is_late = wait.is_late;
    match found {
        EventLookup::Found(event) if received_ids(run).all(|id| id != event.event_id) => {
            return receive(run, at, &event, cx);
        }
        EventLookup::NotFound if last => return time_out(run, at, cx),
        EventLookup::NotFound if !is_late => return Ok(()),
        // Another place has taken it, the timeout passed meanwhile, or the store did not answer.
        EventLookup::Found(_) | EventLookup::NotFound | EventLookup::Failed => {}
    }
    if !run.stopping.is_stopping() {
        look_up(run, at, is_late, &mut cx.turn);
    }
    Ok(())
}

/// An event was published. The place that has waited longest gets it, and a run gets an event once.
pub(crate) fn event_received(run: &mut Run, event: ReceivedEvent, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if received_ids(run).any(|id| id == event.event_id) {
        return Ok(());
    }
    let awaits = |at: &RunPlace| match run.tasks.state(*at) {
        Some(TaskState::Waiting(WaitState { event: Some(awaited), .. })) => {
            awaited.name == event.name && awaited.key == event.key
        }
        _ => false,
    };
    let since = |at: RunPlace| run.tasks.task(at).and_then(Task::started_at);
    match run.tasks.places().filter(awaits).min_by_key(|at| (since(*at), *at)) {
        Some(at) => receive(run, at, &event, cx),
        None => Ok(()),
    }
}

/// Completes a place with its event. Whoever sent it chose data that later steps use, and counts as a requester.
fn receive(run: &mut Run, at: RunPlace, event: &ReceivedEvent, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    close(run, at, &mut cx.turn);
    requesters::add_co_requesters(run, [event.sent_by.as_str()]);
    let data = json!({
        "node": run.tasks.name(at), "event_id": event.event_id, "name": event.name, "key": event.key,
        "payload_digest": Digest32::of(&event.payload), "sent_by": event.sent_by,
    });
    cx.turn.add_note("step.event_received", run.tasks.step_id(at), None, data);
    children::complete_nested(run, at, outputs::received(event), "event", cx)
}

/// The timer of a place fired.
pub(crate) fn time_has_come(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(TaskState::Waiting(wait)) = run.tasks.state(at) else { return Ok(()) };
    let wait = wait.clone();
    match wait.until.filter(|_| wait.event.is_none()) {
        Some(until) => children::complete_nested(run, at, outputs::waited_until(until), "time", cx),
        None => {
            run.tasks.enter(at, TaskState::Waiting(WaitState { is_late: true, ..wait }));
            look_up(run, at, true, &mut cx.turn);
            Ok(())
        }
    }
}

/// The event did not come in time.
fn time_out(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(TaskState::Waiting(WaitState { event: Some(event), .. })) = run.tasks.state(at) else { return Ok(()) };
    let AwaitedEvent { name, key } = event.clone();
    close(run, at, &mut cx.turn);
    let node = &run.tasks.graph().nodes[at.node].node;
    if let Body::Wait(Wait::Event(wait)) = &node.body
        && wait.on_timeout == TimeoutPolicy::Continue
    {
        return children::complete_nested(run, at, outputs::timed_out(&name, &key), "timeout", cx);
    }
    let seconds = node.timeout_seconds.unwrap_or_default();
    let message = format!("the event {name} with the key {key} did not come within {seconds} s");
    let error = ErrorBody::new(Code::RequestTimeout, message).with("event", json!({"name": name, "key": key}));
    answer::fail_step(run, at, ErrorBody { retryable: false, ..error }, cx)
}

/// A place stops waiting: publishers no longer find it.
pub(crate) fn close(run: &Run, at: RunPlace, turn: &mut TurnBuilder) {
    if let Some(TaskState::Waiting(WaitState { event: Some(_), .. })) = run.tasks.state(at)
        && let Some(step) = run.tasks.step_id(at)
    {
        turn.end_wait(step);
    }
}
