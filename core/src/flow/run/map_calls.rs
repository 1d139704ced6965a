//! The calls of a map, listed for approval, and when a map needs approval as a whole.
//!
//! A list that an earlier step produces is not known when a level is decided or a plan is drafted. Once it is
//! known, the decision is made again with the actual number of calls: at L1 nobody has seen these items, and at
//! L2 and L3 they may be more than may run unsupervised. Then the map waits, before its first item, for an
//! approval of exactly these calls. Items beyond the size limit of the list need their own approval: no call
//! runs because it was left out of what people saw.

use super::env::Env;
use super::patches::apply::RunPatch;
use super::scope::RunScope;
use super::start::Work;
use super::tasks::task::TaskState;
use super::{ReplayMode, Run, RunPlace, approve, demands, policy_verdict, replay, start};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::flow::air::Graph;
use crate::flow::approval::{ApprovalRequirement, AskedFor, GivenApproval, StepApproval};
use crate::flow::expand::{InitialScope, ItemScope, expand_in_scope};
use crate::flow::expr::{Preview, WorkMeter};
use crate::flow::patch::Patch;
use crate::flow::policy::{Action, Because, ExpandedRun, Policy, PolicyVerdict};
use crate::flow::risk::Score;
use crate::json::{self, Digest32};
use crate::limits::{DRAFT_BYTES_MAX, DRAFT_MEMORY_BYTES_MAX, PLAN_STEPS_FREE_MAX, PLAN_WORK_MAX};
use crate::tool::Spec;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The member of a child run's request that limits the calls it may make beyond those counted when the level
/// was decided.
const SPARE: &str = "calls_spare";
/// The member that says whether its inputs were known at that time.
const INPUTS_COUNTED: &str = "inputs_counted";
/// The member that says whether the child run itself was not counted.
const UNCOUNTED: &str = "uncounted";
/// The member that says whether an actor with the right to override set the level.
const OVERRIDDEN: &str = "overridden";

/// The calls shown to people: identical ones once, as many as fit.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallList {
    lines: Vec<Value>,
    bytes: usize,
    /// Estimated memory of the lines and of what they would give.
    memory: usize,
    /// The line of each call, by node and digest of the input text. 1 and 1.0 are equal values, but the line must show
    /// exactly what every one of its calls sends.
    known: BTreeMap<(usize, Digest32), usize>,
    full: bool,
}

impl CallList {
    /// Adds a line that is not a call.
    pub(crate) fn push_note(&mut self, line: Value) {
        self.memory = self.memory.saturating_add(json::memory_size(&line));
        self.lines.push(line);
    }

    /// Adds what the last call would give.
    pub(crate) fn result(&mut self, result: Value) {
        self.memory = self.memory.saturating_add(json::memory_size(&result));
        if let Some(line) = self.lines.last_mut().and_then(Value::as_object_mut) {
            line.insert("result".to_owned(), result);
        }
    }

    pub(crate) const fn memory(&self) -> usize {
        self.memory
    }

    /// Refuses lines that together are too large to be shown to a person.
    pub(crate) fn check(&self) -> Result<(), ErrorBody> {
        if self.memory <= DRAFT_MEMORY_BYTES_MAX {
            return Ok(());
        }
        let message = format!(
            "the plan is too large to be shown for approval: its first {} calls with their results take about {} bytes of \
             memory, and {DRAFT_MEMORY_BYTES_MAX} is the limit; split the workflow, or pass large data as artifacts",
            self.lines.len(),
            self.memory
        );
        Err(ErrorBody::new(Code::PayloadTooLarge, message).with("memory_bytes_max", DRAFT_MEMORY_BYTES_MAX))
    }

    /// Whether a call fits.
    pub(crate) fn fits(&self, line: &Value) -> bool {
        !self.full && self.bytes.saturating_add(line.to_string().len()) <= DRAFT_BYTES_MAX
    }

    /// Adds a call. False: it does not fit, and no further call is added.
    pub(crate) fn push_call(&mut self, line: Value) -> bool {
        self.full |= !self.fits(&line);
        if !self.full {
            self.bytes = self.bytes.saturating_add(line.to_string().len());
            self.push_note(line);
        }
        !self.full
    }

