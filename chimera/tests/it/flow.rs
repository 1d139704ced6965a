//! Workflows and runs with the real binary: apply, run, decide, watch, roll back; and their errors.

use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::smtp::PrivateSmtp;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// A workflow that waits for an approval and then writes to a bucket in the data folder.
const NOTE: &str = r#"{
  "air_version": "1.0", "workflow_id": "note", "description": "Keeps a note once somebody agrees.",
  "inputs": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
  "outputs": {"key": "${nodes.keep.outputs.key}"},
  "nodes": [
    {"id": "review", "type": "hitl", "prompt": "Keep ${inputs.text}?"},
    {"id": "keep", "type": "function", "fn": "s3_upload",
     "inputs": {"bucket": "notes", "key_template": "${run_id}.txt", "content": "${inputs.text}"}}
  ],
  "edges": [{"from": "review", "to": "keep"}]
}"#;

/// A running server with the workflow `note` applied.
fn noted() -> (Workspace, Server) {
    let place = Workspace::new().with_actors().env("CHIMERA_LISTEN", "127.0.0.1:9").file("note.json", NOTE);
    let server = place.dev(&[]);
    let applied = place.json(&["workflow", "apply", "note.json"]);
    assert_eq!((&applied["workflow_id"], &applied["version"]), (&json!("note"), &json!(1)));
    (place, server)
}

fn start(place: &Workspace) -> String {
    let started = place.json(&["act", "--workflow", "note", "--input", "text=hello"]);
    started["run_id"].as_str().unwrap().to_owned()
}

fn until_status(place: &Workspace, run: &str, status: &str) -> Value {
    let mut shown = Value::Null;
    wait_until(status, || {
        shown = place.json(&["runs", "show", run]);
        (shown["status"] != status).then(|| shown.to_string())
    });
    shown
}

/// Output without the parts that differ between runs.
fn steady(text: &str, run: &str) -> String {
    let text = text.replace(run, "RUN").replace(&run[..13], "RUN");
    let mut words = String::new();
    for word in text.split_inclusive([' ', '\n']) {
        let bare = word.trim_end();
        let digits = bare.bytes().filter(u8::is_ascii_digit).count();
        let kind = match bare {
            bare if bare.starts_with("20") && bare.contains('T') => Some("TIME"),
            bare if bare.len() == 64 && digits > 10 => Some("DIGEST"),
            bare if bare.len() == 36 && bare.contains('-') => Some("ID"),
            _ => None,
        };
        words.push_str(kind.unwrap_or(bare));
        words.push_str(&word[bare.len()..]);
    }
    words
}

