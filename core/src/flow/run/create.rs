//! The head of a run, and how a run is created.

use super::env::Env;
use super::event::{Call, CallMode, Effect, Event, Turn};
use super::load::RunRecording;
use super::requesters::merge_names;
use super::start::Work;
use super::task::Task;
use super::turn_builder::TurnBuilder;
use super::value_size::ValueSize;
use super::{Run, RunPlace, RunStatus};
use crate::access::{Actor, Claimant, Level};
use crate::flow::air::Graph;
use crate::flow::call::CallOutcome;
use crate::flow::expr::WorkMeter;
use crate::flow::pins::Pins;
use crate::ledger::ActorType;
use crate::limits;
use crate::record::Unstorable;
use crate::time::Timestamp;
use crate::tool::EffectKind;
use crate::words::words;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

words! {
    /// What started a run.
    Source {
        /// A request to act.
        Act = "act",
        /// A signed intent.
        Intent = "intent",
        /// A plan of the swarm.
        Swarm = "swarm",
        /// A workflow started by name, or by a parent run.
        Workflow = "workflow",
        /// A replay of another run.
        Replay = "replay",
    }
}

words! {
    /// How a run is replayed. See `replay`.
    ReplayMode {
        /// Recorded outputs only: no tool is called.
        Freeze = "freeze",
        /// Pure and reading tools run, writing ones return their recording. Differences are reported.
        Shadow = "shadow",
        /// Runs again from a node on, with its own effects.
        Retry = "retry",
    }
}

/// The workflow that a run follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowRef {
    pub id: String,
    /// `None` for a plan that was made for this run alone.
    pub version: Option<i64>,
}

/// The run that is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    pub of: Uuid,
    pub mode: ReplayMode,
    /// The node to start from. `None`: from the beginning.
    pub from: Option<String>,
}

/// The immutable part of a run. Only `co_requesters` grows.
#[derive(Clone, Debug, PartialEq)]
pub struct RunHead {
    /// Time-ordered.
    pub id: Uuid,
    pub tenant: String,
    /// The requester.
    pub actor: String,
    /// The requester's kind at the time of the request.
    pub actor_kind: ActorType,
    /// Everyone who counts as a requester besides the actor: the authors of its workflow, the requesters of the run
    /// that it replays, and whoever patched in the node that started it. See `requesters`.
    pub co_requesters: Vec<String>,
    pub level: Level,
    /// One is most urgent, ten least.
    pub priority: i32,
    /// Only report what it would do.
    pub dry_run: bool,
    pub source: Source,
    pub workflow: WorkflowRef,
    /// The versions of nested workflows that it was admitted with. Runs stored before this was recorded have
    /// none.
    pub pins: Arc<Pins>,
    /// The parent run and its step.
    pub parent: Option<(Uuid, Uuid)>,
    /// The number of its ancestors.
    pub depth: u32,
    pub replay: Option<Replay>,
    pub inputs: Arc<Value>,
    /// The original request.
    pub request: Arc<Value>,
    /// The risk score at admission.
    pub risk: Option<Arc<Value>>,
    pub idempotency_key: Option<String>,
    /// The caller's id for it.
    pub correlation_id: Option<String>,
    /// Who is notified when it ends.
    pub notify: Option<Value>,
    pub created_at: Timestamp,
    pub timeout_at: Option<Timestamp>,
}

impl RunHead {
    /// The tenant and actor that its work counts for.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        Claimant::new(&self.tenant, &self.actor)
    }
}

