//! Applies patches to a running graph.
//!
//! A patch only adds nodes after finished or current ones. If a plan was approved, the plan with the patch needs
//! approval before the patch is applied; if the plan changes meanwhile, approval is requested again. The last patch
//! can be reverted while none of its nodes has started.

use super::edges::EdgeDecision;
use super::env::Env;
use super::event::GovernanceDecision;
use super::requesters::merge_names;
use super::task::{Task, TaskState};
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace};
use crate::access::{Actor, Level};
use crate::flow::air::{CURRENT_NODE, DocumentProblem, Graph};
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, RequestStatus, RequestedAction, Validity};
use crate::flow::patch::{self, Inverse, Patch};
use crate::flow::policy::{Action, PolicyVerdict};
use crate::flow::tables::RUN_PATCHES;
use crate::json::Digest32;
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::limits;
use crate::record::{Json, Unstorable, Update};
use crate::time::Timestamp;
use crate::tool::Spec;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// A proposed or applied patch.
#[derive(Clone, Debug)]
pub(crate) struct RunPatch {
    pub(crate) patch: Patch,
    pub(crate) by: Actor,
    /// The version of its row.
    pub(crate) version: i64,
    /// The pending approval request.
    pub(crate) asked: Option<ApprovalRequest>,
    /// The graph before the patch, once it is applied.
    pub(crate) before: Option<Arc<Graph>>,
    /// The sequence number, within the run, of the ledger entry that applied it.
    pub(crate) seq: i64,
    /// The risk of what it adds.
    pub(crate) risk: Option<Value>,
    /// Who approved it, where people were asked.
    pub(crate) approved_by: Vec<String>,
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

impl Run {
    /// The current graph with the patch applied.
    fn patched_graph(&self, patch: &Patch, env: &Env<'_>) -> Result<(Graph, Inverse), Vec<DocumentProblem>> {
        let names = |wanted: &dyn Fn(&Task) -> bool| -> Vec<&str> {
            let fitting = self.nodes.iter().enumerate().filter(|(_, task)| wanted(task));
            fitting.map(|(node, _)| self.name(RunPlace::node(node))).collect()
        };
        let finished = names(&Task::is_settled);
        let current = names(&|task: &Task| !task.is_settled() && !matches!(task.state, TaskState::Pending { .. }));
        let graph = patch::apply(&self.graph, patch, &current, &finished, env.catalog)?;
        if let Some(problem) = graph.unsupported_problem() {
            return Err(vec![patch::relocate_problem(problem, &self.graph)]);
        }
        Ok((graph, patch::inverse(patch, &current)))
    }

    /// Previews a patch without proposing it.
    pub fn preview_patch(&self, patch: &Patch, env: &Env<'_>) -> Result<PatchPreview, Vec<DocumentProblem>> {
        let (graph, inverse) = self.patched_graph(patch, env)?;
        let preview = json!({"diff": patch::diff(&self.graph, &graph), "inverse": inverse.to_value()});
        Ok(PatchPreview { patch: Patch { add_edges: inverse.remove_edges, ..patch.clone() }, graph, preview })
    }

    pub(crate) fn patch_proposed(
        &mut self,
        number: u32,
        document: Value,
        by: Actor,
        risk: Option<Value>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if self.patches_by_number.contains_key(&number) {
            return Ok(());
        }
        let fits = if self.patches >= limits::RUN_PATCHES_MAX {
            Err("the run has reached its limit of patches".to_owned())
        } else if self.approvals >= limits::RUN_APPROVALS_MAX {
            Err("the run exceeds its limit of approval requests".to_owned())
        } else {
            Patch::from_stored(document).map_err(|problems| join_problems(&problems))
        };
        let patch = match fits {
            Ok(patch) => patch,
            Err(why) => return self.refuse_patch(number, 1, &by, &why, book),
        };
        let (mut patch, patched) = match self.patched_graph(&patch, env) {
            Ok((graph, inverse)) => (Patch { add_edges: inverse.remove_edges, ..patch }, graph),
            Err(problems) => return self.refuse_patch(number, 1, &by, &join_problems(&problems), book),
        };
        patch.record_tool_versions(env.catalog);
        let refused = self.judge_patch(&patch, &by.id, env).err();
        if let Some(why) = refused.or_else(|| self.patch_excess(&patch, &patched)) {
            return self.refuse_patch(number, 1, &by, &why, book);
        }
        let (asked, before, approved_by) = (None, None, Vec::new());
        let overlay = RunPatch { patch, by, version: 1, asked, before, seq: i64::MAX, risk, approved_by };
        self.patches_by_number.insert(number, overlay);
        match self.covered_digest().filter(|_| self.head.level == Level::Draft) {
            Some(covered) => self.ask_patch(number, covered, env, book),
            None => self.apply_patch(number, env, book),
        }
    }

