//! Unknown outcomes, failures and pending work, as operators of a real server see them.

use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::smtp::PrivateSmtp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpListener;

/// A vendor with a write that may not be repeated.
const VENDOR: &str = r#"
vendor = "acme"
base_url = "http://ADDRESS"

[[tool]]
name = "acme.pay"
version = "1"
description = "Pays somebody."
effect = "write"
dry_run = { ok = true }
timeout_ms = 5000
response = { ok = "/ok" }

[tool.request]
method = "POST"
path = "/{input.path}"
body = { node = "pay" }

[tool.metadata]
requires_approval = false
dry_run_supported = true
idempotent = false
capabilities = ["acme.write"]
risk_level = "low"

[tool.input]
type = "object"
required = ["path"]
additionalProperties = false
[tool.input.properties]
path = { type = "string", minLength = 1 }

[tool.output]
type = "object"
[tool.output.properties]
ok = { type = "boolean" }
"#;

const ACTORS: &str = r#"
[[actor]]
id = "admin"
scopes = ["*"]
quota_per_minute = 10000
autonomy_level = "L2_ExecuteNotify"

[[actor]]
id = "user_ada"
scopes = ["runs.*"]
quota_per_minute = 10000
notify = { email = "ada@acme.example" }
"#;

/// Accepts requests to `/lost` and closes the connection without an answer; refuses all others.
fn vendor() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut seen, mut piece) = (stream.unwrap(), Vec::new(), [0; 4_096]);
            while !String::from_utf8_lossy(&seen).contains("\"pay\"") {
                let read = stream.read(&mut piece).unwrap();
                seen.extend_from_slice(&piece[..read]);
            }
            if !seen.starts_with(b"POST /lost ") {
                let answer = "HTTP/1.1 422 Unprocessable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    address
}

/// A server with a vendor, a workflow and an operator who gets mail about runs.
fn served(smtp: &PrivateSmtp, database: Option<&str>) -> (Workspace, Server) {
    let address = vendor();
    let workflow = |id: &str, path: &str| {
        let node = json!({"id": "pay", "type": "function", "fn": "acme.pay", "inputs": {"path": path}});
        json!({"air_version": "1.0", "workflow_id": id, "nodes": [node], "edges": []}).to_string()
    };
    let mut place = Workspace::new()
        .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
        .env("CHIMERA_EGRESS_ALLOW", &address)
        .env("CHIMERA_FLOW__TOOLS_DIR", "tools")
        .env("CHIMERA_MAIL__SERVER", "localhost")
        .env("CHIMERA_MAIL__PORT", &smtp.port().to_string())
        .env("CHIMERA_MAIL__TLS", "none")
        .env("CHIMERA_MAIL__FROM", "chimera@acme.example")
        .file("actors.toml", ACTORS)
        .file("lost.json", &workflow("lost", "lost"))
        .file("refused.json", &workflow("refused", "refused"));
    if let Some(url) = database {
        place = place.env("CHIMERA_DATABASE_URL", url);
    }
    std::fs::create_dir(place.path("tools")).unwrap();
    std::fs::write(place.path("tools/acme.toml"), VENDOR.replace("ADDRESS", &address)).unwrap();
    let server = place.dev(&[]);
    for file in ["lost.json", "refused.json"] {
        place.json(&["workflow", "apply", file]);
    }
    (place, server)
}

fn act(place: &Workspace, workflow: &str) -> String {
    let said = place.run(&["act", "--workflow", workflow, "--json"]);
    let run: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    run["run_id"].as_str().unwrap().to_owned()
}

/// The series of `/metrics` with their values.
fn metrics(server: &Server) -> BTreeMap<String, f64> {
    let text = server.ask("GET /metrics HTTP/1.1");
    let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
    let series = body.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    series.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

fn until_metric(server: &Server, name: &str, wanted: f64) {
    wait_until(name, || {
        let found = metrics(server).get(name).copied();
        (found != Some(wanted)).then(|| format!("{found:?}"))
    });
}

fn warnings(log: &str) -> Vec<Value> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["level"] == "WARNING").collect()
}