    /// Adds an item of a map to the line of an item with the identical call, if there is one.
    pub(crate) fn merge_identical(&mut self, node: usize, item: u32, input: &Value) -> bool {
        let input = Digest32::of_bytes(input.to_string().as_bytes());
        let Some(line) = self.known.get(&(node, input)).and_then(|at| self.lines.get_mut(*at)) else {
            self.known.insert((node, input), self.lines.len());
            return false;
        };
        let ranges = line.as_object_mut().map(|line| line.entry("alike").or_insert_with(|| json!([])));
        if let Some(Value::Array(ranges)) = ranges {
            match ranges.last_mut() {
                Some(last) if last[1] == json!(item.wrapping_sub(1)) => last[1] = item.into(),
                _ => ranges.push(json!([item, item])),
            }
        }
        true
    }

    /// Whether a call did not fit.
    pub(crate) const fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.lines.iter_mut()
    }

    pub(crate) fn into_lines(self) -> Vec<Value> {
        self.lines
    }
}

/// The calls of one map, as shown to people.
#[derive(Clone, Debug)]
pub(crate) struct MapCalls {
    pub(crate) lines: Vec<Value>,
    /// The digests of the inputs of the listed items. `None` where the input can't be rendered.
    pub(crate) inputs: Vec<Option<Digest32>>,
    pub(crate) total: usize,
}

impl MapCalls {
    /// The digest of everything that is shown of them.
    pub(crate) fn digest(&self) -> Digest32 {
        Digest32::of(&json!({"calls": self.lines, "items": self.total, "items_listed": self.inputs.len()}))
    }
}

/// The calls of a map that were approved in a request of their own.
#[derive(Clone, Debug)]
pub(crate) struct ApprovedMapCalls {
    inputs: Vec<Option<Digest32>>,
    tool_version: String,
    pub(crate) by: Vec<String>,
    asked_for: AskedFor,
}

impl ApprovedMapCalls {
    fn input(&self, item: u32) -> Option<Digest32> {
        self.inputs.get(usize::try_from(item).ok()?).copied().flatten()
    }
}

/// The approval of exactly this call together with the other items of its map.
pub(crate) fn map_approval<'a>(run: &'a Run, at: RunPlace, digest: Digest32, spec: &Spec) -> Option<GivenApproval<'a>> {
    let listed = run.drafting.approved_map(at.node)?;
    let exact = listed.input(at.item?) == Some(digest) && listed.tool_version == spec.version;
    exact.then_some(GivenApproval { by: &listed.by, asked_for: &listed.asked_for })
}

/// The approval for an item that was not shown when its map or plan was approved.
pub(crate) fn demand_of_item(run: &Run, at: RunPlace) -> Option<ApprovalRequirement> {
    let index = usize::try_from(at.item?).unwrap_or(usize::MAX);
    if matches!(replay::replay_mode(run), Some(ReplayMode::Freeze | ReplayMode::Shadow)) {
        return None;
    }
    let shown = match (run.drafting.approved_map(at.node), run.head.level) {
        (Some(listed), _) => listed.inputs.get(index).is_some_and(Option::is_some),
        (None, Level::Draft) => {
            let planned = run.drafting.planned(run.tasks.name(at));
            planned.is_some_and(|planned| planned.list.is_some() && index < planned.listed())
        }
        // An approval of the map no longer covers these calls.
        (None, _) => run.tasks.node(at.node).approval().is_none(),
    };
    (!shown).then(|| ApprovalRequirement::one_approval("this item was not shown when the others were approved"))
}

/// The approval that a map needs as a whole before it starts, if any. It also asks for what the node and the rules
/// require for its calls, so that nobody is asked about each of them again.
pub(crate) fn demand_of_map(run: &Run, node: usize, env: &Env<'_>) -> Option<ApprovalRequirement> {
    let demand = demand_of_list(run, node, env)?;
    Some(demands_of_items(run, node, env).fold(demand, ApprovalRequirement::and))
}

