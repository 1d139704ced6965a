//! Two tenants in one process, from the command line to the disk.

use crate::support::{Server, Workspace};
use serde_json::Value;

/// What is shared with the second tenant.
const SHARED: &str = r#"
[[actor]]
id = "admin"
scopes = ["*"]
quota_per_minute = 10000
autonomy_level = "L2_ExecuteNotify"

[[role]]
name = "clerk"
scopes = ["workflows.read"]

[[role]]
name = "clerk"
tenant = "globex"
scopes = ["runs.read", "audit.read"]

[[role]]
name = "ours"
scopes = ["approvals.decide"]

[[tenant]]
id = "globex"
tools = ["s3_upload", "http.request"]
buckets = ["reports"]
"#;

/// A server, and a place whose commands act for the second tenant.
fn street() -> (Workspace, Server, Workspace, Value) {
    let place = Workspace::new()
        .file("actors.toml", SHARED)
        .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
        .server_env("CHIMERA_SECRET_HTTP_127_0_0_1", "token-of-the-first");
    let server = place.dev(&[]);
    let tenant = place.json(&["tenant", "add", "globex", "--name", "Globex Corp"]);
    let scopes = "s3.upload,external_api,local.*,http.request,runs.read";
    let key = place.json(&[
        "actor",
        "add",
        "globex_bot",
        "--tenant",
        "globex",
        "--scopes",
        scopes,
        "--level",
        "L2",
        "--quota",
        "1000",
    ]);
    let there = Workspace::new()
        .env("CHIMERA_SERVER", server.ready["url"].as_str().unwrap())
        .env("CHIMERA_ACTOR", "globex_bot")
        .env("CHIMERA_HMAC_KEY", key["hmac_key"].as_str().unwrap());
    (place, server, there, tenant)
}

fn upload(bucket: &str, content: &str) -> String {
    format!("s3_upload={{\"bucket\":\"{bucket}\",\"key\":\"q.txt\",{content},\"overwrite\":true}}")
}

#[test]
fn a_second_tenant_neither_overwrites_nor_reads_what_the_first_has() {
    let (place, server, there, tenant) = street();
    let act = |place: &Workspace, step: &str| place.run(&["act", "--step", step, "--json"]);
    for content in ["\"content\":\"older\"", "\"content\":\"of the first\""] {
        let said = act(&place, &upload("reports", content));
        assert_eq!(said.status, 0, "{said:?}");
    }
    let made = place.json(&["act", "--step", "local.markdown_to_pdf={\"markdown\":\"of the first\"}"]);
    let made = made.to_string();
    let at = made.find("cas://sha256:").unwrap();
    let artifact = &made[at..at + 77];

    let said = act(&there, &upload("reports", "\"content\":\"of the second\""));
    assert_eq!(said.status, 0, "{said:?}");
    assert!(!said.stdout.contains("cas://"), "nothing of the first was replaced: {}", said.stdout);
    let id = tenant["id"].as_str().unwrap();
    assert_eq!(id.len(), 32, "{tenant}");
    let read = |name: &str| std::fs::read_to_string(place.path(".chimera/buckets/reports").join(name)).unwrap();
    assert_eq!(read("q.txt"), "of the first");
    assert_eq!(read(&format!(".tenants/{id}/q.txt")), "of the second");

    // Even with its digest, the second tenant finds no artifact of the first.
    let told = |step: &str, name: &str| {
        let said = act(&there, step);
        assert_ne!(said.status, 0, "{said:?}");
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(!all.contains("of the first"), "{all}");
        (all.contains("NOT_FOUND"), all.contains("there is no blob"), all.matches(name).count())
    };
    let absent = format!("cas://sha256:{}", "0".repeat(64));
    let copy = |artifact: &str| upload("reports", &format!("\"artifact\":\"{artifact}\""));
    assert_eq!(told(&copy(artifact), artifact), told(&copy(&absent), &absent));
    // A bucket and a tool that are not shared are not found.
    for step in [upload("private", "\"content\":\"x\""), "notion.search={\"query\":\"x\"}".to_owned()] {
        assert_ne!(act(&there, &step).status, 0, "{step}");
    }
    assert!(!place.path(".chimera/buckets/private").exists());
    server.stop();
}