#[test]
fn a_run_is_approved_followed_and_undone_from_the_command_line() {
    let (place, server) = noted();
    let run = start(&place);
    let shown = until_status(&place, &run, "awaiting_approval");
    assert_eq!(shown["approvals"][0]["action"]["input"]["prompt"], "Keep hello?");
    let digest = shown["approvals"][0]["digest"].as_str().unwrap();
    let decided = place.json(&["runs", "approve", &run, "--digest", digest, "--as", "user_ada"]);
    assert_eq!(decided["approval_status"], "approved");
    let watched = place.run(&["runs", "watch", &run]);
    assert_eq!(watched.status, 0, "{}", watched.stderr);
    assert!(watched.stdout.trim_end().ends_with("run.completed"), "{}", watched.stdout);
    assert_eq!(watched.stderr, format!("{run} is completed\n"));
    let file = place.path(&format!(".chimera/buckets/notes/{run}.txt"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello");

    let undone = place.run(&["runs", "rollback", &run, "--wait", "--reason", "a mistake", "--json"]);
    assert_eq!(undone.status, 0, "{}", undone.stderr);
    let events: Vec<Value> = undone.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["event_type"], "run.rolled_back");
    assert!(events[0]["run_seq"].as_i64().unwrap() > 3, "the stream starts after the known events");
    assert!(!file.exists());
    let refused = place.run(&["runs", "rollback", &run]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("error[INVALID_TRANSITION]"), "{}", refused.stderr);
    assert_eq!(server.stop().0, Some(0));
}

/// Foreign text cannot inject terminal escapes or invisible characters, in any part of the output.
#[test]
fn no_character_hides_in_what_is_printed() {
    let (place, server) = noted();
    let hidden = "a\u{202e}b\u{200b}c\u{2028}d\u{1b}[2Je";
    let started = place.json(&["act", "--workflow", "note", "--input", &format!("text={hidden}")]);
    let run = started["run_id"].as_str().unwrap().to_owned();
    until_status(&place, &run, "awaiting_approval");
    place.run(&["runs", "reject", &run, "--as", "user_ada", "--reason", hidden]);
    for view in [&["runs", "show", &run][..], &["runs", "steps", &run], &["runs", "list"], &["audit", "list"]] {
        for more in [&[][..], &["--json"]] {
            let said = place.run(&[view, more].concat());
            assert_eq!(said.status, 0, "{view:?}: {}", said.stderr);
            let strange = |c: char| "\u{202e}\u{200b}\u{2028}\u{1b}".contains(c);
            assert!(!said.stdout.contains(strange) && !said.stderr.contains(strange), "{view:?}: {:?}", said.stdout);
        }
    }
    let shown = place.json(&["runs", "show", &run]);
    assert_eq!(shown["inputs"]["text"], hidden, "the JSON document keeps the text");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn what_is_shown_to_people_is_the_same_from_the_server_and_from_its_data() {
    let (place, server) = noted();
    let run = start(&place);
    until_status(&place, &run, "awaiting_approval");
    let url = format!("http://{}", server.address);
    let views = [&["runs", "list"][..], &["runs", "steps", &run], &["runs", "show", &run], &["workflow", "list"]];
    let mut told = String::new();
    for view in views {
        let beside = place.run(view);
        assert_eq!(beside.status, 0, "{view:?}: {}", beside.stderr);
        let over = place.run(&[view, &["--server", &url]].concat());
        let steadied = |said: &str| without_lengths(&steady(said, &run));
        assert_eq!(steadied(&beside.stdout), steadied(&over.stdout), "{view:?}");
        told += &format!("$ chimera {}\n{}\n", steady(&view.join(" "), &run), steadied(&beside.stdout));
    }
    insta::assert_snapshot!(told);
    assert_eq!(server.stop().0, Some(0));
    let after = place.run(&["runs", "show", &run]);
    assert_eq!(after.status, 0, "{}", after.stderr);
    assert!(after.stdout.contains("review waits for approval"), "{}", after.stdout);
    let silent = place.run(&["runs", "approve", &run]);
    assert_eq!(silent.status, 1);
    assert!(silent.stderr.contains("EXTERNAL_SERVICE_UNAVAILABLE"), "{}", silent.stderr);
}

#[test]
fn dev_begins_with_examples_and_leaves_them_alone_afterwards() {
    let place = Workspace::new();
    let server = place.dev_with_examples(&[]);
    let listed = place.json(&["workflow", "list"]);
    let ids = |listed: &Value| -> Vec<String> {
        let items = listed["items"].as_array().unwrap().iter();
        items.map(|item| format!("{} v{}", item["workflow_id"].as_str().unwrap(), item["version"])).collect()
    };
    assert!(ids(&listed).contains(&"publish-with-approval v1".to_owned()), "{listed}");
    let mut changed = place.json(&["workflow", "show", "publish-with-approval"])["document"].clone();
    changed["description"] = "mine".into();
    std::fs::write(place.path("mine.json"), changed.to_string()).unwrap();
    assert_eq!(place.json(&["workflow", "apply", "mine.json"])["version"], 2);
    let run =
        place.json(&["act", "--workflow", "publish-with-approval", "--input", "title=T", "--input", "text=One is."]);
    until_status(&place, run["run_id"].as_str().unwrap(), "awaiting_approval");
    server.stop();
    place.dev_with_examples(&[]).stop();
    assert!(ids(&place.json(&["workflow", "list"])).contains(&"publish-with-approval v2".to_owned()));
}

/// Accepts one request, answers 204, and returns the request.
pub(crate) fn one_request(listener: TcpListener) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let text = String::from_utf8_lossy(&seen).into_owned();
            let length = |head: &str| {
                let line = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                line.and_then(|line| line.parse().ok()).unwrap_or(0)
            };
            if text.split_once("\r\n\r\n").is_some_and(|(head, body)| body.len() >= length(head)) {
                stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
                return text;
            }
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "cut: {text}");
            seen.extend_from_slice(&piece[..count]);
        }
    })
}

