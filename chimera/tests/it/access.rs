//! Access control from the command line: actions, tokens, signatures, actors and their keys.

use crate::support::{Workspace, wait_until};
use chimera_core::access::mac;
use chimera_core::secret::Secret;
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::Value;

const STEP: &str = r#"local.summarize={"text":"One is. Two is."}"#;

#[test]
fn what_is_asked_for_at_each_level_is_shown_with_plan_risk_and_what_waits() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let goal = place.run(&["act", "Summarize \"One is. Two is.\"", "--level", "L2"]);
    assert_eq!(goal.status, 0, "{}", goal.stderr);
    for part in [
        "L2_ExecuteNotify  completed\n",
        "  1. local.summarize  {",
        "risk 0, low; level by override\n",
        "\"summary\": \"One is.",
    ] {
        assert!(goal.stdout.contains(part), "{part}: {}", goal.stdout);
    }
    let draft = place.run(&["act", "--step", STEP, "--as", "user_ada"]);
    assert_eq!(draft.status, 0, "{}", draft.stderr);
    assert!(draft.stdout.contains("dry run: would summarise the text\n"), "{}", draft.stdout);
    let command = draft.stdout.lines().last().unwrap().trim().strip_prefix("chimera ").unwrap().to_owned();
    let approved = place.run(&command.split(' ').collect::<Vec<_>>());
    assert_eq!((approved.status, approved.stderr.as_str()), (0, "approved.\n"));
    let run = command.split(' ').nth(2).unwrap();
    assert_eq!(place.run(&["runs", "watch", run]).status, 0);

    let silent = place.run(&["act", "--step", STEP]);
    assert!(silent.status == 0 && silent.stdout.contains("  L3_ExecuteSilent  "), "{}", silent.stdout);
    let dry = place.json(&["act", "--step", STEP, "--dry-run"]);
    assert_eq!((&dry["dry_run"], &dry["status"]), (&true.into(), &"completed".into()), "{dry}");
    let freer = place.run(&["act", "--step", STEP, "--level", "L2", "--as", "user_ada"]);
    assert!(freer.stderr.contains("error[RBAC_FORBIDDEN]") && freer.stderr.contains("autonomy.override"));
    let unknown = place.run(&["act", "send a pigeon to Bob"]);
    assert!(unknown.status == 1 && unknown.stderr.contains("error[VALIDATION_FAILED]"), "{}", unknown.stderr);
    server.stop();
}

/// A node that gets a decision hint reads the store and publishes nothing; otherwise hints would loop forever.
#[test]
fn after_a_decision_the_server_rests() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let draft = place.json(&["act", "--step", STEP, "--as", "user_ada"]);
    let run = draft["run_id"].as_str().unwrap();
    assert_eq!(place.run(&["runs", "approve", run, "--as", "user_ada"]).status, 0);
    assert_eq!(place.run(&["runs", "watch", run]).status, 0);
    let busy = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // The uptime in clock ticks of 10 ms.
    let clock = || {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        (uptime.split(' ').next().unwrap().parse::<f64>().unwrap() * 100.0) as u64
    };
    let mut since = (clock(), busy());
    wait_until("a second of rest", || {
        let (spent, passed) = (busy() - since.1, clock() - since.0);
        if passed >= 100 {
            since = (clock(), busy());
        }
        (passed < 100 || spent * 2 >= passed).then(|| format!("{spent} of {passed} ticks with nothing to do"))
    });
}

#[test]
fn a_second_request_under_a_key_is_refused_or_gets_the_run() {
    let place = Workspace::new();
    let _server = place.dev(&[]);
    let keyed = ["act", "--step", STEP, "--level", "L2", "--idempotency-key", "k1"];
    let first = place.json(&keyed);
    let refused = place.run(&keyed);
    assert!(refused.status == 1 && refused.stderr.contains("error[CONFLICT_IDEMPOTENCY]"), "{}", refused.stderr);
    let again = place.json(&[&keyed[..], &["--on-duplicate", "return"]].concat());
    assert_eq!(again["run_id"], first["run_id"]);
}

