//! Nested places: child runs, and maps over a list.
//!
//! A parent that waits for a child run uses no slot and no memory: the child's end is a signal. The
//! items of a map are places with their own steps; at most `max_parallel` of them run at a time.

use super::scope::RunScope;
use super::tasks::task::{MapProgress, Task, TaskState};
use super::turn_builder::TurnContext;
use super::{Run, RunPlace, answer, approve, approvers, budget, children, map_calls, requesters, stop};
use crate::error::{Code, ErrorBody};
use crate::flow::approval::GivenApproval;
use crate::flow::outputs;
use crate::json::Digest32;
use crate::limits;
use crate::record::{Json, Unstorable};
use serde_json::{Value, json};
use std::sync::Arc;

/// Starts a map, or requests approval of its calls. False: it stays ready.
pub(crate) fn start_map(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    if run.tasks.task(at).is_none_or(|task| task.input().is_none()) {
        let list = match list_of(run, at) {
            Ok(list) => list,
            Err(error) => return answer::fail_step(run, at, error, cx).map(|()| true),
        };
        let digest = Digest32::of(&json!(list));
        if let Some(task) = run.tasks.task_mut(at) {
            task.fix_input(Arc::new(json!({ "over": list })), digest);
        }
    }
    match budget::check_map_size(run, at.node) {
        Ok(true) => {}
        Ok(false) => {
            cx.turn.more = true;
            return Ok(false);
        }
        Err(error) => return answer::fail_step(run, at, error, cx).map(|()| true),
    }
    begin_map(run, at, cx).map(|()| true)
}

fn begin_map(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let digest = run.tasks.task(at).map(Task::input_digest);
    let (demand, requesters) = (map_calls::demand_of_map(run, at.node, &cx.env), requesters::requesters_of(run, at));
    let is_met = |given: GivenApproval<'_>| {
        demand.as_ref().is_none_or(|demand| approvers::is_met_by(run, given, demand, &requesters, &cx.env))
    };
    let approved = run.tasks.task(at).and_then(Task::approval).filter(|approved| is_met(approved.given())).cloned();
    let is_listed = approved.is_some_and(|approved| map_calls::approve_map_calls(run, at.node, &approved));
    if let Some(demand) = demand.filter(|_| !is_listed) {
        let demand = approvers::with_lapsed_approvers(run, at, demand, &cx.env);
        return approve::request_approval(run, at, &demand, cx);
    }
    let step = run.tasks.ensure_step(at, &mut cx.env);
    let over = Arc::new(run.tasks.map_list(at.node).unwrap_or_default().to_vec());
    let open = over.len();
    if let Some(task) = run.tasks.task_mut(at) {
        task.begin(cx.env.now);
    }
    run.tasks.enter(at, TaskState::Mapping(MapProgress { over, open, ..MapProgress::default() }));
    run.tasks.mark_dirty(at, cx);
    cx.turn.add_note(
        "step.map_started",
        Some(step),
        None,
        json!({"node": run.tasks.name(at), "items": open, "input_digest": digest}),
    );
    if open == 0 {
        return children::complete_nested(run, at, outputs::mapped(Vec::new()), "map", cx);
    }
    run.tasks.start_items(at.node);
    Ok(())
}

/// The list of a map, checked against the limits of the run.
fn list_of(run: &Run, at: RunPlace) -> Result<Vec<Value>, ErrorBody> {
    let over = match &run.tasks.graph().nodes[at.node].over {
        None => Err("it has no list".to_owned()),
        Some(template) => template.render(&RunScope::of(run)).map_err(|error| error.to_string()),
    };
    let list = match over {
        Ok(Value::Array(list)) if list.len() <= limits::MAP_ITEMS_MAX => list,
        Ok(Value::Array(_)) => {
            let message = format!("the list of {} has more than {} items", run.tasks.name(at), limits::MAP_ITEMS_MAX);
            return Err(ErrorBody::new(Code::PayloadTooLarge, message));
        }
        other => {
            let why = other.map_or_else(|why| why, |_| "it is not a list".to_owned());
            let message = format!("the list of {} can't be used: {why}", run.tasks.name(at));
            return Err(ErrorBody::new(Code::ValidationFailed, message));
        }
    };
    let steps = run.tasks.steps_planned().saturating_add(list.len());
    if steps > limits::RUN_STEPS_MAX {
        let message = format!(
            "the items of {} would bring the run to {steps} steps; the limit is {}",
            run.tasks.name(at),
            limits::RUN_STEPS_MAX
        );
        return Err(ErrorBody::new(Code::PayloadTooLarge, message).with("steps_max", limits::RUN_STEPS_MAX));
    }
    let starts_runs = run.tasks.graph().nodes[at.node].node.child().is_some();
    if starts_runs && u64::try_from(list.len()).unwrap_or(u64::MAX) > children::descendant_limit(run, at) {
        return Err(children::too_many_children(run.tasks.name(at)));
    }
    Ok(list)
}

