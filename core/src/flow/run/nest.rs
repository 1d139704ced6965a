//! Nested places: child runs, and maps over a list.
//!
//! A parent that waits for a child run uses no slot and no memory: the child's end is a signal. The
//! items of a map are places with their own steps; at most `max_parallel` of them run at a time.

use super::edges::with_success;
use super::env::Env;
use super::event::Effect;
use super::replay::RecordedOutcome;
use super::requesters::{ADDED_BY, merge_names};
use super::scope::RunScope;
use super::start::too_deep;
use super::task::{MapProgress, Task, TaskState};
use super::turn_builder::TurnBuilder;
use super::{Run, RunHead, RunPlace, RunStatus, Source, WorkflowRef};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::flow::air::Body;
use crate::flow::approval::ApprovalRequirement;
use crate::json::{CanonicalJson, Digest32};
use crate::limits;
use crate::record::{Json, Unstorable};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The member of a child run's request that limits the number of its descendants.
const DESCENDANTS: &str = "descendants_max";

fn too_many_children(node: &str) -> ErrorBody {
    let message = format!("{node} would start more child runs than its run may have");
    ErrorBody::new(Code::ValidationFailed, message).with("descendants_max", limits::RUN_DESCENDANTS_MAX)
}

impl Run {
    /// Creates the child run. The parent waits.
    pub(crate) fn start_child(
        &mut self,
        at: RunPlace,
        workflow: String,
        version: Option<i64>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let inputs = match self.render_inputs(at) {
            Ok(inputs) => inputs,
            Err(error) => return self.fail_step(at, error, env, book),
        };
        if self.head.depth >= limits::RUN_DEPTH_MAX {
            let error = ErrorBody::new(Code::ValidationFailed, "runs are nested too deeply");
            return self.fail_step(at, error, env, book);
        }
        let share = self.descendant_limit(at);
        if share == 0 {
            return self.fail_step(at, too_many_children(self.name(at)), env, book);
        }
        match self.recorded_outcome(at, None) {
            RecordedOutcome::NotUsed => {}
            RecordedOutcome::Output(output) => return self.complete_nested(at, output, "recorded", env, book),
            RecordedOutcome::Failed(error) => return self.fail_step(at, error, env, book),
            RecordedOutcome::Missing => return self.not_recorded(at, env, book),
        }
        let inputs = match CanonicalJson::new(inputs) {
            Ok(inputs) => inputs,
            Err(error) => return self.fail_step(at, too_deep("the input", &error), env, book),
        };
        if self.task(at).is_some_and(|task| task.input.is_none())
            && let Err(error) = self.count_input(at, inputs.value())
        {
            return self.fail_step(at, error, env, book);
        }
        let (digest, inputs) = (inputs.digest(), self.fix_input(at, inputs));
        if let Some(demand) = self.demand_of_child(at, env).filter(|demand| !self.is_met(at, demand, env)) {
            let demand = self.with_lapsed_approvers(at, demand, env);
            return self.request_approval(at, &demand, env, book);
        }
        if self.may_be_already_started(at) {
            return self.mark_child_unknown(at, env, book);
        }
        let child = (env.ids)();
        let step = self.ensure_step(at, env);
        let head = RunHead {
            id: child,
            workflow: WorkflowRef { id: workflow.clone(), version },
            pins: self.pins_of_child(at.node),
            parent: Some((self.head.id, step)),
            depth: self.head.depth + 1,
            inputs: Arc::clone(&inputs),
            request: Arc::new(self.request_of_child(at, &workflow, share)),
            source: Source::Workflow,
            risk: None,
            idempotency_key: None,
            // Recipients hear when the child awaits approval; its end is reported by the parent.
            notify: self.head.notify.clone(),
            created_at: env.now,
            timeout_at: self.child_timeout(at, env),
            replay: None,
            co_requesters: self.requesters_of(at).split_off(1),
            ..(*self.head).clone()
        };
        book.add_child_run(&head)?;
        if let Some(task) = self.task_mut(at) {
            task.started_at = Some(env.now);
            task.child = Some(child);
        }
        self.enter(at, TaskState::AwaitingChild { run: child });
        self.mark_dirty(at, env, book);
        let data = json!({"node": self.name(at), "item": at.item, "child_run_id": child, "workflow_id": workflow, "input_digest": digest});
        book.add_note("step.child_started", Some(step), None, data);
        book.effects.push(Effect::Wake(child));
        Ok(())
    }

