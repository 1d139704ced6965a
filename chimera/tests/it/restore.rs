//! Restores and resumes that are interrupted, rejected or incomplete, with the real binary.

use crate::disk::SmallDisk;
use crate::support::{CommandOutput, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::preload::{KillSwitch, WallClock};

/// Creates a document, and so a blob.
const PDF: &str = r##"local.markdown_to_pdf={"markdown":"# Hello"}"##;
const DAY: i64 = 86_400;
const STEP: &str = r#"local.echo={"message":"hi"}"#;

/// Every name in a folder, with the content of each file.
pub(crate) fn contents(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut found: Vec<_> =
        files.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect();
    found.sort();
    found
}

#[test]
fn a_log_without_its_data_file_is_never_lost_to_a_command_or_a_start() {
    let place = Workspace::new();
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
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_resume_by_a_right_clock_counts_after_one_by_a_clock_that_was_ahead() {
    let clock = WallClock::new();
    let place = Workspace::new().envs(clock.env());
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
        server.wait_until_ready();
        assert_eq!(server.stop().0, Some(0));
    }
}

/// Takes a backup `b` of a server with a blob.
fn backed_up(place: Workspace) -> Workspace {
    let place = place.env("CHIMERA_SECRET_BACKUP", "correct horse battery staple");
    let server = place.dev(&[]);
    let run = place.json(&["act", "--step", PDF])["run_id"].as_str().unwrap().to_owned();
    wait_until("the document", || {
        let shown = place.json(&["runs", "show", &run]);
        (shown["status"] != "completed").then(|| shown.to_string())
    });
    assert_eq!(server.stop().0, Some(0));
    place.json(&["backup", "--out", "b", "--with-blobs", "--key", "secret://backup"]);
    place
}

fn restore(place: &Workspace, more: &[&str]) -> CommandOutput {
    place.run(&[&["restore", "--from", "b", "--key", "secret://backup"], more].concat())
}

/// Every command and every start refuses a folder with an unfinished restore, and changes nothing.
fn is_refused(place: &Workspace, data: &str) {
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

fn goes_on(place: &Workspace, data: &str) {
    place.json(&["resume", "--after-restore", "--yes", "--data", data]);
    let deep = place.run(&["doctor", "--deep", "--data", data]);
    assert!(deep.status == 0 && deep.stdout.contains("intact: 1"), "{}", deep.stdout);
    let server = place.dev(&["--data", data]);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_restore_that_was_cut_is_found_by_everybody_and_can_be_repeated() {
    let place = backed_up(Workspace::new());
    // Interrupted right after its start, in a new folder and in one with data.
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
    let place = backed_up(Workspace::new());
    let blobs = place.path(".chimera/blobs/sha256");
    std::fs::remove_dir_all(&blobs).unwrap();
    // A file where a folder should be.
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
    let place = Workspace::new().wrapped_in(disk.entrance());
    let data = disk.data();
    let (here, backup) = (["--data", data.as_str()], place.path("b").display().to_string());
    assert_eq!(place.dev(&here).stop().0, Some(0));
    place.json(&[&["backup", "--out", &backup, "--with-blobs"], &here[..]].concat());
    disk.fill();
    let said = place.run(&[&["restore", "--from", &backup, "--force"], &here[..]].concat());
    assert!(said.status == 1 && !said.stderr.contains("not complete"), "{}", said.stderr);
    disk.empty();
    let server = place.dev(&here);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0), "the failed restore left no trace");
    let refused = place.run(&[&["restore", "--from", &backup], &here[..]].concat());
    assert!(refused.stderr.contains("already contains data"), "{}", refused.stderr);
    let server = place.dev(&here);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0), "a refused restore has not started");
}

#[test]
fn a_blob_that_the_records_name_and_that_is_gone_is_missed_by_the_doctor_and_by_a_backup() {
    let place = backed_up(Workspace::new());
    let deep = place.run(&["doctor", "--deep"]);
    assert!(deep.status == 0 && deep.stdout.contains("intact: 1, referenced by records: 1"), "{}", deep.stdout);
    std::fs::rename(place.path(".chimera/blobs"), place.path("aside")).unwrap();
    let deep = place.run(&["doctor", "--deep"]);
    let told = deep.stdout.contains("missing: 1 of 1 that the records refer to, first: cas://sha256:");
    assert!(deep.status == 3 && told, "{}", deep.stdout);
    for (out, more) in [("copied", &["--with-blobs"][..]), ("listed", &[])] {
        let made = place.run(&[&["backup", "--out", out], more].concat());
        assert!(made.status == 3 && made.stderr.contains("INCOMPLETE"), "{}", made.stderr);
        assert!(made.stderr.contains("cas://sha256:"), "{}", made.stderr);
        let found = place.run(&["backup", "verify", out]);
        assert!(found.status == 3 && !found.stderr.contains("intact"), "{}", found.stderr);
        assert!(found.stderr.contains("INCOMPLETE"), "{}", found.stderr);
    }
    assert_eq!(place.json(&["backup", "verify", "b"])["intact"], true);
    std::fs::rename(place.path("aside"), place.path(".chimera/blobs")).unwrap();
    assert_eq!(place.run(&["doctor", "--deep"]).status, 0);
}