impl Run {
    /// A run that is not stored yet. Its first turn writes it.
    #[must_use]
    pub fn new(head: RunHead, graph: Arc<Graph>, recorded: Option<RunRecording>) -> Self {
        let nodes: Vec<Task> = graph
            .nodes
            .iter()
            .map(|compiled| Task::pending(u32::try_from(compiled.incoming.len()).unwrap_or(u32::MAX)))
            .collect();
        Self {
            co_requesters_stored: head.co_requesters.len(),
            open_nodes: nodes.len(),
            approvals_pending: 0,
            head: Arc::new(head),
            graph,
            nodes,
            status: RunStatus::Pending,
            version: 0,
            run_seq: 0,
            owner: None,
            paused_by: None,
            cancelled_by: None,
            failure: None,
            result: None,
            completed_at: None,
            approvals: 0,
            last_request_at: Timestamp::from_micros(0),
            patches: 0,
            plan: None,
            approved_maps: BTreeMap::new(),
            edits: BTreeMap::new(),
            draft: None,
            undo: None,
            rollbacks: 0,
            undos: 0,
            restored_at: None,
            recorded,
            ready: VecDeque::new(),
            pending_roots: VecDeque::new(),
            settled: VecDeque::new(),
            places_by_step: BTreeMap::new(),
            timers: BTreeSet::new(),
            calls: BTreeSet::new(),
            patches_by_number: BTreeMap::new(),
            meter: WorkMeter::lenient(limits::TURN_WORK_MAX),
            work_done: 0,
            value_size: ValueSize::default(),
            map_measurements: BTreeMap::new(),
            stopped_children: BTreeSet::new(),
            unknown_outcomes: BTreeMap::new(),
            in_doubt_since: None,
            can_only_end: false,
            stop_reason_stored: (false, false),
        }
    }

    /// Creates the run and makes its first turn. Pure calls need no record before they are made, so
    /// `at_once` may make the first ones now, and their results are written together with the run. A call
    /// that it returns no answer for is made after the commit like any other.
    pub fn create(
        head: RunHead,
        graph: Arc<Graph>,
        recorded: Option<RunRecording>,
        env: &mut Env<'_>,
        at_once: &mut dyn FnMut(&Self, &Call) -> Option<CallOutcome>,
    ) -> Result<(Self, Turn), Unstorable> {
        let mut run = Self::new(head, graph, recorded);
        run.count_values();
        let mut book = TurnBuilder::default();
        run.advance(vec![Event::Claimed { alone: true }], env, &mut book)?;
        let mut answered = Vec::new();
        for effect in std::mem::take(&mut book.effects) {
            match effect {
                Effect::Call(call) if run.is_pure(&call) => match at_once(&run, &call) {
                    Some(answer) => {
                        answered.push(Event::CallAnswered { at: call.at, call: call.id, answer, took_ms: 0 })
                    }
                    None => book.effects.push(Effect::Call(call)),
                },
                other => book.effects.push(other),
            }
        }
        if !answered.is_empty() {
            run.advance(answered, env, &mut book)?;
        }
        let turn = run.finish_turn(env, book)?;
        Ok((run, turn))
    }

    /// Whether a call has no external effect.
    fn is_pure(&self, call: &Call) -> bool {
        call.mode == CallMode::Execute && self.is_pure_at(call.at)
    }

    /// Whether the tool of a place has no external effect.
    #[must_use]
    pub fn is_pure_at(&self, at: RunPlace) -> bool {
        matches!(self.work(at), Work::Tool(spec) if spec.effect == EffectKind::Pure)
    }
}

impl RunHead {
    /// The requester, as named in the ledger.
    #[must_use]
    pub fn requester(&self) -> Actor {
        Actor::new(self.actor.as_str(), self.actor_kind)
    }

    /// The co-requesters of a run of `actor`: the authors of its workflow and of its child workflows.
    #[must_use]
    pub fn co_requesters_from(actor: &str, writers: &[String]) -> Vec<String> {
        merge_names(vec![actor.to_owned()], writers.iter().map(String::as_str)).split_off(1)
    }

    /// The co-requesters of a replay by `actor`: the requesters of this run, and the authors of its workflow and
    /// patches, since those are replayed too.
    #[must_use]
    pub fn co_requesters_of_replay(&self, actor: &str, writers: &[String]) -> Vec<String> {
        let all = merge_names(vec![actor.to_owned()], self.requesters().iter().chain(writers).map(String::as_str));
        all.into_iter().skip(1).collect()
    }

    /// The actor and all co-requesters.
    #[must_use]
    pub fn requesters(&self) -> Vec<String> {
        merge_names(vec![self.actor.clone()], self.co_requesters.iter().map(String::as_str))
    }

    /// The timeout of a run of `graph` that is requested now.
    #[must_use]
    pub fn timeout_for(graph: &Graph, now: Timestamp) -> Timestamp {
        now.plus_seconds(i64::from(graph.document.timeout_seconds.unwrap_or(limits::RUN_SECONDS_DEFAULT)))
    }
}
