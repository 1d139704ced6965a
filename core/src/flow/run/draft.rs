//! The dry pass of a whole plan, and the plan that people approve.
//!
//! Nodes are taken in topological order. A value behind a mock is unknown; a condition on something
//! unknown shows both branches; a map over something unknown shows its bound. The plan's digest
//! covers the graph, the run's inputs, the tools' versions, and for each input either its exact
//! value or what it will be made of. A draft leaves nothing behind until it is complete: after a
//! crash it is simply made again.

use super::approve::expires_at;
use super::draft_view::{DraftView, Reached, topological};
use super::env::{Demand, Env};
use super::event::{Call, Effect, Mode, Verdict};
use super::rows::{Book, Unstorable};
use super::start::{Work, check_input};
use super::task::Asked;
use super::{At, Run, RunStatus};
use crate::access::Level;
use crate::error::ErrorBody;
use crate::flow::air::Body;
use crate::flow::call::Answer;
use crate::flow::expr::Preview;
use crate::flow::tool::{Reach, Spec, input_digest};
use crate::ledger::decision::{Outcome, Source};
use crate::limits;
use crate::record::{Insert, Json, Value as Cell};
use crate::time::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// A draft under way.
pub(crate) struct Draft {
    queue: VecDeque<At>,
    /// What each node would give: known, or unknown when absent.
    pub(crate) outputs: BTreeMap<usize, Arc<Value>>,
    pub(crate) reached: Vec<Reached>,
    /// What maps go over.
    pub(crate) lists: BTreeMap<usize, Vec<Value>>,
    lines: Vec<Value>,
    planned: BTreeMap<String, Planned>,
    calls: Vec<Insert>,
    waiting: Option<(Uuid, At, Arc<Spec>, Arc<Value>)>,
}

/// What was known of a node when the plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Digest of its input, if that was known.
    pub(crate) exact: Option<[u8; 32]>,
    /// How risky it looked.
    pub(crate) risk: u32,
}

/// A plan that was drafted.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) digest: [u8; 32],
    pub(crate) nodes: BTreeMap<String, Planned>,
    /// The request that waits for people.
    pub(crate) asked: Option<Asked>,
}

impl Plan {
    pub(crate) fn of(&self, node: &str) -> Option<&Planned> {
        self.nodes.get(node)
    }

    pub(crate) fn approval(&self) -> Option<Uuid> {
        self.asked.as_ref().map(|asked| asked.id)
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.asked.as_ref().filter(|asked| asked.open).map(|asked| asked.expires_at)
    }

    /// The plan as `runs.plan` keeps it.
    pub(crate) fn of_document(document: &Value, asked: Option<Asked>) -> Option<Self> {
        let digest = bytes32(document.get("digest")?)?;
        let nodes = document.get("nodes")?.as_object()?.iter().map(|(name, planned)| {
            let exact = planned.get("exact").and_then(bytes32);
            let risk = planned.get("risk").and_then(Value::as_u64).and_then(|risk| u32::try_from(risk).ok());
            (name.clone(), Planned { exact, risk: risk.unwrap_or(0) })
        });
        Some(Self { digest, nodes: nodes.collect(), asked })
    }
}

fn bytes32(value: &Value) -> Option<[u8; 32]> {
    hex::decode(value.as_str()?).ok()?.try_into().ok()
}

