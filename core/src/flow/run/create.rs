//! How a run begins.

use super::env::Env;
use super::event::{Call, Effect, Event, Mode, Turn};
use super::kept::Kept;
use super::load::Recorded;
use super::requesters::also;
use super::rows::Book;
use super::start::Work;
use super::task::Task;
use super::{At, Run, RunStatus};
use crate::access::{Actor, Claimant, Level};
use crate::flow::air::Graph;
use crate::flow::call::Answer;
use crate::flow::expr::WorkMeter;
use crate::flow::pins::Pins;
use crate::ledger::ActorType;
use crate::limits;
use crate::record::Unstorable;
use crate::time::Timestamp;
use crate::tool::Reach;
use crate::words::words;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

words! {
    /// Where a run comes from.
    Source {
        /// A request to act.
        Act = "act",
        /// A signed intent.
        Intent = "intent",
        /// A plan of the swarm.
        Swarm = "swarm",
        /// A workflow that was started by name, or by another run.
        Workflow = "workflow",
        /// Another run, over again.
        Replay = "replay",
    }
}

words! {
    /// How a run is run over again.
    ReplayMode {
        /// Recorded outputs only: nothing outside is called.
        Freeze = "freeze",
        /// Pure and reading tools run, writing ones give their recording; differences are told.
        Shadow = "shadow",
        /// For real, from a node on, with effects of its own.
        Retry = "retry",
    }
}

/// The workflow that a run follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowRef {
    /// Its id.
    pub id: String,
    /// Its version; none for a plan that was made for this run alone.
    pub version: Option<i64>,
}

/// The run that is run over again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Which.
    pub of: Uuid,
    /// How.
    pub mode: ReplayMode,
    /// From which node on; from the beginning when absent.
    pub from: Option<String>,
}

/// What a run is made of. It never changes, but for who counts as having asked for what follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Its id, time-ordered.
    pub id: Uuid,
    /// Whose it is.
    pub tenant: String,
    /// Who asked for it.
    pub actor: String,
    /// What the registry said of them then.
    pub actor_kind: ActorType,
    /// Who counts as asking for it too: whoever wrote its workflow, asked for the run that it repeats, or put the
    /// node into the graph that started it.
    pub co_requesters: Vec<String>,
    /// How freely it may act.
    pub level: Level,
    /// One is most urgent, ten least.
    pub priority: i32,
    /// Only what it would do is wanted.
    pub dry_run: bool,
    /// Where it comes from.
    pub source: Source,
    /// What it follows.
    pub workflow: WorkflowRef,
    /// The versions of workflows within that were looked at when it was let in. Runs from before they were kept
    /// have none.
    pub pins: Arc<Pins>,
    /// The run and the step that wait for it.
    pub parent: Option<(Uuid, Uuid)>,
    /// How many runs it stands inside.
    pub depth: u32,
    /// What it repeats.
    pub replay: Option<Replay>,
    /// What it works on.
    pub inputs: Arc<Value>,
    /// The request as it came.
    pub request: Arc<Value>,
    /// How risky it looked to whoever let it in.
    pub risk: Option<Arc<Value>>,
    /// The key under which it was asked for.
    pub idempotency_key: Option<String>,
    /// The caller's own id for it.
    pub correlation_id: Option<String>,
    /// Who is told when it ends.
    pub notify: Option<Value>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it must have ended.
    pub timeout_at: Option<Timestamp>,
}

impl Head {
    /// Who the work on it is done for.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        Claimant::new(&self.tenant, &self.actor)
    }
}

