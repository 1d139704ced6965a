//! Configuration errors and `config print`, with the real binary.

use crate::support::Workspace;
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::json;

#[test]
fn a_misspelled_key_is_refused_with_its_line_and_a_hint() {
    let said = Workspace::new()
        .file("chimera.toml", "# mine\nlisten_at = \"x\"\n[log]\nlevl = \"info\"\n")
        .run(&["config", "print"]);
    assert_eq!((said.status, said.stdout.as_str()), (4, ""));
    insta::assert_snapshot!(said.stderr);
}

#[test]
fn a_misspelled_variable_is_refused_as_json_when_asked_for() {
    let said =
        Workspace::new().env("CHIMERA_DATABSE_URL", "postgres://u:hunter2@h/d").run(&["config", "print", "--json"]);
    assert_eq!(said.status, 4);
    assert!(!said.stderr.contains("hunter2"));
    insta::assert_snapshot!(said.stderr);
}

#[test]
fn a_value_of_another_kind_names_key_source_and_expectation() {
    let said = Workspace::new().env("CHIMERA_STORE__LANES", "many").run(&["serve", "--listen", "here"]);
    assert_eq!(said.status, 4);
    insta::assert_snapshot!(said.stderr);
}

#[test]
fn a_log_level_that_does_not_exist_is_refused_by_every_command() {
    for args in [&["config", "print"][..], &["serve"], &["doctor"]] {
        let said = Workspace::new().file("chimera.toml", "[log]\nlevel = \"shout\"\n").run(args);
        assert_eq!((said.status, said.stdout.as_str()), (4, ""), "{args:?}");
        let start = "error[CONFIG_INVALID]: chimera.toml:2: `log.level` must be a level such as";
        assert!(said.stderr.starts_with(start) && said.stderr.contains("not \"shout\""), "{}", said.stderr);
    }
}

#[test]
fn printing_masks_secrets_and_shows_where_each_value_came_from() {
    let place = Workspace::new()
        .file("mine.toml", "database_url = \"postgres://chimera:hunter2@db/main\"\n[log]\nlevel = \"debug\"\n")
        .env("CHIMERA_REDIS_URL", "redis://:hunter2@cache:6379")
        .env("CHIMERA_S3_URL", "s3://key:hunter2@bucket/prefix?endpoint=http://minio:9000&secret=hunter2")
        .env("CHIMERA_EGRESS_ALLOW", "api.example.org, mail.example.org:25")
        .env("CHIMERA_SECRET_SMTP", "hunter2");
    let args = ["config", "print", "--origins", "--config", "mine.toml", "--log-format", "json"];
    let text = place.run(&args);
    assert_eq!(text.status, 0, "{}", text.stderr);
    assert!(!text.stdout.contains("hunter2"));
    insta::assert_snapshot!(text.stdout);
    let json = place.run(&[&args[..], &["--json"]].concat());
    assert!(!json.stdout.contains("hunter2"));
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["redis_url"]["origin"], "env CHIMERA_REDIS_URL");
    assert_eq!(value["egress_allow"]["value"][1], "mail.example.org:25");
}

#[test]
fn what_is_printed_is_a_configuration_file_again() {
    let place = Workspace::new();
    let printed = place.run(&["config", "print", "--origins"]).stdout;
    let again = Workspace::new().file("chimera.toml", &printed).run(&["config", "print"]);
    assert_eq!(again.status, 0, "{}", again.stderr);
    assert_eq!(again.stdout, place.run(&["config", "print"]).stdout);
}

#[test]
fn a_named_file_that_is_missing_is_refused() {
    let said = Workspace::new().run(&["config", "print", "--config", "none.toml"]);
    assert_eq!(said.status, 4);
    insta::assert_snapshot!(said.stderr);
}

/// The variables that Kubernetes sets in every pod for services called `chimera` and `chimera-mail`.
const SERVICE_LINKS: &[(&str, &str)] = &[
    ("CHIMERA_SERVICE_HOST", "10.96.0.12"),
    ("CHIMERA_SERVICE_PORT", "8080"),
    ("CHIMERA_SERVICE_PORT_HTTP", "8080"),
    ("CHIMERA_PORT", "tcp://10.96.0.12:8080"),
    ("CHIMERA_PORT_8080_TCP", "tcp://10.96.0.12:8080"),
    ("CHIMERA_PORT_8080_TCP_PROTO", "tcp"),
    ("CHIMERA_PORT_8080_TCP_PORT", "8080"),
    ("CHIMERA_PORT_8080_TCP_ADDR", "10.96.0.12"),
    ("CHIMERA_MAIL_SERVICE_HOST", "10.96.0.13"),
    ("CHIMERA_MAIL_PORT", "tcp://10.96.0.13:25"),
    ("CHIMERA_MAIL_PORT_25_TCP_ADDR", "10.96.0.13"),
];

