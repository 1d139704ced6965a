//! A run without a store: the state machine alone, with tools that answer at once.
//!
//! It counts what the run requests and writes, so a test can compare the cost of graphs of different
//! sizes without measuring time.

use super::engine::World;
use super::workflow_builder::Air;
use crate::build::NOON;
use chimera_core::access::Level;
use chimera_core::act::risk;
use chimera_core::flow::air::{self, Graph};
use chimera_core::flow::call::CallOutcome;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::{
    CallMode, Effect, Env, Event, Gate, LaneOwner, LedgerNote, Run, RunHead, SlotRequest, Source, Turn, WorkflowRef,
};
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_core::ledger::ActorType;
use chimera_core::limits;
use chimera_core::record::Tx;
use chimera_core::tool::Spec;
use chimera_engine::flow::{ToolCatalog, ToolRegistry};
use chimera_engine::port::Random;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use uuid::Uuid;

/// Counts of what a run requested and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Committed turns.
    pub turns: usize,
    /// Row changes and ledger entries.
    pub rows: usize,
    /// The largest number of `rows` in one turn.
    pub rows_most: usize,
    /// Tool calls.
    pub calls: usize,
    /// Slot requests.
    pub slots: usize,
    /// Policy evaluations.
    pub judged: usize,
}

pub struct StorelessRun {
    pub run: Run,
    pub work: WorkCounts,
    world: World,
    registry: ToolRegistry,
    policy: AllowAllPolicy,
    pending: VecDeque<Event>,
}

/// A policy that allows everything and counts its evaluations.
#[derive(Default)]
pub(super) struct AllowAllPolicy(AtomicUsize);

impl Policy for AllowAllPolicy {
    fn evaluate(&self, _: &Action<'_>) -> PolicyVerdict {
        self.0.fetch_add(1, Ordering::Relaxed);
        PolicyVerdict::Allow
    }

    fn score_call(&self, _: &Spec, _: &Value) -> Score {
        Score::default()
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

struct CountingGate<'a>(&'a mut usize);

impl Gate for CountingGate<'_> {
    fn enter(&mut self, _: SlotRequest<'_>) -> bool {
        *self.0 += 1;
        true
    }
}

impl StorelessRun {
    /// Starts a run of this workflow.
    #[must_use]
    pub fn start(air: &Air, level: Level) -> Self {
        let world = World::new(1);
        let registry = world.registry();
        let run = Run::new(head(&world, air, level), graph(&registry, air), None);
        let mut bare = Self {
            run,
            work: WorkCounts::default(),
            world,
            registry,
            policy: AllowAllPolicy::default(),
            pending: VecDeque::new(),
        };
        bare.apply(vec![Event::Claimed { owns_all_calls: true }]);
        bare
    }

    /// Applies events. Calls that the run makes are answered by [`StorelessRun::drive`].
    pub fn apply(&mut self, events: Vec<Event>) {
        let catalog = ToolCatalog::running(&self.registry);
        let mut env = Env {
            now: NOON,
            ids: &mut || self.world.random.row_id(NOON),
            gate: &mut CountingGate(&mut self.work.slots),
            policy: &self.policy,
            catalog: &catalog,
            projection: &ExecutionLog,
            jobs: &NoJobs,
            windows: &(),
            owner: LaneOwner { lane: 1, epoch: 1 },
        };
        let turn = self.run.step(events, &mut env).expect("a turn");
        self.work.judged = self.policy.0.load(Ordering::Relaxed);
        self.record_turn(turn);
    }

    fn record_turn(&mut self, turn: Turn) {
        if let Some(tx) = &turn.tx {
            tx.check().expect("a transaction that a store takes");
            let rows = count_rows(tx, &turn.notes);
            assert!(rows <= limits::TX_ROWS_MAX, "a turn of {rows} rows");
            self.work.turns += 1;
            self.work.rows += rows;
            self.work.rows_most = self.work.rows_most.max(rows);
        }
        for effect in turn.effects {
            let Effect::Call(call) = effect else { continue };
            self.work.calls += 1;
            let output = match call.mode {
                CallMode::DryRun => Spec::dry_run_response(json!({}), "nothing"),
                _ => json!({}),
            };
            let (at, answer) = (call.at, CallOutcome::Output(output));
            self.pending.push_back(Event::CallAnswered { at, call: call.id, answer, took_ms: 1 });
        }
        if turn.more {
            self.pending.push_back(Event::Tick);
        }
    }

    /// Answers every pending call, one at a time.
    pub fn drive(&mut self) {
        while let Some(event) = self.pending.pop_front() {
            self.apply(vec![event]);
        }
    }

    #[must_use]
    pub fn id(&self) -> Uuid {
        self.world.random.row_id(NOON)
    }
}

pub(super) fn graph(registry: &ToolRegistry, air: &Air) -> Arc<Graph> {
    let document = air::parse(&air.document().to_string()).expect("a document");
    Arc::new(air::compile(document, &ToolCatalog::running(registry)).expect("a graph"))
}

pub(super) fn head(world: &World, air: &Air, level: Level) -> RunHead {
    RunHead {
        id: world.random.row_id(NOON),
        tenant: "acme".to_owned(),
        actor: "user_ann".to_owned(),
        actor_kind: ActorType::Human,
        co_requesters: Vec::new(),
        level,
        priority: 5,
        dry_run: false,
        source: Source::Workflow,
        workflow: WorkflowRef { id: air.id(), version: Some(1) },
        pins: Arc::default(),
        parent: None,
        depth: 0,
        replay: None,
        inputs: Arc::new(json!({})),
        request: Arc::default(),
        risk: None,
        idempotency_key: None,
        correlation_id: None,
        notify: None,
        created_at: NOON,
        timeout_at: None,
    }
}

/// Row changes and entries of a turn. A verdict adds two rows and an entry.
fn count_rows(tx: &Tx, notes: &[LedgerNote]) -> usize {
    let entries: usize = notes.iter().map(|note| if note.verdict.is_some() { 3 } else { 1 }).sum();
    tx.inserts.len() + tx.updates.len() + tx.steps.len() + entries
}
