//! Backups under load, and restores of one of them.
//!
//! All nodes stop, the store is restored and held, its contents are checked, and it is resumed. What was
//! acknowledged before the backup started is there; what was requested after it ended is not. A lost run is
//! requested again with its idempotency key and becomes a new run.

use super::clients::{AcknowledgedRun, LostRun, ask_at};
use super::effect_server::EffectRequests;
use super::{Soak, effect_server, no_fault_in};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;
use std::sync::atomic::Ordering;

/// Kills per restore.
const RESTORE_EVERY: usize = 10;

/// Kills before the first backup; few, so that a short campaign has one too.
const KILLS_BEFORE: usize = 1;

/// Kills between a backup and its restore.
const KILLS_SINCE: usize = 2;

/// Existing runs that are requested again under their key.
const REPEATED: usize = 3;

/// The backups and restores of a campaign.
#[derive(Default)]
pub(crate) struct Restores {
    /// The backup to restore next.
    backup: Option<Backup>,
    pub(crate) count: usize,
    /// Effects that may not be requested again, with their number of requests.
    pub(crate) sealed: BTreeMap<effect_server::EffectId, usize>,
}

struct Backup {
    name: String,
    kills: usize,
    begun: u64,
    ended: u64,
}

/// Every run of a held store, with its status.
type RunStatuses = BTreeMap<String, String>;

impl Soak {
    /// Takes or restores a backup if it is due.
    pub(crate) fn back_up_or_restore(&mut self) {
        match &self.restores.backup {
            None if self.kills >= self.restores.count * RESTORE_EVERY + KILLS_BEFORE => self.back_up(),
            Some(backup) if self.kills >= backup.kills + KILLS_SINCE => self.restore(),
            _ => {}
        }
    }

    /// Takes a backup under load; half of the time a node is killed meanwhile.
    fn back_up(&mut self) {
        let name = format!("backup-{}", self.restores.count);
        let begun = self.clients.moment();
        let backup = self.places[0].start(&["backup", "--out", &name, "--with-blobs", "--json"]);
        if self.below(2) == 0 {
            let node = self.any_node();
            self.kill(node);
            self.start(node);
        }
        assert_succeeded(backup);
        let ended = self.clients.moment();
        self.restores.backup = Some(Backup { name, kills: self.kills, begun, ended });
    }

    /// Stops all nodes, restores the store, checks it while it is held, resumes it, and restarts the nodes.
    fn restore(&mut self) {
        let backup = self.restores.backup.take().unwrap();
        let clients = std::sync::Arc::clone(&self.clients);
        self.machine.heal();
        (0..self.places.len()).for_each(|node| self.end(node));
        let paused = clients.pause.write().unwrap();
        self.outside.wait_until_quiet();
        let asked = self.outside.asked();
        let restored = self.places[0].json(&["restore", "--from", &backup.name, "--force"]);
        assert_eq!(restored["held"], true, "{restored}");
        if self.below(2) == 0 {
            self.machine.reset_redis();
        }
        (0..self.places.len()).for_each(|node| self.nodes[node] = Some(self.places[node].serve(&[])));
        let present = self.check_while_held();
        if self.places.len() == 1 {
            self.end(0);
        }
        let resumed = self.places[0].json(&["resume", "--after-restore", "--yes"]);
        let restored = resumed_runs(&resumed, &present);
        clients.restored.lock().unwrap().extend(restored.iter().cloned());
        let gone = self.account_for_lost(&backup, &present, &asked);
        self.seal(&present, asked);
        self.restores.count += 1;
        println!(
            "restore {}: {} runs with work left, {} lost: {}",
            self.restores.count,
            restored.len(),
            gone.len(),
            gone.join(", ")
        );
        for node in 0..self.places.len() {
            if let Some(server) = &self.nodes[node] {
                server.wait_until_ready();
                clients.nodes.set(node, Some(server.address.clone()));
            } else {
                self.start(node);
            }
        }
        self.repeats_are_answered();
        if resumed["runs"].as_array().unwrap().iter().any(is_doubtful) {
            clients.settle_by_command(&self.places[0]);
        }
        drop(paused);
        std::fs::remove_dir_all(self.places[0].path(&backup.name)).unwrap();
    }

