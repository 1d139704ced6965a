//! Drafts a plan: a dry run of the whole graph.
//!
//! Nodes are visited in topological order. The output of a mock is unknown. A condition on an unknown
//! value shows both branches; a map over an unknown list shows its limit. A draft has no effects: after
//! a crash it is simply made again.

use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::flow::air::Body;
use crate::flow::approval::ApprovalRequirement;
use crate::flow::call::{CallEnd, CallOutcome};
use crate::flow::expr::Preview;
use crate::flow::judgement::{JudgedPart, Judgement};
use crate::flow::outputs;
use crate::flow::policy::{Action, PolicyVerdict};
use crate::flow::run::budget::dry_result;
use crate::flow::run::drafting::draft_scope::{DraftScope, Reachability};
use crate::flow::run::drafting::plan;
use crate::flow::run::drafting::plan::FinishedDraft;
use crate::flow::run::drafting::plan::PlannedNode;
use crate::flow::run::env::Env;
use crate::flow::run::event::{Call, CallMode, Effect, GovernanceDecision};
use crate::flow::run::map_calls::CallList;
use crate::flow::run::start::{Work, check_input, tool_absent};
use crate::flow::run::turn_builder::{TurnBuilder, TurnContext};
use crate::flow::run::{ReplayMode, Run, RunPlace, demands, judge, policy_verdict, replay, start};
use crate::flow::tables::{TOOL_CALLS, tool_calls};
use crate::json::Digest32;
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::limits;
use crate::record::{Insert, Json, Unstorable};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// A draft in progress.
pub(crate) struct Draft {
    queue: VecDeque<RunPlace>,
    /// The outputs of nodes, as far as known.
    pub(crate) outputs: BTreeMap<usize, Arc<Value>>,
    pub(crate) reached: Vec<Reachability>,
    /// The lists of maps.
    pub(crate) lists: BTreeMap<usize, Vec<Value>>,
    lines: CallList,
    /// The number of dry calls per node so far.
    tried: BTreeMap<usize, usize>,
    planned: BTreeMap<String, PlannedNode>,
    /// The approval that the plan needs.
    demand: ApprovalRequirement,
    calls: Vec<DryCall>,
    waiting: Option<(Uuid, RunPlace, Arc<Spec>, Arc<Value>)>,
}

impl Draft {
    /// Whether a call of it is in flight.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Estimated memory of what it shows.
    pub(crate) const fn memory(&self) -> usize {
        self.lines.memory()
    }
}

/// A finished dry call, and the node whose step it belongs to. The items of a map have no steps before the map
/// starts, so their dry calls belong to the map's step.
struct DryCall {
    node: usize,
    row: Insert,
}

/// The result of drafting one place.
enum DraftOutcome {
    Done,
    /// The tool must be called (dry).
    Call(Call),
    /// The tool must be called (dry), but no slot is free.
    NoSlot,
}

/// Whether a plan must be drafted before anything else.
pub(crate) fn is_wanted(run: &Run) -> bool {
    let drafts = run.head.dry_run || run.head.level == Level::Draft;
    let real = replay::replay_mode(run).is_none_or(|mode| mode == ReplayMode::Retry);
    drafts && real && run.drafting.plan.is_none() && !run.status.is_final()
}

pub(crate) fn begin(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    run.drafting.draft = Some(Draft {
        queue: run.tasks.graph().topological_order().into_iter().map(RunPlace::node).collect(),
        outputs: BTreeMap::new(),
        reached: vec![Reachability::No; run.tasks.nodes().len()],
        lists: BTreeMap::new(),
        lines: CallList::default(),
        tried: BTreeMap::new(),
        planned: BTreeMap::new(),
        demand: ApprovalRequirement::one_approval("the plan must be approved as a whole"),
        calls: Vec::new(),
        waiting: None,
    });
    proceed(run, cx)
}

/// Continues until a tool must be called, or to the end.
pub(crate) fn proceed(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    loop {
        let Some(draft) = run.drafting.draft.as_mut().filter(|draft| draft.waiting.is_none()) else { return Ok(()) };
        if !draft.queue.is_empty() && run.budget.is_spent() {
            cx.turn.more = true;
            return Ok(());
        }
        let Some(at) = draft.queue.pop_front() else { return finish(run, cx) };
        match visit(run, at, &mut cx.env) {
            Ok(DraftOutcome::Done) => {}
            Ok(DraftOutcome::Call(call)) => {
                run.tasks.call_started(at);
                cx.turn.effects.push(Effect::Call(call));
                return Ok(());
            }
            Ok(DraftOutcome::NoSlot) => {
                run.drafting.draft.iter_mut().for_each(|draft| draft.queue.push_front(at));
                return Ok(());
            }
            Err(error) => {
                run.drafting.draft = None;
                note_refusal(run, at, &error, &mut cx.turn);
                run.stopping.fail_with(error.with("node", run.tasks.name(at)));
                return Ok(());
            }
        }
    }
}

