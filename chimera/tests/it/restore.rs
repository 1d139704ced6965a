//! Restores and resumes that are cut, refused or done with parts missing, with the real binary.

use crate::disk::SmallDisk;
use crate::support::{Place, Said, until};
use chimera_testkit::preload::WallClock;

/// Makes a document, so that there is a blob.
const PDF: &str = r##"local.markdown_to_pdf={"markdown":"# Hello"}"##;
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

/// A place with a backup `b` of a server that made a blob.
fn backed_up() -> Place {
    let place = Place::new().env("CHIMERA_SECRET_BACKUP", "correct horse battery staple");
    let server = place.dev(&[]);
    let run = place.json(&["act", "--step", PDF])["run_id"].as_str().unwrap().to_owned();
    until("the document", || {
        let shown = place.json(&["runs", "show", &run]);
        (shown["status"] != "completed").then(|| shown.to_string())
    });
    assert_eq!(server.stop().0, Some(0));
    place.json(&["backup", "--out", "b", "--with-blobs", "--key", "secret://backup"]);
    place
}

fn restore(place: &Place, more: &[&str]) -> Said {
    place.run(&[&["restore", "--from", "b", "--key", "secret://backup"], more].concat())
}

/// Every command and every start refuses a folder in which a restore did not end, and changes nothing.
fn is_refused(place: &Place, data: &str) {
    let commands: [&[&str]; 7] = [
        &["dev", "--listen", "127.0.0.1:0"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["resume", "--after-restore", "--yes"],
        &["migrate"],
        &["audit", "verify"],
        &["backup", "--out", "of-half-a-restore"],
        &["actor", "add", "somebody"],
    ];
    for args in commands {
        let said = place.run(&[args, &["--data", data]].concat());
        let told = said.stderr.contains("is not complete") && said.stderr.contains("chimera restore --from");
        assert!(said.status != 0 && told, "{args:?}: {}", said.stderr);
    }
    let doctor = place.run(&["doctor", "--data", data]);
    assert!(doctor.status == 3 && doctor.stdout.contains("is not complete"), "{}", doctor.stdout);
}

fn goes_on(place: &Place, data: &str) {
    place.json(&["resume", "--after-restore", "--yes", "--data", data]);
    let deep = place.run(&["doctor", "--deep", "--data", data]);
    assert!(deep.status == 0 && deep.stdout.contains("whole: 1"), "{}", deep.stdout);
    let server = place.dev(&["--data", data]);
    server.until_ready();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_restore_that_was_cut_is_found_by_everybody_and_can_be_repeated() {
    let place = backed_up();
    // Cut as soon as it had begun, in a new folder and in one with data.
    std::fs::create_dir_all(place.path("new/restoring")).unwrap();
    std::fs::create_dir(place.path(".chimera/restoring")).unwrap();
    for data in ["new", ".chimera"] {
        is_refused(&place, data);
        let said = restore(&place, &["--data", data]);
        assert_eq!(said.status, 0, "{data}: {}", said.stderr);
        goes_on(&place, data);
    }
}

#[test]
fn a_restore_that_failed_while_things_were_put_in_place_is_not_complete_and_says_where_the_old_data_is() {
    let place = backed_up();
    let blobs = place.path(".chimera/blobs/sha256");
    std::fs::remove_dir_all(&blobs).unwrap();
    // Nothing can be put into a file.
    std::fs::write(&blobs, "in the way").unwrap();
    let said = restore(&place, &["--force"]);
    let told = said.stderr.contains("is not complete") && said.stderr.contains("before-restore-");
    assert!(said.status == 1 && told, "{}", said.stderr);
    assert!(!place.path(".chimera/chimera.db").exists(), "records come last");
    is_refused(&place, ".chimera");
    let refused = place.run(&["dev", "--listen", "127.0.0.1:0"]);
    assert!(refused.stderr.contains("before-restore-"), "{}", refused.stderr);
    std::fs::remove_file(&blobs).unwrap();
    let said = restore(&place, &[]);
    assert_eq!((said.status, said.stderr.matches("before-restore-").count()), (0, 2), "{}", said.stderr);
    goes_on(&place, ".chimera");
}

#[test]
fn a_restore_that_does_not_fit_on_the_disk_changes_nothing_that_was_there() {
    let disk = SmallDisk::new(16);
    let place = Place::new().via(disk.entrance());
    let data = disk.data();
    let (here, backup) = (["--data", data.as_str()], place.path("b").display().to_string());
    assert_eq!(place.dev(&here).stop().0, Some(0));
    place.json(&[&["backup", "--out", &backup, "--with-blobs"], &here[..]].concat());
    disk.fill();
    let said = place.run(&[&["restore", "--from", &backup, "--force"], &here[..]].concat());
    assert!(said.status == 1 && !said.stderr.contains("not complete"), "{}", said.stderr);
    disk.empty();
    let server = place.dev(&here);
    server.until_ready();
    assert_eq!(server.stop().0, Some(0), "as if nobody had tried");
    let refused = place.run(&[&["restore", "--from", &backup], &here[..]].concat());
    assert!(refused.stderr.contains("there is data in"), "{}", refused.stderr);
    let server = place.dev(&here);
    server.until_ready();
    assert_eq!(server.stop().0, Some(0), "what is refused has not begun");
}

#[test]
fn a_blob_that_the_records_name_and_that_is_gone_is_missed_by_the_doctor_and_by_a_backup() {
    let place = backed_up();
    let deep = place.run(&["doctor", "--deep"]);
    assert!(deep.status == 0 && deep.stdout.contains("whole: 1, named by records: 1"), "{}", deep.stdout);
    std::fs::rename(place.path(".chimera/blobs"), place.path("aside")).unwrap();
    let deep = place.run(&["doctor", "--deep"]);
    let told = deep.stdout.contains("missing: 1 of 1 that the records name, the first is cas://sha256:");
    assert!(deep.status == 3 && told, "{}", deep.stdout);
    for (out, more) in [("copied", &["--with-blobs"][..]), ("listed", &[])] {
        let made = place.run(&[&["backup", "--out", out], more].concat());
        assert!(made.status == 3 && made.stderr.contains("NOT whole"), "{}", made.stderr);
        assert!(made.stderr.contains("cas://sha256:"), "{}", made.stderr);
        let found = place.run(&["backup", "verify", out]);
        assert!(found.status == 3 && !found.stderr.contains("intact"), "{}", found.stderr);
        assert!(found.stderr.contains("NOT whole"), "{}", found.stderr);
    }
    assert_eq!(place.json(&["backup", "verify", "b"])["intact"], true);
    std::fs::rename(place.path("aside"), place.path(".chimera/blobs")).unwrap();
    assert_eq!(place.run(&["doctor", "--deep"]).status, 0);
}
