//! Workers and real nodes: whatever is killed or lost, a call that a worker executes has one outcome.

use crate::support::{Server, Workspace, wait_until};
use chimera_core::time::Timestamp;
use chimera_testkit::access::{signed_with, unix_seconds};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A service that may start runs and work for every queue.
const ACTOR: &str = "n8n_workflow_demo";
const KEY: &str = "a-key-for-workers-and-nodes";

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/workers").join(name)
}

/// A place for a node with the tool of the example, and one that must not be repeated.
fn place(database: Option<&str>) -> Workspace {
    let actors = format!(
        "[[actor]]\nid = \"{ACTOR}\"\nscopes = [\"images.*\", \"work.claim.*\", \"runs.read\"]\n\
         quota_per_minute = 100000\nautonomy_level = \"L2_ExecuteNotify\"\n"
    );
    let place = Workspace::new()
        .file("actors.toml", &actors)
        .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
        .env("CHIMERA_FLOW__TOOLS_DIR", "tools")
        .env("CHIMERA_ACCESS__HMAC_ACTOR", ACTOR)
        .env("HMAC_SECRET_KEY", KEY)
        .env("JWT_ALGORITHM", "HS256")
        .env("JWT_SECRET_KEY", "a-secret-of-tokens-for-all-nodes")
        .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
        .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32));
    let place = match database {
        Some(url) => place.env("CHIMERA_DATABASE_URL", url),
        None => place,
    };
    std::fs::create_dir(place.path("tools")).unwrap();
    let once = std::fs::read_to_string(example("thumbnails.toml")).unwrap();
    let once = once.replace("idempotent = true", "idempotent = false");
    std::fs::write(place.path("tools/thumbnails.toml"), once).unwrap();
    place
}

/// A client of one node.
struct Client {
    http: reqwest::Client,
    address: String,
    token: String,
}

fn now() -> Timestamp {
    Timestamp::from_micros(i64::try_from(unix_seconds()).unwrap() * 1_000_000)
}

impl Client {
    async fn of(server: &Server) -> Self {
        static SIGN_INS: AtomicU64 = AtomicU64::new(0);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut client = Self { http, address: server.address.clone(), token: String::new() };
        let nonce = format!("sign-in-{}", SIGN_INS.fetch_add(1, Ordering::Relaxed));
        let body = json!({"actor": ACTOR, "issued_at": unix_seconds(), "nonce": nonce});
        let (status, answer) = client.post("/auth/token", &body).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        client.token = answer["access_token"].as_str().unwrap().to_owned();
        client
    }

    async fn post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let text = body.to_string();
        let request = self.http.post(format!("http://{}{path}", self.address)).timeout(Duration::from_secs(40));
        let request = request.header("content-type", "application/json");
        let signed = signed_with(KEY, ACTOR, now(), ("POST", path), text.as_bytes());
        let request = signed.into_iter().fold(request, |request, (name, value)| request.header(name, value)).body(text);
        let request = if self.token.is_empty() { request } else { request.bearer_auth(&self.token) };
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.ok()?))
    }

    /// Starts a run with one call for a worker.
    async fn start(&self) -> String {
        let input = json!({"url": "https://example.com/cat.png", "width": 320});
        let body = json!({"steps": [{"tool": "images.thumbnail", "input": input}], "wait": 0});
        let (status, run) = self.post("/act", &body).await.unwrap();
        assert_eq!(status, 202, "{run}");
        run["run_id"].as_str().unwrap().to_owned()
    }

    async fn claim(&self, limit: usize) -> Vec<Value> {
        let body = json!({"queue": "thumbnails", "limit": limit, "wait_seconds": 10});
        let (status, answer) = self.post("/work/claim", &body).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        answer["items"].as_array().unwrap().clone()
    }

    async fn complete(&self, call: &Value) -> Option<(u16, Value)> {
        let output = json!({"url": format!("https://example.com/{}", call["idempotency_key"]), "width": 320});
        let body = json!({"item_id": call["id"], "lease_token": call["lease_token"], "output": output});
        self.post("/work/complete", &body).await
    }

    async fn run(&self, run: &str) -> Option<Value> {
        let url = format!("http://{}/runs/{run}", self.address);
        self.http.get(url).bearer_auth(&self.token).send().await.ok()?.json().await.ok()
    }

    async fn until_completed(&self, run: &str) {
        for _ in 0..600 {
            if self.run(run).await.is_some_and(|shown| shown["status"] == "completed") {
                return;
            }
            tokio::task::yield_now().await;
            tokio::time::timeout(Duration::from_millis(100), std::future::pending::<()>()).await.unwrap_err();
        }
        panic!("run {run} does not end: {:?}", self.run(run).await);
    }
}