impl Run {
    /// A run that exists nowhere yet; its first turn writes it.
    #[must_use]
    pub fn new(head: Head, graph: Arc<Graph>, recorded: Option<Recorded>) -> Self {
        let nodes: Vec<Task> = graph
            .nodes
            .iter()
            .map(|compiled| Task::pending(u32::try_from(compiled.incoming.len()).unwrap_or(u32::MAX)))
            .collect();
        Self {
            co_requesters_kept: head.co_requesters.len(),
            open: nodes.len(),
            asking: 0,
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
            asked_at: Timestamp::from_micros(0),
            patches: 0,
            plan: None,
            listed: BTreeMap::new(),
            edits: BTreeMap::new(),
            draft: None,
            undo: None,
            rollbacks: 0,
            undos: 0,
            restored_at: None,
            recorded,
            ready: VecDeque::new(),
            coming: VecDeque::new(),
            settled: VecDeque::new(),
            steps: BTreeMap::new(),
            timers: BTreeSet::new(),
            calls: BTreeSet::new(),
            overlays: BTreeMap::new(),
            meter: WorkMeter::lenient(limits::TURN_WORK_MAX),
            worked: 0,
            kept: Kept::default(),
            measured: BTreeMap::new(),
            stopped_children: BTreeSet::new(),
            doubts: BTreeMap::new(),
            in_doubt_since: None,
            gives_up: false,
            stopping_kept: (false, false),
        }
    }

    /// Creates the run and makes its first turn. Pure calls at its beginning need no record before
    /// them, so `at_once` may make them now, and their results are written together with the run; a
    /// call that it gives no answer for is made after the commit like any other.
    pub fn create(
        head: Head,
        graph: Arc<Graph>,
        recorded: Option<Recorded>,
        env: &mut Env<'_>,
        at_once: &mut dyn FnMut(&Self, &Call) -> Option<Answer>,
    ) -> Result<(Self, Turn), Unstorable> {
        let mut run = Self::new(head, graph, recorded);
        run.count_kept();
        let mut book = Book::default();
        run.advance(vec![Event::Begun { alone: true }], env, &mut book)?;
        let mut answered = Vec::new();
        for effect in std::mem::take(&mut book.effects) {
            match effect {
                Effect::Call(call) if run.is_pure(&call) => match at_once(&run, &call) {
                    Some(answer) => answered.push(Event::Answered { at: call.at, call: call.id, answer, took_ms: 0 }),
                    None => book.effects.push(Effect::Call(call)),
                },
                other => book.effects.push(other),
            }
        }
        if !answered.is_empty() {
            run.advance(answered, env, &mut book)?;
        }
        let turn = run.close(env, book)?;
        Ok((run, turn))
    }

    /// Whether a call touches nothing outside.
    fn is_pure(&self, call: &Call) -> bool {
        call.mode == Mode::Execute && self.is_pure_at(call.at)
    }

    /// Whether the tool of a place touches nothing outside.
    #[must_use]
    pub fn is_pure_at(&self, at: At) -> bool {
        matches!(self.work(at), Work::Tool(spec) if spec.effect == Reach::Pure)
    }
}

impl Head {
    /// Who asked for it, as the ledger names them.
    #[must_use]
    pub fn requester(&self) -> Actor {
        Actor::new(self.actor.as_str(), self.actor_kind)
    }

    /// Who counts as asking for a run of `actor` too: whoever wrote its workflow and those that it starts.
    #[must_use]
    pub fn written_by(actor: &str, writers: &[String]) -> Vec<String> {
        also(vec![actor.to_owned()], writers.iter().map(String::as_str)).split_off(1)
    }

    /// Who counts as asking for it too when somebody else repeats it: whoever asked for it, and whoever wrote its
    /// workflow or put patches on it, since those are repeated with it.
    #[must_use]
    pub fn repeated_by(&self, actor: &str, writers: &[String]) -> Vec<String> {
        let all = also(vec![actor.to_owned()], self.requesters().iter().chain(writers).map(String::as_str));
        all.into_iter().skip(1).collect()
    }

    /// Everybody who counts as having asked for it.
    #[must_use]
    pub fn requesters(&self) -> Vec<String> {
        also(vec![self.actor.clone()], self.co_requesters.iter().map(String::as_str))
    }

    /// When a run of `graph` that is asked for now must have ended.
    #[must_use]
    pub fn timeout_of(graph: &Graph, now: Timestamp) -> Timestamp {
        now.plus_seconds(i64::from(graph.document.timeout_seconds.unwrap_or(limits::RUN_SECONDS_DEFAULT)))
    }
}
