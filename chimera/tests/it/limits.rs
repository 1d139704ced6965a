//! Limits over time of the real binary: two nodes on one PostgreSQL, one node on SQLite, and kills.

use crate::soak::effect_server::EffectServer;
use crate::support::{Server, Workspace};
use chimera_core::time::Timestamp;
use chimera_testkit::access::{signed_with, unix_seconds};
use chimera_testkit::postgres::PrivatePostgres;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;

const ACTOR: &str = "admin";
const KEY: &str = "a-key-for-all-nodes";

const RULES: &str = r#"
[[rule]]
name = "three-puts"
tool = "acme.put"
effect = "limit"
at_most = { count = 3, per = "1h", by = "actor" }
"#;

/// Nodes on one store, and what they act on.
struct Nodes {
    places: Vec<Workspace>,
    servers: Vec<Server>,
    outside: Arc<EffectServer>,
    client: reqwest::Client,
}

impl Nodes {
    /// Starts nodes that share a database, or one with its own file.
    fn start(count: usize, database: Option<&str>) -> Self {
        let outside = EffectServer::start();
        let address = outside.address.to_string();
        let place = || {
            let place = Workspace::new()
                .file("actors.toml", "[[actor]]\nid = \"admin\"\nscopes = [\"*\"]\nquota_per_minute = 1000000\nautonomy_level = \"L3_ExecuteSilent\"\n")
                .file("rules.toml", RULES)
                .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
                .env("CHIMERA_ACCESS__HMAC_ACTOR", ACTOR)
                .env("HMAC_SECRET_KEY", KEY)
                .env("CHIMERA_HMAC_KEY", KEY)
                .env("JWT_ALGORITHM", "HS256")
                .env("JWT_SECRET_KEY", "a-secret-of-tokens-for-all-nodes")
                .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
                .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32))
                .env("CHIMERA_EGRESS_ALLOW", &address)
                .env("CHIMERA_FLOW__TOOLS_DIR", "tools")
                .env("CHIMERA_FLOW__POLICY_FILE", "rules.toml");
            std::fs::create_dir(place.path("tools")).unwrap();
            let vendor = include_str!("soak/acme.toml").replace("ADDRESS", &address);
            std::fs::write(place.path("tools/acme.toml"), vendor).unwrap();
            match database {
                Some(url) => place.env("CHIMERA_DATABASE_URL", url),
                None => place,
            }
        };
        let places: Vec<Workspace> = (0..count).map(|_| place()).collect();
        let servers = places.iter().map(|place| place.serve(&[])).collect();
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { places, servers, outside, client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    /// Kills all nodes at once and starts them again.
    fn kill_and_restart(&mut self) {
        for server in &self.servers {
            let id = server.id().to_string();
            // It may have been killed before.
            let _ = std::process::Command::new("kill").args(["-s", "KILL", &id]).status();
        }
        for server in self.servers.drain(..) {
            assert_eq!(server.wait().0, None);
        }
        self.outside.wait_until_quiet();
        self.servers = self.places.iter().map(|place| place.serve(&[])).collect();
        self.servers.iter().for_each(Server::wait_until_ready);
    }

    async fn post(&self, node: usize, path: &str, token: Option<&str>, body: &Value) -> Option<(u16, Value)> {
        let text = body.to_string();
        let url = format!("http://{}{path}", self.servers[node % self.servers.len()].address);
        let request = self.client.post(url).header("content-type", "application/json");
        let now = Timestamp::from_micros(i64::try_from(unix_seconds()).unwrap() * 1_000_000);
        let signed = signed_with(KEY, ACTOR, now, ("POST", path), text.as_bytes());
        let request = signed.into_iter().fold(request, |request, (name, value)| request.header(name, value)).body(text);
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.ok()?))
    }

    async fn token(&self) -> String {
        let body = json!({"actor": ACTOR, "issued_at": unix_seconds(), "nonce": format!("{}", self.outside.count())});
        let (status, answer) = self.post(0, "/auth/token", None, &body).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        answer["access_token"].as_str().unwrap().to_owned()
    }

    /// Requests this many calls at once, each of another thing.
    async fn race(&self, from: usize, count: usize, token: &str) -> Vec<Option<(u16, Value)>> {
        let ask = |at: usize| {
            let input = json!({"path": "put", "run": format!("r{at}"), "node": "put"});
            let body = json!({"steps": [{"tool": "acme.put", "input": input}], "wait": 30});
            async move { self.post(at, "/act", Some(token), &body).await }
        };
        futures::stream::iter(from..from + count).map(ask).buffer_unordered(count).collect().await
    }

    fn effects(&self) -> usize {
        self.outside.asked().len()
    }

    async fn runs(&self, token: &str, query: &str) -> Vec<Value> {
        let url = format!("http://{}/runs?limit=100{query}", self.servers[0].address);
        let answer: Value = self.client.get(url).bearer_auth(token).send().await.unwrap().json().await.unwrap();
        answer["items"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }

    /// Waits until no run is left to do.
    async fn wait_until_ended(&self, token: &str) {
        let mut seen = 0;
        loop {
            let mut open = self.runs(token, "&status=running").await;
            open.extend(self.runs(token, "&status=pending").await);
            if open.is_empty() {
                return;
            }
            seen += 1;
            assert!(seen < 400, "these runs do not end: {open:#?}");
            let outside = Arc::clone(&self.outside);
            let until = outside.count() + 1_000_000;
            tokio::task::spawn_blocking(move || outside.wait_briefly(until)).await.unwrap();
        }
    }
}

