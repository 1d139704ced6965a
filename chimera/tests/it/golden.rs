//! Data folders of earlier schemas, opened by this version.
//!
//! `testkit/golden/make` creates them with the real binary: a run in every state, actors with keys, checkpoints, and
//! a killed process. Each is unpacked, migrated and compared, and its runs are driven to their ends. So every later
//! version tests its migrations on them.

mod end;
mod make;

use crate::support::Workspace;
use chimera_core::flow::tables::{APPROVAL_REQUESTS, EFFECTS, RUN_PATCHES, RUNS, STEPS, TOOL_CALLS};
use chimera_core::record::{ColumnType, Table};
use chimera_testkit::access::unix_seconds;
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The store under test.
enum Store {
    Sqlite,
    Postgres { url: String },
}

/// Tables whose timestamps are shifted.
const MOVED: &[&Table] = &[&RUNS, &STEPS, &TOOL_CALLS, &EFFECTS, &RUN_PATCHES, &APPROVAL_REQUESTS];

impl Store {
    fn postgres() -> Self {
        Self::Postgres { url: PrivatePostgres::shared().unwrap().fresh_database().unwrap() }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }

    fn place(&self) -> Workspace {
        let place = Workspace::new().with_actors();
        match self {
            Self::Sqlite => place,
            Self::Postgres { url } => place.env("CHIMERA_DATABASE_URL", url),
        }
    }

    /// Packs the data of a place.
    fn pack(&self, place: &Workspace, archive: &Path) {
        let mut parts = vec![".chimera", "golden.json"];
        if let Self::Postgres { url } = self {
            PrivatePostgres::shared().unwrap().dump(url, &place.path("dump.sql")).unwrap();
            parts.push("dump.sql");
        }
        std::fs::create_dir_all(archive.parent().unwrap()).unwrap();
        tar(Command::new("tar").arg("-czf").arg(archive).arg("-C").arg(place.dir.path()).args(parts));
    }

    /// A place with packed data.
    fn unpack(&self, archive: &Path) -> (Workspace, Value) {
        let place = self.place();
        tar(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(place.dir.path()));
        if let Self::Postgres { url } = self {
            PrivatePostgres::shared().unwrap().load(url, &place.path("dump.sql")).unwrap();
        }
        let golden = std::fs::read_to_string(place.path("golden.json")).unwrap();
        (place, serde_json::from_str(&golden).unwrap())
    }

    /// Shifts timestamps as if the data had just been created; otherwise every approval would have expired.
    fn move_times(&self, place: &Workspace, seconds: u64) {
        for table in MOVED {
            let times =
                table.columns.iter().filter(|column| matches!(column.kind, ColumnType::Time | ColumnType::LocalTime));
            let set: Vec<String> = times
                .map(|column| match self {
                    Self::Sqlite => format!("{0} = {0} + {seconds} * 1000000", column.name),
                    Self::Postgres { .. } => format!("{0} = {0} + interval '{seconds} seconds'", column.name),
                })
                .collect();
            let sql = format!("UPDATE {} SET {}", table.name, set.join(", "));
            match self {
                Self::Sqlite => {
                    chimera_testkit::sqlite_exec::execute(&place.path(".chimera/chimera.db"), &sql).unwrap()
                }
                Self::Postgres { url } => PrivatePostgres::shared().unwrap().execute(url, &sql).unwrap(),
            }
        }
    }
}