#[test]
fn whoever_wants_to_know_is_told_how_a_run_ended_by_webhook_and_by_mail() {
    let (hook, smtp) = (TcpListener::bind("127.0.0.1:0").unwrap(), PrivateSmtp::start());
    let address = hook.local_addr().unwrap().to_string();
    let echo = r#"{"air_version":"1.0","workflow_id":"echo","nodes":[{"id":"e","type":"function","fn":"local.echo","inputs":{"message":"x"}}],"edges":[]}"#;
    let place = Workspace::new()
        .with_actors()
        .env("CHIMERA_EGRESS_ALLOW", &address)
        .env("CHIMERA_NOTIFY__WEBHOOK_KEY", "secret://webhook.runs")
        .env("CHIMERA_SECRET_WEBHOOK_RUNS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .env("CHIMERA_MAIL__SERVER", "localhost")
        .env("CHIMERA_MAIL__PORT", &smtp.port().to_string())
        .env("CHIMERA_MAIL__TLS", "none")
        .env("CHIMERA_MAIL__FROM", "chimera@acme.example")
        .file("echo.json", echo);
    let told = one_request(hook);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "echo.json"]);
    let url = format!("http://{address}/done");
    let watched = place.run(&[
        "act",
        "--workflow",
        "echo",
        "--wait",
        "--notify-webhook",
        &url,
        "--notify-email",
        "ann@acme.example",
    ]);
    assert_eq!(watched.status, 0, "{}", watched.stderr);
    let request = told.join().unwrap();
    assert!(request.starts_with("POST /done ") && request.contains("webhook-signature: v1,"), "{request}");
    assert!(request.contains("\"type\":\"run.completed\""), "{request}");
    wait_until("the mail", || smtp.accepted().is_empty().then(|| "none yet".to_owned()));
    assert!(smtp.accepted()[0]["content"].as_str().unwrap().contains("echo is completed"));
    server.stop();
}

/// Output without durations and ages.
fn without_lengths(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once("  ") {
        Some((rest, last)) if [" ms", " s", " min"].iter().any(|unit| last.ends_with(unit)) => rest.to_owned(),
        _ => line.to_owned(),
    });
    let steady = |cell: &str| match cell.trim() {
        "now" => "AGE".to_owned(),
        age if age.ends_with(" ago") => "AGE".to_owned(),
        _ => cell.to_owned(),
    };
    // Column widths depend on the removed parts.
    let cells = |line: String| line.split("  ").filter(|cell| !cell.is_empty()).map(steady).collect::<Vec<_>>();
    lines.map(|line| cells(line).join("  ") + "\n").collect()
}