/// What a start finds after a restore was killed. An empty folder counts as none.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum RestoreResult {
    Nothing,
    Unfinished,
    Complete,
}

/// A restore that is killed repeatedly, each time a few file changes later.
#[derive(Clone, Copy)]
struct KilledRestore<'a> {
    place: &'a Workspace,
    crash: &'a KillSwitch,
    args: &'a [&'a str],
    /// The content of the folder before the restore.
    before: &'a [&'a str],
    step: usize,
}

impl KilledRestore<'_> {
    fn everywhere(&self) {
        let mut seen: Vec<RestoreResult> = Vec::new();
        for change in (1..).step_by(self.step) {
            let data = format!("killed-{change}");
            for name in self.before {
                let to = self.place.path(&data).join(name);
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(self.place.path(".chimera").join(name), to).unwrap();
            }
            self.crash.before(change);
            let args = [&["restore", "--from", "b", "--data", &data], self.args].concat();
            let ended = self.place.start(&args).wait_with_output().unwrap();
            self.crash.never();
            let found = self.left(&data);
            assert!(seen.last().is_none_or(|last| *last <= found), "{change}: {seen:?}, {found:?}");
            seen.push(found);
            if found == RestoreResult::Unfinished && change % 7 == 1 {
                let mut again = args.clone();
                again.retain(|arg| *arg != "--force");
                let said = self.place.run(&again);
                assert_eq!(said.status, 0, "{change}: {}", said.stderr);
                assert_eq!(self.left(&data), RestoreResult::Complete, "{change}");
            }
            if self.place.path(&data).exists() {
                std::fs::remove_dir_all(self.place.path(&data)).unwrap();
            }
            if ended.status.code() == Some(0) {
                break;
            }
            assert_eq!(ended.status.code(), None, "{change}: {}", String::from_utf8_lossy(&ended.stderr));
        }
        let unfinished = seen.iter().filter(|left| **left == RestoreResult::Unfinished).count();
        assert!(unfinished > 5 && seen.last() == Some(&RestoreResult::Complete), "{seen:?}");
    }

    /// What a start finds. Unless it is refused, it must be the whole backup or the whole previous data.
    fn left(&self, data: &str) -> RestoreResult {
        let folder = self.place.path(data);
        if folder.join("restoring").exists() {
            let refused = self.place.run(&["serve", "--listen", "127.0.0.1:0", "--data", data]);
            assert!(refused.status == 1 && refused.stderr.contains("is not complete"), "{}", refused.stderr);
            return RestoreResult::Unfinished;
        }
        let doctor = self.place.run(&["doctor", "--data", data]).stdout;
        let blobs = std::fs::read_dir(folder.join("blobs/sha256")).map_or(0, Iterator::count);
        if doctor.contains("it was restored from a backup of") && blobs > 0 {
            let keys = self.args.contains(&"--key") || self.before.contains(&"keys/ledger.key");
            assert!(blobs == 1 && folder.join("keys/ledger.key").exists() == keys, "{data}");
            return RestoreResult::Complete;
        }
        let mut files = Vec::new();
        for name in ["chimera.db", "ledger.mark", "keys/ledger.key", "keys/seal.key", "blobs"] {
            files.extend(folder.join(name).exists().then_some(name));
        }
        assert_eq!(files, self.before, "{data}: {doctor}");
        RestoreResult::Nothing
    }
}

/// The first step of a restore marks it as unfinished, and the last step removes the mark.
#[test]
fn a_restore_that_is_killed_at_any_point_is_refused_by_name_or_complete() {
    let (crash, url) = (KillSwitch::new(), PrivatePostgres::shared().unwrap().fresh_database().unwrap());
    let (key, there) = (["--key", "secret://backup", "--force"], ["chimera.db", "ledger.mark", "keys/ledger.key"]);
    for (place, step) in [(Workspace::new(), 1), (Workspace::new().env("CHIMERA_DATABASE_URL", &url), 3)] {
        let place = backed_up(place.envs(crash.env()));
        let killed = KilledRestore { place: &place, crash: &crash, args: &["--force"], before: &[], step };
        killed.everywhere();
        // Decrypting keys is slow on purpose.
        KilledRestore { args: &key, step: 10, ..killed }.everywhere();
        if place.path(".chimera/chimera.db").exists() {
            KilledRestore { args: &["--force"], before: &there, ..killed }.everywhere();
            KilledRestore { args: &key, before: &there, step: 10, ..killed }.everywhere();
        }
    }
}

#[test]
fn a_restore_on_a_machine_that_knows_no_key_says_whom_it_trusts_and_which_keys_are_missing() {
    let place = backed_up(Workspace::new());
    let said = place.run(&["restore", "--from", "b", "--data", "new"]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    for words in [
        "which it contains itself: no key is trusted here yet",
        "Missing keys: keys/ledger.key, keys/seal.key, keys/token.key, keys/webhook.key, keys/links.key.",
        "no server starts",
    ] {
        assert!(said.stderr.contains(words), "{words}: {}", said.stderr);
    }
    let told = place.json(&["restore", "--from", "b", "--data", "other", "--key", "secret://backup"]);
    assert_eq!(told["keys_missing"], serde_json::json!([]), "{told}");
}
