//! A simulated person who resolves calls with an unknown outcome by looking at the outside world.

use super::clients::Clients;
use super::effect_server;
use crate::support::{Workspace, wait_until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// In the reason of every doubt caused by a restore.
const SINCE_BACKUP: &str = "after the backup was taken";

/// Doubts settled with CLI commands after each restore; the others are settled over HTTP.
const BY_COMMAND: usize = 2;

/// Threads that settle doubts: a restore may cause thousands.
const PEOPLE: usize = 8;

/// The doubts that were settled so far.
#[derive(Default)]
pub(crate) struct SettledDoubts {
    /// Step id and time of doubts about interrupted calls.
    cut: Mutex<BTreeSet<(String, String)>>,
    /// Step id and time of doubts caused by restores.
    restored: Mutex<BTreeSet<(String, String)>>,
    /// The root run of each run seen in doubt.
    roots: Mutex<BTreeMap<String, String>>,
}

impl SettledDoubts {
    /// The number caused by kills, and by restores.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.cut.lock().unwrap().len(), self.restored.lock().unwrap().len())
    }

    /// Records a settled doubt. Returns whether it is new.
    fn note(&self, doubt: &Value) -> bool {
        let text = |name: &str| doubt[name].as_str().unwrap().to_owned();
        let by_restore = text("reason").contains(SINCE_BACKUP);
        let settled = if by_restore { &self.restored } else { &self.cut };
        settled.lock().unwrap().insert((text("step_id"), text("since")))
    }
}

impl Clients {
    /// Settles doubts until every run has ended.
    pub(crate) fn settle_doubts(&self) {
        while !self.are_done() {
            self.nodes.wait_until_up();
            let unpaused = self.pause.read().unwrap();
            let doubts = self.doubts();
            std::thread::scope(|scope| {
                for share in doubts.chunks(doubts.len().div_ceil(PEOPLE).max(1)) {
                    scope.spawn(move || {
                        for doubt in share {
                            // If no node answers, the next round retries.
                            let _ = self.settle(doubt);
                        }
                    });
                }
            });
            drop(unpaused);
            self.outside.wait_briefly(self.outside.count() + 10);
        }
    }

    /// All calls in doubt; none if no node answers.
    fn doubts(&self) -> Vec<Value> {
        let (mut doubts, mut path) = (Vec::new(), "/doubts?limit=1000".to_owned());
        loop {
            let Some((200, mut said)) = self.ask("GET", &path, None) else { return Vec::new() };
            let items: Vec<Value> = serde_json::from_value(said["items"].take()).unwrap();
            doubts.extend(items);
            let Some(cursor) = said["next_cursor"].as_str() else { return doubts };
            path = format!("/doubts?limit=1000&cursor={cursor}");
        }
    }

    /// The root runs with a call in doubt.
    pub(crate) fn runs_in_doubt(&self) -> BTreeSet<String> {
        self.doubts().iter().filter_map(|doubt| self.root(doubt)).collect()
    }

    /// The root run of a doubt.
    fn root(&self, doubt: &Value) -> Option<String> {
        let run = doubt["run_id"].as_str().unwrap();
        if let Some(root) = self.settled.roots.lock().unwrap().get(run) {
            return Some(root.clone());
        }
        let (200, shown) = self.ask("GET", &format!("/runs/{run}"), None)? else { return None };
        let root = shown["parent_run_id"].as_str().unwrap_or(run).to_owned();
        self.settled.roots.lock().unwrap().insert(run.to_owned(), root.clone());
        Some(root)
    }

    /// The effect outside that a doubt is about.
    fn place(&self, doubt: &Value) -> Option<effect_server::EffectId> {
        let (root, node) = (self.root(doubt)?, doubt["node_id"].as_str().unwrap());
        let restored = self.restored.lock().unwrap().contains(doubt["run_id"].as_str().unwrap());
        assert!(restored || node == "once", "only `once` may be in doubt without a restore: {doubt:#}");
        let item = doubt["map_index"].as_i64().map_or(0, |index| index + 1);
        // A child run shows outside by its own effect.
        Some((root, if node == "part" { "inner" } else { node }.to_owned(), item))
    }

    fn settle(&self, doubt: &Value) -> Option<()> {
        let place = self.place(doubt).filter(|_| !self.is_frozen())?;
        let output = match doubt["node_id"].as_str().unwrap() {
            "once" => json!({"status": 200, "headers": {}, "body": {"ok": true}, "truncated": false}),
            _ => json!({"ok": true}),
        };
        let found = if self.outside.has_done(&place) {
            json!({"outcome": "happened", "outputs": output})
        } else {
            json!({"outcome": "never"})
        };
        // The run continues if the report was accepted.
        if let (202, _) = self.ask("POST", doubt["resolve_url"].as_str().unwrap(), Some(&found))? {
            self.note_settled(doubt);
        }
        Some(())
    }

    /// Waits for the doubts of a restore, and settles the first ones with the commands that they suggest.
    pub(crate) fn settle_by_command(&self, place: &Workspace) {
        let mut listed = Value::Null;
        wait_until("a doubt", || {
            listed = place.json(&["runs", "doubts"]);
            listed["items"].as_array().unwrap().is_empty().then(|| listed.to_string())
        });
        for doubt in listed["items"].as_array().unwrap().iter().take(BY_COMMAND) {
            let happened = self.outside.has_done(&self.place(doubt).unwrap());
            let command = doubt["resolve_commands"][usize::from(!happened)].as_str().unwrap();
            let words: Vec<&str> = command.split(' ').skip(1).collect();
            let said = place.run(&words);
            assert_eq!(said.status, 0, "{command}: {}{}", said.stdout, said.stderr);
            self.note_settled(doubt);
        }
    }

    fn note_settled(&self, doubt: &Value) {
        if self.settled.note(doubt) {
            self.outside.settled();
        }
    }
}