fn note_refusal(run: &Run, at: RunPlace, error: &ErrorBody, turn: &mut TurnBuilder) {
    let Some(rule) = error.details.get("rule").and_then(Value::as_str) else { return };
    let verdict = GovernanceDecision {
        source: DecisionSource::Policy,
        outcome: Outcome::Rejected,
        rationale: error.message.clone(),
        policies: vec![rule.to_owned()],
    };
    turn.add_decision("step.refused", None, json!({"node": run.tasks.name(at), "rule": rule}), verdict);
}

/// Drafts one place and returns the dry call that it needs.
fn visit(run: &mut Run, at: RunPlace, env: &mut Env<'_>) -> Result<DraftOutcome, ErrorBody> {
    let node = run.tasks.name(at).to_owned();
    let kept = recorded_output(run, at);
    let Some(draft) = &mut run.drafting.draft else { return Ok(DraftOutcome::Done) };
    draft.lines.check()?;
    if at.item.is_none() {
        let reached =
            DraftScope::new(&run.head, run.tasks.graph(), draft, None, run.budget.meter()).reached(at.node)?;
        draft.reached[at.node] = reached;
        if reached == Reachability::No {
            draft.lines.push_note(json!({"node": node, "status": "skipped"}));
            return Ok(DraftOutcome::Done);
        }
        if let Some(output) = kept {
            draft.outputs.insert(at.node, output);
            draft.lines.push_note(json!({"node": node, "status": "recorded"}));
            return Ok(DraftOutcome::Done);
        }
    }
    let line = match start::work(run, at) {
        Work::Tool(spec) if run.tasks.graph().nodes[at.node].is_tool_absent => return Err(tool_absent(&spec)),
        Work::Tool(spec) => return draft_tool(run, at, spec, env),
        Work::Map => return draft_map(run, at, env).map(|()| DraftOutcome::Done),
        Work::Person => json!({"node": node, "type": "hitl", "would_execute": "a person decides"}),
        Work::Wait => json!({
            "node": node, "type": "wait", "would_execute": "waits", "input": draft_inputs(run, at)?,
        }),
        Work::Child { workflow, version } => {
            let mut line = json!({
                "node": node, "item": at.item, "type": "workflow", "would_execute": format!("workflow {workflow}"),
                "workflow_id": workflow, "version": version, "input": draft_inputs(run, at)?,
            });
            add_judge(&mut line, judge::has_judge(run, at).then_some(JudgedPart::Output), None);
            line
        }
        Work::Unsupported(kind) => {
            return Err(ErrorBody::new(Code::ToolUnavailable, format!("nodes of type {kind} are not supported yet")));
        }
    };
    add_draft_line(run, at, line);
    Ok(DraftOutcome::Done)
}

/// Adds a call to the plan, if it fits. An item that does not fit, and all items after it, are left out:
/// each needs its own approval when it is ready.
fn add_draft_line(run: &mut Run, at: RunPlace, line: Value) -> bool {
    let node = run.tasks.name(at).to_owned();
    let Some(draft) = &mut run.drafting.draft else { return false };
    let Some(item) = at.item else {
        draft.lines.push_note(line);
        return true;
    };
    if draft.lines.is_full() || !draft.lines.push_call(line) {
        draft.queue.retain(|queued| queued.node != at.node);
        return false;
    }
    draft.planned.entry(node).or_default().items_listed = item + 1;
    true
}

/// The recorded output of a node that a retry does not repeat.
fn recorded_output(run: &Run, at: RunPlace) -> Option<Arc<Value>> {
    let kept = replay::replay_mode(run) == Some(ReplayMode::Retry) && !replay::is_rerun(run, at.node);
    let recording = replay::recording(run, at).filter(|recording| kept && recording.error.is_none())?;
    Some(Arc::clone(&recording.output))
}