/// An item has settled: starts the next one, or ends the map.
pub(crate) fn item_ended(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(mapping) = run.tasks.node_mut(at.node).mapping_mut() else { return Ok(()) };
    mapping.open = mapping.open.saturating_sub(1);
    mapping.busy = mapping.busy.saturating_sub(1);
    let item = at.item.and_then(|item| mapping.items.get(usize::try_from(item).ok()?));
    if item.is_some_and(|item| matches!(item.state(), TaskState::Failed { .. })) && mapping.failed.is_none() {
        mapping.failed = at.item;
        stop_items(run, at.node, cx)?;
    }
    let Some(mapping) = run.tasks.node_mut(at.node).mapping_mut() else { return Ok(()) };
    if mapping.failed.is_some() {
        return map_failed(run, at.node, cx);
    }
    if mapping.open > 0 {
        run.tasks.start_items(at.node);
        return Ok(());
    }
    let items: Vec<Value> =
        mapping.items.iter().map(|item| item.output().map(|output| (**output).clone()).unwrap_or_default()).collect();
    let outputs = outputs::mapped(items);
    if Json::encode(&outputs).is_ok_and(|text| text.as_str().len() > limits::RESULT_BYTES_MAX) {
        let error = ErrorBody::new(Code::PayloadTooLarge, "the outputs of all items are too large together");
        return answer::fail_step(run, RunPlace::node(at.node), error, cx);
    }
    children::complete_nested(run, RunPlace::node(at.node), outputs, "map", cx)
}

/// An item has failed: fails the map once the items in flight have ended.
fn map_failed(run: &mut Run, node: usize, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let TaskState::Mapping(mapping) = run.tasks.node(node).state() else { return Ok(()) };
    let Some(index) = mapping.failed.filter(|_| mapping.busy == 0) else { return Ok(()) };
    let item = usize::try_from(index).ok().and_then(|index| mapping.items.get(index));
    let error = match item.map(Task::state) {
        Some(TaskState::Failed { error, .. }) => (**error).clone(),
        _ => ErrorBody::new(Code::Internal, "an item failed"),
    };
    answer::fail_with_part(run, RunPlace::node(node), error.with("item", index), cx)
}

/// Ends the maps of a loaded run in which an item has failed.
pub(crate) fn settle_maps(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    for node in 0..run.tasks.nodes().len() {
        if matches!(run.tasks.node(node).state(), TaskState::Mapping(mapping) if mapping.failed.is_some()) {
            stop_items(run, node, cx)?;
            map_failed(run, node, cx)?;
        }
    }
    Ok(())
}

/// Cancels the waiting items of a map in which another item has failed.
fn stop_items(run: &mut Run, node: usize, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let items = 0..u32::try_from(run.tasks.node(node).items().len()).unwrap_or(u32::MAX);
    for item in items {
        let at = RunPlace { node, item: Some(item) };
        let waits = run.tasks.task(at).is_some_and(|task| {
            matches!(
                task.state(),
                TaskState::Ready | TaskState::Judging | TaskState::AwaitingApproval(_) | TaskState::RetryWait { .. }
            ) && !task.is_in_doubt()
        });
        if waits {
            stop::stop_step(run, at, cx)?;
            let Some(mapping) = run.tasks.node_mut(node).mapping_mut() else { return Ok(()) };
            mapping.open = mapping.open.saturating_sub(1);
            mapping.busy = mapping.busy.saturating_sub(1);
        }
    }
    Ok(())
}