/// What the node and the rules require for the calls of a map. What they deny is refused when its turn comes.
fn demands_of_items(run: &Run, node: usize, env: &Env<'_>) -> impl Iterator<Item = ApprovalRequirement> {
    let tool = run.tasks.graph().nodes[node].tool.as_deref();
    let items = tool.and_then(|_| run.tasks.map_list(node)).map_or(0, <[Value]>::len);
    let of_rules = (0..u32::try_from(items).unwrap_or(u32::MAX)).filter_map(move |item| {
        let at = RunPlace { node, item: Some(item) };
        let input = start::render_inputs(run, at).ok()?;
        let (tenant, actor, level) = (run.head.tenant.as_str(), run.head.actor.as_str(), run.head.level);
        let action = Action { tenant, actor, level, node: run.tasks.name(at), tool: tool?, input: &input };
        match policy_verdict::evaluate_for_requesters(run, at, &action, env) {
            PolicyVerdict::Ask(demand) => Some(demand),
            PolicyVerdict::Allow | PolicyVerdict::Deny { .. } => None,
        }
    });
    let of_node = tool.and_then(|_| demands::demand_of_node(run, RunPlace::node(node)));
    of_node.into_iter().chain(of_rules)
}

/// The approval that a map needs because of its list, if any.
fn demand_of_list(run: &Run, node: usize, env: &Env<'_>) -> Option<ApprovalRequirement> {
    let items = run.tasks.map_list(node)?.len();
    let repeats = matches!(replay::replay_mode(run), Some(ReplayMode::Freeze | ReplayMode::Shadow));
    if items == 0 || repeats {
        return None;
    }
    match run.head.level {
        Level::Ask => None,
        Level::Draft => {
            let list = run.tasks.node(node).digest();
            let planned = run.drafting.planned(run.tasks.name(RunPlace::node(node)));
            let reason = match planned.map(|planned| planned.list) {
                Some(shown) if shown.is_some() && shown == list => return None,
                Some(Some(_)) => "the list differs from the one that was approved",
                _ => "the list was not known when the plan was approved",
            };
            Some(ApprovalRequirement::one_approval(reason))
        }
        Level::ExecuteNotify | Level::ExecuteSilent if is_counted(run, node) => None,
        Level::ExecuteNotify | Level::ExecuteSilent => demand_if_level_drops(run, node, items, env),
    }
}

/// The approval that a map needs if the level would be lower, now that its list is known.
fn demand_if_level_drops(run: &Run, node: usize, items: usize, env: &Env<'_>) -> Option<ApprovalRequirement> {
    let (made, inside) = (calls_known(run), calls_reserved_for_children(run));
    let calls = made.saturating_add(inside);
    let (level, score, specs) = (run.head.level, score_known(run, env.policy), specs(run));
    let cap = (calls <= PLAN_STEPS_FREE_MAX).then(|| cap_of_items(run, node, items, env)).flatten();
    let grown = ExpandedRun {
        actor: &run.head.actor,
        level,
        overridden: is_overridden(run),
        calls,
        score: &score,
        tools: &specs,
        cap,
    };
    let would = env.policy.level(&grown);
    let with = format!("with these {items} items the run");
    let reason = match would.reason {
        _ if made > PLAN_STEPS_FREE_MAX => {
            format!("{with} makes {made} calls; more than {PLAN_STEPS_FREE_MAX} need approval")
        }
        _ if calls > PLAN_STEPS_FREE_MAX => format!(
            "{with} makes {made} calls, and runs inside it may make {inside} more; more than {PLAN_STEPS_FREE_MAX} \
             need approval"
        ),
        Because::Deletes => format!("{with} deletes something, which needs approval"),
        Because::MessageToOutsiders => format!("{with} writes to somebody outside, which needs approval"),
        Because::RiskScore => format!("{with} has a risk of {}, which needs approval", score.score),
        because => format!("{with} would get {} ({})", would.level.as_str(), because.as_str()),
    };
    (would.level < level).then(|| ApprovalRequirement::one_approval(reason))
}

