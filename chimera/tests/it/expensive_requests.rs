//! Expensive requests from one caller do not slow down others.

use crate::support::{Server, Workspace};
use chimera_core::access::mac;
use chimera_core::secret::Secret;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Requests to `/healthz` before the hostile load, to measure the machine.
const QUIET_ASKS: u32 = 200;
/// How many times slower `/healthz` may become on average.
const SLOWER_MAX: u32 = 20;
/// How many times longer the expected wait at a random moment may be.
const MET_SLOWER_MAX: u32 = 50;
/// Bytes of a goal that looks like credentials.
const GOAL_BYTES: usize = 200_000;
/// The percentage of answers of `/healthz` that may be slow; the next bound excludes them.
const SLOW_PERCENT: usize = 1;
/// Each other answer may take at most this fraction (1/n) of the total time.
const PART_MAX: u32 = 50;
/// A slow answer may take at most this fraction (1/n) of the total time; a busy machine stalls now and then.
const SLOW_PART_MAX: u32 = 8;
/// Members of the answer to a tool.
const ANSWER_MEMBERS: usize = 49_000;
/// Runs whose tools get such answers.
const ANSWERED_RUNS: usize = 6;
/// Requests to `/healthz` between two checks whether the runs have ended, and in total.
const HEALTH_ASKS: usize = 20;
const HEALTH_ASKS_MAX: usize = 1_000_000;
/// Light requests of one tenant, before and during the expensive requests of another.
const LIGHT_ASKS: u32 = 20;
/// How many times slower they may become on average: each waits for a piece of the other tenant's work, and for its
/// share of two processors.
const LIGHT_SLOWER_MAX: u32 = 60;
/// Calls with large outputs, shown in pages.
const LARGE_CALLS: usize = 12;

/// A schema of definitions that each refer twice to the one before: 2^26 parts after expansion.
fn doubling() -> Value {
    let twice = |n: u32| json!({"properties": {"a": {"$ref": format!("#/$defs/d{n}")}, "b": {"$ref": format!("#/$defs/d{n}")}}});
    let mut defs: serde_json::Map<String, Value> = (1..=26).map(|n| (format!("d{n}"), twice(n - 1))).collect();
    defs.insert("d0".into(), json!({"type": "string"}));
    json!({"type": "object", "$defs": defs, "properties": {"x": {"$ref": "#/$defs/d26"}}})
}

/// A schema whose parts all refer to each other.
fn entangled() -> Value {
    let all: Vec<Value> = (0..90).map(|n| json!({"$ref": format!("#/$defs/d{n}")})).collect();
    let defs: serde_json::Map<String, Value> =
        (0..90).map(|n| (format!("d{n}"), json!({"properties": {"p": {"anyOf": all}}}))).collect();
    json!({"type": "object", "$defs": defs, "anyOf": all})
}

/// A schema with as many large patterns as it may have.
fn patterns() -> Value {
    let property = |n: usize| (format!("p{n}"), json!({"type": "string", "pattern": format!("(x{n}+y?z*){{1,40}}$")}));
    let properties: serde_json::Map<String, Value> = (0..50).map(property).collect();
    json!({"type": "object", "properties": properties})
}

fn workflow(id: &str, schema: &Value, value: &Value) -> Value {
    json!({"air_version": "1.0", "workflow_id": id, "inputs": schema, "edges": [],
        "nodes": [{"id": "say", "type": "function", "fn": "local.echo", "inputs": {"value": value}}]})
}

/// The hostile requests: path and body. `outside` answers tools with many small values.
fn mix(outside: SocketAddr) -> Vec<(String, Value)> {
    let check =
        |id: &str, schema: Value| (format!("/workflows/{id}/check"), workflow(id, &schema, &json!("${inputs.x}")));
    let act = |body: Value| ("/act".to_owned(), body);
    // Looks like the start of a credential every few bytes.
    let goal = |part: &str| act(json!({"goal": part.repeat(GOAL_BYTES / part.len())}));
    let step = |tool: &str, inputs: Value| act(json!({"steps": [{"tool": tool, "input": inputs}], "wait": 10}));
    let call = json!({"tool": "http.request", "input": {"url": format!("http://{outside}/")}});
    let digits: Vec<usize> = (0..9_000).collect();
    let secrets = "Bearer eyJhbGciOi.eyJzdWIiOi.c2ln sk-live-0123456789abcdef password=hunter2 ".repeat(4_000);
    let markdown = "# Title\n\n> * **a** [b](c) `d`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n".repeat(2_000);
    let many = vec![json!({"a": 2}); 40_000];
    let texts: serde_json::Map<String, Value> =
        (0..50).map(|n| (format!("p{n}"), json!("xyz".repeat(8_000)))).collect();
    vec![
        check("doubling", doubling()),
        check("entangled", entangled()),
        check("patterns", patterns()),
        act(json!({"workflow_id": "squares", "inputs": {"list": digits}, "wait": 10})),
        act(json!({"workflow_id": "patterned", "inputs": texts, "wait": 10})),
        act(json!({"goal": "Summarize ".repeat(300)})),
        goal("sk-"),
        goal("eyJ-"),
        goal("https://a:b@"),
        act(json!({"steps": [call], "autonomy_level": "L3_ExecuteSilent", "wait": 10})),
        act(json!({"steps": vec![call; 6], "autonomy_level": "L3_ExecuteSilent", "wait": 10})),
        step("local.echo", json!({"value": secrets})),
        step("local.echo", json!({"value": many})),
        act(json!({"steps": [{"tool": "local.echo", "input": {"value": many}}], "autonomy_level": "L0_Ask"})),
        act(json!({"workflow_id": "idle", "inputs": {"unused": many}, "wait": 10})),
        act(json!({"workflow_id": "idle", "inputs": {"unused": vec![json!({"a": 2}); 100_000]}, "wait": 10})),
        step("local.summarize", json!({"text": "One more sentence about the weather, and no end. ".repeat(20_000)})),
        step("local.markdown_to_pdf", json!({"markdown": markdown})),
    ]
}

