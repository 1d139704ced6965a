//! Applies patches to a running graph.
//!
//! A patch only adds nodes after finished or current ones. If a plan was approved, the plan with the patch needs
//! approval before the patch is applied; if the plan changes meanwhile, approval is requested again. The last patch
//! can be removed while none of its nodes has started.

use crate::access::{Actor, Level};
use crate::flow::air::{CURRENT_NODE, DocumentProblem, Graph};
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, RequestStatus, RequestedAction, Validity};
use crate::flow::patch::{self, Inverse, Patch};
use crate::flow::policy::{Action, PolicyVerdict};
use crate::flow::run::approval_rows::NewRequest;
use crate::flow::run::drafting::plan;
use crate::flow::run::env::Env;
use crate::flow::run::event::GovernanceDecision;
use crate::flow::run::requesters::merge_names;
use crate::flow::run::tasks::edges;
use crate::flow::run::tasks::edges::EdgeDecision;
use crate::flow::run::tasks::task::{Task, TaskState};
use crate::flow::run::turn_builder::{TurnBuilder, TurnContext};
use crate::flow::run::{Run, RunPlace, approval_rows, map_calls};
use crate::flow::status::PatchStatus;
use crate::flow::tables::{RUN_PATCHES, run_patches, runs};
use crate::json::Digest32;
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::limits;
use crate::record::{Json, Unstorable, Update};
use crate::tool::Spec;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// A proposed or applied patch.
#[derive(Clone, Debug)]
pub(crate) struct RunPatch {
    pub(super) patch: Patch,
    pub(super) by: Actor,
    /// The version of its row.
    pub(super) version: i64,
    /// The pending approval request.
    pub(super) asked: Option<ApprovalRequest>,
    /// The graph before the patch, once it is applied.
    pub(super) before: Option<Arc<Graph>>,
    /// The sequence number, within the run, of the ledger entry that applied it.
    pub(super) seq: i64,
    /// The risk of what it adds.
    pub(super) risk: Option<Value>,
    /// Who approved it, where people were asked.
    pub(super) approved_by: Vec<String>,
}

impl RunPatch {
    /// Whether a person had to approve it, because its author could not run it freely.
    pub(crate) const fn waits(&self) -> bool {
        self.patch.waits
    }

    /// The proposer of the patch and the authors of its child workflows.
    pub(crate) fn writers(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.proposer()).chain(self.patch.authors.iter().map(String::as_str))
    }

    pub(crate) fn proposer(&self) -> &str {
        &self.by.id
    }

    /// Who approved it, where people were asked.
    pub(crate) fn approvers(&self) -> &[String] {
        &self.approved_by
    }

    /// The sequence number, within the run, of the ledger entry that applied it. The greatest until it is applied.
    pub(crate) const fn applied_seq(&self) -> i64 {
        self.seq
    }

    /// The number of calls that it adds, if they were counted.
    pub(crate) const fn calls(&self) -> Option<usize> {
        self.patch.calls
    }
}

/// The row of a patch and its version.
#[derive(Clone, Copy)]
pub(crate) struct PatchVersion {
    pub(crate) number: u32,
    pub(crate) version: i64,
}

impl PatchVersion {
    /// The row of a patch that was just proposed.
    pub(crate) const fn proposed(number: u32) -> Self {
        Self { number, version: 1 }
    }
}

/// A patch that somebody proposes.
pub(crate) struct ProposedPatch {
    /// Its number within the run.
    pub(crate) number: u32,
    pub(crate) document: Value,
    pub(crate) by: Actor,
    /// The risk of what it adds.
    pub(crate) risk: Option<Value>,
}

/// A preview of a patch on the current run.
pub struct PatchPreview {
    /// The patch, with `CURRENT_NODE` resolved.
    pub patch: Patch,
    /// The patched graph.
    pub graph: Graph,
    /// The diff and the inverse.
    pub preview: Value,
}

/// The current graph with the patch applied.
fn patched_graph(run: &Run, patch: &Patch, env: &Env<'_>) -> Result<(Graph, Inverse), Vec<DocumentProblem>> {
    let names = |wanted: &dyn Fn(&Task) -> bool| -> Vec<&str> {
        let fitting = run.tasks.nodes().iter().enumerate().filter(|(_, task)| wanted(task));
        fitting.map(|(node, _)| run.tasks.name(RunPlace::node(node))).collect()
    };
    let finished = names(&Task::is_settled);
    let current = names(&|task: &Task| !task.is_settled() && !matches!(task.state(), TaskState::Pending { .. }));
    let graph = patch::apply(run.tasks.graph(), patch, &current, &finished, env.catalog)?;
    if let Some(problem) = graph.unsupported_problem() {
        return Err(vec![patch::relocate_problem(problem, run.tasks.graph())]);
    }
    Ok((graph, patch::inverse(patch, &current)))
}