#[test]
fn runs_survive_a_killed_server_and_go_on() {
    let (place, server) = noted();
    let run = start(&place);
    until_status(&place, &run, "awaiting_approval");
    server.signal("KILL");
    server.wait();
    let server = place.dev(&[]);
    assert_eq!(place.run(&["runs", "approve", &run]).status, 0);
    let watched = place.run(&["runs", "watch", &run, "--json", "--server", &format!("http://{}", server.address)]);
    assert_eq!(watched.status, 0, "{}", watched.stderr);
    let numbers: Vec<i64> = watched
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["run_seq"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(place.run(&["audit", "verify"]).status, 0);
}

#[test]
fn the_same_works_on_postgres_and_two_nodes_share_its_runs() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let node = || {
        Workspace::new()
            .with_actors()
            .env("CHIMERA_DATABASE_URL", &url)
            .env("CHIMERA_ACCESS__HMAC_ACTOR", "admin")
            .env("HMAC_SECRET_KEY", "a-key-for-both-nodes")
            .env("CHIMERA_HMAC_KEY", "a-key-for-both-nodes")
            .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
            .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32))
            .file("note.json", NOTE)
    };
    let (one, two) = (node(), node());
    let (first, second) = (one.serve(&[]), two.serve(&[]));
    one.json(&["workflow", "apply", "note.json"]);
    assert_eq!(two.json(&["workflow", "apply", "note.json"])["created"], false);
    let run = start(&one);
    until_status(&two, &run, "awaiting_approval");
    two.json(&["runs", "approve", &run]);
    let watched = two.run(&["runs", "watch", &run, "--json", "--server", &format!("http://{}", first.address)]);
    assert_eq!(watched.status, 0, "{}", watched.stderr);
    let numbers: Vec<i64> = watched
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["run_seq"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    assert_eq!(first.stop().0, Some(0));
    let undone = two.run(&["runs", "rollback", &run]);
    assert_eq!(undone.status, 0, "{}", undone.stderr);
    assert_eq!(second.stop().0, Some(0));
}

#[test]
fn a_wrong_token_no_server_and_wrong_names_are_told_in_words() {
    let (place, server) = noted();
    let url = format!("http://{}", server.address);
    let run = start(&place);
    let mut told = String::new();
    for args in [
        &["runs", "show", "nonsense"][..],
        &["runs", "show", "00000000-0000-0000-0000-000000000001"],
        &["runs", "cancel", "00000000-0000-0000-0000-000000000001"],
        &["act", "--workflow", "nothing"],
        &["act", "--workflow", "note"],
        &["runs", "approve", &run, "--as", "service_chatbot"],
        &["runs", "approve", &run, "--digest", "zz"],
        &["workflow", "show", "nothing"],
        &["workflow", "apply", "missing.json"],
        &["runs", "list", "--data", "elsewhere"],
        &["runs", "pause", &run, "--server", "http://127.0.0.1:1"],
    ] {
        let said = place.run(args);
        assert_eq!((said.status, said.stdout.as_str()), (1, ""), "{args:?}");
        told += &format!(
            "$ chimera {}\n{}",
            steady(&args.join(" "), &run).replace(&url, "URL"),
            steady(&said.stderr, &run)
        );
    }
    insta::assert_snapshot!(told);
    let stranger = Workspace::new().env("CHIMERA_TOKEN", "wrong").run(&["runs", "list", "--server", &url]);
    assert_eq!(stranger.status, 1);
    assert!(stranger.stderr.contains("error[UNAUTHENTICATED]: Invalid JWT: malformed"), "{}", stranger.stderr);
    let json = place.run(&["act", "--workflow", "note", "--json"]);
    let error: Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["error"]["details"]["faults"][0]["pointer"], "", "{error}");
}

#[test]
fn a_document_is_checked_against_the_tools_there_are() {
    let broken = NOTE.replace("s3_upload", "s4_upload").replace("\"content\": \"${inputs.text}\"", "\"content\": 1");
    let place =
        Workspace::new().with_actors().file("note.json", NOTE).file("broken.json", &broken).file("cut.json", "{");
    place.dev(&[]).stop();
    let fine = place.run(&["workflow", "check", "note.json"]);
    assert_eq!((fine.status, fine.stderr.as_str()), (0, "note is valid: 2 nodes, 1 edges.\n"));
    assert_eq!(place.json(&["workflow", "check", "note.json"])["nodes"], 2);
    for (file, what) in [
        ("broken.json", "broken.json:7:46: there is no tool \"s4_upload\""),
        ("cut.json", "cut.json:1:2: invalid JSON: the text ends too early"),
    ] {
        let said = place.run(&["workflow", "check", file]);
        assert_eq!(said.status, 3, "{}", said.stderr);
        assert!(said.stderr.contains("error[VALIDATION_FAILED]") && said.stderr.starts_with(what), "{}", said.stderr);
    }
    assert_eq!(place.run(&["workflow", "show", "note"]).status, 1, "checking stores nothing");
}