    /// Requests approval of a patch on the current plan.
    fn ask_patch(
        &mut self,
        number: u32,
        covered: Digest32,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(overlay) = self.patches_by_number.get(&number).cloned() else { return Ok(()) };
        let digest = self.next_request_digest(patch::digest(covered, &overlay.patch));
        let demand = ApprovalRequirement::one_approval("the plan was approved without this patch");
        let asked = self.next_request(digest, &demand, env);
        let requesters = merge_names(self.head.requesters(), overlay.writers());
        let document = overlay.patch.to_value();
        let set = vec![("approval_request_id", asked.id.into()), ("patch", Json::encode(&document)?.into())];
        let data = json!({"patch": document, "number": number, "reason": demand.reason, "risk": overlay.risk});
        book.add_approval_request(
            &self.head,
            &asked,
            None,
            &RequestedAction::Patch,
            data,
            &demand,
            requesters,
            self.last_request_at,
        )?;
        let (source, outcome) = (DecisionSource::Approval, Outcome::Deferred);
        let verdict = GovernanceDecision { source, outcome, rationale: demand.reason, policies: Vec::new() };
        let data = json!({"approval_id": asked.id, "digest": digest, "patch": number});
        book.add_decision("approval.requested", None, Some(overlay.by.clone()), data, verdict);
        book.update(Update::versioned(&RUN_PATCHES, key(self.head.id, number), overlay.version, set)?);
        if let Some(stored) = self.patches_by_number.get_mut(&number) {
            stored.version += 1;
            stored.asked = Some(asked);
        }
        Ok(())
    }

    /// Requests approval again for pending patches whose plan or tools have changed.
    pub(crate) fn renew_patches(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let waiting =
            self.patches_by_number.iter().filter(|(_, overlay)| overlay.before.is_none() && !self.is_stopping());
        let waiting = waiting.filter_map(|(number, overlay)| Some((*number, overlay.asked.clone()?)));
        let waiting: Vec<(u32, ApprovalRequest)> = waiting.collect();
        let Some(covered) = waiting.first().and_then(|_| self.covered_digest()) else { return Ok(()) };
        for (number, asked) in waiting {
            self.resolve_current_node(number, env);
            self.update_tool_versions(number, env);
            let Some(overlay) = self.patches_by_number.get(&number) else { continue };
            // The decision is on its way as a signal.
            let is_decided = asked.validity == Validity::Decided;
            if is_decided || (asked.is_pending() && asked.is_about(patch::digest(covered, &overlay.patch))) {
                continue;
            }
            let (version, by) = (overlay.version, overlay.by.clone());
            book.close_approval_request(&asked, RequestStatus::Superseded, env.now)?;
            if self.approvals >= limits::RUN_APPROVALS_MAX {
                self.refuse_patch(number, version, &by, "the run exceeds its limit of approval requests", book)?;
            } else {
                self.ask_patch(number, covered, env, book)?;
            }
        }
        Ok(())
    }