/// Why a call of the map needs a person at every level, if one does. Inputs are rendered one at a time: together
/// they may be large.
fn cap_of_items(run: &Run, node: usize, items: usize, env: &Env<'_>) -> Option<Because> {
    let tool = run.tasks.graph().nodes[node].tool.as_deref()?;
    let (tenant, actor, level) = (run.head.tenant.as_str(), run.head.actor.as_str(), run.head.level);
    (0..u32::try_from(items).unwrap_or(u32::MAX)).find_map(|item| {
        let at = RunPlace { node, item: Some(item) };
        let input = start::render_inputs(run, at).ok()?;
        env.policy.mandatory_approval_reason(&Action {
            tenant,
            actor,
            level,
            node: run.tasks.name(at),
            tool,
            input: &input,
        })
    })
}

/// Whether the request of this run or its parent overrode the level.
fn is_overridden(run: &Run) -> bool {
    let because = run.head.risk.as_ref().and_then(|risk| risk.get("level_because")?.as_str());
    because == Some(Because::Override.as_str()) || parent_setting(run, OVERRIDDEN) == Some(&Value::Bool(true))
}

/// The risk of the run, with everything known so far.
pub(crate) fn score_known(run: &Run, policy: &dyn Policy) -> Score {
    let (plan, specs) = (expand_in_scope(run.tasks.graph(), &RunScope::of(run)), specs(run));
    policy.score(&plan, &specs)
}

fn specs(run: &Run) -> Vec<&Spec> {
    run.tasks.graph().nodes.iter().filter_map(|node| node.tool.as_deref()).collect()
}

/// Whether the list of a map was known when the level was decided.
fn is_counted(run: &Run, node: usize) -> bool {
    let over = run.tasks.graph().nodes[node].over.as_ref();
    let list = over.map(|over| over.preview(&InitialScope::of(&run.head.inputs, run.budget.meter())));
    parent_setting(run, INPUTS_COUNTED) != Some(&Value::Bool(false)) && matches!(list, Some(Ok(Preview::Exact(_))))
}

/// A member that the parent run set in this run's request.
pub(crate) fn parent_setting<'a>(run: &'a Run, member: &str) -> Option<&'a Value> {
    run.head.request.get(member).filter(|_| run.head.parent.is_some())
}

/// The number of calls known so far, including those counted when the level was decided.
fn calls_known(run: &Run) -> usize {
    calls_counted(run).saturating_add(calls_patched(run)).saturating_add(uncounted_calls(run))
}

/// The number of calls that patches have added.
fn calls_patched(run: &Run) -> usize {
    let applied = run.patches.applied();
    let counted = applied.filter_map(RunPatch::calls).fold(0, usize::saturating_add);
    counted.max(added_calls(run, run.patches.unpatched(run.tasks.graph()), run.tasks.graph()))
}

/// The number of calls that `after` has beyond `before`.
fn added_calls(run: &Run, before: &Graph, after: &Graph) -> usize {
    let calls = |graph: &Graph| calls_of(graph, &run.head.inputs);
    if before.nodes.len() == after.nodes.len() { 0 } else { calls(after).saturating_sub(calls(before)) }
}

/// The number of unsupervised calls known so far, including those reserved for child runs.
#[must_use]
pub(crate) fn calls_reserved(run: &Run) -> usize {
    calls_known(run).saturating_add(calls_reserved_for_children(run))
}

/// Why the run with this patch would make too many unsupervised calls, if so. More calls may be known now than when
/// it was proposed.
pub(crate) fn patch_excess(run: &Run, patch: &Patch, patched: &Graph) -> Option<String> {
    let added = patch.calls.unwrap_or(0).max(added_calls(run, run.tasks.graph(), patched));
    let calls = calls_reserved(run).saturating_add(added);
    let free = run.head.level.needs_approval() || patch.waits || added == 0 || calls <= PLAN_STEPS_FREE_MAX;
    (!free).then(|| too_many_with_patch(calls, run.head.level))
}