/// The same from the data folder, from a server, and when it is applied.
#[test]
fn every_fault_of_a_document_is_shown_where_it_is_like_a_compiler_does() {
    let broken = NOTE
        .replace("s3_upload", "s4_upload")
        .replace("outputs.key", "outputs.kye")
        .replace("\"to\": \"keep\"", "\"to\": \"keep\", \"condition\": \"${nodes.review.outputs.approved}\"")
        .replace("\"outputs\": {", "\"outputs\": {\"by\": \"${nodes.reveiw.outputs}\", ");
    let shown = "\
broken.json:4:21: there is no node reveiw (did you mean review?)
broken.json:7:46: there is no tool \"s4_upload\" (did you mean s3_upload?)
  hint: GET /tools lists the tools of this server
broken.json:10:59: there is no member approved (did you mean approved_by?)
  hint: its members are approved_by, decision, error, notes, success
error[VALIDATION_FAILED]: broken.json is not valid: 3 problems
";
    let place = Workspace::new().with_actors().env("CHIMERA_LISTEN", "127.0.0.1:9").file("broken.json", &broken);
    let server = place.dev(&[]);
    let url = format!("http://{}", server.address);
    let commands: [(&[&str], i32); 3] = [
        (&["workflow", "check", "broken.json"], 3),
        (&["workflow", "check", "broken.json", "--server", &url], 3),
        (&["workflow", "apply", "broken.json"], 1),
    ];
    for (command, status) in commands {
        let said = place.run(command);
        assert_eq!((said.status, said.stderr.as_str()), (status, shown), "{command:?}");
        let said = place.run(&[command, &["--json"]].concat());
        let error: Value = serde_json::from_str(&said.stderr).unwrap();
        let second = json!({
            "code": "unknown_tool", "pointer": "/nodes/1/fn", "line": 7, "column": 46,
            "message": "there is no tool \"s4_upload\" (did you mean s3_upload?)",
            "hint": "GET /tools lists the tools of this server",
        });
        assert_eq!(error["error"]["details"]["problems"][1], second, "{error}");
    }
    server.stop();
}

#[test]
fn a_server_of_its_own_configuration_lets_in_whoever_has_its_token() {
    let place = Workspace::new()
        .with_actors()
        .env("CHIMERA_ACCESS__HMAC_ACTOR", "admin")
        .env("HMAC_SECRET_KEY", "swordfish-and-chips")
        .env("CHIMERA_HMAC_KEY", "swordfish-and-chips")
        .file("note.json", NOTE);
    let server = place.serve(&[]);
    assert_eq!(place.json(&["workflow", "apply", "note.json"])["version"], 1);
    let run = start(&place);
    until_status(&place, &run, "awaiting_approval");
    assert!(server.ask("GET /runs HTTP/1.1").starts_with("HTTP/1.1 401 "));
    let (status, log) = server.stop();
    assert_eq!(status, Some(0));
    assert!(!log.contains("swordfish"), "{log}");
    let printed = place.run(&["config", "print"]);
    assert!(
        printed.stdout.contains("hmac_key = \"***\"") && !printed.stdout.contains("swordfish"),
        "{}",
        printed.stdout
    );

    let closed = Workspace::new().with_actors().env("CHIMERA_TOKEN", "anything").file("note.json", NOTE);
    let server = closed.serve(&[]);
    let refused = closed.run(&["workflow", "list", "--server", &format!("http://{}", server.address)]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("error[UNAUTHENTICATED]"), "{}", refused.stderr);
    let unsigned = closed.run(&["workflow", "apply", "note.json"]);
    assert!(unsigned.stderr.contains("with a token alone, only read requests are possible"), "{}", unsigned.stderr);
    server.stop();
}