impl Run {
    /// Whether people still have to decide about the plan.
    pub(crate) fn plan_waits(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.asked.is_some())
    }

    /// Whether a plan must be drafted before anything else.
    pub(crate) fn wants_draft(&self) -> bool {
        let drafts = self.head.dry_run || self.head.level == Level::Draft;
        drafts && self.plan.is_none() && self.replays().is_none() && !self.status.is_final()
    }

    /// Gives the draft up. One whose call is under way waits for the answer.
    pub(crate) fn drop_draft(&mut self) {
        self.draft.take_if(|draft| draft.waiting.is_none());
    }

    pub(crate) fn begin_draft(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        self.draft = Some(Draft {
            queue: topological(&self.graph).into_iter().map(At::node).collect(),
            outputs: BTreeMap::new(),
            reached: vec![Reached::No; self.nodes.len()],
            lists: BTreeMap::new(),
            lines: Vec::new(),
            planned: BTreeMap::new(),
            calls: Vec::new(),
            waiting: None,
        });
        self.draft_on(env, book)
    }

    /// Goes on until a tool must be asked, or to the end.
    fn draft_on(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        loop {
            let Some(draft) = &mut self.draft else { return Ok(()) };
            let Some(at) = draft.queue.pop_front() else { return self.draft_done(env, book) };
            match self.draft_place(at, env) {
                Ok(None) => {}
                Ok(Some(call)) => {
                    self.calls.insert(at);
                    book.effects.push(Effect::Call(call));
                    return Ok(());
                }
                Err(error) => {
                    self.draft = None;
                    self.fail_with(error.with("node", self.name(at)));
                    return Ok(());
                }
            }
        }
    }

    /// Drafts one place; gives the dry call that it needs.
    fn draft_place(&mut self, at: At, env: &mut Env<'_>) -> Result<Option<Call>, ErrorBody> {
        let Some(draft) = &mut self.draft else { return Ok(None) };
        if at.item.is_none() {
            let reached = DraftView::new(&self.head, &self.graph, draft, None).reached(at.node)?;
            draft.reached[at.node] = reached;
            if reached == Reached::No {
                let node = self.name(at).to_owned();
                self.draft_line(json!({"node": node, "status": "skipped"}));
                return Ok(None);
            }
        }
        match self.work(at) {
            Work::Tool(spec) => self.draft_tool(at, spec, env),
            Work::Map => self.draft_map(at),
            Work::Person => {
                self.draft_line(json!({"node": self.name(at), "type": "hitl", "would_execute": "a person decides"}));
                Ok(None)
            }
            Work::Child { workflow, version } => {
                let line = json!({"node": self.name(at), "type": "workflow", "would_execute": format!("workflow {workflow}"), "version": version});
                self.draft_line(line);
                Ok(None)
            }
            Work::Unsupported(kind) => {
                let message = format!("nodes of type {kind} can't run yet");
                Err(ErrorBody::new(crate::error::Code::ToolUnavailable, message))
            }
        }
    }

    fn draft_line(&mut self, line: Value) {
        if let Some(draft) = &mut self.draft {
            draft.lines.push(line);
        }
    }

    fn draft_tool(&mut self, at: At, spec: Arc<Spec>, env: &mut Env<'_>) -> Result<Option<Call>, ErrorBody> {
        let node = self.name(at).to_owned();
        let Some(draft) = &mut self.draft else { return Ok(None) };
        let view = DraftView::new(&self.head, &self.graph, draft, Some(at));
        let input = match view.inputs_of(at.node)? {
            Preview::Exact(input) => input,
            Preview::Deferred { shown, from } => {
                let risk = env.policy.risk(&spec, &shown);
                draft.planned.entry(node.clone()).or_insert(Planned { exact: None, risk });
                draft.lines.push(json!({
                    "node": node, "item": at.item, "tool": spec.name, "tool_version": spec.version, "input": shown,
                    "deferred": from, "result": {"status": "dry_run", "deferred": true,
                    "warning": "This input depends on results that a dry run can't know"},
                }));
                return Ok(None);
            }
        };
        check_input(&spec, &input)?;
        let digest = input_digest(&input).unwrap_or_default();
        let risk = env.policy.risk(&spec, &input);
        let exact = at.item.is_none().then_some(digest);
        let planned = draft.planned.entry(node.clone()).or_insert(Planned { exact, risk });
        planned.risk = planned.risk.max(risk);
        draft.lines.push(json!({
            "node": node, "item": at.item, "tool": spec.name, "tool_version": spec.version, "input": input,
            "input_digest": hex::encode(digest), "risk": risk,
        }));
        let mut dry = input;
        if let Some(members) = dry.as_object_mut() {
            members.insert("dry_run".to_owned(), Value::Bool(true));
        }
        let input = Arc::new(dry);
        if !spec.metadata.dry_run_supported {
            let mock = spec.mock(&input);
            self.draft_result(at, &spec, mock, false);
            return Ok(None);
        }
        let (call, step) = ((env.ids)(), (env.ids)());
        draft.waiting = Some((call, at, Arc::clone(&spec), Arc::clone(&input)));
        let ms = i64::try_from(spec.timeout_ms).unwrap_or(60_000);
        let deadline = Timestamp::from_micros(env.now.micros().saturating_add(ms * 1_000));
        let key = format!("{}:dry", self.effect_key(at, &Mode::Dry));
        Ok(Some(Call {
            at,
            id: call,
            step,
            effect: step,
            key,
            attempt: 1,
            tool: spec.name.clone(),
            mode: Mode::Dry,
            input,
            deadline,
        }))
    }

    fn draft_map(&mut self, at: At) -> Result<Option<Call>, ErrorBody> {
        let node = self.name(at).to_owned();
        let Some(draft) = &mut self.draft else { return Ok(None) };
        let bound = match &self.graph.nodes[at.node].node.body {
            Body::Map(each) => each.max_parallel,
            _ => 1,
        };
        match DraftView::new(&self.head, &self.graph, draft, None).list_of(at.node)? {
            None => {
                let warning = format!("over a list that is not known yet, at most {} items", limits::MAP_ITEMS_MAX);
                draft.lines.push(
                    json!({"node": node, "type": "map", "max_parallel": bound, "deferred": true, "warning": warning}),
                );
            }
            Some(list) => {
                let shown = list.len().min(limits::DRAFT_ITEMS_MAX);
                draft.lines.push(json!({"node": node, "type": "map", "max_parallel": bound, "items": list.len(), "items_tried": shown}));
                draft.lists.insert(at.node, list);
                for item in (0..u32::try_from(shown).unwrap_or(0)).rev() {
                    draft.queue.push_front(At { node: at.node, item: Some(item) });
                }
            }
        }
        Ok(None)
    }

    /// Keeps what a place would give.
    fn draft_result(&mut self, at: At, spec: &Spec, result: Value, real: bool) {
        let Some(draft) = &mut self.draft else { return };
        // A pure tool's dry answer is its real one; any other value behind a mock is unknown.
        if real && spec.effect == Reach::Pure && at.item.is_none() {
            let simulated = result.get("simulated_output").cloned().unwrap_or_default();
            draft.outputs.insert(at.node, Arc::new(super::edges::seen(simulated)));
        }
        if let Some(line) = draft.lines.last_mut().and_then(Value::as_object_mut) {
            line.insert("result".to_owned(), result);
        }
    }

    /// A dry call ended. False: the call is none of the draft's.
    pub(crate) fn draft_answered(
        &mut self,
        call: Uuid,
        answer: &Answer,
        took_ms: i64,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<bool, Unstorable> {
        let Some(draft) = &mut self.draft else { return Ok(false) };
        let Some((_, at, spec, input)) = draft.waiting.take_if(|(waited, ..)| *waited == call) else {
            return Ok(false);
        };
        self.calls.remove(&at);
        let (result, error) = match answer {
            Answer::Output(output) => (output.clone(), None),
            Answer::Failed(error) => {
                (json!({"status": "dry_run", "error": &*error.body}), Some(error.body.message.clone()))
            }
            Answer::Found(_) => (Value::Null, None),
        };
        let row = Insert::into(
            &crate::flow::tables::TOOL_CALLS,
            vec![
                ("id", call.into()),
                ("tool_name", spec.name.as_str().into()),
                ("tool_input", Json::of(&*input)?.into()),
                ("tool_output", Json::of(&result)?.into()),
                ("error", error.clone().into()),
                ("duration_ms", took_ms.into()),
                ("dry_run", true.into()),
                ("created_at", env.now.into()),
                ("actor", self.head.actor.as_str().into()),
                ("tenant_id", self.head.tenant.as_str().into()),
                ("run_id", self.head.id.into()),
                ("attempt", 1.into()),
                ("outcome", "dry_run".into()),
                ("completed_at", env.now.into()),
            ],
        )?;
        if let Some(draft) = &mut self.draft {
            draft.calls.push(row);
        }
        let real = error.is_none();
        self.draft_result(at, &spec, result, real);
        book.effects.push(Effect::Release(at));
        if self.is_stopping() {
            self.draft = None;
            return Ok(true);
        }
        self.draft_on(env, book)?;
        Ok(true)
    }

    /// Everything was tried: the plan is fixed and waits, or was all that was wanted.
    fn draft_done(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some(draft) = self.draft.take() else { return Ok(()) };
        let nodes: Map<String, Value> = draft
            .planned
            .iter()
            .map(|(name, planned)| {
                (name.clone(), json!({"exact": planned.exact.map(hex::encode), "risk": planned.risk}))
            })
            .collect();
        let subject = json!({
            "run_id": self.head.id,
            "graph": hex::encode(self.graph.digest),
            "patches": self.patches,
            "inputs": input_digest(&self.head.inputs).map(hex::encode).unwrap_or_default(),
            "lines": draft.lines.iter().map(|line| json!({
                "node": line["node"], "item": line["item"], "tool": line["tool"], "tool_version": line["tool_version"],
                "input": line["input"], "deferred": line["deferred"],
            })).collect::<Vec<_>>(),
        });
        let digest = input_digest(&subject).unwrap_or_default();
        let risk: u32 = draft.planned.values().map(|planned| planned.risk).sum();
        let document = json!({"digest": hex::encode(digest), "nodes": nodes, "steps": draft.lines, "risk": risk});
        let kept = limits::TURN_ROWS_MAX.saturating_sub(book.rows());
        draft.calls.into_iter().take(kept).for_each(|row| book.insert(row));
        book.set("plan", Json::of(&document)?);
        book.set("risk", Json::of(&json!({"score": risk}))?);
        book.note(
            "plan.drafted",
            None,
            None,
            json!({"digest": hex::encode(digest), "steps": draft.lines.len(), "risk": risk}),
        );
        if self.head.dry_run {
            self.result = Some(json!({"status": "dry_run", "dry_run_results": document["steps"]}));
            self.plan = Some(Plan { digest, nodes: draft.planned, asked: None });
            return self.end(RunStatus::Completed, env, book);
        }
        let demand = Demand::one("the plan runs as it is, or not at all");
        let asked = Asked { id: (env.ids)(), digest, expires_at: expires_at(&demand, env), open: true };
        self.approvals += 1;
        book.approval(
            &self.head,
            &asked,
            None,
            "plan",
            json!({"plan": document, "reason": demand.reason}),
            &demand,
            env.now,
        )?;
        let verdict = Verdict {
            source: Source::Approval,
            outcome: Outcome::Deferred,
            rationale: demand.reason,
            policies: Vec::new(),
        };
        let data = json!({"approval_id": asked.id, "digest": hex::encode(digest), "needed": 1});
        book.decision("approval.requested", None, None, data, verdict);
        self.plan = Some(Plan { digest, nodes: draft.planned, asked: Some(asked) });
        Ok(())
    }

    /// People approved the plan. False: the approval is not the plan's.
    pub(crate) fn plan_approved(
        &mut self,
        approval: Uuid,
        by: &[String],
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<bool, Unstorable> {
        let Some(plan) = self.plan.as_mut().filter(|plan| plan.approval() == Some(approval)) else { return Ok(false) };
        plan.asked = None;
        let digest = plan.digest;
        book.set("plan_digest", Cell::Bytes(digest.to_vec()));
        book.note("plan.approved", None, by.first().cloned(), json!({"digest": hex::encode(digest), "by": by}));
        self.begin_nodes(env, book)?;
        Ok(true)
    }

    /// Nobody decided about the plan in time.
    pub(crate) fn expire_plan(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let due = self.plan.as_ref().and_then(Plan::deadline).is_some_and(|due| due <= env.now);
        if !due {
            return Ok(());
        }
        self.close_plan("expired", env, book)?;
        self.stop("system".to_owned(), Some("nobody decided in time".to_owned()), env, book)
    }

    /// The plan is of no use any more.
    pub(crate) fn drop_plan(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        self.close_plan("cancelled", env, book)
    }

    fn close_plan(&mut self, status: &'static str, env: &Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let asked = self.plan.as_mut().and_then(|plan| plan.asked.take());
        if let Some(asked) = asked {
            book.approval_closed(&asked, status, env.now)?;
        }
        Ok(())
    }
}