    /// Resolves `CURRENT_NODE` in a patch that an older version stored unresolved.
    fn resolve_current_node(&mut self, number: u32, env: &Env<'_>) {
        let Some(overlay) = self.patches_by_number.get(&number) else { return };
        if !overlay.patch.add_edges.iter().any(|edge| edge.from == CURRENT_NODE) {
            return;
        }
        let Ok((_, inverse)) = self.patched_graph(&overlay.patch, env) else { return };
        if let Some(stored) = self.patches_by_number.get_mut(&number) {
            stored.patch.add_edges = inverse.remove_edges;
        }
    }

    /// Updates the tool versions of a pending patch. A patch that was shown without versions stays as it was shown: its
    /// steps need their own approval.
    fn update_tool_versions(&mut self, number: u32, env: &Env<'_>) {
        if let Some(overlay) = self.patches_by_number.get_mut(&number).filter(|overlay| !overlay.patch.tools.is_empty())
        {
            overlay.patch.record_tool_versions(env.catalog);
        }
    }

    /// Whether the patch that added a node was applied with another version of its tool, or with none recorded.
    pub(crate) fn is_tool_changed(&self, node: usize, spec: &Spec) -> bool {
        let put_on = self.patch_of_node(node).and_then(|overlay| overlay.patch.tools.get(&spec.name));
        put_on.is_none_or(|version| *version != spec.version)
    }

    /// The patch that added a node, if one did.
    pub(crate) fn patch_of_node(&self, node: usize) -> Option<&RunPatch> {
        let applied =
            self.patches_by_number.values().filter_map(|overlay| Some((overlay.before.as_ref()?.nodes.len(), overlay)));
        applied.filter(|(before, _)| node >= *before).max_by_key(|(before, _)| *before).map(|(_, overlay)| overlay)
    }

    /// The patch that added an edge, if one did.
    pub(crate) fn patch_of_edge(&self, edge: usize) -> Option<&RunPatch> {
        let drawn =
            self.patches_by_number.values().filter_map(|overlay| Some((overlay.before.as_ref()?.edges.len(), overlay)));
        drawn.filter(|(first, _)| *first <= edge).max_by_key(|(first, _)| *first).map(|(_, overlay)| overlay)
    }

    /// Checks that the rules allow the patch's tool calls for the actor of the run and for the proposer, without
    /// more approval than the run needs. The inputs are judged again when they are known.
    pub fn judge_patch(&self, patch: &Patch, by: &str, env: &Env<'_>) -> Result<(), String> {
        let (tenant, level) = (self.head.tenant.as_str(), self.head.level);
        for node in &patch.add_nodes {
            let Some(function) = node.function() else { continue };
            let Some(tool) = env.catalog.tool(&function.tool) else { continue };
            let input = Value::Object(function.inputs.clone());
            let judged = |actor: &str| {
                let action = Action { tenant, actor, level, node: &node.id, tool: &tool, input: &input };
                match env.policy.judge(&action) {
                    PolicyVerdict::Deny { rule, reason } => {
                        Err(format!("the rule {rule} refuses {}: {reason}", node.id))
                    }
                    verdict => Ok(verdict),
                }
            };
            let (of_run, of_proposer) = (judged(&self.head.actor)?, judged(by)?);
            // At a level with approvals, the proposer is judged again when the node needs approval.
            if !level.needs_approval() {
                of_proposer.check_contribution(&of_run).map_err(|why| format!("{}: {why}", node.id))?;
            }
        }
        Ok(())
    }

    /// Whether a patch added the node.
    pub(crate) fn is_patched(&self, node: usize) -> bool {
        node >= self.unpatched_graph().nodes.len()
    }

    /// The graph without any patch.
    pub(crate) fn unpatched_graph(&self) -> &Graph {
        let before = self.patches_by_number.values().filter_map(|overlay| overlay.before.as_ref());
        before.min_by_key(|before| before.nodes.len()).unwrap_or(&self.graph)
    }

    /// Refuses patches whose approval request has expired.
    pub(crate) fn expire_patches(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let late = |asked: &ApprovalRequest| asked.deadline().is_some_and(|due| due <= env.now);
        self.withdraw_patches(late, RequestStatus::Expired, "nobody decided in time", env.now, book)
    }