/// The number of calls counted when the level was decided. For a child run, the calls that are not spare.
fn calls_counted(run: &Run) -> usize {
    if let Some(spare) = parent_setting(run, SPARE).and_then(Value::as_u64) {
        let own = if parent_setting(run, UNCOUNTED) == Some(&Value::Bool(true)) { initial_call_count(run) } else { 0 };
        let spoken_for = PLAN_STEPS_FREE_MAX.saturating_sub(usize::try_from(spare).unwrap_or(usize::MAX));
        return spoken_for.saturating_add(own);
    }
    let counted = run.head.risk.as_ref().and_then(|risk| risk.get("calls")?.as_u64());
    let counted = counted.map_or(0, |calls| usize::try_from(calls).unwrap_or(usize::MAX));
    counted.max(initial_call_count(run))
}

/// The number of calls in the unpatched graph.
fn initial_call_count(run: &Run) -> usize {
    calls_of(run.patches.unpatched(run.tasks.graph()), &run.head.inputs)
}

/// The number of calls that became known since.
fn uncounted_calls(run: &Run) -> usize {
    (0..run.tasks.nodes().len()).map(|node| uncounted_items(run, node)).fold(0, usize::saturating_add)
}

/// The number of items beyond those counted. An unknown list was counted as one call.
fn uncounted_items(run: &Run, node: usize) -> usize {
    if run.tasks.graph().nodes[node].over.is_none() || is_counted(run, node) {
        return 0;
    }
    run.tasks.map_list(node).map_or(0, |list| list.len().saturating_sub(1))
}

/// The number of uncounted calls that the child runs of a node may make. The spare calls are divided once, by
/// what was known when the run started: equally among the nodes that start child runs, plus one share for all
/// lists that become known later. So no call is spent twice, and the shares need not be stored. A node of a
/// patch has none.
fn calls_reserved_for(run: &Run, node: usize) -> usize {
    let first = run.patches.unpatched(run.tasks.graph());
    if node >= first.nodes.len() || first.nodes[node].node.child().is_none() {
        return 0;
    }
    let late = |node: usize| first.nodes[node].over.is_some() && first.nodes[node].tool.is_some();
    let lists = (0..first.nodes.len()).any(|node| late(node) && !is_counted(run, node));
    // A child run that has started keeps the share that it was given before the patch.
    let is_waiting = matches!(
        run.tasks.node(node).state(),
        TaskState::Pending { .. } | TaskState::Delayed { .. } | TaskState::Ready
    );
    let patched = if is_waiting { calls_patched(run) } else { 0 };
    let spare = PLAN_STEPS_FREE_MAX.saturating_sub(calls_counted(run)).saturating_sub(patched);
    spare / (first.child_nodes + usize::from(lists)).max(1)
}

/// The number of calls reserved for child runs.
fn calls_reserved_for_children(run: &Run) -> usize {
    let open = (0..run.tasks.nodes().len()).filter(|node| !matches!(run.tasks.node(*node).state(), TaskState::Skipped));
    let left = open.map(|node| calls_reserved_for(run, node).saturating_sub(uncounted_items(run, node)));
    left.fold(0, usize::saturating_add)
}

/// Whether an uncounted child run makes too many calls to run unsupervised. Then it is drafted.
pub(crate) fn exceeds_call_limit(run: &Run) -> bool {
    !run.head.level.needs_approval() && parent_setting(run, SPARE).is_some() && calls_known(run) > PLAN_STEPS_FREE_MAX
}

