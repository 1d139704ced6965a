//! Restores and resumes that are cut, refused or done with parts missing, with the real binary.

use crate::support::Place;
use chimera_testkit::preload::WallClock;

const DAY: i64 = 86_400;
const STEP: &str = r#"local.echo={"message":"hi"}"#;

/// Every name in a folder, with the content of each file.
fn contents(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut found: Vec<_> =
        files.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect();
    found.sort();
    found
}

#[test]
fn a_log_without_its_data_file_is_never_lost_to_a_command_or_a_start() {
    let place = Place::new();
    let server = place.dev(&[]);
    for _ in 0..3 {
        place.json(&["act", "--step", STEP]);
    }
    let entries = || place.json(&["audit", "verify"])["report"]["entries"].as_u64().unwrap();
    let acknowledged = entries();
    drop(server);
    let data = place.path(".chimera/chimera.db");
    std::fs::rename(&data, place.path("aside.db")).unwrap();
    let before = contents(&place.path(".chimera"));
    let commands: [&[&str]; 8] = [
        &["resume", "--after-restore"],
        &["resume", "--after-restore", "--yes"],
        &["resume", "--accept-clock"],
        &["dev", "--listen", "127.0.0.1:0"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["migrate"],
        &["actor", "add", "somebody"],
        &["backup", "--out", "b"],
    ];
    for args in commands {
        let said = place.run(args);
        assert!(said.status != 0 && said.stderr.contains("chimera.db-wal"), "{args:?}: {}", said.stderr);
        let keep =
            |found: Vec<(String, Vec<u8>)>| found.into_iter().filter(|(name, _)| name != "lock").collect::<Vec<_>>();
        assert_eq!(keep(contents(&place.path(".chimera"))), keep(before.clone()), "{args:?}");
    }
    let doctor = place.run(&["doctor"]);
    assert!(doctor.status == 3 && doctor.stdout.contains("chimera.db-wal"), "{}", doctor.stdout);
    std::fs::rename(place.path("aside.db"), &data).unwrap();
    assert_eq!(entries(), acknowledged);
    let server = place.dev(&[]);
    server.until_ready();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_resume_by_a_right_clock_counts_after_one_by_a_clock_that_was_ahead() {
    let clock = WallClock::new();
    let place = clock.env().iter().fold(Place::new(), |place, (name, value)| place.env(name, value));
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    place.json(&["backup", "--out", "b"]);
    for ahead in [DAY, 0, 1] {
        clock.set(ahead);
        place.json(&["restore", "--from", "b", "--force"]);
        let resumed = place.json(&["resume", "--after-restore", "--yes"]);
        assert_eq!(resumed["resumed"], true, "{resumed}");
        let doctor = place.run(&["doctor"]);
        assert_eq!(doctor.status, 0, "{ahead}: {}", doctor.stdout);
        let server = place.dev(&[]);
        server.until_ready();
        assert_eq!(server.stop().0, Some(0));
    }
}