    /// Stops a node or kills it.
    fn end(&mut self, node: usize) {
        let Some(server) = self.nodes[node].take() else { return };
        self.clients.nodes.set(node, None);
        let kills = self.below(2) == 0;
        server.signal(if kills { "KILL" } else { "TERM" });
        let (status, log) = server.wait();
        assert_eq!(status, if kills { None } else { Some(0) }, "{log}");
        no_fault_in(&log, self.machine.was_broken());
    }

    /// Checks that every node answers reads and refuses changes. Returns the runs.
    fn check_while_held(&self) -> RunStatuses {
        let mut present = RunStatuses::new();
        for server in self.nodes.iter().flatten() {
            server.wait_until_not_ready("records", "held: ");
            present = all_runs(&server.address);
            let refused = |path: &str, body: Value| {
                let (status, said) = ask_at(&server.address, "POST", path, Some(&body)).unwrap();
                assert_eq!((status, &said["error"]["code"]), (503, &json!("STORE_HELD")), "{path}: {said}");
            };
            refused("/act", json!({"workflow_id": "load", "idempotency_key": "while it is held"}));
            if let Some((run, _)) = present.iter().find(|(_, status)| is_open(status)) {
                refused(&format!("/runs/{run}/cancel"), json!({}));
            }
            let (_, said) = ask_at(&server.address, "GET", "/doubts?limit=1", None).unwrap();
            if let Some(path) = said["items"][0]["resolve_url"].as_str() {
                refused(path, json!({"outcome": "never"}));
            }
        }
        present
    }

    /// Finds lost runs and queues them for the clients. Returns the keys of the lost runs.
    fn account_for_lost(
        &self,
        backup: &Backup,
        present: &RunStatuses,
        asked: &BTreeMap<effect_server::EffectId, EffectRequests>,
    ) -> Vec<String> {
        let clients = &self.clients;
        let (mut acknowledged, mut gone) = (clients.acknowledged.lock().unwrap(), clients.gone.lock().unwrap());
        let (mut open, mut unfinished) = (clients.open.lock().unwrap(), clients.unfinished.lock().unwrap());
        let (pending, open_before) = (clients.count.load(Ordering::SeqCst) - open.len(), open.len());
        for (key, AcknowledgedRun { run, asked, told }) in &*acknowledged {
            let there = present.contains_key(run);
            assert!(there || *told > backup.begun, "{key}, {run}: acknowledged before the backup, but not in it");
            assert!(!there || *asked < backup.ended, "{key}, {run}: requested after the backup, but in it");
        }
        let is_there = |_: &String, known: &mut AcknowledgedRun| present.contains_key(&known.run);
        let lost: Vec<(String, AcknowledgedRun)> =
            acknowledged.extract_if(.., |key, known| !is_there(key, known)).collect();
        let known: BTreeSet<&String> = acknowledged.values().map(|known| &known.run).collect();
        let known_gone: BTreeSet<String> =
            gone.iter().map(|gone| gone.run.clone()).chain(lost.iter().map(|(_, known)| known.run.clone())).collect();
        let acting: BTreeSet<&String> = asked.keys().map(|(run, _, _)| run).collect();
        let unheard = acting
            .into_iter()
            .filter(|run| !known.contains(run) && !known_gone.contains(*run) && !present.contains_key(*run));
        let unheard: Vec<LostRun> = unheard.map(|run| LostRun { key: None, run: run.clone() }).collect();
        assert!(unheard.len() <= pending, "more runs had effects than were requested: {unheard:?}");
        let mut names: Vec<String> = lost.iter().map(|(key, _)| key.clone()).collect();
        names.extend(unheard.iter().map(|gone| format!("{} (never acknowledged)", gone.run)));
        clients.retry_keys.lock().unwrap().extend(lost.iter().map(|(key, _)| key.clone()));
        gone.extend(lost.into_iter().map(|(key, known)| LostRun { key: Some(key), run: known.run }).chain(unheard));
        // Runs that ended after the backup are open again.
        let still = known.into_iter().filter(|run| is_open(&present[*run])).cloned();
        *open = still.collect();
        *unfinished = open.iter().cloned().collect();
        // Clients that are about to send a request change the count concurrently.
        clients.count.fetch_add(open.len(), Ordering::SeqCst);
        clients.count.fetch_sub(open_before, Ordering::SeqCst);
        names
    }