/// The input of a place, as far as known.
fn draft_inputs(run: &Run, at: RunPlace) -> Result<Value, ErrorBody> {
    let Some(draft) = &run.drafting.draft else { return Ok(Value::Null) };
    Ok(match DraftScope::new(&run.head, run.tasks.graph(), draft, Some(at), run.budget.meter()).inputs_of(at.node)? {
        Preview::Exact(input) | Preview::Deferred { shown: input, .. } => input,
    })
}

fn draft_tool(run: &mut Run, at: RunPlace, spec: Arc<Spec>, env: &mut Env<'_>) -> Result<DraftOutcome, ErrorBody> {
    let node = run.tasks.name(at).to_owned();
    let Some(draft) = &run.drafting.draft else { return Ok(DraftOutcome::Done) };
    let view = DraftScope::new(&run.head, run.tasks.graph(), draft, Some(at), run.budget.meter());
    let preview = match run.drafting.edited_input(run.tasks.name(at), at) {
        Some(edited) => Preview::Exact(edited.clone()),
        None => view.inputs_of(at.node)?,
    };
    let input = match preview {
        Preview::Exact(input) => input,
        Preview::Deferred { shown, from } => {
            planned_node(run, &node, &spec, env.policy.score_call(&spec, &shown).score);
            let mut line = json!({
                "node": node, "item": at.item, "tool": spec.name, "tool_version": spec.version, "input": shown,
                "deferred": from, "result": {"status": "dry_run", "deferred": true,
                "warning": "This input depends on results that a dry run can't know"},
            });
            add_judge(&mut line, judge::part_judged(run, at, &spec), None);
            add_draft_line(run, at, line);
            return Ok(DraftOutcome::Done);
        }
    };
    check_input(&spec, &input)?;
    let judged = judge::judged_input(run, at, &spec, &input, &view);
    let escalated = judged.as_ref().and_then(|judged| judge::demand_if_escalated(run, at, judged));
    let demands: Vec<ApprovalRequirement> = draft_demand(run, at, &spec, &input, env)?.chain(escalated).collect();
    let digest = Digest32::of(&input);
    if merge_identical_item(run, at, &input, digest) {
        return Ok(DraftOutcome::Done);
    }
    let is_tried = run.drafting.draft.as_ref().is_some_and(|draft| {
        at.item.is_none() || draft.tried.get(&at.node).is_none_or(|tried| *tried < limits::DRAFT_ITEMS_MAX)
    });
    let risk = env.policy.score_call(&spec, &input).score;
    let mut line = json!({
        "node": node, "item": at.item, "tool": spec.name, "tool_version": spec.version, "input": input,
        "input_digest": digest, "risk": risk,
    });
    add_judge(&mut line, judge::part_judged(run, at, &spec), judged.as_ref());
    let fits = at.item.is_none() || run.drafting.draft.as_ref().is_some_and(|draft| draft.lines.fits(&line));
    if fits && is_tried && spec.metadata.dry_run_supported && !start::take_slot(run, at, &spec, env) {
        return Ok(DraftOutcome::NoSlot);
    }
    if !add_draft_line(run, at, line) {
        return Ok(DraftOutcome::Done);
    }
    if let Some(planned) = planned_node(run, &node, &spec, risk) {
        match at.item {
            None => planned.exact = Some(digest),
            Some(item) => drop(planned.items.insert(item, digest)),
        }
        planned.asked_for.extend(demands.iter().flat_map(|demand| demand.obligations.iter().cloned()));
    }
    let mut dry = input;
    if let Some(members) = dry.as_object_mut() {
        members.insert("dry_run".to_owned(), Value::Bool(true));
    }
    if let Some(draft) = &mut run.drafting.draft {
        *draft.tried.entry(at.node).or_default() += usize::from(is_tried);
        draft.demand = demands.into_iter().fold(draft.demand.clone(), ApprovalRequirement::and);
    }
    if !is_tried {
        let warning = format!("Not tried: only the first {} calls of a map are", limits::DRAFT_ITEMS_MAX);
        draft_result(run, at, &spec, json!({"status": "dry_run", "tried": false, "warning": warning}), false);
        return Ok(DraftOutcome::Done);
    }
    Ok(draft_call(run, at, spec, Arc::new(dry), env))
}

/// Shows that a call has a judge and, if it is known, what the judge says about its input.
fn add_judge(line: &mut Value, of: Option<JudgedPart>, judgement: Option<&Judgement>) {
    match (of, judgement) {
        (_, Some(made)) => {
            line["judge"] = json!({"of": made.of, "verdict": made.verdict, "failed": made.failed});
        }
        (Some(of), None) => line["judge"] = json!({ "of": of }),
        (None, None) => {}
    }
}