#[test]
fn a_server_starts_beside_services_of_its_name_and_still_refuses_what_is_misspelled() {
    let linked = || SERVICE_LINKS.iter().fold(Workspace::new(), |place, (name, value)| place.env(name, value));
    assert_eq!(linked().serve(&[]).stop().0, Some(0));
    let said = linked().env("CHIMERA_LISTN", "127.0.0.1:0").env("CHIMERA_MAIL_PORT", "25").run(&["serve"]);
    assert_eq!(said.status, 4);
    insta::assert_snapshot!(said.stderr);
}

#[test]
fn booleans_numbers_and_lists_are_given_natively_or_as_text() {
    let native =
        "egress_allow = [\"a.example\"]\n[scopes]\nstrict = true\n[access]\ncautious = true\n[store]\nlanes = 3\n";
    let text = "egress_allow = \"a.example\"\n[scopes]\nstrict = \"true\"\n[access]\ncautious = \"yes\"\n[store]\nlanes = \"3\"\n";
    let environment = Workspace::new()
        .env("CHIMERA_EGRESS_ALLOW", "a.example")
        .env("CHIMERA_SCOPES__STRICT", "true\n")
        .env("CHIMERA_ACCESS__CAUTIOUS", "1")
        .env("CHIMERA_STORE__LANES", " 3 ");
    let printed = environment.json(&["config", "print"]);
    assert_eq!((&printed["scopes.strict"], &printed["store.lanes"]), (&true.into(), &3.into()));
    for file in [native, text] {
        assert_eq!(Workspace::new().file("chimera.toml", file).json(&["config", "print"]), printed);
    }
}

#[test]
fn a_name_or_an_ipv6_address_can_be_listened_at_and_commands_find_the_server() {
    for (given, host) in [("localhost:0", "127.0.0.1:"), ("[::1]:0", "[::1]:")] {
        let place = Workspace::new().env("CHIMERA_LISTEN", given);
        let server = place.serve_as_configured();
        assert!(server.address.starts_with(host), "{given}: {}", server.address);
        assert_eq!(server.readiness().0, 200);
        let said = place.run(&["runs", "list"]);
        assert_eq!(said.status, 0, "{}", said.stderr);
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn an_address_that_can_not_be_listened_at_is_refused_in_words() {
    let mut story = String::new();
    // A label of more than 63 letters is invalid, so no resolver queries the network for it.
    let nowhere = format!("{}:8080", "n".repeat(64));
    for address in [":8080", "8080", "localhost", "::1:8080", "http://localhost:8080", &nowhere] {
        let said = Workspace::new().run(&["serve", "--listen", address]);
        assert_eq!(said.status, 4, "{address}: {}", said.stderr);
        story += &said.stderr;
    }
    insta::assert_snapshot!(story);
}

#[test]
fn a_database_url_with_a_line_break_or_the_long_scheme_is_understood() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let long = url.replacen("postgres://", "postgresql://", 1);
    for url in [format!("{url}\n"), format!(" {long} ")] {
        let said = Workspace::new().env("CHIMERA_DATABASE_URL", &url).run(&["migrate"]);
        assert_eq!(said.status, 0, "{}", said.stderr);
    }
}

#[test]
fn a_database_url_that_can_not_be_used_is_refused_for_good() {
    let url = "postgres://u:hunter2@127.0.0.1:1/d?sslrootcert=/etc/root.pem";
    let said = Workspace::new().env("CHIMERA_DATABASE_URL", url).run(&["serve", "--json"]);
    assert_eq!(said.status, 4, "{}", said.stderr);
    assert!(!said.stderr.contains("hunter2"), "{}", said.stderr);
    let error: serde_json::Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["retryable"]), (&"CONFIG_INVALID".into(), &false.into()));
    assert!(said.stderr.contains("sslrootcert"), "{}", said.stderr);
}

