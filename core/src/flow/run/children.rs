//! Child runs: how a node starts one, and how its end comes back.
//!
//! A parent that waits for a child run uses no slot and no memory: the child's end is a signal. Which child belongs to
//! which place is part of the place's state; this machine only remembers which children were asked to stop.

use super::env::Env;
use super::event::{Effect, SignalKind};
use super::patches::pins;
use super::projecting::LOG_EXECUTIONS;
use super::replay::RecordedOutcome;
use super::requesters::{ADDED_BY, merge_names};
use super::start::too_deep;
use super::tasks::edges;
use super::tasks::task::TaskState;
use super::turn_builder::TurnContext;
use super::{
    Run, RunHead, RunPlace, Source, WorkflowRef, answer, approve, approvers, demands, elsewhere, judge, map_calls,
    projecting, replay, requesters, restore, start,
};
use crate::access::{Actor, Level};
use crate::error::{Code, ErrorBody};
use crate::flow::approval::ApprovalRequirement;
use crate::flow::outputs;
use crate::flow::work::{Elsewhere, WorkEnd, WorkStatus};
use crate::json::{CanonicalJson, Digest32};
use crate::limits;
use crate::record::Unstorable;
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// The child runs and jobs of a run.
#[derive(Default)]
pub(crate) struct ChildRuns {
    /// Those that were sent a cancel signal.
    stopped: BTreeSet<Uuid>,
}

impl ChildRuns {
    /// A child or a job is asked to stop. False: it was asked before.
    pub(crate) fn mark_stopped(&mut self, child: Uuid) -> bool {
        self.stopped.insert(child)
    }
}

/// The member of a child run's request that limits the number of its descendants.
const DESCENDANTS: &str = "descendants_max";

pub(crate) fn too_many_children(node: &str) -> ErrorBody {
    let message = format!("{node} would exceed the limit of child runs");
    ErrorBody::new(Code::ValidationFailed, message).with("descendants_max", limits::RUN_DESCENDANTS_MAX)
}

/// Creates the child run. The parent waits.
pub(crate) fn start_child(
    run: &mut Run,
    at: RunPlace,
    workflow: String,
    version: Option<i64>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let inputs = match start::render_inputs(run, at) {
        Ok(inputs) => inputs,
        Err(error) => return answer::fail_step(run, at, error, cx),
    };
    if run.head.depth >= limits::RUN_DEPTH_MAX {
        let error = ErrorBody::new(Code::ValidationFailed, "runs are nested too deeply");
        return answer::fail_step(run, at, error, cx);
    }
    let share = descendant_limit(run, at);
    if share == 0 {
        let error = too_many_children(run.tasks.name(at));
        return answer::fail_step(run, at, error, cx);
    }
    match replay::recorded_outcome(run, at, None) {
        RecordedOutcome::NotUsed => {}
        RecordedOutcome::Output(output) => return complete_nested(run, at, output, "recorded", cx),
        RecordedOutcome::Failed(error) => return answer::fail_step(run, at, error, cx),
        RecordedOutcome::Missing => return replay::not_recorded(run, at, cx),
    }
    let inputs = match CanonicalJson::new(inputs) {
        Ok(inputs) => inputs,
        Err(error) => return answer::fail_step(run, at, too_deep("the input", &error), cx),
    };
    if run.tasks.task(at).is_some_and(|task| task.input().is_none())
        && let Err(error) = run.budget.count_input(inputs.value(), run.tasks.name(at))
    {
        return answer::fail_step(run, at, error, cx);
    }
    let (digest, inputs) = (inputs.digest(), run.tasks.fix_input(at, inputs));
    if let Some(demand) =
        demand_of_child(run, at, &cx.env).filter(|demand| !approvers::is_met(run, at, demand, &cx.env))
    {
        let demand = approvers::with_lapsed_approvers(run, at, demand, &cx.env);
        return approve::request_approval(run, at, &demand, cx);
    }
    if restore::may_be_already_started(run, at) {
        return restore::mark_child_unknown(run, at, cx);
    }
    let child = (cx.env.ids)();
    let step = run.tasks.ensure_step(at, &mut cx.env);
    let head = RunHead {
        id: child,
        workflow: WorkflowRef { id: workflow.clone(), version },
        pins: pins::pins_of_child(run, at.node),
        parent: Some((run.head.id, step)),
        depth: run.head.depth + 1,
        inputs: Arc::clone(&inputs),
        request: Arc::new(request_of_child(run, at, &workflow, share)),
        source: Source::Workflow,
        risk: None,
        idempotency_key: None,
        // Recipients hear when the child awaits approval; its end is reported by the parent.
        notify: run.head.notify.clone(),
        created_at: cx.env.now,
        timeout_at: child_timeout(run, at, &cx.env),
        replay: None,
        co_requesters: requesters::requesters_of(run, at).split_off(1),
        priority: run.priority_at(at),
        ..(*run.head).clone()
    };
    cx.turn.add_child_run(&head)?;
    if let Some(task) = run.tasks.task_mut(at) {
        task.begin_child(child, cx.env.now);
    }
    let until = elsewhere::deadline_of_child(head.timeout_at, cx.env.now);
    run.tasks.enter(at, TaskState::Elsewhere { work: Elsewhere::Run(child), until });
    run.tasks.mark_dirty(at, cx);
    let data = json!({"node": run.tasks.name(at), "item": at.item, "child_run_id": child, "workflow_id": workflow, "input_digest": digest});
    cx.turn.add_note("step.child_started", Some(step), None, data);
    cx.turn.effects.push(Effect::Wake(child));
    Ok(())
}

