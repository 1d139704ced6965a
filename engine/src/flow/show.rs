//! Runs, steps and events as JSON, the same for every interface.
//!
//! A node that has not started has no row. It is shown as pending, or as skipped or cancelled once the run has ended.

use super::decide::people_needed;
use super::document::{CallView, RunView, SerializedJson, StartedStep, StepCallView, StepPage, StepView};
use super::{Flow, doubt, load, review};
use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::offload::{CostFlag, Offload};
use crate::port::ReadError;
use crate::rows;
use chimera_core::access::Level;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::run::{RunStatus, request_of_row};
use chimera_core::flow::tables::{NOTIFICATIONS, RUN_PATCHES, RUNS, SCOPED_APPROVALS, STEPS, TOOL_CALLS};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits;
use chimera_core::record::{Comparison, Cursor, Direction, Json, Row, Scope, Select, Value as Cell};
use chimera_core::time::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use uuid::Uuid;

/// The cursor prefix of a page with nodes that have not started.
const NOT_STARTED_PREFIX: &str = "node:";

#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub status: Option<String>,
    pub actor: Option<String>,
    pub workflow_id: Option<String>,
    /// Requested at or after this time.
    pub since: Option<Timestamp>,
    /// Requested before this time.
    pub until: Option<Timestamp>,
    /// Only runs with a call whose outcome is unknown.
    pub in_doubt: bool,
    pub limit: usize,
    pub cursor: Option<String>,
}