/// Whether an earlier item of the map has the identical call. Then they share one line.
fn merge_identical_item(run: &mut Run, at: RunPlace, input: &Value, digest: Digest32) -> bool {
    let node = run.tasks.name(at).to_owned();
    let (Some(draft), Some(item)) = (&mut run.drafting.draft, at.item) else { return false };
    if draft.lines.is_full() || !draft.lines.merge_identical(at.node, item, input) {
        return false;
    }
    let planned = draft.planned.entry(node).or_default();
    planned.items.insert(item, digest);
    planned.items_listed = item + 1;
    true
}

/// Makes the dry call, or uses a mock if the tool does not support dry runs.
fn draft_call(run: &mut Run, at: RunPlace, spec: Arc<Spec>, input: Arc<Value>, env: &mut Env<'_>) -> DraftOutcome {
    if !spec.metadata.dry_run_supported {
        let mock = spec.mock_response(&input);
        draft_result(run, at, &spec, mock, false);
        return DraftOutcome::Done;
    }
    let (id, step) = ((env.ids)(), run.tasks.ensure_step(RunPlace::node(at.node), env));
    let ms = i64::try_from(spec.timeout_ms).unwrap_or(60_000);
    let deadline = Timestamp::from_micros(env.now.micros().saturating_add(ms * 1_000));
    let key = format!("{}:dry", start::effect_key(run, at, &CallMode::DryRun));
    let (tool, mode) = (Arc::clone(&spec), CallMode::DryRun);
    if let Some(draft) = &mut run.drafting.draft {
        draft.waiting = Some((id, at, spec, Arc::clone(&input)));
    }
    DraftOutcome::Call(Call { at, id, step, effect: step, key, attempt: 1, tool, mode, input, deadline })
}

/// The plan entry of a node. The highest risk counts.
fn planned_node<'a>(run: &'a mut Run, node: &str, spec: &Spec, risk: u32) -> Option<&'a mut PlannedNode> {
    let planned = run.drafting.draft.as_mut()?.planned.entry(node.to_owned()).or_default();
    planned.risk = planned.risk.max(risk);
    spec.version.clone_into(&mut planned.tool_version);
    Some(planned)
}

/// The approvals that the rules and the node require for a call whose input is known. The approval of
/// the plan must meet them.
fn draft_demand(
    run: &Run,
    at: RunPlace,
    spec: &Spec,
    input: &Value,
    env: &Env<'_>,
) -> Result<impl Iterator<Item = ApprovalRequirement> + use<>, ErrorBody> {
    let (tenant, actor, level) = (run.head.tenant.as_str(), run.head.actor.as_str(), run.head.level);
    let action = Action { tenant, actor, level, node: run.tasks.name(at), tool: spec, input };
    let policy = match policy_verdict::evaluate_for_requesters(run, at, &action, env) {
        PolicyVerdict::Allow => None,
        PolicyVerdict::Ask(demand) => Some(demand),
        PolicyVerdict::Deny { rule, reason } => {
            return Err(ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule));
        }
    };
    Ok(policy.into_iter().chain(demands::demand_of_node(run, at)))
}

fn draft_map(run: &mut Run, at: RunPlace, env: &mut Env<'_>) -> Result<(), ErrorBody> {
    let node = run.tasks.name(at).to_owned();
    let Some(draft) = &mut run.drafting.draft else { return Ok(()) };
    let bound = match &run.tasks.graph().nodes[at.node].node.body {
        Body::Map(each) => each.max_parallel,
        _ => 1,
    };
    let Some(list) = DraftScope::new(&run.head, run.tasks.graph(), draft, None, run.budget.meter()).list_of(at.node)?
    else {
        let shown = draft_inputs(run, at)?;
        let warning = format!("over a list that is not known yet, at most {} items", limits::MAP_ITEMS_MAX);
        let line = json!({
            "node": node, "type": "map", "max_parallel": bound, "items_max": limits::MAP_ITEMS_MAX,
            "deferred": true, "input": shown, "warning": warning,
        });
        add_draft_line(run, at, line);
        if let Some(spec) = run.tasks.graph().nodes[at.node].tool.clone() {
            planned_node(run, &node, &spec, env.policy.score_call(&spec, &shown).score);
        }
        return Ok(());
    };
    let digest = Digest32::of(&json!(list));
    draft.lines.push_note(json!({
        "node": node, "type": "map", "max_parallel": bound, "items": list.len(), "input_digest": digest,
    }));
    draft.planned.entry(node).or_default().list = Some(digest);
    let items = u32::try_from(list.len()).unwrap_or(u32::MAX);
    draft.lists.insert(at.node, list);
    for item in (0..items).rev() {
        draft.queue.push_front(RunPlace { node: at.node, item: Some(item) });
    }
    Ok(())
}