    /// The request of a child run, with its limits.
    fn request_of_child(&self, at: RunPlace, workflow: &str, share: u64) -> Value {
        let mut request = json!({
            "workflow_id": workflow, "parent_run_id": self.head.id, DESCENDANTS: share.saturating_sub(1),
        });
        for (member, value) in self.call_limits_for_child(at) {
            request[member] = value;
        }
        let added_by = merge_names(Vec::new(), self.writers_of(at));
        if !added_by.is_empty() {
            request[ADDED_BY] = added_by.into();
        }
        request
    }

    /// What must be met before a run inside is started.
    pub(crate) fn demand_of_child(&self, at: RunPlace, env: &Env<'_>) -> Option<ApprovalRequirement> {
        let level = (self.head.level == Level::Ask)
            .then(|| ApprovalRequirement::one_approval("every step needs approval at L0_Ask"));
        let level = level.or_else(|| self.demand_if_lapsed(at, env)).or_else(|| self.demand_of_item(at));
        match (self.demand_of_node(at), level) {
            (Some(node), Some(level)) => Some(node.and(level)),
            (node, level) => node.or(level),
        }
    }

    /// The number of descendants that a place may start. Each node that starts child runs gets an equal share
    /// of the run's limit, and each item an equal share of that, so no global count is needed.
    fn descendant_limit(&self, at: RunPlace) -> u64 {
        let given = self.head.request.get(DESCENDANTS).filter(|_| self.head.parent.is_some()).and_then(Value::as_u64);
        let nests = u64::try_from(self.graph.child_nodes).unwrap_or(u64::MAX).max(1);
        let node = given.unwrap_or(limits::RUN_DESCENDANTS_MAX) / nests;
        let items = at.item.and_then(|_| self.map_list(at.node)).map_or(1, <[Value]>::len);
        node / u64::try_from(items).unwrap_or(u64::MAX).max(1)
    }

    /// The earlier of the parent's timeout and the node's.
    fn child_timeout(&self, at: RunPlace, env: &Env<'_>) -> Option<Timestamp> {
        let node = self.graph.nodes[at.node].node.timeout_seconds;
        let node = node.map(|seconds| env.now.plus_seconds(i64::from(seconds)));
        [self.head.timeout_at, node].into_iter().flatten().min()
    }

    /// A child run ended.
    pub(crate) fn child_ended(
        &mut self,
        step: Uuid,
        status: &str,
        result: Option<Value>,
        error: Option<ErrorBody>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(at) = self.place_of_step(step) else { return Ok(()) };
        let Some(TaskState::AwaitingChild { .. }) = self.task(at).map(|task| &task.state) else { return Ok(()) };
        if RunStatus::parse(status) == Some(RunStatus::Completed) {
            return self.complete_nested(at, result.unwrap_or_default(), "child", env, book);
        }
        let error =
            error.unwrap_or_else(|| ErrorBody::new(Code::ExternalServiceError, format!("the child run is {status}")));
        let error = ErrorBody { retryable: false, ..error };
        self.fail_step(at, error, env, book)
    }

    pub(crate) fn complete_nested(
        &mut self,
        at: RunPlace,
        output: Value,
        how: &str,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let items = self.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
        let given = Digest32::of(&output);
        self.count_output(&output);
        let data = json!({"node": self.name(at), "item": at.item, "how": how, "output_digest": given});
        self.ensure_step(at, env);
        let seq = book.add_note("step.completed", self.step_id(at), None, data) + self.run_seq;
        self.enter(at, TaskState::Completed { output: Arc::new(with_success(output)), seq, items });
        self.mark_dirty(at, env, book);
        self.place_ended(at, env, book)
    }