impl Flow {
    /// Runs, newest first.
    pub async fn list(&self, permit: &Permit, filter: RunFilter) -> Result<Value, EngineError> {
        let mut select = Select::from(&RUNS, Scope::Tenant(permit.tenant().to_owned())).by(&[], Direction::Descending);
        select = select.without(load::RUN_DOCUMENTS);
        let everybody = permit.sees("");
        if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
            return Err(EngineError::missing_scope(RUNS_READ));
        }
        if !everybody {
            select = select.with("actor", permit.actor());
        }
        for (column, value) in [("status", filter.status), ("actor", filter.actor), ("workflow_id", filter.workflow_id)]
        {
            if let Some(value) = value {
                select = select.with(column, value);
            }
        }
        if filter.in_doubt {
            select = doubt::in_doubt(select);
        }
        if let Some(since) = filter.since {
            select = select.filter("created_at", Comparison::AtLeast, since);
        }
        if let Some(until) = filter.until {
            select = select.filter("created_at", Comparison::Below, until);
        }
        select = select.take(filter.limit);
        if let Some(cursor) = &filter.cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = self.inner.parts.records.read(select).await?;
        let items: Vec<_> = page.rows.iter().map(summary).collect();
        Ok(json!({"items": items, "next_cursor": page.next.as_ref().map(Cursor::encode)}))
    }

    /// One run with everything needed to approve it, as a value.
    pub async fn show(&self, permit: &Permit, run: Uuid) -> Result<Value, EngineError> {
        Ok(self.show_document(permit, run).await?.to_value())
    }

    /// One run with everything needed to approve it, as JSON text.
    pub async fn show_document(&self, permit: &Permit, run: Uuid) -> Result<SerializedJson, EngineError> {
        let (mut row, mut asked) = self.rows_shown(permit, run).await?;
        let weight = load::weight(asked.iter().chain([&row]));
        let _room = if Offload::needs_reservation(weight) {
            // Whoever waits holds nothing.
            drop((row, asked));
            let room = self.reserve_memory(&permit.claimant(), weight).await?;
            (row, asked) = self.rows_shown(permit, run).await?;
            Some(room)
        } else {
            None
        };
        let costly = CostFlag::new(load::is_large(&row) || load::are_large(&asked));
        let document = Box::pin(self.run_document(permit, &row, asked, &costly));
        self.offload_when_costly(permit, &costly, document).await?
    }

    /// A run and its approval requests.
    async fn rows_shown(&self, permit: &Permit, run: Uuid) -> Result<(Row, Vec<Row>), EngineError> {
        let records = &*self.inner.parts.records;
        let select = Select::from(&SCOPED_APPROVALS, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        // The requests are read before the run: a digest is shown with what it stands for or with something newer, and
        // then the digest is refused.
        let mut asked = rows::all(records, select.clone(), limits::RUN_ROWS_MAX).await?;
        let mut row = load::readable_run(records, permit, run).await?;
        let waits = |row: &Row| RunStatus::parse(row.text("status")) == Some(RunStatus::AwaitingApproval);
        if waits(&row) && !asked.iter().any(|row| row.text("status") == "pending") {
            // It started to wait between the two reads.
            asked = rows::all(records, select, limits::RUN_ROWS_MAX).await?;
            row = load::readable_run(records, permit, run).await?;
        }
        Ok((row, asked))
    }

    /// Runs work that is costly from the start or becomes so.
    async fn offload_when_costly<T>(
        &self,
        permit: &Permit,
        costly: &CostFlag,
        work: Pin<Box<impl Future<Output = T>>>,
    ) -> Result<T, EngineError> {
        let who = permit.claimant();
        self.inner.offload.admit(&who, costly.is_set())?;
        Ok(self.inner.offload.run_when_costly(&who, costly, work).await)
    }

    /// The document of a run.
    async fn run_document(
        &self,
        permit: &Permit,
        row: &Row,
        asked: Vec<Row>,
        costly: &CostFlag,
    ) -> Result<SerializedJson, EngineError> {
        let run = row.uuid("id");
        let waiting = asked.iter().filter(|row| row.text("status") == "pending");
        let mut members = summary(row);
        let json = |column: &str| row.get(column).as_json().map(Json::to_value);
        let (plan, dry_run_results) = match json("plan") {
            Some(plan) => drafted(plan),
            None => (self.plan_of(permit, row).await?, None),
        };
        let now = self.inner.parts.clock.steady();
        let approvals: Vec<Value> = waiting.map(|waiting| approval(row, waiting, &asked, now)).collect();
        let decided = asked.iter().filter(|asked| asked.text("status") != "pending");
        let decided: Vec<Value> = decided.map(|closed| decided_approval(row, closed, now)).collect();
        let approve_url = (!approvals.is_empty()).then(|| format!("/runs/{run}/approve"));
        members.insert("plan".to_owned(), plan);
        members.insert("dry_run_results".to_owned(), json!(dry_run_results));
        members.insert("risk".to_owned(), json("risk").unwrap_or_default());
        members.insert("approvals".to_owned(), approvals.into());
        members.insert("decided_approvals".to_owned(), decided.into());
        members.insert("approve_url".to_owned(), json!(approve_url));
        members.insert("doubts".to_owned(), self.doubts(permit, row).await?.into());
        // Until a run has ended, the column says why it is stopping.
        let ended = RunStatus::parse(row.text("status")).is_some_and(RunStatus::is_final);
        let error = json("error_data").filter(|_| ended);
        members.insert("error".to_owned(), error.unwrap_or_default());
        members.insert("rollback".to_owned(), json("rollback").unwrap_or_default());
        members.insert("notify".to_owned(), json("notify").unwrap_or_default());
        members.insert("messages".to_owned(), self.messages(permit, row, costly).await?.into());
        members.insert("patches".to_owned(), self.patches(permit, run, costly).await?.into());
        let stored = |column: &str| row.get(column).as_json();
        SerializedJson::of(&RunView { members, inputs: stored("inputs"), result: stored("result") })
    }

    /// The plan of a run without a draft.
    async fn plan_of(&self, permit: &Permit, row: &Row) -> Result<Value, EngineError> {
        let (id, version) = (row.text("workflow_id"), row.get("workflow_version").as_int());
        let found = self.inner.workflows.find_stored(permit.tenant(), id, version).await?;
        let inputs = row.get("inputs").as_json().map(Json::to_value).unwrap_or_default();
        let plan = match &found {
            Some(found) => {
                let (nodes, (_, pins)) = (&found.graph.document.nodes, request_of_row(row));
                let inside = self.inner.workflows.stored_children_of(permit.tenant(), nodes, &pins).await?;
                Plan::from_graph(&found.graph, &inputs, &inside.children)
            }
            None => Plan::default(),
        };
        Ok(json!({"steps": plan.steps, "more": plan.more, "digest": null}))
    }

    /// The messages about a run.
    async fn messages(&self, permit: &Permit, run: &Row, costly: &CostFlag) -> Result<Vec<Value>, EngineError> {
        // At L3 there are messages only about calls in doubt.
        if run.text("autonomy_level") == Level::ExecuteSilent.as_str() && run.get("in_doubt_since").is_null() {
            return Ok(Vec::new());
        }
        let scope = Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&NOTIFICATIONS, scope).with("run_id", run.uuid("id"));
        let (rows, _) = self.inner.parts.records.first(select, limits::PAGE_ROWS_DEFAULT).await?;
        costly.mark_costly(load::are_large(&rows)).await;
        Ok(rows.iter().map(message).collect())
    }

    /// The patches of a run.
    async fn patches(&self, permit: &Permit, run: Uuid, costly: &CostFlag) -> Result<Vec<Value>, EngineError> {
        let select = Select::from(&RUN_PATCHES, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        let (rows, _) = self.inner.parts.records.first(select, limits::PAGE_ROWS_DEFAULT).await?;
        costly.mark_costly(load::are_large(&rows)).await;
        Ok(rows.iter().map(patch).collect())
    }

    /// A page of a run's steps, as a value.
    pub async fn steps(
        &self,
        permit: &Permit,
        run: Uuid,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Value, EngineError> {
        Ok(self.step_page(permit, run, limit, cursor).await?.to_value())
    }

    /// A page of a run's steps with their calls: started ones in graph order, then nodes that have not started. It ends
    /// early when the steps and calls are large.
    pub async fn step_page(
        &self,
        permit: &Permit,
        run: Uuid,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<SerializedJson, EngineError> {
        let records = &*self.inner.parts.records;
        let mut row = load::readable_run(records, permit, run).await?;
        let from = cursor.and_then(|cursor| cursor.strip_prefix(NOT_STARTED_PREFIX));
        let read = async || match from {
            Some(_) => Ok(StartedSteps::default()),
            None => self.started_steps(permit, run, limit, cursor).await,
        };
        let mut started = read().await?;
        // The dry calls are about as large as the plan that shows them.
        let weight = load::weight([&row]).saturating_mul(2).saturating_add(started.bytes);
        let _room = if Offload::needs_reservation(weight) {
            // Whoever waits holds nothing.
            drop((row, started));
            let room = self.reserve_memory(&permit.claimant(), weight).await?;
            row = load::readable_run(records, permit, run).await?;
            started = read().await?;
            Some(room)
        } else {
            None
        };
        let costly = CostFlag::new(load::is_large(&row));
        let page = Box::pin(self.steps_of(permit, row, started, (limit, from.unwrap_or("0")), &costly));
        self.offload_when_costly(permit, &costly, page).await?
    }

    async fn steps_of(
        &self,
        permit: &Permit,
        row: Row,
        started: StartedSteps,
        (limit, from): (usize, &str),
        costly: &CostFlag,
    ) -> Result<SerializedJson, EngineError> {
        let run = row.uuid("id");
        let dry = self.dry_calls(permit, &row, costly).await?;
        let mut next_cursor = started.next.as_ref().map(Cursor::encode);
        let mut unbegun = Vec::new();
        if next_cursor.is_none() {
            let from = from.parse().map_err(|_| EngineError::invalid_cursor())?;
            let room = limit.saturating_sub(started.steps.len());
            (unbegun, next_cursor) = self.unstarted_nodes(row, from, room, &dry).await?;
        }
        costly.mark_costly(started.bytes > limits::JSON_INLINE_BYTES_MAX).await;
        let shown = started.steps.iter().map(|(row, calls)| {
            // Dry calls come before real ones.
            let tried = dry.get(&dry_key(run, row.text("node_id"), row.get("map_index").as_int()));
            let made = calls.iter().map(|call| StepCallView::Made(Box::new(CallView::of(call))));
            StepView::Started(Box::new(StartedStep::of(
                row,
                tried.into_iter().map(StepCallView::Dry).chain(made).collect(),
            )))
        });
        let steps = shown.chain(unbegun.into_iter().map(StepView::NotStarted)).collect();
        SerializedJson::of(&StepPage { steps, next_cursor })
    }

    /// A page of started steps with their calls.
    async fn started_steps(
        &self,
        permit: &Permit,
        run: Uuid,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<StartedSteps, EngineError> {
        let records = &*self.inner.parts.records;
        let scope = || Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&STEPS, scope()).with("run_id", run).by(&["position"], Direction::Ascending);
        let mut select = select.take(limit);
        if let Some(cursor) = cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = records.read(select.clone()).await?;
        let mut started = StartedSteps { next: page.next, ..StartedSteps::default() };
        for row in page.rows {
            let calls = Select::from(&TOOL_CALLS, scope()).with("step_id", row.uuid("id"));
            // Calls beyond one page, or beyond this number, are left out.
            let calls = records.read(calls.take(limits::STEP_CALLS_SHOWN_MAX)).await?.rows;
            let bytes = calls.iter().map(Row::bytes).fold(row.bytes(), usize::saturating_add);
            if let Some((last, _)) = started.steps.last()
                && started.bytes.saturating_add(bytes) > limits::PAGE_BYTES_MAX
            {
                started.next = Some(Cursor::after(&select, last));
                break;
            }
            started.bytes = started.bytes.saturating_add(bytes);
            started.steps.push((row, calls));
        }
        started.steps.sort_by_key(|(row, _)| (row.int("position"), row.get("map_index").as_int()));
        Ok(started)
    }

    /// Nodes that have not started, from a position in the graph, and where to continue.
    async fn unstarted_nodes(
        &self,
        row: Row,
        from: usize,
        room: usize,
        dry: &BTreeMap<String, Value>,
    ) -> Result<(Vec<Value>, Option<String>), EngineError> {
        let records = &*self.inner.parts.records;
        let status = RunStatus::parse(row.text("status"));
        let rest = match status {
            // A dry run starts nothing and completes.
            Some(RunStatus::Completed) => "skipped",
            Some(status) if status.is_final() => "cancelled",
            _ => "pending",
        };
        let id = row.uuid("id");
        let mut started = BTreeSet::new();
        let steps = Select::from(&STEPS, Scope::System).with("run_id", id).without(load::STEP_DOCUMENTS);
        rows::for_each(records, steps, |row| started.extend([row.text("node_id").to_owned()])).await?;
        // If the workflow can't be loaded any more, only the started steps are shown.
        let graph = load::graph(records, &self.inner.workflows, &row).await;
        let Ok(graph) = graph else { return Ok((Vec::new(), None)) };
        let nodes = graph.nodes.iter().enumerate().skip(from);
        let mut unbegun = nodes.filter(|(_, compiled)| !started.contains(&compiled.node.id));
        let shown = unbegun.by_ref().take(room).map(|(_, compiled)| {
            let node = &compiled.node;
            let tool = compiled.tool.as_ref().map(|tool| tool.name.as_str());
            let tried: Vec<&Value> = dry.get(&dry_key(id, &node.id, None)).into_iter().collect();
            json!({
                "step_id": null, "node_id": node.id, "node_type": node.body.kind(), "status": rest, "map_index": null,
                "tool": tool, "attempt": 0, "input": null, "input_digest": null, "output": null, "error": null,
                "child_run_id": null, "retry_at": null, "started_at": null, "completed_at": null, "tool_calls": tried,
            })
        });
        let shown = shown.collect();
        Ok((shown, unbegun.next().map(|(at, _)| format!("{NOT_STARTED_PREFIX}{at}"))))
    }

    /// The dry calls of a drafted run, by call key.
    async fn dry_calls(
        &self,
        permit: &Permit,
        run: &Row,
        costly: &CostFlag,
    ) -> Result<BTreeMap<String, Value>, EngineError> {
        if run.get("plan").is_null() {
            return Ok(BTreeMap::new());
        }
        let scope = Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&TOOL_CALLS, scope).with("run_id", run.uuid("id"));
        let select = select.with("step_id", Cell::Null);
        let rows = rows::all(&*self.inner.parts.records, select, limits::RUN_ROWS_MAX).await?;
        costly.mark_costly(load::are_large(&rows)).await;
        let plan = run.get("plan").as_json().map(Json::to_value).unwrap_or_default();
        let lines = plan["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut found = BTreeMap::new();
        for row in &rows {
            let shown = serde_json::to_value(CallView::of(row)).unwrap_or_default();
            // A dry call has no step; it is matched to a plan line by tool and input.
            let mut input = shown["tool_input"].clone();
            let place = |line: &Value| {
                let node = line["node"].as_str().unwrap_or_default();
                dry_key(run.uuid("id"), node, line["item"].as_i64())
            };
            let given = |line: &Value| line["input"].get("dry_run").cloned();
            let line = lines.iter().find(|line| {
                if let Some(members) = input.as_object_mut() {
                    members.remove("dry_run");
                    members.extend(given(line).map(|said| ("dry_run".to_owned(), said)));
                }
                line["tool"] == shown["tool_name"] && line["input"] == input && !found.contains_key(&place(line))
            });
            if let Some(line) = line {
                found.insert(place(line), shown);
            }
        }
        Ok(found)
    }

    /// The events of a run after number `after`, in order: those with the next `limit` numbers.
    ///
    /// A run that moved to another lane has later entries that an order by lane would put first, so a page is bounded
    /// by numbers and not by rows.
    pub async fn events(
        &self,
        permit: &Permit,
        run: Uuid,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Value>, EngineError> {
        let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
        let last = after.saturating_add(i64::try_from(limit).unwrap_or(i64::MAX));
        let select = Select::from(&AUDIT_LOG_ENTRIES, Scope::Tenant(permit.tenant().to_owned()))
            .with("run_id", run)
            .filter("run_seq", Comparison::Above, after)
            .filter("run_seq", Comparison::AtMost, last);
        let (rows, _) = self.inner.parts.records.first(select, limit).await?;
        let mut events: Vec<Value> = rows.iter().map(event).collect();
        events.sort_by_key(|event| event["run_seq"].as_i64());
        Ok(events)
    }

    /// The step of a node.
    pub async fn step_of(&self, permit: &Permit, run: Uuid, node: &str) -> Result<Uuid, EngineError> {
        let scope = Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&STEPS, scope).with("run_id", run).with("node_id", node).take(1);
        let row = self.inner.parts.records.read(select).await?.rows.into_iter().next();
        row.map(|row| row.uuid("id")).ok_or_else(|| EngineError::not_found("step"))
    }
}

/// A page of started steps with their calls.
#[derive(Default)]
struct StartedSteps {
    steps: Vec<(Row, Vec<Row>)>,
    bytes: usize,
    next: Option<Cursor>,
}

/// The key of a dry call.
fn dry_key(run: Uuid, node: &str, item: Option<i64>) -> String {
    let item = item.map(|item| format!("[{item}]")).unwrap_or_default();
    format!("{}:{node}{item}:dry", run.simple())
}

/// The drafted plan, its lines with the name they are decided by, and the dry-run result of each line.
fn drafted(mut plan: Value) -> (Value, Option<Vec<Value>>) {
    let line = |mut line: Value| {
        let result = line.as_object_mut().and_then(|members| members.remove("result"));
        let mut result = if let Some(Value::Object(result)) = result { result } else { Map::new() };
        result.insert("step_id".to_owned(), line["node"].clone());
        result.insert("tool".to_owned(), line["tool"].clone());
        result.entry("status").or_insert_with(|| "dry_run".into());
        line["step_id"] = line["node"].clone();
        (line, Value::Object(result))
    };
    let lines = if let Value::Array(lines) = plan["steps"].take() { lines } else { Vec::new() };
    let (steps, results): (Vec<Value>, Vec<Value>) = lines.into_iter().map(line).unzip();
    (json!({"steps": steps, "digest": plan["digest"]}), Some(results))
}

pub(super) fn time(row: &Row, column: &str) -> Option<String> {
    row.get(column).as_time().map(|at| at.to_string())
}

pub(super) fn summary(row: &Row) -> Map<String, Value> {
    let summary = json!({
        "run_id": row.uuid("id"),
        "status": row.text("status"),
        "workflow_id": row.get("workflow_id").as_text(),
        "workflow_version": row.get("workflow_version").as_int(),
        "actor": row.text("actor"),
        "autonomy_level": row.get("autonomy_level").as_text(),
        "trace_id": row.text("trace_id"),
        "created_at": time(row, "created_at"),
        "completed_at": time(row, "completed_at"),
        "priority": row.int("priority"),
        "dry_run": row.get("dry_run") == &chimera_core::record::Value::Bool(true),
        "paused": row.get("pause_requested") == &chimera_core::record::Value::Bool(true),
        "cancel_requested": row.get("cancel_requested") == &chimera_core::record::Value::Bool(true),
        "state_version": row.int("state_version"),
        "run_seq": row.int("run_seq"),
        "parent_run_id": row.get("parent_run_id").as_uuid(),
        "replay_of": row.get("replay_of").as_uuid(),
        "replay_mode": row.get("replay_mode").as_text(),
        "error_message": row.get("error_message").as_text(),
        "in_doubt_since": time(row, "in_doubt_since"),
    });
    if let Value::Object(members) = summary { members } else { Map::new() }
}

/// The summary of a closed request: who, when and how.
fn decided_approval(run: &Row, row: &Row, now: Timestamp) -> Value {
    let review = review::of_row(run, row, &[], now);
    json!({
        "approval_id": review.approval_id, "node_id": review.node_id, "action_type": row.text("action_type"),
        "digest": review.digest, "standing": review.standing,
    })
}

fn approval(run: &Row, row: &Row, all: &[Row], now: Timestamp) -> Value {
    json!({
        "review": review::of_row(run, row, all, now),
        "approval_id": row.uuid("approval_request_id"),
        "step_id": row.get("step_id").as_uuid(),
        "node_id": row.get("node_id").as_text(),
        "action_type": row.text("action_type"),
        "action": row.get("action_data").as_json().map(Json::to_value),
        "digest": row.get("action_digest").as_bytes().map(hex::encode),
        "approvals_needed": people_needed(row, &|one, other| one == other),
        "decisions": row.get("decisions").as_json().map(Json::to_value),
        "requested_by": row.text("requester_actor"),
        "changed_by": row.get("co_requesters").as_texts(),
        "created_at": time(row, "created_at"),
        "expires_at": time(row, "expires_at"),
    })
}

fn message(row: &Row) -> Value {
    let payload = row.get("payload").as_json().map(Json::to_value).unwrap_or_default();
    json!({
        "type": payload["type"],
        "approval_id": row.get("approval_id").as_uuid(),
        "channel": row.text("channel"),
        "target": row.text("target"),
        "status": row.text("status"),
        "attempt": row.int("attempt"),
        "sent_at": time(row, "sent_at"),
        "next_attempt_at": time(row, "next_attempt_at"),
        "error": row.get("error").as_json().map(Json::to_value),
        "deliveries": row.get("deliveries").as_json().map(Json::to_value),
    })
}

fn patch(row: &Row) -> Value {
    json!({
        "number": row.int("number"),
        "status": row.text("status"),
        "actor": row.text("actor"),
        "justification": row.get("justification").as_text(),
        "reason": row.get("reason").as_text(),
        "approval_id": row.get("approval_request_id").as_uuid(),
        "created_at": time(row, "created_at"),
    })
}

fn event(row: &Row) -> Value {
    let data = row.get("data_json").as_json().map(Json::to_value);
    let text = row.get("data_json").as_text().and_then(|text| serde_json::from_str(text).ok());
    json!({
        "run_seq": row.int("run_seq"),
        "event_type": row.text("event_type"),
        "subject_id": row.text("subject_id"),
        "actor_id": row.get("actor_id").as_text(),
        "timestamp": time(row, "timestamp").or_else(|| row.get("timestamp").as_text().map(str::to_owned)),
        "data": data.or(text),
        "lane": row.int("lane"),
        "seq": row.int("seq"),
    })
}