    /// Refuses pending patches when the run ends.
    pub(crate) fn close_patches(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        self.withdraw_patches(|_| true, RequestStatus::Cancelled, "the run has ended", env.now, book)
    }

    pub(crate) fn withdraw_patches(
        &mut self,
        which: impl Fn(&ApprovalRequest) -> bool,
        status: RequestStatus,
        why: &str,
        now: Timestamp,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let waiting = self.patches_by_number.iter().filter_map(|(number, overlay)| {
            let asked = overlay.asked.clone().filter(|asked| overlay.before.is_none() && which(asked))?;
            Some((*number, overlay.version, overlay.by.clone(), asked))
        });
        for (number, version, by, asked) in waiting.collect::<Vec<_>>() {
            book.close_approval_request(&asked, status, now)?;
            self.refuse_patch(number, version, &by, why, book)?;
        }
        Ok(())
    }

    pub(crate) fn refuse_patch(
        &mut self,
        number: u32,
        version: i64,
        by: &Actor,
        why: &str,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let set = vec![("status", "refused".into()), ("reason", why.into())];
        book.update(Update::versioned(&RUN_PATCHES, key(self.head.id, number), version, set)?);
        book.add_note("patch.refused", None, Some(by.clone()), json!({"number": number, "reason": why}));
        self.patches_by_number.remove(&number);
        Ok(())
    }

    /// Applies the patch to the graph and decides its edges from settled nodes.
    fn apply_patch(&mut self, number: u32, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let Some(overlay) = self.patches_by_number.get(&number).cloned() else { return Ok(()) };
        let (graph, inverse) = match self.patched_graph(&overlay.patch, env) {
            Ok(applied) => applied,
            Err(problems) => {
                return self.refuse_patch(number, overlay.version, &overlay.by, &join_problems(&problems), book);
            }
        };
        let (nodes, edges) = (self.nodes.len(), self.graph.edges.len());
        let before = std::mem::replace(&mut self.graph, Arc::new(graph));
        for compiled in &self.graph.nodes[nodes..] {
            self.nodes.push(Task::pending(u32::try_from(compiled.incoming.len()).unwrap_or(u32::MAX)));
            self.open_nodes += 1;
        }
        self.patches += 1;
        let data = json!({"number": number, "graph_digest": self.graph.digest, "nodes": self.nodes.len() - nodes});
        let seq = book.add_note("patch.applied", None, Some(overlay.by.clone()), data) + self.run_seq;
        let (inverse, document) =
            (Json::encode(&inverse.to_value_applied_at(seq))?, Json::encode(&overlay.patch.to_value())?);
        let set = vec![("status", "applied".into()), ("inverse", inverse.into()), ("patch", document.into())];
        book.update(Update::versioned(&RUN_PATCHES, key(self.head.id, number), overlay.version, set)?);
        book.set_run_column("patches", i64::from(self.patches));
        if let Some(stored) = self.patches_by_number.get_mut(&number) {
            stored.version += 1;
            (stored.before, stored.seq) = (Some(before), seq);
            stored.asked = None;
        }
        for edge in edges..self.graph.edges.len() {
            let (from, to) = (self.graph.edges[edge].from, self.graph.edges[edge].to);
            // A settled source that is still queued decides its edges from there.
            if self.nodes[from].is_settled() && !self.settled.iter().any(|settled| settled.node == from) {
                let came = self.decide_edge(from, edge).unwrap_or(EdgeDecision::NotTaken);
                self.edge_decided(to, came, env, book)?;
            }
        }
        Ok(())
    }