    /// Records the effects that may not be requested again: those that happened, and those of lost runs. Checks by
    /// idempotency key that no existing run acts for a lost one.
    fn seal(&mut self, present: &RunStatuses, asked: BTreeMap<effect_server::EffectId, EffectRequests>) {
        let prefixes: BTreeSet<String> = present.keys().map(|run| run.replace('-', "")).collect();
        for (place, asked) in asked {
            let (run, node, _) = &place;
            let there = present.contains_key(run);
            let by: Vec<&str> = asked.keys.iter().filter_map(|key| key.split(':').next()).collect();
            // The key of a child's effect contains the id of the child.
            if node != "inner" {
                assert_eq!(by, [run.replace('-', "")], "{place:?}");
            } else if !there {
                assert!(!by.iter().any(|by| prefixes.contains(*by)), "{place:?} of a lost run: {by:?}");
            }
            if !there || asked.is_done(node) {
                self.restores.sealed.entry(place).or_insert(asked.requests);
            }
        }
    }

    /// A repeated request for an existing run is answered with that run.
    fn repeats_are_answered(&self) {
        let known = self.clients.acknowledged.lock().unwrap().clone();
        for (key, known) in known.iter().rev().take(REPEATED) {
            assert_eq!(self.clients.start_or_find(key).as_ref(), Some(&known.run), "{key}");
        }
    }

    /// The number of lost runs that were acknowledged, and that were not.
    pub(crate) fn gone(&self) -> (usize, usize) {
        let gone = self.clients.gone.lock().unwrap();
        let told = gone.iter().filter(|gone| gone.key.is_some()).count();
        (told, gone.len() - told)
    }
}

fn assert_succeeded(backup: Child) {
    let said = backup.wait_with_output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

fn is_open(status: &str) -> bool {
    !matches!(status, "completed" | "failed" | "cancelled" | "rolled_back")
}

/// Whether a resumed run has a doubt that only a person can settle.
fn is_doubtful(run: &Value) -> bool {
    run["in_doubt"].as_array().unwrap().iter().any(|step| step["tool"] != "acme.note")
}

/// Every run in a store, including children.
fn all_runs(address: &str) -> RunStatuses {
    let (mut runs, mut path) = (RunStatuses::new(), "/runs?limit=1000".to_owned());
    loop {
        let (status, said) = ask_at(address, "GET", &path, None).unwrap();
        assert_eq!(status, 200, "{said}");
        let text = |run: &Value, name: &str| run[name].as_str().unwrap().to_owned();
        runs.extend(said["items"].as_array().unwrap().iter().map(|run| (text(run, "run_id"), text(run, "status"))));
        let Some(cursor) = said["next_cursor"].as_str() else { return runs };
        path = format!("/runs?limit=1000&cursor={cursor}");
    }
}

/// The resumed runs that had work left. Checks that they are all open runs. A run that has ended is listed only for its
/// dropped signals.
fn resumed_runs(resumed: &Value, present: &RunStatuses) -> BTreeSet<String> {
    assert_eq!(resumed["resumed"], true, "{resumed}");
    let id = |run: &Value| run["run_id"].as_str().unwrap().to_owned();
    let runs = resumed["runs"].as_array().unwrap().iter();
    let runs = runs.filter(|run| is_open(&present[&id(run)]) || run["dropped"] == json!([]));
    let told: BTreeSet<String> = runs.map(id).collect();
    let open = present.iter().filter(|(_, status)| is_open(status)).map(|(run, _)| run.clone());
    assert_eq!(told, open.collect(), "the resumed runs are not the open runs");
    told
}