fn tar(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The parts of a run that must be equal in every version.
fn look_at(place: &Workspace, run: &str) -> Value {
    let (shown, steps) = (place.json(&["runs", "show", run]), place.json(&["runs", "steps", run]));
    let step = |step: &Value| Some((step["node_id"].as_str()?.to_owned(), step["status"].clone()));
    let steps: Map<String, Value> = steps["steps"].as_array().unwrap().iter().filter_map(step).collect();
    let mut seen = json!({ "steps": steps });
    let members =
        ["run_id", "workflow_id", "workflow_version", "autonomy_level", "actor", "inputs", "status", "paused"];
    for member in members {
        seen[member] = shown[member].clone();
    }
    for list in ["approvals", "doubts", "patches"] {
        seen[list] = shown[list].as_array().map_or(0, Vec::len).into();
    }
    seen
}

fn assert_intact(place: &Workspace) {
    let found = place.json(&["audit", "verify"]);
    assert_eq!(found["intact"], true, "{found}");
    assert!(found["report"]["checkpoints"].as_u64().is_some_and(|checkpoints| checkpoints > 0), "{found}");
}

/// Migrates the data, compares it, drives every run to its end, and starts a new one.
fn open_and_end(store: &Store, archive: &Path) {
    let (place, golden) = store.unpack(archive);
    let migrated = place.json(&["migrate"]);
    assert!(migrated["version"].as_i64() >= golden["schema"].as_i64(), "{migrated}");
    assert_intact(&place);
    for (name, was) in golden["runs"].as_object().unwrap() {
        let is = look_at(&place, was["run_id"].as_str().unwrap());
        assert_eq!(&is, was, "{name}");
    }
    store.move_times(&place, unix_seconds().saturating_sub(golden["made_at"].as_u64().unwrap()));
    let server = place.dev(&[]);
    server.wait_until_ready();
    end::end(&place, &golden["runs"]);
    let fresh = place.json(&["act", "--step", "local.echo={\"message\":\"x\"}"]);
    assert_eq!(fresh["status"], "completed", "{fresh}");
    let (actor, key) = (golden["actor"]["id"].as_str().unwrap(), golden["actor"]["key"].as_str().unwrap());
    let eve = store.place().env("CHIMERA_ACTOR", actor).env("CHIMERA_HMAC_KEY", key);
    eve.json(&["token", "--server", &format!("http://{}", server.address)]);
    let (status, log) = server.stop();
    assert_eq!(status, Some(0), "{log}");
    assert_intact(&place);
}

/// Opens all archives at the same time: most of the time goes to waiting for calls that nobody answers.
fn open_all(archives: &[PathBuf], store: impl Fn() -> Store + Sync) {
    std::thread::scope(|scope| {
        for archive in archives {
            scope.spawn(|| open_and_end(&store(), archive));
        }
    });
}

fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/golden")
}

/// The archives of every schema, the oldest first.
fn archives(store: &Store) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(golden_folder()).unwrap().map(|entry| entry.unwrap());
    let versions = folders.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut versions: Vec<u32> = versions.collect();
    versions.sort_unstable();
    let archive = |version: &u32| golden_folder().join(format!("{version}/{}.tar.gz", store.name()));
    versions.iter().map(archive).collect()
}

/// Creates data of this version, saves it if `UPDATE_GOLDEN` is set, and opens it.
#[allow(clippy::disallowed_methods, reason = "whether the data is kept is set from outside")]
fn make_and_open(store: &Store, again: impl Fn() -> Store) {
    let place = make::make(store);
    let packed = tempfile::tempdir().unwrap();
    let archive = packed.path().join("data.tar.gz");
    store.pack(&place, &archive);
    assert!(archive.metadata().unwrap().len() < 512 * 1024, "golden data has to stay small");
    open_and_end(&again(), &archive);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let golden: Value = serde_json::from_slice(&std::fs::read(place.path("golden.json")).unwrap()).unwrap();
        let kept = golden_folder().join(format!("{}/{}.tar.gz", golden["schema"], store.name()));
        std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
        std::fs::copy(&archive, kept).unwrap();
    }
}

#[test]
fn sqlite_data_of_this_version_with_a_run_in_every_state_can_be_made_and_opened() {
    make_and_open(&Store::Sqlite, || Store::Sqlite);
}

#[test]
fn postgres_data_of_this_version_with_a_run_in_every_state_can_be_made_and_opened() {
    make_and_open(&Store::postgres(), Store::postgres);
}

#[test]
fn sqlite_data_of_every_earlier_schema_is_what_it_was_and_can_be_ended() {
    let archives = archives(&Store::Sqlite);
    assert!(!archives.is_empty(), "no golden data: run testkit/golden/make");
    open_all(&archives, || Store::Sqlite);
}

#[test]
fn postgres_data_of_every_earlier_schema_is_what_it_was_and_can_be_ended() {
    let archives = archives(&Store::postgres());
    assert!(!archives.is_empty(), "no golden data: run testkit/golden/make");
    open_all(&archives, Store::postgres);
}