#[test]
fn an_operator_acts_for_a_tenant_from_the_command_line() {
    let (place, server, there, tenant) = street();
    place.json(&["act", "--step", "local.echo={\"message\":\"of the first\"}"]);
    let run = there.json(&["act", "--step", "local.echo={\"message\":\"of the second\"}"])["run_id"].clone();
    let run = run.as_str().unwrap();
    let listed = place.json(&["runs", "list", "--for-tenant", "globex"]);
    assert_eq!(
        (listed["items"].as_array().unwrap().len(), &listed["items"][0]["run_id"]),
        (1, &run.into()),
        "{listed}"
    );
    assert_eq!(place.run(&["runs", "show", run]).status, 1, "it is another tenant's");
    assert_eq!(place.json(&["runs", "--for-tenant", "globex", "show", run])["run_id"], run);
    let watched = place.run(&["runs", "watch", run, "--for-tenant=globex", "--json"]);
    assert!(watched.status == 0 && watched.stdout.contains("run.completed"), "{watched:?}");
    // Requests that change something are signed, including the query.
    let cancelled = place.run(&["runs", "cancel", run, "--for-tenant", "globex"]);
    assert!(cancelled.stderr.contains("INVALID_TRANSITION"), "it was let in: {cancelled:?}");
    let air = r#"{"air_version":"1.0","workflow_id":"theirs","nodes":[{"id":"e","type":"function","fn":"local.echo","inputs":{"message":"x"}}],"edges":[]}"#;
    std::fs::write(place.path("air.json"), air).unwrap();
    let applied = place.run(&["workflow", "apply", "air.json", "--for-tenant", "globex"]);
    assert_eq!(applied.status, 0, "{applied:?}");
    let names = |place: &Workspace, args: &[&str]| place.run(args).stdout.contains("theirs");
    assert!(names(&place, &["workflow", "list", "--for-tenant", "globex"]) && !names(&place, &["workflow", "list"]));
    let actors = place.json(&["actor", "list", "--for-tenant", "globex"]);
    assert_eq!((actors["items"].as_array().unwrap().len(), &actors["items"][0]["id"]), (1, &"globex_bot".into()));

    let ledger = place.json(&["audit", "list", "--tenant", "globex", "--event-type", "operator.acted"]);
    let targets: Vec<&str> =
        ledger["items"].as_array().unwrap().iter().map(|item| item["actor_id"].as_str().unwrap()).collect();
    assert!(targets.len() >= 6 && targets.iter().all(|actor| *actor == "admin"), "{ledger}");

    for (who, args, told) in [
        (&place, &["runs", "list", "--for-tenant", "initech"][..], "NOT_FOUND"),
        (&place, &["runs", "list", "--for-tenant", "a&b=c"], "NOT_FOUND"),
        (&there, &["runs", "list", "--for-tenant", "default"], "RBAC_FORBIDDEN"),
    ] {
        let said = who.run(args);
        assert!(said.status == 1 && said.stderr.contains(told), "{args:?}: {said:?}");
    }
    for wrong in [&["runs", "list", "--for-tenant", ""][..], &["tenant", "list", "--for-tenant", "globex"]] {
        assert_eq!(place.run(wrong).status, 2, "{wrong:?}");
    }
    server.stop();
    // Without a server, nothing can write to the ledger of that tenant.
    let said = place.run(&["runs", "list", "--for-tenant", "globex"]);
    assert!(said.status == 1 && said.stderr.contains("EXTERNAL_SERVICE_UNAVAILABLE"), "{said:?}");
    assert_eq!(tenant["slug"], "globex");
}

#[test]
fn a_workflow_is_shared_from_the_command_line() {
    let (place, server, there, _) = street();
    place.json(&["actor", "edit", "globex_bot", "--scopes", "local.*,workflows.*,runs.*"]);
    let air = r#"{"air_version":"1.0","workflow_id":"greet","nodes":[{"id":"e","type":"function","fn":"local.echo","inputs":{"message":"x"}}],"edges":[]}"#;
    std::fs::write(place.path("air.json"), air).unwrap();
    place.json(&["workflow", "apply", "air.json"]);
    let start = || there.run(&["act", "--workflow", "greet", "--json"]);
    assert!(start().stderr.contains("NOT_FOUND"));
    let refused = there.run(&["workflow", "share", "greet"]);
    assert!(refused.status == 1 && refused.stderr.contains("RBAC_FORBIDDEN"), "{refused:?}");
    assert_eq!(place.json(&["workflow", "share", "greet"])["shared"], true);
    let listed = there.json(&["workflow", "list"]);
    assert_eq!((&listed["items"][0]["workflow_id"], &listed["items"][0]["shared"]), (&"greet".into(), &true.into()));
    let table = place.run(&["workflow", "list"]).stdout;
    let shared = |line: &&str| line.contains("greet") && line.ends_with("  yes");
    assert!(table.lines().filter(shared).count() == 1 && table.contains("SHARED"), "{table}");
    let started = start();
    assert_eq!(started.status, 0, "{started:?}");
    let run = serde_json::from_str::<Value>(&started.stdout).unwrap()["run_id"].clone();
    assert_eq!(there.json(&["runs", "show", run.as_str().unwrap()])["status"], "completed");
    assert_eq!(place.run(&["runs", "show", run.as_str().unwrap()]).status, 1, "the run belongs to another tenant");
    let said = place.run(&["workflow", "unshare", "greet"]);
    assert!(said.status == 0 && said.stderr.contains("continue"), "{said:?}");
    assert!(start().stderr.contains("NOT_FOUND"));
    assert_eq!(there.json(&["runs", "show", run.as_str().unwrap()])["status"], "completed");
    for event in ["workflow.shared", "workflow.unshared"] {
        let told = place.json(&["audit", "list", "--event-type", event]);
        assert_eq!(told["items"][0]["actor_id"], "admin", "{told}");
    }
    server.stop();
}