/// Records the dry result of a place.
fn draft_result(run: &mut Run, at: RunPlace, spec: &Spec, result: Value, real: bool) {
    let Some(draft) = &mut run.drafting.draft else { return };
    // The dry output of a pure tool is its real output. Any other output is unknown, and that of the last node unused.
    if real && spec.effect == EffectKind::Pure && at.item.is_none() && !draft.queue.is_empty() {
        let simulated = result.get("simulated_output").cloned().unwrap_or_default();
        draft.outputs.insert(at.node, Arc::new(outputs::completed(simulated)));
    }
    draft.lines.result(result);
}

/// A dry call ended. False: the call does not belong to the draft.
pub(crate) fn answered(
    run: &mut Run,
    call: Uuid,
    answer: &CallOutcome,
    cx: &mut TurnContext<'_>,
) -> Result<bool, Unstorable> {
    let Some(draft) = &mut run.drafting.draft else { return Ok(false) };
    let Some((_, at, spec, input)) = draft.waiting.take_if(|(waited, ..)| *waited == call) else {
        return Ok(false);
    };
    run.tasks.call_ended(at);
    let step = run.tasks.ensure_step(RunPlace::node(at.node), &mut cx.env);
    let (result, error) = dry_result(answer);
    let row = Insert::new(
        &TOOL_CALLS,
        vec![
            (tool_calls::id, call.into()),
            (tool_calls::step_id, step.into()),
            (tool_calls::tool_name, spec.name.as_str().into()),
            (tool_calls::tool_input, Json::encode(&*input)?.into()),
            (tool_calls::tool_output, Json::encode(&result)?.into()),
            (tool_calls::error, error.clone().into()),
            (tool_calls::duration_ms, cx.turn.took_ms.into()),
            (tool_calls::dry_run, true.into()),
            (tool_calls::created_at, cx.env.now.into()),
            (tool_calls::actor, run.head.actor.as_str().into()),
            (tool_calls::tenant_id, run.head.tenant.as_str().into()),
            (tool_calls::run_id, run.head.id.into()),
            (tool_calls::attempt, 1.into()),
            (tool_calls::outcome, CallEnd::DryRun.into()),
            (tool_calls::completed_at, cx.env.now.into()),
        ],
    )?;
    if let Some(draft) = &mut run.drafting.draft {
        draft.calls.push(DryCall { node: at.node, row });
        if draft.calls.len() >= limits::DRAFT_CALLS_BUFFERED_MAX {
            let calls = std::mem::take(&mut draft.calls);
            write_dry_calls(calls, &mut cx.turn);
        }
    }
    let real = error.is_none();
    draft_result(run, at, &spec, result, real);
    cx.turn.effects.push(Effect::Release(at));
    if run.stopping.is_stopping() {
        run.drafting.draft = None;
        return Ok(true);
    }
    proceed(run, cx)?;
    Ok(true)
}

/// Completes the draft.
fn finish(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(mut draft) = run.drafting.draft.take() else { return Ok(()) };
    for line in draft.lines.iter_mut().filter(|line| line["type"] == "map" && !line["items"].is_null()) {
        let planned = line["node"].as_str().and_then(|node| draft.planned.get(node));
        line["items_listed"] = planned.map_or(0, |planned| planned.items_listed).into();
    }
    let mut subject = json!({
        "run_id": run.head.id,
        "graph": run.tasks.graph().digest,
        "inputs": Digest32::of(&run.head.inputs),
        "risk": run.head.risk.as_deref(),
    });
    // Lines may be large: they are moved, never copied.
    subject["lines"] = draft.lines.into_lines().into();
    let digest = run.approvals.next_digest(Digest32::of(&subject));
    let lines = subject["lines"].take();
    write_dry_calls(draft.calls, &mut cx.turn);
    let Draft { planned, demand, .. } = draft;
    plan::fix(run, FinishedDraft { digest, planned, lines, demand }, cx)
}

/// Writes dry calls and their steps.
fn write_dry_calls(calls: Vec<DryCall>, turn: &mut TurnBuilder) {
    for DryCall { node, row } in calls {
        turn.dirty.insert(RunPlace::node(node));
        turn.insert(row);
    }
}