/// A server that answers every request with many small values.
fn outside() -> SocketAddr {
    let members: serde_json::Map<String, Value> = (0..ANSWER_MEMBERS).map(|n| (format!("key-{n}"), json!(n))).collect();
    let body = Value::from(members).to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = [head.as_bytes(), body.as_bytes()].concat();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                // A request without a body ends with an empty line.
                while lines.by_ref().any(|line| line.is_empty()) && (&stream).write_all(&answer).is_ok() {}
            });
        }
    });
    address
}

/// A server whose tools may call `outside`, with the workflows that the hostile requests need.
fn beset(outside: SocketAddr) -> (Workspace, Server) {
    let place = Workspace::new().server_env("CHIMERA_EGRESS_ALLOW", &outside.to_string());
    let server = place.dev(&[]);
    let expensive: Vec<_> = (0..250).map(|n| format!("${{inputs.list.map(a, a * a + {n}).size()}}")).collect();
    for (id, schema, value) in [
        ("squares", json!({"type": "object"}), json!(expensive)),
        ("idle", json!({"type": "object"}), json!("x")),
        ("patterned", patterns(), json!("${inputs.p1}")),
    ] {
        let file = place.path(&format!("{id}.json"));
        std::fs::write(&file, workflow(id, &schema, &value).to_string()).unwrap();
        place.json(&["workflow", "apply", file.to_str().unwrap()]);
    }
    (place, server)
}

fn post(server: &Server, token: &str, path: &str, body: &Value) -> String {
    post_as(server, &server.key("admin"), token, path, body)
}

fn post_as(server: &Server, key: &str, token: &str, path: &str, body: &Value) -> String {
    let body = body.to_string();
    let signature = mac::sign(&Secret::new(key), body.as_bytes());
    let mut stream = server.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         authorization: Bearer {token}\r\nx-hmac-signature: {signature}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(server: &Server, token: &str, path: &str) -> String {
    let mut stream = server.connect();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Makes calls with large outputs. Returns the paths of the pages that show them.
fn large_pages(server: &Server, token: &str) -> Vec<String> {
    let many = vec![json!({"a": 2}); 40_000];
    let step = json!({"steps": [{"tool": "local.echo", "input": {"value": many}}], "wait": 10});
    let mut run = String::new();
    for _ in 0..LARGE_CALLS {
        let answer = post(server, token, "/act", &step);
        let place = answer.lines().find_map(|line| line.strip_prefix("location: "));
        place.unwrap_or_else(|| panic!("{}", &answer[..answer.len().min(600)])).clone_into(&mut run);
    }
    vec!["/tool-calls?limit=1000".to_owned(), run.clone(), format!("{run}/steps"), "/runs?limit=1000".to_owned()]
}

/// The response time of `/healthz`.
fn health(server: &Server) -> Duration {
    let began = Instant::now();
    assert!(server.ask("GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200"));
    began.elapsed()
}

#[test]
fn health_is_told_beside_a_mix_of_hostile_requests() {
    let outside = outside();
    let (_place, server) = beset(outside);
    let token = server.ready["token"].as_str().unwrap();
    let quiet: Duration = (0..QUIET_ASKS).map(|_| health(&server)).sum::<Duration>() / QUIET_ASKS;

    let pages = large_pages(&server, token);
    let (mix, began) = (mix(outside), Instant::now());
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..3)
            .map(|first| {
                let (server, mix, pages) = (&server, &mix, &pages);
                scope.spawn(move || {
                    for n in 0..mix.len() {
                        let path = &pages[(n + first) % pages.len()];
                        let answer = get(server, token, path);
                        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {}", &answer[..answer.len().min(600)]);
                        let (path, body) = &mix[(n + first * 3) % mix.len()];
                        let answer = post(server, token, path, body);
                        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
                        assert!((200..500).contains(&status), "{path}: {}", &answer[..answer.len().min(600)]);
                    }
                })
            })
            .collect();
        while senders.iter().any(|sender| !sender.is_finished()) {
            took.push(health(&server));
        }
    });
    let whole = began.elapsed();
    took.sort_unstable();
    let mean = whole / u32::try_from(took.len().max(1)).unwrap();
    assert!(mean <= quiet * SLOWER_MAX, "on average {mean:?} instead of {quiet:?}, in {whole:?}");
    let (worst, usual) = (took[took.len() - 1], took[(took.len() * (100 - SLOW_PERCENT) / 100).min(took.len() - 1)]);
    assert!(usual * PART_MAX <= whole, "{SLOW_PERCENT} in a hundred took {usual:?} of {whole:?} or more");
    assert!(worst * SLOW_PART_MAX <= whole, "once {worst:?} of {whole:?}");
}

