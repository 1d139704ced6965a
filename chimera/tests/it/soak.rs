//! The real binary under load, killed at random.
//!
//! Clients start runs over HTTP while nodes are killed (SIGKILL) or suspended for longer than their lease, timed by the
//! number of effects outside. Meanwhile the disk is slow, broken or full, the clock jumps, Redis is down, or lanes
//! cannot be claimed; and the store is restored from backups.
//!
//! At the end every acknowledged run that a restore did not lose has completed. Every effect was requested under one
//! idempotency key; non-repeatable effects were requested once; effects before a restore were not requested after it.
//! The ledger is intact. A short campaign runs with the other tests; `./soak` runs a long one.

mod clients;
mod doubts;
pub(crate) mod effect_server;
mod machine;
mod restores;

use crate::support::{Server, Workspace};
use chimera_engine::port::Random;
use chimera_testkit::seeded::Seeded;
use clients::{AcknowledgedRun, Clients, KEY, SECRET};
use effect_server::EffectServer;
use machine::Machine;
use restores::Restores;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::sync::Arc;

/// Kills in the short campaign.
const KILLS_DEFAULT: usize = 6;

/// With two nodes, one is suspended for longer than its lease once per this many kills.
const FREEZE_EVERY: usize = 10;

/// Maximum number of new effects outside between two kills.
const THINGS_MAX: u64 = 60;

#[allow(clippy::disallowed_methods, reason = "the length of a campaign is set by the environment")]
fn kills() -> usize {
    std::env::var("CHIMERA_SOAK_KILLS").map_or(KILLS_DEFAULT, |text| text.parse().unwrap())
}

/// The nodes, the clients and the outside of a campaign.
struct Soak {
    places: Vec<Workspace>,
    nodes: Vec<Option<Server>>,
    clients: Arc<Clients>,
    outside: Arc<EffectServer>,
    machine: Machine,
    random: Seeded,
    kills: usize,
    freezes: usize,
    restores: Restores,
}

impl Soak {
    fn new(nodes: usize, machine: Machine) -> Self {
        let outside = EffectServer::start();
        let address = outside.address.to_string();
        let place = || {
            let place = Workspace::new()
                .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
                .env("CHIMERA_ACCESS__HMAC_ACTOR", "admin")
                .env("HMAC_SECRET_KEY", KEY)
                .env("JWT_ALGORITHM", "HS256")
                .env("JWT_SECRET_KEY", SECRET)
                .env("CHIMERA_HMAC_KEY", KEY)
                .file("actors.toml", "[[actor]]\nid = \"admin\"\nscopes = [\"*\"]\nquota_per_minute = 1000000\nautonomy_level = \"L3_ExecuteSilent\"\n")
                .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
                .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32))
                .env("CHIMERA_EGRESS_ALLOW", &address)
                .env("CHIMERA_FLOW__TOOLS_DIR", "tools")
                .file("part.json", include_str!("soak/part.json"))
                .file("load.json", &include_str!("soak/load.json").replace("ADDRESS", &address));
            std::fs::create_dir(place.path("tools")).unwrap();
            let vendor = include_str!("soak/acme.toml").replace("ADDRESS", &address);
            std::fs::write(place.path("tools/acme.toml"), vendor).unwrap();
            machine.place(place)
        };
        let clients = Arc::new(Clients::new(Arc::clone(&outside)));
        let places: Vec<Workspace> = (0..nodes).map(|_| place()).collect();
        let mut soak = Self {
            nodes: places.iter().map(|_| None).collect(),
            places,
            clients,
            outside,
            machine,
            random: Seeded::new(kills() as u64),
            kills: 0,
            freezes: 0,
            restores: Restores::default(),
        };
        (0..nodes).for_each(|node| soak.start(node));
        for file in ["part.json", "load.json"] {
            soak.places[0].json(&["workflow", "apply", file]);
        }
        soak
    }

    fn start(&mut self, node: usize) {
        // Deadlines are wall-clock times, so a node that starts with a wrong clock would act at the wrong time.
        self.machine.set_clock_right();
        let server = self.places[node].serve(&[]);
        self.clients.nodes.set(node, Some(server.address.clone()));
        self.nodes[node] = Some(server);
    }

    fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_le_bytes(bytes) % bound
    }

    fn any_node(&self) -> usize {
        usize::try_from(self.below(self.places.len() as u64)).unwrap()
    }

    fn kill(&mut self, node: usize) {
        let server = self.nodes[node].take().unwrap();
        server.signal("KILL");
        self.clients.nodes.set(node, None);
        let (status, log) = server.wait();
        assert_eq!(status, None, "{log}");
        no_fault_in(&log, self.machine.was_broken());
        self.kills += 1;
    }

    /// Starts a node and kills it before it serves.
    fn kill_early(&mut self, node: usize) {
        let mut child = self.places[node].start(&["serve", "--listen", "127.0.0.1:0"]);
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        self.kills += 1;
    }

    /// Suspends a node until the others have finished its runs, and resumes it.
    fn freeze(&mut self, node: usize) {
        self.clients.freeze(true);
        self.nodes[node].as_ref().unwrap().signal("STOP");
        self.clients.nodes.set(node, None);
        self.clients.wait_until_ended();
        let server = self.nodes[node].as_ref().unwrap();
        server.signal("CONT");
        let address = server.address.clone();
        server.wait_until_ready();
        self.clients.nodes.set(node, Some(address));
        // Now it continues what it was about to do when it was suspended.
        self.machine.wait_out(&self.outside);
        self.clients.freeze(false);
        self.freezes += 1;
    }

    fn campaign(&mut self, kills: usize) {
        let nodes = self.places.len();
        while self.kills < kills {
            self.trouble();
            self.outside.wait_for_effects(usize::try_from(self.below(THINGS_MAX)).unwrap());
            let node = self.any_node();
            if nodes > 1 && self.kills / FREEZE_EVERY > self.freezes {
                self.freeze(node);
            }
            self.kill(node);
            if self.kills < kills && self.below(8) == 0 {
                self.kill_early(node);
            }
            self.start_in_trouble(node);
            self.back_up_or_restore();
            println!(
                "{} kills, {} freezes, {} runs so far",
                self.kills,
                self.freezes,
                self.clients.acknowledged_count()
            );
        }
        if nodes > 1 {
            let node = self.any_node();
            self.outside.wait_for_effects(usize::try_from(self.below(THINGS_MAX)).unwrap());
            self.freeze(node);
        }
    }

    /// Injects a random fault, or none. A fault that blocks all work ends before this returns.
    fn trouble(&mut self) {
        self.machine.heal();
        if self.below(2) == 0 {
            return;
        }
        let troubles = self.machine.troubles();
        let trouble = troubles[usize::try_from(self.below(troubles.len() as u64)).unwrap()];
        self.machine.begin(trouble);
        if trouble.blocks() {
            self.machine.wait_out(&self.outside);
            self.machine.heal();
        }
    }

    /// Starts a node. One time in four, first starts one that waits for its lane, and kills it.
    fn start_in_trouble(&mut self, node: usize) {
        if self.below(4) == 0 {
            self.machine.begin(self.machine.slow_start());
            let mut child = self.places[node].start(&["serve", "--listen", "127.0.0.1:0"]);
            self.machine.wait_out(&self.outside);
            child.kill().unwrap();
            child.wait().unwrap();
            self.kills += 1;
            self.machine.heal();
        }
        self.start(node);
    }

    /// Runs the whole campaign and checks the final state.
    fn run_and_check(mut self) {
        let clients = Arc::clone(&self.clients);
        let runs = clients.work(|| self.campaign(kills()));
        self.machine.heal();
        for server in self.nodes.drain(..).flatten() {
            let (status, log) = server.stop();
            assert_eq!(status, Some(0), "{log}");
            no_fault_in(&log, self.machine.was_broken());
        }
        let asked = self.outside.asked();
        let requests: usize = asked.values().map(|asked| asked.requests).sum();
        let ((told, unheard), (cut, restored)) = (self.gone(), clients.settled.count());
        println!(
            "{} kills, {} freezes, {} restores: {} runs, {requests} write requests, {} outcomes reported by a person, {} \
             of them after a restore; {told} acknowledged runs lost in restores and started again under their key, \
             {unheard} more lost before they were acknowledged",
            self.kills,
            self.freezes,
            self.restores.count,
            runs.len(),
            cut + restored,
            restored,
        );
        println!("faults: {}", self.machine.fault_counts());
        let gone: BTreeSet<String> = clients.gone.lock().unwrap().iter().map(|gone| gone.run.clone()).collect();
        nothing_is_lost_or_doubled(&runs, &gone, &asked);
        for (place, requests) in &self.restores.sealed {
            assert_eq!(asked[place].requests, *requests, "{place:?} was requested again after a restore");
        }
        let found = self.places[0].json(&["audit", "verify"]);
        assert_eq!(found["intact"], true, "{found}");
        assert_eq!(self.places[0].json(&["runs", "doubts"])["items"], json!([]));
    }
}