    /// A patch was approved. It is applied if the plan is still the one that was shown. False: the approval is about
    /// something else.
    pub(crate) fn patch_approved(
        &mut self,
        approval: Uuid,
        by: &[String],
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<bool, Unstorable> {
        let Some(number) = self.patch_of(approval) else { return Ok(false) };
        self.resolve_current_node(number, env);
        self.update_tool_versions(number, env);
        let covered = self.covered_digest();
        let Some(overlay) = self.patches_by_number.get_mut(&number) else { return Ok(false) };
        let Some(asked) = overlay.asked.as_mut() else { return Ok(false) };
        if !covered.is_some_and(|covered| asked.is_about(patch::digest(covered, &overlay.patch))) {
            // This turn requests approval again.
            asked.withdraw();
            let data = json!({"number": number, "approval_id": approval, "digest": asked.digest});
            book.add_note("patch.approval_stale", None, by.first().map(Actor::person), data);
            return Ok(true);
        }
        book.add_note("patch.approved", None, by.first().map(Actor::person), json!({"number": number, "by": by}));
        overlay.approved_by = by.to_vec();
        self.apply_patch(number, env, book)?;
        Ok(true)
    }

    /// A patch was rejected. False: the approval is about something else.
    pub(crate) fn patch_denied(
        &mut self,
        approval: Uuid,
        by: &Actor,
        book: &mut TurnBuilder,
    ) -> Result<bool, Unstorable> {
        let Some(number) = self.patch_of(approval) else { return Ok(false) };
        let version = self.patches_by_number.get(&number).map_or(1, |overlay| overlay.version);
        self.refuse_patch(number, version, by, "the approval was denied", book)?;
        Ok(true)
    }

    /// Refuses patches that still await approval when the run ends.
    pub(crate) fn drop_proposals(&mut self, env: &Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let waiting: Vec<(u32, RunPatch)> = self
            .patches_by_number
            .iter()
            .filter(|(_, overlay)| overlay.asked.is_some())
            .map(|(number, overlay)| (*number, overlay.clone()))
            .collect();
        for (number, overlay) in waiting {
            if let Some(asked) = &overlay.asked {
                book.close_approval_request(asked, RequestStatus::Cancelled, env.now)?;
            }
            self.refuse_patch(number, overlay.version, &overlay.by, "the run has ended", book)?;
        }
        Ok(())
    }

    fn patch_of(&self, approval: Uuid) -> Option<u32> {
        let asks = |overlay: &RunPatch| overlay.asked.as_ref().is_some_and(|asked| asked.id == approval);
        self.patches_by_number.iter().find(|(_, overlay)| asks(overlay)).map(|(number, _)| *number)
    }

    /// Reverts the last patch.
    pub(crate) fn revert_patch(
        &mut self,
        number: u32,
        by: Actor,
        _env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let applied = self.patches_by_number.iter().filter(|(_, overlay)| overlay.before.is_some());
        let last = applied.max_by_key(|(number, overlay)| (overlay.seq, **number)).map(|(number, _)| *number);
        let before = self.patches_by_number.get(&number).and_then(|overlay| overlay.before.clone());
        let Some(before) = before.filter(|_| last == Some(number)) else {
            book.add_note(
                "patch.revert_refused",
                None,
                Some(by),
                json!({"number": number, "reason": "it is not the last patch"}),
            );
            return Ok(());
        };
        let begun =
            self.nodes[before.nodes.len()..].iter().any(|task| !matches!(task.state, TaskState::Pending { .. }));
        if begun {
            book.add_note(
                "patch.revert_refused",
                None,
                Some(by),
                json!({"number": number, "reason": "one of its nodes has started"}),
            );
            return Ok(());
        }
        let version = self.patches_by_number.remove(&number).map_or(1, |overlay| overlay.version);
        self.open_nodes = self.open_nodes.saturating_sub(self.nodes.len() - before.nodes.len());
        self.nodes.truncate(before.nodes.len());
        self.graph = before;
        let set = vec![("status", "reverted".into())];
        book.update(Update::versioned(&RUN_PATCHES, key(self.head.id, number), version, set)?);
        book.add_note("patch.reverted", None, Some(by), json!({"number": number, "graph_digest": self.graph.digest}));
        Ok(())
    }
}

fn key(run: Uuid, number: u32) -> Vec<crate::record::Value> {
    vec![run.into(), i64::from(number).into()]
}

fn join_problems(problems: &[DocumentProblem]) -> String {
    let words: Vec<String> = problems.iter().map(|problem| format!("{}: {}", problem.path, problem.reason)).collect();
    words.join("; ")
}