#[test]
fn rules_of_a_file_forbid_and_ask() {
    let rules = "[[rule]]\nname = \"no-echo\"\ntool = \"local.echo\"\neffect = \"deny\"\nreason = \"quiet here\"\n\
                 [[rule]]\nname = \"look-first\"\ntool = \"s3_*\"\neffect = \"ask\"\napprovers = [\"user_*\"]\n";
    let echo = r#"{"air_version":"1.0","workflow_id":"echo","nodes":[{"id":"e","type":"function","fn":"local.echo","inputs":{"message":"x"}}],"edges":[]}"#;
    let place = Workspace::new()
        .with_actors()
        .env("CHIMERA_FLOW__POLICY_FILE", "rules.toml")
        .file("rules.toml", rules)
        .file("echo.json", echo)
        .file("note.json", NOTE);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "echo.json"]);
    let denied = place.run(&["act", "--workflow", "echo", "--wait"]);
    assert_eq!(denied.status, 1, "{}{}", denied.stdout, denied.stderr);
    assert!(denied.stderr.contains("quiet here"), "{}", denied.stderr);
    place.json(&["workflow", "apply", "note.json"]);
    let run = start(&place);
    until_status(&place, &run, "awaiting_approval");
    place.json(&["runs", "approve", &run, "--step", "review"]);
    wait_until("the second question", || {
        let shown = place.json(&["runs", "show", &run]);
        (shown["approvals"][0]["node_id"] != "keep").then(|| shown.to_string())
    });
    let refused = place.run(&["runs", "approve", &run, "--step", "keep"]);
    assert!(refused.stderr.contains("RBAC_FORBIDDEN"), "{}", refused.stderr);
    assert_eq!(place.run(&["runs", "approve", &run, "--step", "keep", "--as", "user_ada"]).status, 0);
    assert_eq!(place.run(&["runs", "watch", &run]).status, 0);
    server.stop();
    let misspelled = Workspace::new()
        .with_actors()
        .env("CHIMERA_FLOW__POLICY_FILE", "r.toml")
        .file("r.toml", "[[rule]]\nnme = \"x\"\n");
    let said = misspelled.run(&["dev", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.status, 4, "{}", said.stderr);
}

#[test]
fn a_tool_of_a_file_can_be_named_by_a_workflow_and_no_name_is_given_twice() {
    let shipped = include_str!("../../../connect/src/flow/vendor/github.toml");
    let ours = shipped.replace("vendor = \"github\"", "vendor = \"hub\"").replace("name = \"github.", "name = \"hub.");
    let workflow = r#"{"air_version":"1.0","workflow_id":"w","nodes":[{"id":"n","type":"function","fn":"hub.repos.read",
        "inputs":{"owner":"o","repo":"r"}}],"edges":[]}"#;
    let place = Workspace::new().with_actors().env("CHIMERA_FLOW__TOOLS_DIR", "tools").file("w.json", workflow);
    std::fs::create_dir(place.path("tools")).unwrap();
    std::fs::write(place.path("tools/hub.toml"), ours).unwrap();
    place.dev(&[]).stop();
    let said = place.run(&["workflow", "check", "w.json"]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    std::fs::write(place.path("tools/again.toml"), shipped).unwrap();
    let said = place.run(&["dev", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.status, 4, "{}", said.stderr);
    assert!(said.stderr.contains("this is the name of a built-in tool"), "{}", said.stderr);
}

#[test]
fn an_example_that_needs_mail_says_what_to_set() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/workflows");
    let place = Workspace::new();
    let server = place.dev(&[]);
    let mut lacking = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if !std::fs::read_to_string(&path).unwrap().contains("email_send") {
            continue;
        }
        let refused = place.run(&["workflow", "apply", path.to_str().unwrap()]);
        assert_eq!(refused.status, 1, "{}", refused.stderr);
        let told = "the tool \"email_send\" is not configured here: set `mail.server` and `mail.from`";
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
        lacking += 1;
    }
    assert!(lacking > 0, "some example sends mail");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn an_input_without_a_value_is_wrong_usage() {
    let place = Workspace::new();
    for input in ["foo", "=x"] {
        let refused = place.run(&["act", "--workflow", "note", "--input", input]);
        assert_eq!(refused.status, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("--input <NAME=VALUE>"), "{}", refused.stderr);
    }
}
