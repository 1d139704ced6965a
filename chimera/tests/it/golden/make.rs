//! Creates data with a run in every state, with the real binary.

use super::{Store, look_at};
use crate::support::{Workspace, wait_until};
use chimera_testkit::access::unix_seconds;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};

const WORKFLOWS: &[(&str, &str)] = &[
    ("note.json", include_str!("note.json")),
    ("later.json", include_str!("later.json")),
    ("ask.json", include_str!("ask.json")),
    ("parent.json", include_str!("parent.json")),
    ("send.json", include_str!("send.json")),
];

/// Somebody who takes a request and never answers it: `/lost` is hung up on, others are kept waiting.
fn outside() -> (SocketAddr, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (kept, waiting) = sync_channel(8);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if !line.starts_with("POST /lost ") && kept.send(reader.into_inner()).is_err() {
                return;
            }
        }
    });
    (address, waiting)
}

/// Creates runs and keeps them by name.
struct RunMaker<'a> {
    place: &'a Workspace,
    runs: Map<String, Value>,
}

impl RunMaker<'_> {
    /// Starts a run and waits until a condition holds.
    fn run(&mut self, name: &str, args: &[&str], is_so: impl Fn(&Value) -> bool) -> String {
        // A run that fails at once ends the command with another status.
        let said = self.place.run(&[&["act", "--json"], args].concat());
        let asked: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{name}: {}", said.stderr));
        let run = asked["run_id"].as_str().unwrap().to_owned();
        self.until(&run, name, is_so);
        self.runs.insert(name.to_owned(), run.clone().into());
        run
    }

    fn until(&self, run: &str, name: &str, is_so: impl Fn(&Value) -> bool) {
        wait_until(name, || {
            let seen = look_at(self.place, run);
            (!is_so(&seen)).then(|| seen.to_string())
        });
    }
}

fn has(status: &'static str) -> impl Fn(&Value) -> bool {
    move |seen| seen["status"] == status
}

fn step_is(node: &'static str, status: &'static str) -> impl Fn(&Value) -> bool {
    move |seen| seen["steps"][node] == status
}

/// Everything that a server does by itself and with people, until it is stopped.
fn live(made: &mut RunMaker<'_>) {
    let place = made.place;
    made.run("completed", &["--step", "local.echo={\"message\":\"x\"}"], has("completed"));
    made.run("failed", &["--step", "http.request={\"url\":\"http://127.0.0.1:1\"}"], has("failed"));
    made.run("waiting", &["--workflow", "note", "--input", "text=waiting"], has("awaiting_approval"));
    made.run("draft", &["--workflow", "note", "--input", "text=draft", "--level", "L1"], has("awaiting_approval"));
    made.run("timer", &["--workflow", "later"], step_is("wait", "pending"));
    let paused = made.run("paused", &["--workflow", "later"], step_is("wait", "pending"));
    place.json(&["runs", "pause", &paused]);
    made.until(&paused, "paused", |seen| seen["paused"] == true);
    let cancelled = made.run("cancelled", &["--workflow", "later"], step_is("wait", "pending"));
    place.json(&["runs", "cancel", &cancelled]);
    made.until(&cancelled, "cancelled", has("cancelled"));
    let undone = made.run("rolled_back", &["--workflow", "note", "--input", "text=gone"], has("awaiting_approval"));
    place.json(&["runs", "approve", &undone]);
    made.until(&undone, "completed", has("completed"));
    place.json(&["runs", "rollback", &undone]);
    made.until(&undone, "rolled_back", has("rolled_back"));
    let patched = made.run("patched", &["--workflow", "ask"], has("awaiting_approval"));
    place.json(&["runs", "patch", &patched, "patch.json"]);
    made.until(&patched, "patched", step_is("tell", "pending"));
    let parent = made.run("parent", &["--workflow", "parent"], step_is("child", "running"));
    let steps = place.json(&["runs", "steps", &parent]);
    made.runs.insert("child".to_owned(), steps["steps"][0]["child_run_id"].clone());
    made.run("in_doubt", &["--workflow", "send", "--input", "path=lost"], step_is("send", "outcome_unknown"));
}

/// Makes data in `place`: it is stopped once in order, and killed in the end in the middle of a call.
pub(super) fn make(store: &Store) -> Workspace {
    let (address, waiting) = outside();
    let place = WORKFLOWS
        .iter()
        .fold(store.place(), |place, (name, text)| place.file(name, &text.replace("ADDRESS", &address.to_string())));
    let place = place
        .file("patch.json", include_str!("patch.json"))
        .env("CHIMERA_EGRESS_ALLOW", &address.to_string())
        .env("CHIMERA_LEDGER__CHECKPOINT_SECONDS", "1");
    let mut made = RunMaker { place: &place, runs: Map::new() };
    let server = place.dev(&[]);
    for (name, _) in WORKFLOWS {
        place.json(&["workflow", "apply", name]);
    }
    let eve = place.json(&["actor", "add", "user_eve"]);
    live(&mut made);
    assert_eq!(server.stop().0, Some(0));

    let server = place.dev(&[]);
    made.run("cut", &["--workflow", "send", "--input", "path=kept"], step_is("send", "running"));
    let _open = waiting.recv().unwrap();
    server.signal("KILL");
    server.wait();

    let runs: Map<String, Value> =
        made.runs.iter().map(|(name, run)| (name.clone(), look_at(&place, run.as_str().unwrap()))).collect();
    let schema = place.json(&["migrate", "--check"])["version"].clone();
    let golden = json!({
        "schema": schema, "made_at": unix_seconds(), "runs": runs, "actor": {"id": "user_eve", "key": eve["hmac_key"]},
    });
    std::fs::write(place.path("golden.json"), format!("{golden:#}\n")).unwrap();
    place
}
