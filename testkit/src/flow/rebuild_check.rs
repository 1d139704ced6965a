//! Compares a live run with the same run rebuilt from its rows.
//!
//! The run gets the answers of its calls in an order drawn from a seed, one or several per turn. After
//! every turn it is rebuilt from its rows, as after a crash. Both must have decided the same edges and
//! failed for the same reason.

use super::engine::World;
use super::storeless_run::{AllowAllPolicy, graph, head};
use super::workflow_builder::{Air, workflow};
use crate::build::NOON;
use crate::memory::MemoryRecords;
use crate::seeded::Seeded;
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::air::Graph;
use chimera_core::flow::call::{CallOutcome, ToolError};
use chimera_core::flow::run::{Effect, Env, Event, Gate, IncomingEdges, LaneOwner, Run, SlotRequest, StoredRun, Turn};
use chimera_core::flow::tables::RunRow;
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_engine::flow::{ToolCatalog, ToolRegistry};
use chimera_engine::port::{Random, Records};
use serde_json::{Value, json};
use std::sync::Arc;

/// A run with its rows in a store.
pub struct RebuildCheck {
    run: Run,
    graph: Arc<Graph>,
    records: MemoryRecords,
    world: World,
    registry: ToolRegistry,
    calls: Vec<Event>,
    more: bool,
}

/// Lets every call through, or none.
struct FixedGate(bool);

impl Gate for FixedGate {
    fn enter(&mut self, _: SlotRequest<'_>) -> bool {
        self.0
    }
}

/// The decided edges of a run, and its failure.
type RunSnapshot = (Vec<IncomingEdges>, Option<String>);

fn snapshot(run: &Run) -> RunSnapshot {
    (run.decided_edges(), run.failure().map(|error| format!("{}: {}", error.code, error.message)))
}

impl RebuildCheck {
    /// Compares one random graph per seed. Returns how often a run was rebuilt.
    pub async fn compare_seeds(seeds: std::ops::Range<u64>) -> usize {
        let mut compared = 0;
        for seed in seeds {
            let dice = Seeded::new(seed);
            compared += Self::compare(&random_graph(&dice), &dice).await;
        }
        compared
    }

    /// Runs a workflow to its end. Returns the number of comparisons.
    async fn compare(air: &Air, dice: &Seeded) -> usize {
        let world = World::new(dice.next());
        let registry = world.registry();
        let graph = graph(&registry, air);
        let run = Run::new(head(&world, air, Level::ExecuteSilent), Arc::clone(&graph), None);
        let records = MemoryRecords::new();
        let mut twin = Self { run, graph, records, world, registry, calls: Vec::new(), more: false };
        let mut compared = 0;
        twin.apply(vec![Event::Claimed { owns_all_calls: true }]).await;
        while !twin.run.status().is_final() {
            if !twin.more {
                let rebuilt = snapshot(&twin.rebuild());
                assert_eq!(rebuilt, snapshot(&twin.run), "after a crash, of {:#}", air.document());
                compared += 1;
            }
            let mut events = Vec::new();
            for _ in 0..=dice.below(3) {
                if !twin.calls.is_empty() {
                    let at = usize::try_from(dice.below(twin.calls.len() as u64)).expect("an index");
                    events.push(random_answer(twin.calls.remove(at), dice));
                }
            }
            assert!(twin.more || !events.is_empty(), "the run is stuck: {:#}", air.document());
            events.push(Event::Tick);
            twin.apply(events).await;
        }
        compared
    }

    async fn apply(&mut self, events: Vec<Event>) {
        let turn = step(&mut self.run, events, true, &self.world, &self.registry);
        self.more = turn.more;
        if let Some(tx) = turn.tx {
            self.records.commit(tx).await.expect("a commit");
        }
        for effect in turn.effects {
            if let Effect::Call(call) = effect {
                let answer = CallOutcome::Output(json!({}));
                self.calls.push(Event::CallAnswered { at: call.at, call: call.id, answer, took_ms: 1 });
            }
        }
    }

    /// The run as another process would load it now.
    fn rebuild(&self) -> Run {
        let stored = StoredRun {
            run: self.records.list::<RunRow>().into_iter().next().expect("the row of the run"),
            steps: self.records.list(),
            effects: self.records.list(),
            work_items: Vec::new(),
            approvals: Vec::new(),
            patches: Vec::new(),
            graph: Arc::clone(&self.graph),
            version: 1,
            author: None,
            recorded: None,
        };
        let mut run = Run::load(stored).expect("rows that make a run");
        step(&mut run, vec![Event::Claimed { owns_all_calls: true }], false, &self.world, &self.registry);
        run
    }
}

fn step(run: &mut Run, events: Vec<Event>, slots: bool, world: &World, registry: &ToolRegistry) -> Turn {
    let catalog = ToolCatalog::running(registry);
    let mut env = Env {
        now: NOON,
        ids: &mut || world.random.row_id(NOON),
        gate: &mut FixedGate(slots),
        policy: &AllowAllPolicy::default(),
        catalog: &catalog,
        projection: &ExecutionLog,
        jobs: &NoJobs,
        windows: &(),
        owner: LaneOwner { lane: 1, epoch: 1 },
    };
    run.step(events, &mut env).expect("a turn")
}

/// The answer of a call; one in six is a permanent failure.
fn random_answer(event: Event, dice: &Seeded) -> Event {
    match event {
        Event::CallAnswered { at, call, took_ms, .. } if dice.below(6) == 0 => {
            let answer = CallOutcome::Failed(ToolError::not_sent(Code::ValidationFailed, format!("no to {}", at.node)));
            Event::CallAnswered { at, call, answer, took_ms }
        }
        event => event,
    }
}

/// A random graph whose conditions refer to any upstream node, settled or not.
fn random_graph(dice: &Seeded) -> Air {
    let mut air = workflow("entangled");
    let names: Vec<String> = (0..4 + dice.below(6)).map(|at| format!("n{at}")).collect();
    let mut above: Vec<Vec<usize>> = Vec::new();
    let mut edges: Vec<(usize, usize, Option<String>)> = Vec::new();
    for at in 0..names.len() {
        let mut seen = Vec::new();
        for from in 0..at {
            if dice.below(3) > 0 {
                continue;
            }
            seen.extend(above[from].iter().copied().chain([from]));
            let near: Vec<usize> = above[from].iter().copied().chain([from]).collect();
            let other = &names[*dice.pick(&near)];
            let condition = match dice.below(8) {
                0..=2 => Some(format!("${{has(nodes.{other}.outputs.success)}}")),
                3 => Some(format!("${{!has(nodes.{other}.outputs.success)}}")),
                4 => Some(format!("${{nodes.{other}.outputs.success == true}}")),
                5 => Some(format!("${{nodes.{}.outputs.success == false}}", names[from])),
                _ => None,
            };
            edges.push((from, at, condition));
        }
        above.push(seen);
        let tool = *dice.pick(&["pure", "read", "again"]);
        air = air.function(&names[at], tool, json!({}));
        if dice.below(2) == 0 {
            air = air.with_node_member("join", Value::from("any"));
        }
    }
    for (from, to, condition) in edges {
        air = match condition {
            Some(condition) => air.edge_if(&names[from], &names[to], &condition),
            None => air.edge(&names[from], &names[to]),
        };
    }
    air
}