#[test]
fn a_call_in_doubt_is_listed_counted_logged_and_told_and_the_command_it_names_settles_it() {
    let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    for database in [None, Some(database.as_str())] {
        let smtp = PrivateSmtp::start();
        let (place, server) = served(&smtp, database);
        assert_eq!(place.run(&["runs", "doubts"]).stderr, "no calls in doubt\n");
        let run = act(&place, "lost");
        let mut listed = Value::Null;
        wait_until("the doubt", || {
            listed = place.json(&["runs", "doubts"]);
            listed["items"].as_array().unwrap().is_empty().then(|| place.json(&["runs", "show", &run]).to_string())
        });
        let doubt = listed["items"][0].clone();
        let step = doubt["step_id"].as_str().unwrap().to_owned();
        assert_eq!((&doubt["run_id"], &doubt["tool"]), (&json!(run), &json!("acme.pay")));
        let shown = place.run(&["runs", "doubts"]).stdout;
        let shown = shown.replace(&run, "RUN").replace(&run[..13], "RUN").replace(&step, "STEP");
        let (begin, rest) = shown.split_once(" for ").unwrap();
        let shown = format!("{begin} for SHORT:{}", rest.split_once(':').unwrap().1);
        let why = doubt["reason"].as_str().unwrap();
        insta::assert_snapshot!("doubts", shown.replace(why, "REASON"));
        let looked = place.run(&["doctor"]).stdout;
        assert!(looked.contains("calls in doubt: 1\n") && looked.contains("hint: chimera runs doubts"), "{looked}");
        let url = format!("http://{}", server.address);
        assert_eq!(place.json(&["runs", "doubts", "--server", &url])["items"][0]["step_id"], json!(step));
        for at in [&["runs", "list", "--in-doubt"][..], &["runs", "list", "--in-doubt", "--server", &url]] {
            let runs = place.json(at)["items"].clone();
            assert_eq!((runs.as_array().unwrap().len(), &runs[0]["run_id"]), (1, &json!(run)));
            assert!(place.run(at).stdout.contains("running (in doubt)"));
        }

        until_metric(&server, "chimera_calls_in_doubt", 1.0);
        let counted = metrics(&server);
        assert_eq!(counted["chimera_runs_in_doubt"], 1.0);
        assert_eq!(counted["chimera_steps_total{outcome=\"outcome_unknown\"}"], 1.0);
        let calls = r#"chimera_tool_calls_total{tool="acme.pay",call="execute",outcome="unknown"}"#;
        assert_eq!(counted[calls], 1.0);
        wait_until("the mail", || smtp.accepted().is_empty().then(|| "none yet".to_owned()));
        let mail = smtp.accepted()[0].clone();
        assert_eq!(mail["to"], json!(["ada@acme.example"]));
        let content = mail["content"].as_str().unwrap().replace("=\r\n", "");
        assert!(content.contains("the outcome of acme.pay is unknown") && content.contains(&step), "{content}");

        let command = doubt["resolve_commands"][0].as_str().unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let settled = place.run(&words);
        assert_eq!(settled.status, 0, "{command}: {}", settled.stderr);
        wait_until("the end", || {
            let shown = place.json(&["runs", "show", &run]);
            (shown["status"] != "completed").then(|| shown.to_string())
        });
        assert_eq!(place.json(&["runs", "doubts"])["items"], json!([]));
        assert_eq!(place.json(&["runs", "list", "--in-doubt"])["items"], json!([]));
        until_metric(&server, "chimera_calls_in_doubt", 0.0);
        assert_eq!(smtp.accepted().len(), 1, "people are told once");
        let (_, log) = server.stop();
        let told: Vec<Value> =
            warnings(&log).into_iter().filter(|line| line["metadata"]["step_id"] == json!(step)).collect();
        assert_eq!(told.len(), 1, "{log}");
        assert_eq!(told[0]["message"], format!("the outcome of a call is unknown: {why}"));
        assert_eq!((&told[0]["metadata"]["run_id"], &told[0]["metadata"]["node_id"]), (&json!(run), &json!("pay")));
    }
}

#[test]
fn a_failed_run_adds_one_warning_with_its_reason() {
    let smtp = PrivateSmtp::start();
    let (place, server) = served(&smtp, None);
    let run = act(&place, "refused");
    wait_until("the end", || {
        let shown = place.json(&["runs", "show", &run]);
        (shown["status"] != "failed").then(|| shown.to_string())
    });
    let shown = place.json(&["runs", "show", &run]);
    assert_eq!(metrics(&server)["chimera_runs_ended_total{status=\"failed\"}"], 1.0);
    let (_, log) = server.stop();
    let told: Vec<Value> = warnings(&log).into_iter().filter(|line| line["metadata"]["run_id"] == json!(run)).collect();
    assert_eq!(told.len(), 1, "{log}");
    let reason = shown["error"]["message"].as_str().unwrap();
    assert_eq!(told[0]["message"], format!("a run failed: {reason}"));
    let said = &told[0]["metadata"];
    assert_eq!((&said["workflow_id"], &said["node_id"]), (&json!("refused"), &json!("pay")));
    assert_eq!((&said["tool"], &said["error_code"]), (&json!("acme.pay"), &shown["error"]["code"]));
    assert!(said["step_id"].is_string(), "{said}");
}

#[test]
fn every_metric_that_a_server_exports_is_described_and_on_its_page_and_no_other() {
    let smtp = PrivateSmtp::start();
    let (place, server) = served(&smtp, None);
    let run = act(&place, "refused");
    wait_until("the end", || {
        let shown = place.json(&["runs", "show", &run]);
        (shown["status"] != "failed").then(|| shown.to_string())
    });
    let forged = r#"{"version": "1.0", "intent": {"type": "x.y", "args": {}}, "actor": {"user_id": "admin", "tenant": "default"},
        "constraints": {"ttl_sec": 1, "idempotency_key": "k"}, "sig": "ed25519:AAAA"}"#;
    std::fs::write(place.path("forged.json"), forged).unwrap();
    assert!(place.run(&["intent", "send", "forged.json"]).stderr.contains("SIGNATURE_INVALID"));
    wait_until("a look at the store", || {
        let text = server.ask("GET /metrics HTTP/1.1");
        (!text.contains("\nchimera_metrics_sampled_timestamp_seconds")).then(|| text.clone())
    });
    let text = server.ask("GET /metrics HTTP/1.1");
    let named = |mark: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let exported = named("# TYPE ");
    assert_eq!(exported, named("# HELP "), "every metric has a description");
    let page = format!("{}/../docs/reference/metrics.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let described: BTreeSet<String> = rows.map(str::to_owned).collect();
    assert_eq!(exported, described);
    let counted = metrics(&server);
    assert_eq!(counted["chimera_runs_unattended"], 0.0);
    assert_eq!(counted["chimera_lanes{state=\"held\"}"], 1.0);
    for series in counted.keys() {
        assert!(!series.contains("127.0.0.1") && !series.contains("default"), "{series}");
    }
}