#[test]
fn a_tilde_in_a_variable_is_the_home_folder() {
    let home = tempfile::tempdir().unwrap();
    let place = Workspace::new().env("HOME", home.path().to_str().unwrap()).env("CHIMERA_DATA_DIR", "~/data");
    assert_eq!(place.run(&["migrate"]).status, 0);
    assert!(home.path().join("data/chimera.db").is_file() && !place.path("~").exists());
}

/// The holder of a key shared by several people could decide as any of them, whatever their names are.
#[test]
fn no_server_starts_with_a_key_that_people_share() {
    for (pattern, actors) in [
        ("user_*", ""),
        ("*", ""),
        ("ops_*", "[[actor]]\nid = \"ops_*\"\nkind = \"human\"\nscopes = []\n"),
        ("ops_*", "[[actor]]\nid = \"ops_ann\"\nkind = \"human\"\nscopes = []\n"),
        ("*_bot", "[[actor]]\nid = \"ann*\"\nkind = \"human\"\nscopes = []\n"),
    ] {
        let place = Workspace::new()
            .file("actors.toml", actors)
            .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
            .env("CHIMERA_ACCESS__HMAC_ACTOR", pattern)
            .env("HMAC_SECRET_KEY", "a-key-that-is-long-enough-for-all");
        let said = place.run(&["actor", "list"]);
        assert_eq!(said.status, 4, "{pattern} {actors}: {}", said.stderr);
        assert!(said.stderr.contains("access.hmac_actor"), "{pattern} {actors}: {}", said.stderr);
    }
}

#[test]
fn a_role_that_can_not_be_is_told_before_anything_starts() {
    let clerk = "[[role]]\nname = \"clerk\"\nscopes = [\"notion.read\"]\n";
    for (actors, told) in [
        ("[[role]]\nname = \"two words\"\nscopes = []\n", "invalid role name"),
        ("[[role]]\nname = \"all\"\nscopes = [\"*\"]\n", "reserved for admin"),
        ("[[role]]\nname = \"x\"\nscopes = [\"a..b\"]\n", "a..b is not a valid scope"),
        ("[[role]]\nname = \"x\"\n", "missing field `scopes`"),
        ("[[role]]\nname = \"x\"\nscopes = []\nquota = 1\n", "unknown field"),
        (&*format!("{clerk}{clerk}"), "listed twice"),
        (&*format!("{clerk}[[actor]]\nid = \"bot\"\nroles = [\"clrk\"]\n"), "there is no role clrk"),
        (&*format!("{clerk}[[actor]]\nid = \"bot\"\ntenant = \"acme\"\nroles = [\"clerk\"]\n"), "there is no role"),
    ] {
        let place = Workspace::new().file("actors.toml", actors).env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml");
        let said = place.run(&["actor", "list"]);
        assert_eq!(said.status, 4, "{actors}: {}", said.stderr);
        assert!(said.stderr.contains("CONFIG_INVALID") && said.stderr.contains(told), "{actors}: {}", said.stderr);
    }
}

#[test]
fn roles_are_listed_as_the_configuration_names_them() {
    let roles = "[[role]]\nname = \"ours\"\nscopes = [\"runs.read\", \"audit.read\"]\n\
        [[role]]\nname = \"clerk\"\ntenant = \"acme\"\nscopes = [\"workflows.read\"]\n";
    let place = Workspace::new().file("actors.toml", roles).env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml");
    let ours = json!({"name": "ours", "tenant": "default", "scopes": ["runs.read", "audit.read"]});
    let clerk = json!({"name": "clerk", "tenant": "acme", "scopes": ["workflows.read"]});
    assert_eq!(place.json(&["role", "list"]), json!({"items": [&clerk, &ours]}));
    assert_eq!(place.json(&["role", "list", "--tenant", "acme"]), json!({"items": [&clerk]}));
    let said = place.run(&["role", "list"]);
    let lines: Vec<Vec<&str>> = said.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[1..],
        [vec!["clerk", "acme", "workflows.read"], vec!["ours", "default", "runs.read,", "audit.read"]]
    );
    let said = place.run(&["role", "list", "--tenant", "acne"]);
    assert!(said.status == 1 && said.stderr.contains("acme"), "{said:?}");
    let none = Workspace::new();
    assert!(none.run(&["role", "list"]).stderr.contains("access.actors_file"));
    assert_eq!(none.json(&["role", "list"]), json!({"items": []}));
}