#[test]
fn what_to_ask_for_is_said_once() {
    let place = Workspace::new();
    for args in [&["act"][..], &["act", "words", "--workflow", "w"], &["act", "--step", "t={}", "--input", "a=1"]] {
        assert_eq!(place.run(args).status, 2, "{args:?}");
    }
    let broken = place.run(&["act", "--step", "local.echo={"]);
    assert!(broken.status == 2 && broken.stderr.contains("not valid JSON"), "{}", broken.stderr);
}

#[test]
fn a_body_is_signed_to_its_last_byte() {
    let place = Workspace::new().file("body", "{\"a\":1}\n").file("bare", "{\"a\":1}");
    let sign = |args: &[&str]| place.run(&[&["sign"], args].concat());
    let key = Secret::new("a key");
    for (file, bytes) in [("body", &b"{\"a\":1}\n"[..]), ("bare", b"{\"a\":1}")] {
        let said = sign(&[file, "--key", "a key"]);
        assert_eq!((said.status, said.stdout.trim_end()), (0, &*mac::sign(&key, bytes)), "{}", said.stderr);
    }
    let none = sign(&["bare"]);
    assert!(none.status == 4 && none.stderr.contains("no key found for admin"), "{}", none.stderr);
    let server = place.dev(&[]);
    assert_eq!(sign(&["bare", "--as", "user_ada"]).stdout.trim_end(), server.signature("user_ada", "{\"a\":1}"));
}

#[test]
fn a_token_is_the_actors_own_and_may_be_narrowed() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let tokens = place.json(&["token", "--as", "user_ada", "--scopes", "local.summarize,notion.read,slack.*"]);
    assert_eq!(tokens["scopes"], serde_json::json!(["local.summarize", "notion.read"]), "{tokens}");
    let token = place.run(&["token", "--as", "user_ada"]).stdout;
    let nothing = place.run(&["token", "--as", "user_ada", "--scopes", "slack.*"]);
    assert!(nothing.stderr.contains("holds none of the requested scopes (slack.*)"), "{}", nothing.stderr);
    assert!(nothing.stdout.is_empty(), "{}", nothing.stdout);
    let url = format!("http://{}", server.address);
    let other = Workspace::new().env("CHIMERA_TOKEN", token.trim_end());
    assert_eq!(other.run(&["runs", "list", "--server", &url]).status, 0);
    assert!(other.run(&["actor", "list", "--server", &url]).stderr.contains("error[RBAC_FORBIDDEN]"));
}