/// The members of a child run's request about its calls. Each item of a map gets an equal share of its node's
/// calls.
pub(crate) fn call_limits_for_child(run: &Run, at: RunPlace) -> [(&'static str, Value); 4] {
    let beforehand = InitialScope::of(&run.head.inputs, run.budget.meter());
    let (compiled, counted) =
        (&run.tasks.graph().nodes[at.node], parent_setting(run, INPUTS_COUNTED) != Some(&Value::Bool(false)));
    let list = compiled.over.as_ref().map(|over| over.preview(&beforehand));
    let item = match (&list, at.item) {
        (Some(Ok(Preview::Exact(Value::Array(list)))), Some(item)) => {
            let index = usize::try_from(item).unwrap_or(usize::MAX);
            list.get(index).map(|item| (item, index))
        }
        _ => None,
    };
    let uncounted = at.item.is_some() && (item.is_none() || !counted);
    let inputs = compiled.inputs.as_ref().map(|inputs| match item {
        Some(item) => inputs.preview(&ItemScope { scope: &beforehand, item }),
        None => inputs.preview(&beforehand),
    });
    let exact = matches!(inputs, None | Some(Ok(Preview::Exact(_))));
    let spare = calls_reserved_for(run, at.node).saturating_sub(uncounted_items(run, at.node));
    let starts = at.item.and_then(|_| run.tasks.map_list(at.node)).map_or(1, <[Value]>::len).max(1);
    let spare = spare.min(PLAN_STEPS_FREE_MAX.saturating_sub(calls_known(run))) / starts;
    [
        (SPARE, spare.into()),
        (INPUTS_COUNTED, (exact && counted && !uncounted).into()),
        (UNCOUNTED, uncounted.into()),
        (OVERRIDDEN, is_overridden(run).into()),
    ]
}

/// The calls of a map whose list is known, with their exact inputs.
pub(crate) fn calls_of_map(run: &Run, node: usize) -> MapCalls {
    let total = run.tasks.map_list(node).map_or(0, <[Value]>::len);
    let (mut lines, mut inputs) = (CallList::default(), Vec::new());
    for item in 0..u32::try_from(total).unwrap_or(u32::MAX) {
        let at = RunPlace { node, item: Some(item) };
        let input = start::render_inputs(run, at);
        let digest = input.as_ref().ok().map(Digest32::of);
        if input.as_ref().is_ok_and(|input| lines.merge_identical(node, item, input)) {
            inputs.push(digest);
            continue;
        }
        let mut line = match start::work(run, at) {
            Work::Tool(spec) => json!({"item": item, "tool": spec.name, "tool_version": spec.version}),
            Work::Child { workflow, version } => {
                json!({"item": item, "type": "workflow", "workflow_id": workflow, "version": version})
            }
            _ => json!({ "item": item }),
        };
        match input {
            Ok(input) => line["input"] = input,
            Err(error) => line["error"] = error.message.into(),
        }
        if !lines.push_call(line) {
            break;
        }
        inputs.push(digest);
    }
    MapCalls { lines: lines.into_lines(), inputs, total }
}

/// Records the calls of a map as approved, if the approval covers exactly them.
pub(crate) fn approve_map_calls(run: &mut Run, node: usize, approved: &StepApproval) -> bool {
    if !approved.is_about(approve::action_digest(run, RunPlace::node(node))) {
        return false;
    }
    let tool_version = run.tasks.graph().nodes[node].tool.as_ref().map(|spec| spec.version.clone()).unwrap_or_default();
    let inputs = calls_of_map(run, node).inputs;
    let (by, asked_for) = (approved.by.clone(), approved.asked_for.clone().of_several_calls());
    run.drafting.approve_map(node, ApprovedMapCalls { inputs, tool_version, by, asked_for });
    true
}

/// Restores the approvals of the running maps of a loaded run.
pub(crate) fn load_listed(run: &mut Run) {
    for node in 0..run.tasks.nodes().len() {
        let task = &run.tasks.node(node);
        let approved = task.approval().cloned().filter(|_| matches!(task.state(), TaskState::Mapping(_)));
        if let Some(approved) = approved {
            approve_map_calls(run, node, &approved);
        }
    }
}

/// The refusal of a patch with which a run would make too many unsupervised calls.
#[must_use]
pub fn too_many_with_patch(calls: usize, level: Level) -> String {
    let (level, draft) = (level.as_str(), Level::Draft.as_str());
    format!(
        "with this patch the run makes {calls} calls, but at {level} at most {PLAN_STEPS_FREE_MAX} are allowed; start \
         a new run with all steps at {draft}"
    )
}

/// The number of tool calls and child runs of a graph, as far as known from its inputs.
fn calls_of(graph: &Graph, inputs: &Value) -> usize {
    let nested = graph.nodes.iter().filter(|node| node.node.child().is_some()).count();
    expand_in_scope(graph, &InitialScope::of(inputs, &WorkMeter::strict(PLAN_WORK_MAX))).calls().saturating_add(nested)
}