/// Previews a patch without proposing it.
pub(crate) fn preview(run: &Run, patch: &Patch, env: &Env<'_>) -> Result<PatchPreview, Vec<DocumentProblem>> {
    let (graph, inverse) = patched_graph(run, patch, env)?;
    let preview = json!({"diff": patch::diff(run.tasks.graph(), &graph), "inverse": inverse.to_value()});
    Ok(PatchPreview { patch: Patch { add_edges: inverse.remove_edges, ..patch.clone() }, graph, preview })
}

pub(crate) fn propose(run: &mut Run, proposed: ProposedPatch, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let ProposedPatch { number, document, by, risk } = proposed;
    if run.patches.by_number.contains_key(&number) {
        return Ok(());
    }
    let fits = if run.patches.count >= limits::RUN_PATCHES_MAX {
        Err("the run has reached its limit of patches".to_owned())
    } else if run.approvals.is_exhausted() {
        Err("the run exceeds its limit of approval requests".to_owned())
    } else {
        Patch::from_stored(document).map_err(|problems| join_problems(&problems))
    };
    let patch = match fits {
        Ok(patch) => patch,
        Err(why) => return refuse(run, PatchVersion::proposed(number), &by, &why, &mut cx.turn),
    };
    let (mut patch, patched) = match patched_graph(run, &patch, &cx.env) {
        Ok((graph, inverse)) => (Patch { add_edges: inverse.remove_edges, ..patch }, graph),
        Err(problems) => {
            return refuse(run, PatchVersion::proposed(number), &by, &join_problems(&problems), &mut cx.turn);
        }
    };
    patch.record_tool_versions(cx.env.catalog);
    let refused = check_rules(run, &patch, &by.id, &cx.env).err();
    if let Some(why) = refused.or_else(|| map_calls::patch_excess(run, &patch, &patched)) {
        return refuse(run, PatchVersion::proposed(number), &by, &why, &mut cx.turn);
    }
    let (asked, before, approved_by) = (None, None, Vec::new());
    let overlay = RunPatch { patch, by, version: 1, asked, before, seq: i64::MAX, risk, approved_by };
    run.patches.by_number.insert(number, overlay);
    let waits = run.patches.by_number.get(&number).is_some_and(|overlay| overlay.patch.waits);
    let planned = plan::covered_digest(run).filter(|_| run.head.level == Level::Draft);
    match planned.or_else(|| waits.then(|| covered_graph(run))) {
        Some(covered) => ask(run, number, covered, cx),
        None => apply(run, number, cx),
    }
}

/// The digest that the approval of a patch covers in a run without a plan.
fn covered_graph(run: &Run) -> Digest32 {
    run.patches.covered_digest(run.patches.unpatched(run.tasks.graph()).digest)
}

/// The digest that the approval of a patch covers now; `None` if it needs none without a plan.
fn covered_by(run: &Run, patch: &Patch) -> Option<Digest32> {
    plan::covered_digest(run).or_else(|| patch.waits.then(|| covered_graph(run)))
}

/// Requests approval of a patch on the current plan.
fn ask(run: &mut Run, number: u32, covered: Digest32, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(overlay) = run.patches.by_number.get(&number).cloned() else { return Ok(()) };
    let digest = run.approvals.next_digest(patch::digest(covered, &overlay.patch));
    let demand = ApprovalRequirement::one_approval(match overlay.patch.waits {
        true => "the author of this patch could not run it freely",
        false => "the plan was approved without this patch",
    });
    let asked = run.approvals.next(digest, &demand, &mut cx.env);
    let requesters = merge_names(run.head.requesters(), overlay.writers());
    let document = overlay.patch.to_value();
    let set = vec![
        (run_patches::approval_request_id, asked.id.into()),
        (run_patches::patch, Json::encode(&document)?.into()),
    ];
    let data = json!({"patch": document, "number": number, "reason": demand.reason, "risk": overlay.risk});
    let (action, at) = (&RequestedAction::Patch, run.approvals.last_at());
    let request = NewRequest { asked: &asked, step: None, action, data, demand: &demand, requesters, at };
    approval_rows::add_request(&run.head, request, &mut cx.turn)?;
    let (source, outcome) = (DecisionSource::Approval, Outcome::Deferred);
    let verdict = GovernanceDecision { source, outcome, rationale: demand.reason, policies: Vec::new() };
    let data = json!({"approval_id": asked.id, "digest": digest, "patch": number});
    cx.turn.add_note("approval.requested", None, Some(overlay.by.clone()), data);
    cx.turn.mark_decision(verdict);
    cx.turn.update(Update::versioned(&RUN_PATCHES, key(run.head.id, number), overlay.version, set)?);
    if let Some(stored) = run.patches.by_number.get_mut(&number) {
        stored.version += 1;
        stored.asked = Some(asked);
    }
    Ok(())
}