/// How often a run's call was recorded as completed, according to the ledger.
fn completions(place: &Workspace, run: &str) -> usize {
    let entries = place.json(&["audit", "list", "--event-type", "step.completed", "--limit", "200"]);
    entries["items"].as_array().unwrap().iter().filter(|entry| entry["run_id"] == run).count()
}

fn kill(server: Server) {
    server.signal("KILL");
    server.wait();
}

#[tokio::test]
async fn a_report_survives_the_kill_of_the_node_that_gave_the_call_out() {
    let place = place(None);
    let server = place.serve(&[]);
    let client = Client::of(&server).await;
    let runs = [client.start().await, client.start().await];
    let mut held = client.claim(1).await;
    held.extend(client.claim(1).await);
    assert_eq!(held.len(), 2);
    kill(server);
    let server = place.serve(&[]);
    let client = Client::of(&server).await;
    for call in &held {
        for _ in 0..2 {
            assert_eq!(client.complete(call).await.unwrap().0, 200);
        }
    }
    // Killed again before or after the runs heard of it.
    kill(server);
    let server = place.serve(&[]);
    let client = Client::of(&server).await;
    for run in &runs {
        client.until_completed(run).await;
    }
    assert!(client.claim(5).await.is_empty());
    assert_eq!(server.stop().0, Some(0));
    for run in &runs {
        assert_eq!(completions(&place, run), 1);
    }
    assert_eq!(place.json(&["audit", "verify"])["intact"], true);
}

#[tokio::test]
async fn two_nodes_give_every_call_to_one_worker_and_either_takes_the_report() {
    let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let places = [place(Some(&database)), place(Some(&database))];
    let [first, second] = [places[0].serve(&[]), places[1].serve(&[])];
    let clients = [Client::of(&first).await, Client::of(&second).await];
    let mut runs = Vec::new();
    for at in 0..20 {
        runs.push(clients[at % 2].start().await);
    }
    let claims = (0..20).map(|at| clients[at % 2].claim(1));
    let held: Vec<Value> = futures::future::join_all(claims).await.into_iter().flatten().collect();
    let items: BTreeSet<String> = held.iter().map(|call| call["id"].to_string()).collect();
    assert_eq!((held.len(), items.len()), (20, 20), "a call was given out twice, or not at all");
    kill(first);
    for call in &held {
        let (status, answer) = clients[1].complete(call).await.unwrap();
        assert_eq!(status, 200, "{answer}");
    }
    for run in &runs {
        clients[1].until_completed(run).await;
        assert_eq!(completions(&places[1], run), 1);
    }
    assert_eq!(second.stop().0, Some(0));
    assert_eq!(places[1].json(&["audit", "verify"])["intact"], true);
}

#[tokio::test]
async fn a_report_that_the_database_did_not_take_is_repeated_and_recorded_once() {
    let postgres = PrivatePostgres::options().without_fsync().start().unwrap();
    let place = place(Some(&postgres.url()));
    let server = place.serve(&[]);
    let client = Client::of(&server).await;
    let run = client.start().await;
    let call = client.claim(1).await.remove(0);
    postgres.kill().unwrap();
    let lost = client.complete(&call).await;
    assert!(lost.as_ref().is_none_or(|(status, _)| *status >= 500), "{lost:?}");
    postgres.restart().unwrap();
    let mut answers = Vec::new();
    while answers.last() != Some(&200) {
        answers.push(client.complete(&call).await.map_or(0, |(status, _)| status));
        assert!(answers.len() < 200, "{answers:?}");
    }
    client.until_completed(&run).await;
    assert_eq!(client.complete(&call).await.unwrap().0, 200, "and again, which changes nothing");
    assert_eq!(completions(&place, &run), 1);
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(place.json(&["audit", "verify"])["intact"], true);
}