/// The first key is created without a server, later ones by the server. A replaced key expires on time.
fn first_key(place: &Workspace) {
    let made = place.run(&["actor", "add", "admin", "--json"]);
    assert!(!made.stderr.contains("nobody has a key"), "it makes the first one: {}", made.stderr);
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    let admin = made["hmac_key"].as_str().unwrap().to_owned();
    let server = place.serve(&[]);
    let locked = place.run(&["actor", "add", "user_ann"]);
    assert!(locked.status == 4 && locked.stderr.contains("stop the server and try again"), "{}", locked.stderr);
    let url = format!("http://{}", server.address);
    let here = |key: &str| Workspace::new().env("CHIMERA_HMAC_KEY", key).env("CHIMERA_SERVER", &url);
    let operator = here(&admin);
    let made = operator.json(&["actor", "add", "service_bot", "--scopes", "local.summarize", "--quota", "7"]);
    let bot_key = made["hmac_key"].as_str().unwrap();
    let bot = here(bot_key).env("CHIMERA_ACTOR", "service_bot");
    let listed = operator.json(&["actor", "list"]);
    let find = |id: &str| listed["items"].as_array().unwrap().iter().find(|entry| entry["id"] == id).unwrap().clone();
    let entry = find("service_bot");
    assert_eq!(
        (&entry["quota_per_minute"], &entry["keys"], &entry["source"]),
        (&7.into(), &1.into(), &"registry".into())
    );
    assert_eq!(find("admin")["keys"], 1);
    assert_eq!(bot.run(&["token"]).status, 0);
    let twice = operator.run(&["actor", "add", "service_bot"]);
    assert!(twice.status == 1 && twice.stderr.contains("already has a key"), "{}", twice.stderr);
    let spaced = operator.run(&["actor", "add", "ev il"]);
    assert!(spaced.stderr.contains("1 to 255 characters and no spaces"), "{}", spaced.stderr);

    let overlapping = operator.json(&["actor", "secret", "service_bot", "--overlap", "600"]);
    assert!(overlapping["keys_before_until"].is_string(), "{overlapping}");
    assert_eq!(bot.run(&["token"]).status, 0, "both keys are valid during the overlap");
    operator.json(&["actor", "secret", "service_bot", "--revoke-old"]);
    wait_until("the end of the old key", || {
        let refused = bot.run(&["token"]);
        assert!(!refused.stderr.contains(bot_key), "{}", refused.stderr);
        (!refused.stderr.contains("error[SIGNATURE_INVALID]")).then_some(refused.stderr)
    });
    let (status, log) = server.stop();
    assert_eq!(status, Some(0));
    assert!(!log.contains(&admin), "a key is in the log");
    let doctor = place.run(&["doctor"]).stdout;
    assert!(doctor.contains("ok    actors       entries: 5, keys: 2"), "{doctor}");
}

/// CORE-108, CORE-109
#[test]
fn the_operator_makes_the_first_key_in_a_data_folder_that_nobody_serves() {
    first_key(&Workspace::new());
}

#[test]
fn the_operator_makes_the_first_key_in_postgres() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    first_key(&Workspace::new().env("CHIMERA_DATABASE_URL", &url));
}

#[test]
fn no_key_is_made_for_a_mistyped_name_and_no_scope_is_taken_by_typo() {
    let place = Workspace::new();
    place.json(&["actor", "add", "service_bot", "--scopes", "local.summarize,notion.read,slack.*"]);
    let mistyped = place.run(&["actor", "secret", "service_bto"]);
    assert!(mistyped.status != 0 && mistyped.stdout.is_empty(), "{}", mistyped.stdout);
    assert!(mistyped.stderr.contains("(did you mean service_bot?)"), "{}", mistyped.stderr);
    assert!(mistyped.stderr.contains("--new"), "{}", mistyped.stderr);
    assert!(place.json(&["actor", "secret", "service_bto", "--new"])["hmac_key"].is_string());
    let scope = place.run(&["actor", "add", "user_ann", "--scopes", "local.sumarize"]);
    assert!(scope.stderr.contains("(did you mean local.summarize?)"), "{}", scope.stderr);
    assert!(scope.stderr.contains("--allow-unknown-scope"), "{}", scope.stderr);
    let own = place.json(&["actor", "add", "user_ann", "--scopes", "crm.close", "--allow-unknown-scope"]);
    assert!(own["hmac_key"].is_string(), "{own}");
}