    /// Starts a map, or requests approval of its calls. False: it stays ready.
    pub(crate) fn start_map(
        &mut self,
        at: RunPlace,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<bool, Unstorable> {
        if self.task(at).is_none_or(|task| task.input.is_none()) {
            let list = match self.list_of(at) {
                Ok(list) => list,
                Err(error) => return self.fail_step(at, error, env, book).map(|()| true),
            };
            let digest = Digest32::of(&json!(list));
            if let Some(task) = self.task_mut(at) {
                task.input = Some(Arc::new(json!({ "over": list })));
                task.digest = Some(digest);
            }
        }
        match self.check_map_size(at.node) {
            Ok(true) => {}
            Ok(false) => {
                book.more = true;
                return Ok(false);
            }
            Err(error) => return self.fail_step(at, error, env, book).map(|()| true),
        }
        self.begin_map(at, env, book).map(|()| true)
    }

    fn begin_map(&mut self, at: RunPlace, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let digest = self.task(at).map(Task::input_digest);
        let (demand, requesters) = (self.demand_of_map(at.node, env), self.requesters_of(at));
        let same = |one: &str, other: &str| env.policy.is_same_person(one, other);
        let met = |by: &[String]| demand.as_ref().is_none_or(|demand| demand.is_met(by, &requesters, &same));
        let approved = self.task(at).and_then(|task| task.approved.clone());
        let approved = approved.filter(|approved| met(&self.valid_approvers(&approved.by, env)));
        let is_listed = approved.is_some_and(|approved| self.approve_map_calls(at.node, &approved));
        if let Some(demand) = demand.filter(|_| !is_listed) {
            let demand = self.with_lapsed_approvers(at, demand, env);
            return self.request_approval(at, &demand, env, book);
        }
        let step = self.ensure_step(at, env);
        let over = Arc::new(self.map_list(at.node).unwrap_or_default().to_vec());
        let open = over.len();
        if let Some(task) = self.task_mut(at) {
            task.started_at = Some(env.now);
        }
        self.enter(at, TaskState::Mapping(MapProgress { over, open, ..MapProgress::default() }));
        self.mark_dirty(at, env, book);
        book.add_note(
            "step.mapping",
            Some(step),
            None,
            json!({"node": self.name(at), "items": open, "input_digest": digest}),
        );
        if open == 0 {
            return self.complete_nested(at, json!({"items": []}), "map", env, book);
        }
        self.start_items(at.node);
        Ok(())
    }

    /// The list of a map, checked against the limits of the run.
    fn list_of(&self, at: RunPlace) -> Result<Vec<Value>, ErrorBody> {
        let over = match &self.graph.nodes[at.node].over {
            None => Err("it has no list".to_owned()),
            Some(template) => template.render(&RunScope::of(self)).map_err(|error| error.to_string()),
        };
        let list = match over {
            Ok(Value::Array(list)) if list.len() <= limits::MAP_ITEMS_MAX => list,
            Ok(Value::Array(_)) => {
                let message = format!("the list of {} has more than {} items", self.name(at), limits::MAP_ITEMS_MAX);
                return Err(ErrorBody::new(Code::PayloadTooLarge, message));
            }
            other => {
                let why = other.map_or_else(|why| why, |_| "it is not a list".to_owned());
                let message = format!("the list of {} can't be used: {why}", self.name(at));
                return Err(ErrorBody::new(Code::ValidationFailed, message));
            }
        };
        let steps = self.steps_planned().saturating_add(list.len());
        if steps > limits::RUN_STEPS_MAX {
            let message = format!(
                "the items of {} would bring the run to {steps} steps; the limit is {}",
                self.name(at),
                limits::RUN_STEPS_MAX
            );
            return Err(ErrorBody::new(Code::PayloadTooLarge, message).with("steps_max", limits::RUN_STEPS_MAX));
        }
        let starts_runs = self.graph.nodes[at.node].node.child().is_some();
        if starts_runs && u64::try_from(list.len()).unwrap_or(u64::MAX) > self.descendant_limit(at) {
            return Err(too_many_children(self.name(at)));
        }
        Ok(list)
    }

    /// The number of steps that the run has or will have: one per node and per item of a started map.
    fn steps_planned(&self) -> usize {
        let items = (0..self.nodes.len()).filter_map(|node| self.map_list(node)).map(<[Value]>::len);
        items.fold(self.nodes.len(), usize::saturating_add)
    }

    /// Makes as many items ready as the node allows.
    pub(crate) fn start_items(&mut self, node: usize) {
        let Body::Map(each) = &self.graph.nodes[node].node.body else { return };
        let parallel = usize::try_from(each.max_parallel).unwrap_or(1).max(1);
        let TaskState::Mapping(mapping) = &mut self.nodes[node].state else { return };
        while mapping.busy < parallel && mapping.items.len() < mapping.over.len() {
            let item = u32::try_from(mapping.items.len()).unwrap_or(u32::MAX);
            mapping.items.push(Task { state: TaskState::Ready, ..Task::pending(0) });
            self.ready.push_back(RunPlace { node, item: Some(item) });
            mapping.busy += 1;
        }
    }

    /// An item has settled: starts the next one, or ends the map.
    pub(crate) fn item_ended(
        &mut self,
        at: RunPlace,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let TaskState::Mapping(mapping) = &mut self.nodes[at.node].state else { return Ok(()) };
        mapping.open = mapping.open.saturating_sub(1);
        mapping.busy = mapping.busy.saturating_sub(1);
        let item = at.item.and_then(|item| mapping.items.get(usize::try_from(item).ok()?));
        if item.is_some_and(|item| matches!(item.state, TaskState::Failed { .. })) && mapping.failed.is_none() {
            mapping.failed = at.item;
            self.stop_items(at.node, env, book)?;
        }
        let TaskState::Mapping(mapping) = &mut self.nodes[at.node].state else { return Ok(()) };
        if mapping.failed.is_some() {
            return self.map_failed(at.node, env, book);
        }
        if mapping.open > 0 {
            self.start_items(at.node);
            return Ok(());
        }
        let outputs: Vec<Value> = mapping
            .items
            .iter()
            .map(|item| item.output().map(|output| (**output).clone()).unwrap_or_default())
            .collect();
        let outputs = json!({ "items": outputs });
        if Json::encode(&outputs).is_ok_and(|text| text.as_str().len() > limits::RESULT_BYTES_MAX) {
            let error = ErrorBody::new(Code::PayloadTooLarge, "the outputs of all items are too large together");
            return self.fail_step(RunPlace::node(at.node), error, env, book);
        }
        self.complete_nested(RunPlace::node(at.node), outputs, "map", env, book)
    }

    /// An item has failed: fails the map once the items in flight have ended.
    fn map_failed(&mut self, node: usize, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let TaskState::Mapping(mapping) = &self.nodes[node].state else { return Ok(()) };
        let Some(index) = mapping.failed.filter(|_| mapping.busy == 0) else { return Ok(()) };
        let item = usize::try_from(index).ok().and_then(|index| mapping.items.get(index));
        let error = match item.map(|item| &item.state) {
            Some(TaskState::Failed { error, .. }) => (**error).clone(),
            _ => ErrorBody::new(Code::Internal, "an item failed"),
        };
        self.fail_step(RunPlace::node(node), error.with("item", index), env, book)
    }

    /// Ends the maps of a loaded run in which an item has failed.
    pub(crate) fn settle_maps(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        for node in 0..self.nodes.len() {
            if matches!(&self.nodes[node].state, TaskState::Mapping(mapping) if mapping.failed.is_some()) {
                self.stop_items(node, env, book)?;
                self.map_failed(node, env, book)?;
            }
        }
        Ok(())
    }

    /// Cancels the waiting items of a map in which another item has failed.
    fn stop_items(&mut self, node: usize, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let items = 0..u32::try_from(self.nodes[node].items().len()).unwrap_or(u32::MAX);
        for item in items {
            let at = RunPlace { node, item: Some(item) };
            let waits = self.task(at).is_some_and(|task| {
                matches!(task.state, TaskState::Ready | TaskState::AwaitingApproval(_) | TaskState::RetryWait { .. })
                    && !task.in_doubt
            });
            if waits {
                self.stop_step(at, env, book)?;
                let TaskState::Mapping(mapping) = &mut self.nodes[node].state else { return Ok(()) };
                mapping.open = mapping.open.saturating_sub(1);
                mapping.busy = mapping.busy.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// The list of a map node.
    pub(crate) fn map_list(&self, node: usize) -> Option<&[Value]> {
        match &self.nodes.get(node)?.state {
            TaskState::Mapping(mapping) => Some(&mapping.over),
            _ => self.nodes[node].input.as_ref()?.get("over")?.as_array().map(Vec::as_slice),
        }
    }
}
