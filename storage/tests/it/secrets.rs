//! Secrets from environment, directory and file, and in which order.

use chimera_core::limits::SECRET_BYTES_MAX;
use chimera_core::secret::SecretName;
use chimera_engine::port::{SecretError, Secrets};
use chimera_storage::secret::{DirectorySecrets, EnvironmentSecrets, FileSecrets, LayeredSecrets};
use std::fs;
use tempfile::TempDir;

fn name(text: &str) -> SecretName {
    SecretName::new(text).unwrap()
}

async fn text(secrets: &dyn Secrets, of: &str) -> Result<String, SecretError> {
    secrets.resolve(&name(of)).await.map(|secret| secret.expose_text().unwrap().to_owned())
}

fn missing(of: &str) -> Result<String, SecretError> {
    Err(SecretError::Missing(name(of)))
}

fn environment(variable: &'static str, value: &'static str) -> EnvironmentSecrets {
    EnvironmentSecrets::new("CHIMERA_SECRET_", move |asked| (asked == variable).then(|| value.to_owned()))
}

#[tokio::test]
async fn the_environment_is_asked_in_capitals_behind_the_prefix() {
    let secrets = environment("CHIMERA_SECRET_SMTP_RELAY__2", "value");
    assert_eq!(text(&secrets, "smtp.relay-2").await, Ok("value".into()));
    assert_eq!(text(&secrets, "smtp").await, missing("smtp"));
}

#[tokio::test]
async fn no_two_secrets_share_a_variable() {
    for (variable, owner) in
        [("CHIMERA_SECRET_A_B", "a.b"), ("CHIMERA_SECRET_A__B", "a-b"), ("CHIMERA_SECRET_A___B", "a_b")]
    {
        let secrets = environment(variable, "value");
        for other in ["a.b", "a-b", "a_b", "a.-b", "a-.b", "a._b", "a__b"] {
            let found = text(&secrets, other).await;
            assert_eq!(found, if other == owner { Ok("value".into()) } else { missing(other) }, "{variable} {other}");
        }
    }
}

#[tokio::test]
async fn a_file_in_the_directory_is_a_value_without_its_line_end() {
    let home = TempDir::new().unwrap();
    let secrets = DirectorySecrets::new(home.path());
    for (file, content, value) in [
        ("unix", "a b\n", "a b"),
        ("dos", "a\r\n", "a"),
        ("bare", "a", "a"),
        ("two", "a\n\n", "a\n"),
        ("empty", "", ""),
    ] {
        fs::write(home.path().join(file), content).unwrap();
        assert_eq!(text(&secrets, file).await, Ok(value.into()), "{file}");
    }
    assert_eq!(text(&secrets, "absent").await, missing("absent"));
    fs::write(home.path().join("key"), [0xff, 0x00, 0x0a]).unwrap();
    assert_eq!(secrets.resolve(&name("key")).await.unwrap().expose(), [0xff, 0x00], "any bytes will do");
    assert_eq!(text(&DirectorySecrets::new(home.path().join("nowhere")), "a").await, missing("a"));
}

#[tokio::test]
async fn one_file_holds_many_values_as_toml_or_json() {
    let home = TempDir::new().unwrap();
    let (toml, json) = (home.path().join("s.toml"), home.path().join("s.json"));
    fs::write(&toml, "smtp = 'one'\n\"a.b\" = \"two\"\n").unwrap();
    fs::write(&json, r#"{"smtp": "three"}"#).unwrap();
    assert_eq!(text(&FileSecrets::new(&toml), "smtp").await, Ok("one".into()));
    assert_eq!(text(&FileSecrets::new(&toml), "a.b").await, Ok("two".into()));
    assert_eq!(text(&FileSecrets::new(&json), "smtp").await, Ok("three".into()));
    assert_eq!(text(&FileSecrets::new(&json), "a.b").await, missing("a.b"));
    assert_eq!(text(&FileSecrets::new(home.path().join("none")), "smtp").await, missing("smtp"));
}

#[tokio::test]
async fn the_first_source_that_has_a_secret_wins() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("file.toml"), "a = 'file'\nb = 'file'\nc = 'file'").unwrap();
    fs::create_dir(home.path().join("dir")).unwrap();
    fs::write(home.path().join("dir/b"), "directory").unwrap();
    fs::write(home.path().join("dir/c"), "directory").unwrap();
    let secrets = LayeredSecrets::new(vec![
        Box::new(environment("CHIMERA_SECRET_C", "environment")),
        Box::new(DirectorySecrets::new(home.path().join("dir"))),
        Box::new(FileSecrets::new(home.path().join("file.toml"))),
    ]);
    for (of, value) in [("a", "file"), ("b", "directory"), ("c", "environment")] {
        assert_eq!(text(&secrets, of).await, Ok(value.into()));
    }
    assert_eq!(text(&secrets, "d").await, missing("d"));
}

/// CORE-109
#[tokio::test]
async fn a_rotated_secret_is_used_at_once() {
    let home = TempDir::new().unwrap();
    let (file, dir) = (FileSecrets::new(home.path().join("s.toml")), DirectorySecrets::new(home.path()));
    for value in ["old", "new"] {
        fs::write(home.path().join("s.toml"), format!("hmac = '{value}'")).unwrap();
        fs::write(home.path().join("hmac"), value).unwrap();
        assert_eq!(text(&file, "hmac").await, Ok(value.into()));
        assert_eq!(text(&dir, "hmac").await, Ok(value.into()));
    }
}

/// CORE-108
#[tokio::test]
async fn a_source_that_can_not_be_read_ends_the_search_without_telling_a_value_or_a_place() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("s.toml"), "smtp = 'hunter2' broken").unwrap();
    fs::write(home.path().join("nested.json"), r#"{"smtp": {"password": "hunter2"}}"#).unwrap();
    fs::create_dir_all(home.path().join("dir/smtp")).unwrap();
    fs::write(home.path().join("plain"), "hunter2").unwrap();
    let broken: [Box<dyn Secrets>; 4] = [
        Box::new(FileSecrets::new(home.path().join("s.toml"))),
        Box::new(FileSecrets::new(home.path().join("nested.json"))),
        Box::new(DirectorySecrets::new(home.path().join("dir"))),
        Box::new(DirectorySecrets::new(home.path().join("plain"))),
    ];
    for source in broken {
        let weaker = Box::new(environment("CHIMERA_SECRET_SMTP", "weaker"));
        let error = LayeredSecrets::new(vec![source, weaker]).resolve(&name("smtp")).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(matches!(error, SecretError::Unreadable { .. }), "{shown}");
        assert!(shown.contains("smtp") && !shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains(home.path().to_str().unwrap()), "{shown}");
    }
}

#[tokio::test]
async fn a_value_beyond_the_limit_is_refused() {
    let home = TempDir::new().unwrap();
    let secrets = DirectorySecrets::new(home.path());
    fs::write(home.path().join("most"), "x".repeat(SECRET_BYTES_MAX) + "\r\n").unwrap();
    fs::write(home.path().join("more"), "x".repeat(SECRET_BYTES_MAX + 1)).unwrap();
    fs::write(home.path().join("much"), "x".repeat(SECRET_BYTES_MAX * 3)).unwrap();
    assert!(secrets.resolve(&name("most")).await.is_ok());
    assert_eq!(secrets.resolve(&name("more")).await.unwrap_err(), SecretError::TooLarge(name("more")));
    assert_eq!(secrets.resolve(&name("much")).await.unwrap_err(), SecretError::TooLarge(name("much")));
}