#[test]
fn everybody_who_has_a_key_is_listed_and_can_be_changed() {
    let place = Workspace::new();
    place.json(&["actor", "add", "user_ann"]);
    let listed = place.json(&["actor", "list"]);
    let ann = listed["items"].as_array().unwrap().iter().find(|entry| entry["id"] == "user_ann").unwrap();
    assert_eq!((&ann["keys"], &ann["matched"], &ann["source"]), (&1.into(), &"user_*".into(), &"shipped".into()));
    let shown = place.run(&["actor", "show", "user_ann"]);
    assert!(shown.stderr.contains("the pattern that matches its name applies"), "{}", shown.stderr);
    let edited = place.json(&["actor", "edit", "user_ann", "--quota", "3"]);
    assert_eq!((&edited["quota_per_minute"], &edited["source"]), (&3.into(), &"registry".into()));
    assert_eq!(place.json(&["actor", "disable", "user_ann"])["disabled"], true);
    assert_eq!(place.json(&["actor", "show", "user_ann"])["disabled"], true);
    assert_eq!(place.json(&["actor", "edit", "user_ann", "--enable"])["disabled"], false);
    let nobody = place.run(&["actor", "disable", "user_bob"]);
    assert!(nobody.stderr.contains("no actor `user_bob`: it has neither an entry nor a key"), "{}", nobody.stderr);
    let nothing = place.run(&["actor", "edit", "user_ann"]);
    assert!(nothing.stderr.contains("no changes given for user_ann"), "{}", nothing.stderr);
    let bare = place.run(&["actor", "add", "bot_*"]);
    assert!(bare.status == 1 && bare.stderr.contains("bot_* is a pattern, which has no key"), "{}", bare.stderr);
    let pattern = place.json(&["actor", "add", "bot_*", "--scopes", "local.echo"]);
    assert_eq!(
        (&pattern["id"], &pattern["keys"], &pattern["source"]),
        (&"bot_*".into(), &0.into(), &"registry".into())
    );
    let removed = place.run(&["actor", "remove", "user_ann"]);
    assert!(removed.stderr.contains("its name is retired"), "{}", removed.stderr);
    let again = place.run(&["actor", "add", "user_ann"]);
    assert!(again.stderr.contains("`user_ann` was removed and its name is retired"), "{}", again.stderr);
    let gone = place.run(&["actor", "remove", "user_ann"]);
    assert!(gone.stderr.contains("no actor `user_ann`: it has neither an entry nor a key"), "{}", gone.stderr);
    let admin = place.run(&["actor", "remove", "admin"]);
    assert!(admin.status == 1 && admin.stderr.contains("cannot remove admin"), "{}", admin.stderr);
}

#[test]
fn an_entry_keeps_what_is_not_said_and_nonsense_is_refused() {
    let place = Workspace::new();
    place.json(&[
        "actor",
        "add",
        "n8n_workflow_mail",
        "--scopes",
        "outlook.send",
        "--notify-email",
        "ops@acme.example",
    ]);
    let listed = place.json(&["actor", "list"]);
    let entry = listed["items"].as_array().unwrap().iter().find(|entry| entry["id"] == "n8n_workflow_mail").unwrap();
    assert_eq!((&entry["autonomy_level"], &entry["quota_per_minute"]), (&"L2_ExecuteNotify".into(), &60.into()));
    assert_eq!(entry["notify"]["email"], "ops@acme.example");
    let everything = place.run(&["actor", "add", "user_eve", "--scopes", "*"]);
    assert!(everything.status == 1 && everything.stderr.contains("the scope * is reserved for admin"));
    let shown = place.run(&["actor", "list"]).stdout;
    assert!(!shown.contains("user_eve"), "nothing was written: {shown}");
}

#[test]
fn the_doctor_names_what_nodes_must_share_and_that_nobody_can_sign_in() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    let verdicts = |place: &Workspace| -> Vec<String> {
        let report: Value = serde_json::from_str(&place.run(&["doctor", "--json"]).stdout).unwrap();
        let warned = report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "warn");
        warned.map(|check| check["name"].as_str().unwrap().to_owned()).collect()
    };
    place.json(&["migrate"]);
    let missing = verdicts(&place);
    for name in ["actors", "shared_counters", "shared_tokens", "shared_seal"] {
        assert!(missing.contains(&name.to_owned()), "{name}: {missing:?}");
    }
    let set = place
        .env("HMAC_SECRET_KEY", "a-key-of-one-actor")
        .env("CHIMERA_ACCESS__TOKEN_KEY", "secret://token")
        .env("CHIMERA_ACCESS__SEAL_KEY", "secret://seal");
    assert_eq!(verdicts(&set).iter().filter(|name| name.starts_with("shared_") || *name == "actors").count(), 2);
    let alone = Workspace::new();
    assert!(!verdicts(&alone).iter().any(|name| name.starts_with("shared_")));
}