/// The example of the guide, as it is documented.
#[test]
fn the_documented_worker_makes_a_thumbnail_and_people_see_what_waits() {
    let place = Workspace::new().with_actors().env("CHIMERA_FLOW__TOOLS_DIR", "tools");
    std::fs::create_dir(place.path("tools")).unwrap();
    std::fs::copy(example("thumbnails.toml"), place.path("tools/thumbnails.toml")).unwrap();
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", example("thumbnail.json").to_str().unwrap()]);
    let scopes = ["--scopes", "work.claim.thumbnails"];
    let key = place.json(&[&["actor", "add", "thumbnailer"], &scopes[..]].concat());
    let input = ["--input", "url=https://example.com/cat.png"];
    let run = place.json(&[&["act", "--workflow", "thumbnail"], &input[..]].concat());
    let run = run["run_id"].as_str().unwrap();
    let queued = || place.run(&["work", "list"]).stdout;
    wait_until("the call", || (!queued().contains("queued")).then(queued));
    assert!(queued().contains("thumbnails  images.thumbnail"), "{}", queued());
    let shown = place.run(&["runs", "show", run]).stdout;
    assert!(shown.contains("waits for a worker (queue thumbnails)"), "{shown}");

    let worker = Command::new("python3")
        .arg(example("worker.py"))
        .arg("1")
        .env("CHIMERA_SERVER", format!("http://{}", server.address))
        .env("WORKER_KEY", key["hmac_key"].as_str().unwrap_or_else(|| panic!("{key}")))
        .output()
        .unwrap();
    let said = String::from_utf8(worker.stdout).unwrap();
    assert!(worker.status.success(), "{said}{}", String::from_utf8_lossy(&worker.stderr));
    assert_eq!(said, "/work/complete images.thumbnail True\n");
    let status = || place.json(&["runs", "show", run])["status"].as_str().unwrap().to_owned();
    wait_until("the end of the run", || (status() != "completed").then(status));
    let empty = place.run(&["work", "list"]);
    assert!(empty.stderr.contains("no calls for workers"), "{}", empty.stderr);
    assert_eq!(server.stop().0, Some(0));
}

/// The guide shows the worker that this test runs.
#[test]
fn the_guide_shows_the_worker_and_the_tool_as_they_are() {
    let guide = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/workers.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let worker = std::fs::read_to_string(example("worker.py")).unwrap();
    let shown = &worker[worker.find("def thumbnail").unwrap()..];
    assert!(guide.contains(shown), "the worker of the guide differs from examples/workers/worker.py");
    assert!(worker.lines().count() <= 45);
}

/// Parked runs cost rows, and no memory. The store's page cache fills up with the first ones, and is bounded.
#[test]
fn parked_runs_take_no_memory() {
    const PARKED: [usize; 2] = [100_000, 300_000];
    let place = Workspace::new();
    place.dev(&[]).stop();
    let file = find(&place, "chimera.db");
    let memory = PARKED.map(|parked| {
        let rows = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {parked})
             INSERT INTO runs (id, actor, request_payload, status, autonomy_level, trace_id, tenant_id, source,
                 workflow_id, workflow_version, inputs, next_deadline, timeout_at, created_at)
             SELECT randomblob(16), 'user_ann', '{{}}', 'running', 'L2_ExecuteNotify', hex(randomblob(16)), 'default',
                 'workflow', 'parked', 1, '{{}}', 4000000000000000, 4000000000000000, 1700000000000000 FROM n"
        );
        chimera_testkit::sqlite_exec::execute(&file, &rows).unwrap();
        let server = place.dev(&[]);
        // Once the gauges are there, every loop has looked at the store.
        wait_until("a sample", || {
            let metrics = server.ask("GET /metrics HTTP/1.1");
            (!metrics.contains("chimera_runs_unfinished{state=\"running\"} 100000")).then_some(metrics)
        });
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap().to_owned();
        assert_eq!(server.stop().0, Some(0));
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
    });
    assert!(memory[1] <= memory[0] + 12, "{memory:?} MiB with 100,000 and with 400,000 parked runs");
}

fn find(place: &Workspace, name: &str) -> PathBuf {
    let mut folders = vec![place.dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.file_name().is_some_and(|found| found == name) => return path,
                _ => {}
            }
        }
    }
    panic!("there is no {name}")
}