/// The request of a child run, with its limits.
fn request_of_child(run: &Run, at: RunPlace, workflow: &str, share: u64) -> Value {
    let mut request = json!({
        "workflow_id": workflow, "parent_run_id": run.head.id, DESCENDANTS: share.saturating_sub(1),
    });
    for (member, value) in map_calls::call_limits_for_child(run, at) {
        request[member] = value;
    }
    if let Some(logging) = projecting::logging(run) {
        request[LOG_EXECUTIONS] = logging.to_value();
    }
    let added_by = merge_names(Vec::new(), requesters::writers_of(run, at));
    if !added_by.is_empty() {
        request[ADDED_BY] = added_by.into();
    }
    request
}

/// What must be met before a run inside is started.
pub(crate) fn demand_of_child(run: &Run, at: RunPlace, env: &Env<'_>) -> Option<ApprovalRequirement> {
    let level = (run.head.level == Level::Ask)
        .then(|| ApprovalRequirement::one_approval("every step needs approval at L0_Ask"));
    let level =
        level.or_else(|| approvers::demand_if_lapsed(run, at, env)).or_else(|| map_calls::demand_of_item(run, at));
    match (demands::demand_of_node(run, at), level) {
        (Some(node), Some(level)) => Some(node.and(level)),
        (node, level) => node.or(level),
    }
}

/// The number of descendants that a place may start. Each node that starts child runs gets an equal share
/// of the run's limit, and each item an equal share of that, so no global count is needed.
pub(crate) fn descendant_limit(run: &Run, at: RunPlace) -> u64 {
    let given = run.head.request.get(DESCENDANTS).filter(|_| run.head.parent.is_some()).and_then(Value::as_u64);
    let nests = u64::try_from(run.tasks.graph().child_nodes).unwrap_or(u64::MAX).max(1);
    let node = given.unwrap_or(limits::RUN_DESCENDANTS_MAX) / nests;
    let items = at.item.and_then(|_| run.tasks.map_list(at.node)).map_or(1, <[Value]>::len);
    node / u64::try_from(items).unwrap_or(u64::MAX).max(1)
}

/// The earlier of the parent's timeout and the node's.
fn child_timeout(run: &Run, at: RunPlace, env: &Env<'_>) -> Option<Timestamp> {
    let node = run.tasks.graph().nodes[at.node].node.timeout_seconds;
    let node = node.map(|seconds| env.now.plus_seconds(i64::from(seconds)));
    [run.head.timeout_at, node].into_iter().flatten().min()
}

/// A child run ended.
pub(crate) fn child_ended(
    run: &mut Run,
    at: RunPlace,
    end: WorkEnd,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if end.status == WorkStatus::Completed {
        return judge::output_arrived(run, at, end.result.unwrap_or_default(), "child", cx);
    }
    let state = end.status.as_str();
    let error = end.error.unwrap_or_else(|| {
        ErrorBody::new(Code::ExternalServiceError, format!("the child run ended as {state} without an error"))
    });
    let error = ErrorBody { retryable: false, ..error };
    answer::fail_with_part(run, at, error, cx)
}

/// Tells a child run to stop, once.
pub(crate) fn stop_child(
    run: &mut Run,
    child: Uuid,
    by: Actor,
    reason: &str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if run.children.mark_stopped(child) {
        let cancel = SignalKind::Cancel { by, reason: Some(reason.to_owned()) };
        cx.turn.send_signal(&run.head.tenant, child, &cancel, &mut cx.env)?;
        cx.turn.effects.push(Effect::Wake(child));
    }
    Ok(())
}

pub(crate) fn complete_nested(
    run: &mut Run,
    at: RunPlace,
    output: Value,
    how: &str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let items = run.tasks.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
    let given = Digest32::of(&output);
    run.budget.count_output(&output);
    let data = json!({"node": run.tasks.name(at), "item": at.item, "how": how, "output_digest": given});
    run.tasks.ensure_step(at, &mut cx.env);
    let seq = cx.turn.add_note("step.completed", run.tasks.step_id(at), None, data);
    requesters::add_requesters_of_place(run, at);
    run.tasks.enter(at, TaskState::Completed { output: Arc::new(outputs::completed(output)), seq, items });
    run.tasks.mark_dirty(at, cx);
    edges::place_ended(run, at, cx)
}