/// Requests approval again for pending patches whose plan or tools have changed.
pub(crate) fn renew(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let waiting =
        run.patches.by_number.iter().filter(|(_, overlay)| overlay.before.is_none() && !run.stopping.is_stopping());
    let waiting = waiting.filter_map(|(number, overlay)| Some((*number, overlay.asked.clone()?)));
    let waiting: Vec<(u32, ApprovalRequest)> = waiting.collect();
    for (number, asked) in waiting {
        let Some(overlay) = run.patches.by_number.get(&number) else { continue };
        let Some(covered) = covered_by(run, &overlay.patch) else { continue };
        resolve_current_node(run, number, &cx.env);
        update_tool_versions(run, number, &cx.env);
        let Some(overlay) = run.patches.by_number.get(&number) else { continue };
        // The decision is on its way as a signal.
        let is_decided = asked.validity == Validity::Decided;
        if is_decided || (asked.is_pending() && asked.is_about(patch::digest(covered, &overlay.patch))) {
            continue;
        }
        let (version, by) = (overlay.version, overlay.by.clone());
        cx.turn.close_approval_request(&asked, RequestStatus::Superseded, cx.env.now)?;
        if run.approvals.is_exhausted() {
            let why = "the run exceeds its limit of approval requests";
            refuse(run, PatchVersion { number, version }, &by, why, &mut cx.turn)?;
        } else {
            ask(run, number, covered, cx)?;
        }
    }
    Ok(())
}

/// Resolves `CURRENT_NODE` in a patch that an older version stored unresolved.
fn resolve_current_node(run: &mut Run, number: u32, env: &Env<'_>) {
    let Some(overlay) = run.patches.by_number.get(&number) else { return };
    if !overlay.patch.add_edges.iter().any(|edge| edge.from == CURRENT_NODE) {
        return;
    }
    let Ok((_, inverse)) = patched_graph(run, &overlay.patch, env) else { return };
    if let Some(stored) = run.patches.by_number.get_mut(&number) {
        stored.patch.add_edges = inverse.remove_edges;
    }
}

/// Updates the tool versions of a pending patch. A patch that was shown without versions stays as it was shown: its
/// steps need their own approval.
fn update_tool_versions(run: &mut Run, number: u32, env: &Env<'_>) {
    if let Some(overlay) = run.patches.by_number.get_mut(&number).filter(|overlay| !overlay.patch.tools.is_empty()) {
        overlay.patch.record_tool_versions(env.catalog);
    }
}

/// Whether the patch that added a node was applied with another version of its tool, or with none recorded.
pub(crate) fn is_tool_changed(run: &Run, node: usize, spec: &Spec) -> bool {
    let put_on = run.patches.of_node(node).and_then(|overlay| overlay.patch.tools.get(&spec.name));
    put_on.is_none_or(|version| *version != spec.version)
}

/// Checks that the rules allow the patch's tool calls for the actor of the run and for the proposer, without
/// more approval than the run needs. The inputs are evaluated again when they are known.
pub(crate) fn check_rules(run: &Run, patch: &Patch, by: &str, env: &Env<'_>) -> Result<(), String> {
    let (tenant, level) = (run.head.tenant.as_str(), run.head.level);
    for node in &patch.add_nodes {
        let Some(function) = node.function() else { continue };
        let Some(tool) = env.catalog.tool(&function.tool) else { continue };
        let input = Value::Object(function.inputs.clone());
        let verdict_of = |actor: &str| {
            let action = Action { tenant, actor, level, node: &node.id, tool: &tool, input: &input };
            match env.policy.evaluate(&action) {
                PolicyVerdict::Deny { rule, reason } => Err(format!("the rule {rule} refuses {}: {reason}", node.id)),
                verdict => Ok(verdict),
            }
        };
        let (of_run, of_proposer) = (verdict_of(&run.head.actor)?, verdict_of(by)?);
        // At a level with approvals, the rules are evaluated for the proposer again when the node needs approval. A
        // patch that waits is approved by a person.
        if !level.needs_approval() && !patch.waits {
            of_proposer.check_contribution(&of_run).map_err(|why| format!("{}: {why}", node.id))?;
        }
    }
    Ok(())
}