/// Only runs whose tools get many small values.
#[test]
fn health_is_told_while_tools_are_answered_with_many_values() {
    let outside = outside();
    let (_place, server) = beset(outside);
    let token = server.ready["token"].as_str().unwrap();
    let quiet: Duration = (0..QUIET_ASKS).map(|_| health(&server)).sum::<Duration>() / QUIET_ASKS;
    let call = json!({"tool": "http.request", "input": {"url": format!("http://{outside}/")}});
    let body = json!({"steps": vec![call; 6], "autonomy_level": "L3_ExecuteSilent"});
    for _ in 0..ANSWERED_RUNS {
        let answer = post(&server, token, "/act", &body);
        assert!(answer.starts_with("HTTP/1.1 20"), "{}", &answer[..answer.len().min(600)]);
    }
    let ended = || get(&server, token, "/runs?status=completed&limit=100").matches("\"completed\"").count();
    let mut took = Vec::new();
    while ended() < ANSWERED_RUNS {
        took.extend((0..HEALTH_ASKS).map(|_| health(&server)));
        assert!(took.len() < HEALTH_ASKS_MAX, "{} runs have ended", ended());
    }
    // A request at a random moment is more likely to fall into a long wait than into a short one.
    let seconds = |power: i32| took.iter().map(|took| took.as_secs_f64().powi(power)).sum::<f64>();
    let met = Duration::from_secs_f64(seconds(2) / seconds(1));
    assert!(met <= quiet * MET_SLOWER_MAX, "a wait of {met:?} instead of {quiet:?}, of {}", took.len());
}

/// One tenant repeats all expensive requests while another makes small ones. Those wait for pieces of the first
/// tenant's work, not for all of it.
#[test]
fn a_light_request_of_one_tenant_is_answered_beside_all_that_another_has_done() {
    let outside = outside();
    let (place, server) = beset(outside);
    place.json(&["tenant", "add", "globex", "--name", "Globex Corp"]);
    let scopes = "local.*,runs.read";
    let added = place.json(&[
        "actor",
        "add",
        "globex_bot",
        "--tenant",
        "globex",
        "--scopes",
        scopes,
        "--level",
        "L3",
        "--quota",
        "10000",
    ]);
    let key = added["hmac_key"].as_str().unwrap();
    let there = Workspace::new()
        .env("CHIMERA_SERVER", server.ready["url"].as_str().unwrap())
        .env("CHIMERA_ACTOR", "globex_bot")
        .env("CHIMERA_HMAC_KEY", key);
    let light_token = there.json(&["token"])["access_token"].as_str().unwrap().to_owned();
    let light = |n: u32| {
        let body = json!({"steps": [{"tool": "local.echo", "input": {"value": n}}], "wait": 10});
        let began = Instant::now();
        let answer = post_as(&server, key, &light_token, "/act", &body);
        assert!(answer.contains("\"completed\""), "{}", &answer[..answer.len().min(600)]);
        began.elapsed()
    };
    light(0);
    let quiet: Duration = (0..LIGHT_ASKS).map(light).sum::<Duration>() / LIGHT_ASKS;
    let token = server.ready["token"].as_str().unwrap();
    let (mix, over) = (mix(outside), AtomicBool::new(false));
    let beside = std::thread::scope(|scope| {
        for first in 0..4 {
            let (server, mix, over) = (&server, &mix, &over);
            scope.spawn(move || {
                for (path, body) in mix.iter().cycle().skip(first * 5) {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    let answer = post(server, token, path, body);
                    assert!(answer.starts_with("HTTP/1.1 "), "{path}");
                }
            });
        }
        let beside = (0..LIGHT_ASKS).map(light).sum::<Duration>() / LIGHT_ASKS;
        over.store(true, Ordering::SeqCst);
        beside
    });
    assert!(beside <= quiet * LIGHT_SLOWER_MAX, "on average {beside:?} instead of {quiet:?}");
}
