//! `chimera migrate` and `migrate --check` on both stores.

use crate::support::Workspace;
use chimera_testkit::postgres::PrivatePostgres;

fn up_to_date_by_steps(place: &Workspace) -> String {
    let mut story = String::new();
    for args in [&["migrate", "--check"][..], &["migrate"], &["migrate", "--check"], &["migrate"]] {
        for json in [&[][..], &["--json"]] {
            // Each runs twice: checking changes nothing, and a second migration finds nothing to do.
            let said = place.run(&[args, json].concat());
            story += &format!(
                "$ chimera {} {}\n{}{}= {}\n",
                args.join(" "),
                json.join(""),
                said.stdout,
                said.stderr,
                said.status
            );
        }
    }
    story
}

#[test]
fn both_stores_are_brought_up_to_date_by_the_same_steps() {
    let embedded = Workspace::new();
    let story = up_to_date_by_steps(&embedded);
    insta::assert_snapshot!(story);
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    assert_eq!(up_to_date_by_steps(&Workspace::new().env("CHIMERA_DATABASE_URL", &url)), story);
}

#[test]
fn asking_whether_a_schema_is_up_to_date_creates_nothing() {
    let place = Workspace::new();
    assert_eq!(place.run(&["migrate", "--check"]).status, 3);
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 0);
}

/// A removed guard: no server starts, the doctor names it, and a migration of the same version restores it.
#[test]
fn a_guard_that_is_gone_is_named_by_the_doctor_and_put_back() {
    let postgres = PrivatePostgres::shared().unwrap();
    let url = postgres.fresh_database().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    assert_eq!(place.run(&["migrate"]).status, 0);
    postgres.execute(&url, "DROP TRIGGER audit_logs_append_only ON audit_logs").unwrap();
    let told = "trigger audit_logs_append_only on audit_logs in the database is missing; `chimera migrate` repairs it";
    for deep in [&["doctor"][..], &["doctor", "--deep"]] {
        let report = place.run(&[deep, &["--json"]].concat());
        let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let schema = checks.iter().find(|check| check["name"] == "schema").unwrap();
        assert_eq!(
            (&report["ok"], &schema["verdict"], &schema["message"]),
            (&false.into(), &"fail".into(), &told.into())
        );
    }
    let migrated = place.run(&["migrate"]);
    assert!(migrated.stderr.contains("Restored: trigger audit_logs_append_only on audit_logs."), "{}", migrated.stderr);
    assert!(
        place.run(&["doctor", "--json"]).stdout.contains(r#"{"message":"version 35","name":"schema","verdict":"ok"}"#)
    );
}

#[test]
fn the_doctor_finds_a_fresh_server_healthy_on_both_stores() {
    let postgres = PrivatePostgres::options().start().unwrap();
    let shared = Workspace::new()
        .env("CHIMERA_DATABASE_URL", &postgres.url())
        .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
        .env("CHIMERA_SECRET_LEDGER", &"07".repeat(32));
    // A key that only one node has causes a warning once the database can be shared.
    let alone = ["shared_blobs", "shared_counters", "shared_tokens", "shared_seal"];
    for (place, warned) in [(Workspace::new(), &[][..]), (shared, &alone)] {
        let place = place.env("HMAC_SECRET_KEY", "a-key-of-one-actor");
        assert_eq!(place.serve(&[]).stop().0, Some(0));
        let report = place.json(&["doctor"]);
        assert_eq!(report["ok"], true);
        let checks = report["checks"].as_array().unwrap();
        let bad = checks.iter().filter(|check| check["verdict"] != "ok" && check["name"] != "disk");
        let bad: Vec<_> = bad.filter_map(|check| check["name"].as_str()).collect();
        assert_eq!(bad, warned);
    }
}

#[test]
fn the_doctor_warns_of_a_key_that_other_nodes_of_the_database_do_not_have() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    let said = place.run(&["doctor"]).stdout;
    assert!(said.contains("warn  signing_key  is local to this data folder"), "{said}");
}

#[test]
fn a_database_whose_commits_do_not_wait_for_the_disk_fails_the_doctor() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let said = Workspace::new().env("CHIMERA_DATABASE_URL", &url).run(&["doctor"]);
    assert_eq!(said.status, 3);
    assert!(said.stdout.contains("FAIL  durability   commits do not wait for the disk"), "{}", said.stdout);
}