/// Refuses patches whose approval request has expired.
pub(crate) fn expire(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let now = cx.env.now;
    let late = |asked: &ApprovalRequest| asked.deadline().is_some_and(|due| due <= now);
    withdraw(run, late, RequestStatus::Expired, "nobody decided in time", cx)
}

/// Refuses pending patches when the run ends.
pub(crate) fn close(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    withdraw(run, |_| true, RequestStatus::Cancelled, "the run has ended", cx)
}

pub(crate) fn withdraw(
    run: &mut Run,
    which: impl Fn(&ApprovalRequest) -> bool,
    status: RequestStatus,
    why: &str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let waiting = run.patches.by_number.iter().filter_map(|(number, overlay)| {
        let asked = overlay.asked.clone().filter(|asked| overlay.before.is_none() && which(asked))?;
        Some((*number, overlay.version, overlay.by.clone(), asked))
    });
    for (number, version, by, asked) in waiting.collect::<Vec<_>>() {
        cx.turn.close_approval_request(&asked, status, cx.env.now)?;
        refuse(run, PatchVersion { number, version }, &by, why, &mut cx.turn)?;
    }
    Ok(())
}

pub(crate) fn refuse(
    run: &mut Run,
    patch: PatchVersion,
    by: &Actor,
    why: &str,
    turn: &mut TurnBuilder,
) -> Result<(), Unstorable> {
    let PatchVersion { number, version } = patch;
    let set = vec![(run_patches::status, PatchStatus::Refused.into()), (run_patches::reason, why.into())];
    turn.update(Update::versioned(&RUN_PATCHES, key(run.head.id, number), version, set)?);
    turn.add_note("patch.refused", None, Some(by.clone()), json!({"number": number, "reason": why}));
    run.patches.by_number.remove(&number);
    Ok(())
}

/// Applies the patch to the graph and decides its edges from settled nodes.
fn apply(run: &mut Run, number: u32, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(overlay) = run.patches.by_number.get(&number).cloned() else { return Ok(()) };
    let (graph, inverse) = match patched_graph(run, &overlay.patch, &cx.env) {
        Ok(applied) => applied,
        Err(problems) => {
            return {
                let row = PatchVersion { number, version: overlay.version };
                refuse(run, row, &overlay.by, &join_problems(&problems), &mut cx.turn)
            };
        }
    };
    let (nodes, edges) = (run.tasks.nodes().len(), run.tasks.graph().edges.len());
    let before = run.tasks.extend_graph(graph);
    run.patches.count += 1;
    let data =
        json!({"number": number, "graph_digest": run.tasks.graph().digest, "nodes": run.tasks.nodes().len() - nodes});
    let seq = cx.turn.add_note("patch.applied", None, Some(overlay.by.clone()), data);
    let (inverse, document) =
        (Json::encode(&inverse.to_value_applied_at(seq))?, Json::encode(&overlay.patch.to_value())?);
    let set = vec![
        (run_patches::status, PatchStatus::Applied.into()),
        (run_patches::inverse, inverse.into()),
        (run_patches::patch, document.into()),
    ];
    cx.turn.update(Update::versioned(&RUN_PATCHES, key(run.head.id, number), overlay.version, set)?);
    cx.turn.set_run_column(runs::patches, i64::from(run.patches.count));
    if let Some(stored) = run.patches.by_number.get_mut(&number) {
        stored.version += 1;
        (stored.before, stored.seq) = (Some(before), seq);
        stored.asked = None;
    }
    for edge in edges..run.tasks.graph().edges.len() {
        let (from, to) = (run.tasks.graph().edges[edge].from, run.tasks.graph().edges[edge].to);
        // A settled source that is still queued decides its edges from there.
        if run.tasks.node(from).is_settled() && !run.tasks.is_settled_queued(from) {
            let came = edges::decide_edge(run, from, edge).unwrap_or(EdgeDecision::NotTaken);
            edges::edge_decided(run, to, came, cx)?;
        }
    }
    Ok(())
}