#[test]
fn roles_are_given_from_the_command_line() {
    let (place, server, there, _) = street();
    let said = place.run(&["actor", "edit", "globex_bot", "--role", "ours"]);
    assert!(said.status == 1 && said.stderr.contains("there is no role ours"), "{said:?}");
    assert!(said.stderr.contains("its roles are clerk"), "{said:?}");
    let edited = place.json(&["actor", "edit", "globex_bot", "--role", "clerk", "--scopes", "local.*"]);
    assert_eq!(edited["effective_scopes"], serde_json::json!(["local.*", "runs.read", "audit.read"]), "{edited}");
    assert_eq!(there.run(&["workflow", "list"]).status, 1, "the role belongs to another tenant");
    assert_eq!(there.run(&["runs", "list"]).status, 0);
    // Other changes keep the roles, even one that only this entry still names.
    assert_eq!(place.json(&["actor", "edit", "globex_bot", "--quota", "900"])["roles"][0], "clerk");
    let shown = place.run(&["actor", "show", "globex_bot"]);
    assert!(shown.stdout.contains("roles   clerk\n"), "{shown:?}");
    assert!(shown.stderr.contains("Effective scopes, including its roles: local.* runs.read audit.read"), "{shown:?}");
    let none = place.json(&["actor", "edit", "globex_bot", "--no-roles"]);
    assert_eq!((&none["roles"], &none["effective_scopes"]), (&serde_json::json!([]), &none["scopes"]));
    assert_eq!(place.json(&["actor", "add", "user_zoe", "--role", "clerk,ours"])["actor"], "user_zoe");
    server.stop();
    // Without a server, commands read the store directly.
    let zoe = place.json(&["actor", "show", "user_zoe"]);
    assert_eq!(zoe["roles"], serde_json::json!(["clerk", "ours"]), "{zoe}");
    assert_eq!(place.json(&["actor", "edit", "user_zoe", "--role", "ours"])["roles"], serde_json::json!(["ours"]));
}

#[test]
fn tenants_are_looked_after_from_the_command_line() {
    let (place, server, there, tenant) = street();
    assert_eq!(place.json(&["tenant", "show", "globex"]), tenant);
    let listed = place.run(&["tenant", "list"]);
    assert!(listed.stdout.contains("Globex Corp") && listed.stdout.contains("default"), "{listed:?}");
    let mistyped = place.run(&["tenant", "show", "globx"]);
    assert!(mistyped.status == 1 && mistyped.stderr.contains("globex"), "{mistyped:?}");
    let twice = place.run(&["tenant", "add", "globex"]);
    assert!(twice.status == 1 && twice.stderr.contains("OCC_CONFLICT"), "{twice:?}");
    let unknown = place.run(&["actor", "add", "initech_bot", "--tenant", "initech"]);
    assert!(unknown.stderr.contains("chimera tenant add initech"), "{unknown:?}");
    let refused = there.run(&["tenant", "list"]);
    assert!(refused.status == 1 && refused.stderr.contains("RBAC_FORBIDDEN"), "{refused:?}");

    assert_eq!(there.run(&["runs", "list"]).status, 0);
    assert_eq!(place.json(&["tenant", "disable", "globex"])["disabled"], true);
    let disabled = there.run(&["runs", "list"]);
    assert!(disabled.status == 1 && disabled.stderr.contains("disabled"), "{disabled:?}");
    assert_eq!(place.json(&["tenant", "enable", "globex"])["disabled"], false);
    assert_eq!(there.run(&["runs", "list"]).status, 0);
    let ledger = place.json(&["audit", "list", "--tenant", "globex"]);
    assert_eq!(ledger, place.json(&["audit", "list", "--tenant", tenant["id"].as_str().unwrap()]));
    let ledger = ledger.to_string();
    for told in ["tenant.disabled", "tenant.enabled", "operator_of"] {
        assert!(ledger.contains(told), "{told}: {ledger}");
    }
    server.stop();
    // Without a server, commands read the store directly.
    assert_eq!(place.json(&["tenant", "show", "globex"]), tenant);
    assert_eq!(place.json(&["tenant", "add", "initech"])["slug"], "initech");
}