/// Whether a request was refused by the limit, at once or in its run.
fn is_denied((status, answer): &(u16, Value)) -> bool {
    let error = &answer["error"];
    let is_early = *status == 403 && error["details"]["rule"] == "three-puts";
    let is_late = answer["status"] == "failed" && error["code"] == "POLICY_DENIED";
    is_early || is_late
}

async fn exactly_three(mut nodes: Nodes) {
    let token = nodes.token().await;
    let answers: Vec<(u16, Value)> = nodes.race(0, 50, &token).await.into_iter().flatten().collect();
    assert_eq!(answers.len(), 50);
    assert_eq!(answers.iter().filter(|answer| is_denied(answer)).count(), 47, "{answers:#?}");
    assert_eq!(nodes.effects(), 3);
    let refused = answers.iter().find(|answer| is_denied(answer)).unwrap().1["error"].clone();
    assert!(
        refused["message"].as_str().unwrap().contains("the rule three-puts allows at most 3 calls per 1 h"),
        "{refused}"
    );
    assert!(refused["details"]["limit"]["free_at"].is_string(), "{refused}");
    nodes.kill_and_restart();
    let answers = nodes.race(50, 10, &token).await;
    assert!(answers.iter().flatten().all(is_denied), "{answers:#?}");
    nodes.wait_until_ended(&token).await;
    assert_eq!(nodes.effects(), 3);
    // The refusal of a run is in its error and in the ledger.
    for run in nodes.runs(&token, "&status=failed").await {
        let url = format!("http://{}/runs/{}", nodes.servers[0].address, run["run_id"].as_str().unwrap());
        let shown: Value = nodes.client.get(url).bearer_auth(&token).send().await.unwrap().json().await.unwrap();
        assert_eq!(shown["error"]["details"]["rule"], "three-puts", "{shown}");
    }
    for server in nodes.servers.drain(..) {
        assert_eq!(server.stop().0, Some(0));
    }
    let found = nodes.places[0].json(&["audit", "verify"]);
    assert_eq!(found["intact"], true, "{found}");
}

#[tokio::test]
async fn of_fifty_at_once_on_two_nodes_three_are_made_and_a_kill_of_both_changes_nothing() {
    let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    exactly_three(Nodes::start(2, Some(&database))).await;
}

#[tokio::test]
async fn of_fifty_at_once_on_sqlite_three_are_made_and_a_kill_changes_nothing() {
    exactly_three(Nodes::start(1, None)).await;
}

/// The nodes are killed in the middle of it, whatever they are about to do.
#[tokio::test]
async fn a_kill_while_places_are_taken_lets_no_more_and_no_fewer_calls_pass() {
    let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    for (count, database) in [(2, Some(database.as_str())), (1, None)] {
        let mut nodes = Nodes::start(count, database);
        let token = nodes.token().await;
        let (outside, ids) = (Arc::clone(&nodes.outside), nodes.servers.iter().map(Server::id).collect::<Vec<_>>());
        let killer = std::thread::spawn(move || {
            outside.wait_for_effects(1);
            for id in ids {
                std::process::Command::new("kill").args(["-s", "KILL", &id.to_string()]).status().unwrap();
            }
        });
        nodes.race(0, 50, &token).await;
        killer.join().unwrap();
        nodes.kill_and_restart();
        nodes.wait_until_ended(&token).await;
        let answers = nodes.race(50, 20, &token).await;
        assert!(answers.iter().all(Option::is_some));
        nodes.wait_until_ended(&token).await;
        assert_eq!(nodes.effects(), 3, "{count} nodes");
    }
}

/// The example is a file that a server takes. A misspelled limit is refused with its place and reason.
#[test]
fn the_example_rules_are_taken_and_wrong_ones_are_named() {
    let place = Workspace::new()
        .file("rules.toml", include_str!("../../../examples/rules/limits.toml"))
        .env("CHIMERA_FLOW__POLICY_FILE", "rules.toml");
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    let mut place = place;
    for (written, wrong, reason) in [
        ("1h", "an hour", "rules.toml: line 6: per is `an hour`; write a duration such as"),
        (
            "effect = \"limit\"",
            "effect = \"ask\"\napprovals = 2147483648",
            "line 2: the rule three-puts: approvals is 2147483648",
        ),
        ("three-puts", "three\\u0000puts", "line 2: the rule three\\0puts: name contains U+0000"),
    ] {
        place = place.file("rules.toml", &RULES.replace(written, wrong));
        let said = place.run(&["dev", "--no-examples", "--listen", "127.0.0.1:0"]);
        assert_ne!(said.status, 0);
        assert!(said.stderr.contains("CONFIG_INVALID") && said.stderr.contains(reason), "{}", said.stderr);
    }
}