/// A patch was approved. It is applied if the plan is still the one that was shown. False: the approval is about
/// something else.
pub(crate) fn approved(
    run: &mut Run,
    approval: Uuid,
    by: &[String],
    cx: &mut TurnContext<'_>,
) -> Result<bool, Unstorable> {
    let Some(number) = patch_of(run, approval) else { return Ok(false) };
    resolve_current_node(run, number, &cx.env);
    update_tool_versions(run, number, &cx.env);
    let covered = run.patches.by_number.get(&number).and_then(|overlay| covered_by(run, &overlay.patch));
    let Some(overlay) = run.patches.by_number.get_mut(&number) else { return Ok(false) };
    let Some(asked) = overlay.asked.as_mut() else { return Ok(false) };
    if !covered.is_some_and(|covered| asked.is_about(patch::digest(covered, &overlay.patch))) {
        // This turn requests approval again.
        asked.withdraw();
        let data = json!({"number": number, "approval_id": approval, "digest": asked.digest});
        cx.turn.add_note("patch.approval_superseded", None, by.first().map(Actor::person), data);
        return Ok(true);
    }
    cx.turn.add_note("patch.approved", None, by.first().map(Actor::person), json!({"number": number, "by": by}));
    overlay.approved_by = by.to_vec();
    apply(run, number, cx)?;
    Ok(true)
}

/// A patch was rejected. False: the approval is about something else.
pub(crate) fn denied(run: &mut Run, approval: Uuid, by: &Actor, turn: &mut TurnBuilder) -> Result<bool, Unstorable> {
    let Some(number) = patch_of(run, approval) else { return Ok(false) };
    let version = run.patches.by_number.get(&number).map_or(1, |overlay| overlay.version);
    refuse(run, PatchVersion { number, version }, by, "the approval was denied", turn)?;
    Ok(true)
}

/// Refuses patches that still await approval when the run ends.
pub(crate) fn drop_proposals(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let waiting: Vec<(u32, RunPatch)> = run
        .patches
        .by_number
        .iter()
        .filter(|(_, overlay)| overlay.asked.is_some())
        .map(|(number, overlay)| (*number, overlay.clone()))
        .collect();
    for (number, overlay) in waiting {
        if let Some(asked) = &overlay.asked {
            cx.turn.close_approval_request(asked, RequestStatus::Cancelled, cx.env.now)?;
        }
        let row = PatchVersion { number, version: overlay.version };
        refuse(run, row, &overlay.by, "the run has ended", &mut cx.turn)?;
    }
    Ok(())
}

fn patch_of(run: &Run, approval: Uuid) -> Option<u32> {
    let asks = |overlay: &RunPatch| overlay.asked.as_ref().is_some_and(|asked| asked.id == approval);
    run.patches.by_number.iter().find(|(_, overlay)| asks(overlay)).map(|(number, _)| *number)
}

/// Removes the last patch.
pub(crate) fn revert(run: &mut Run, number: u32, by: Actor, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let applied = run.patches.by_number.iter().filter(|(_, overlay)| overlay.before.is_some());
    let last = applied.max_by_key(|(number, overlay)| (overlay.seq, **number)).map(|(number, _)| *number);
    let before = run.patches.by_number.get(&number).and_then(|overlay| overlay.before.clone());
    let Some(before) = before.filter(|_| last == Some(number)) else {
        cx.turn.add_note(
            "patch.revert_refused",
            None,
            Some(by),
            json!({"number": number, "reason": "it is not the last patch"}),
        );
        return Ok(());
    };
    let begun =
        run.tasks.nodes()[before.nodes.len()..].iter().any(|task| !matches!(task.state(), TaskState::Pending { .. }));
    if begun {
        cx.turn.add_note(
            "patch.revert_refused",
            None,
            Some(by),
            json!({"number": number, "reason": "one of its nodes has started"}),
        );
        return Ok(());
    }
    let version = run.patches.by_number.remove(&number).map_or(1, |overlay| overlay.version);
    run.tasks.truncate_graph(before);
    let set = vec![(run_patches::status, PatchStatus::Reverted.into())];
    cx.turn.update(Update::versioned(&RUN_PATCHES, key(run.head.id, number), version, set)?);
    cx.turn.add_note(
        "patch.reverted",
        None,
        Some(by),
        json!({"number": number, "graph_digest": run.tasks.graph().digest}),
    );
    Ok(())
}

fn key(run: Uuid, number: u32) -> Vec<crate::record::Value> {
    vec![run.into(), i64::from(number).into()]
}

fn join_problems(problems: &[DocumentProblem]) -> String {
    let words: Vec<String> = problems.iter().map(|problem| format!("{}: {}", problem.path, problem.reason)).collect();
    words.join("; ")
}