/// A node may refuse requests, but may not log internal errors, except while the store was broken or is held.
fn no_fault_in(log: &str, was_broken: bool) {
    let is_fault = |line: &&str| {
        let fields: Value = serde_json::from_str(line).unwrap_or_default();
        let grave = matches!(fields["level"].as_str(), Some("ERROR" | "CRITICAL"));
        let held = fields["message"] == "the store is held; no run is driven";
        (grave && fields["component"] != "api" && !was_broken && !held) || line.contains("panicked")
    };
    assert_eq!(log.lines().find(is_fault), None);
}

fn nothing_is_lost_or_doubled(
    runs: &BTreeMap<String, AcknowledgedRun>,
    gone: &BTreeSet<String>,
    asked: &BTreeMap<effect_server::EffectId, effect_server::EffectRequests>,
) {
    let ids: BTreeSet<&String> = runs.values().map(|known| &known.run).collect();
    assert_eq!(ids.len(), runs.len(), "two keys have the same run");
    let acting = asked.keys().map(|(run, _, _)| run).filter(|run| !gone.contains(*run));
    assert_eq!(acting.collect::<BTreeSet<_>>(), ids, "the runs with effects are not the acknowledged runs");
    let places = [("put", 0), ("each", 1), ("each", 2), ("each", 3), ("stubborn", 0), ("note", 0), ("once", 0)];
    let places: BTreeSet<(&str, i64)> = places.into_iter().chain([("inner", 0)]).collect();
    let done = asked.iter().filter(|((run, node, _), asked)| !gone.contains(run) && asked.is_done(node));
    assert_eq!(done.count(), ids.len() * places.len(), "an effect is missing, or there are too many");
    for ((run, node, item), asked) in asked {
        assert!(places.contains(&(node.as_str(), *item)), "{run} {node} {item}");
        assert_eq!(asked.keys.len(), 1, "{run} {node} {item} was requested under several keys: {asked:?}");
        if matches!(node.as_str(), "once" | "note") {
            assert_eq!(asked.requests, 1, "{run} {node} was repeated");
        }
    }
}

#[test]
fn kills_at_random_under_load_lose_nothing_and_double_nothing() {
    Soak::new(1, Machine::embedded()).run_and_check();
}

#[test]
fn kills_and_stops_of_two_nodes_on_one_postgres_lose_nothing_and_double_nothing() {
    Soak::new(2, Machine::shared()).run_and_check();
}
