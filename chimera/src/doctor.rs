//! `chimera doctor`: checks what a server needs, one check at a time, each with a verdict, a message and a hint.

mod actors;
pub(crate) mod deep;
pub(crate) mod report;

use crate::backup::staging::refuse_unfinished;
use crate::compose::{self, Ambient, ClockComparison};
use crate::config::Config;
use crate::data_folder;
use crate::failure::{Outcome, io_hint};
use chimera_core::error::{Code, io_reason};
use chimera_core::limits;
use chimera_core::time::Timestamp;
use report::Report;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// Works, but needs attention.
    Warn,
    /// A server will not work.
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<&'static str>,
}

/// `chimera migrate` does not recreate tables or columns of a schema that already has the right version.
const LACKS_HINT: &str = "drop what does not belong to Chimera, grant the missing right to the user of database_url, or restore what is missing; \
     chimera migrate restores triggers, keys and unique indexes, but no tables or columns";

const DAMAGE_HINT: &str =
    "chimera doctor --deep says what is damaged; restore a backup as docs/guides/operations.md describes";

#[derive(Clone, Debug)]
pub(crate) struct StoreFacts {
    pub(crate) kind: &'static str,
    /// 0 if the store is empty.
    pub(crate) schema_version: i64,
    /// The newest schema version that this binary has.
    pub(crate) schema_known: i64,
    /// Whether a commit waits for the disk.
    pub(crate) fsync: bool,
    /// Whether this user may change it.
    pub(crate) writable: bool,
    /// The database server's clock; none for SQLite.
    pub(crate) clock: Option<Timestamp>,
    pub(crate) runs: RunFacts,
    /// Why the store is held, if it is.
    pub(crate) held: Option<String>,
    /// A missing table, column or privilege, or a foreign object on Chimera's tables.
    pub(crate) lacks: Option<String>,
    /// Set if the store was used before and its mark file is missing.
    pub(crate) mark_missed: Option<String>,
}

/// Unfinished runs in the record store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunFacts {
    pub(crate) unfinished: i64,
    /// Due for more than a minute.
    pub(crate) overdue: i64,
    /// Signals not consumed for more than a minute.
    pub(crate) overdue_signals: i64,
    /// Rollbacks that began more than an hour ago and have not ended.
    pub(crate) long_rollbacks: i64,
    /// Neither owned nor due: no process would ever pick them up.
    pub(crate) unattended: i64,
    /// Calls whose outcome is unknown.
    pub(crate) in_doubt: i64,
}

const fn ok(name: &'static str, message: String) -> Finding {
    Finding { name, verdict: Verdict::Ok, message, hint: None }
}

const fn warn(name: &'static str, message: String, hint: &'static str) -> Finding {
    Finding { name, verdict: Verdict::Warn, message, hint: Some(hint) }
}

const fn fail(name: &'static str, message: String, hint: &'static str) -> Finding {
    Finding { name, verdict: Verdict::Fail, message, hint: Some(hint) }
}

/// Runs all checks. Changes nothing, except for a probe file that is removed again.
async fn examine(config: &Config, ambient: &Ambient, findings: &Report) {
    let dir = &config.data_dir;
    findings.begin_check("data_folder");
    findings.push(folder(dir));
    findings.begin_check("disk");
    findings.push(disk(dir));
    findings.begin_check("signing_key");
    findings.push(signing_key(config).await);
    findings.begin_check("keys");
    findings.extend(keys(dir));
    if let Err(failure) = refuse_unfinished(dir) {
        let hint = "repeat the restore with the same backup; docs/guides/backup.md describes how to give it up";
        findings.push(fail("restore", failure.message, hint));
    }
    findings.begin_check("secrets");
    findings.extend(secret_sources(config));
    findings.begin_check("store");
    match compose::while_responsive(config, compose::store_facts(config)).await {
        Ok(facts) => {
            findings.extend(store(&facts));
            findings.begin_check("clock");
            let compared = compose::while_responsive(config, compose::compare_clocks(config, &*ambient.clock)).await;
            findings.report_damage(&compared);
            findings.push(clock(compared));
        }
        Err(failure) if dir.is_dir() && compose::entries_marked(config).is_err() => {
            findings.push(fail("ledger_mark", failure.message, compose::MARK_HINT));
        }
        Err(failure) if failure.code == Code::SchemaMismatch => {
            findings.push(fail("schema", failure.message, "use the build of Chimera that migrated it"));
        }
        Err(failure) if failure.code == Code::StoreDamaged => {
            findings.push(fail("store", failure.message, DAMAGE_HINT));
        }
        Err(failure) if failure.code == Code::StoreUnusable && config.database_url.is_none() => findings.push(fail(
            "store",
            failure.message,
            "nothing was changed; docs/guides/backup.md lists the files that belong together in a data folder",
        )),
        Err(failure) => findings.push(fail(
            "store",
            failure.message,
            "check database_url, that the server runs and who holds its locks (pg_locks); without it the data folder must be readable",
        )),
    }
    if compose::has_local_blobs(config) {
        findings.push(warn(
            "shared_blobs",
            "blobs and buckets are in the data folder, where other nodes can't read them".to_owned(),
            "set s3_url before a second node uses this database",
        ));
    }
    findings.begin_check("actors");
    // Concurrently: each would wait for a database that does not respond.
    let (found, sealed, signs) = tokio::join!(
        compose::while_responsive(config, compose::actor_facts(config, ambient)),
        compose::while_responsive(config, compose::seal_facts(config, ambient)),
        compose::while_responsive(config, compose::check_existing_signing_key(config, ambient)),
    );
    findings.report_damage(&found);
    findings.report_damage(&sealed);
    findings.report_damage(&signs);
    findings.extend(actors::findings(found));
    findings.extend(seal(sealed));
    if let Err(failure) = signs
        && failure.code == Code::ConfigInvalid
    {
        let hint = "restore keys/ledger.key from a backup, or list the other public key in ledger.trusted_keys";
        findings.replace(fail("signing_key", failure.message, hint));
    }
    findings.extend(shared_access(config));
    findings.begin_check("workflows");
    findings.push(match compose::workflow_facts(config, ambient) {
        Ok((tools, rules, broken)) if broken.is_empty() => ok("workflows", format!("tools: {tools}, rules: {rules}")),
        Ok((_, _, broken)) => {
            warn("workflows", broken.join("; "), "correct the file; docs/guides/tools.md describes it")
        }
        Err(failure) => fail("workflows", failure.message, "correct the setting; docs/reference/config.md lists them"),
    });
    findings.begin_check("services");
    let services = match compose::services(config, ambient).await {
        Ok(services) => services,
        Err(failure) => {
            findings.push(fail("services", failure.message, "chimera config print shows the effective settings"));
            Vec::new()
        }
    };
    for check in services {
        findings.begin_check(check.name);
        let answer = tokio::time::timeout(limits::DOCTOR_RESPONSE_TIMEOUT, check.run()).await;
        findings.push(match answer.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
            Ok(()) => ok(check.name, "answers".to_owned()),
            Err(reason) => fail(check.name, reason, "check its URL in the configuration and that the server runs"),
        });
    }
    let blobs = config.data_dir.join("blobs");
    if config.s3_url.is_none() && blobs.exists() && !blobs.is_dir() {
        let hint = "move what is there out of the way; the folder comes back with a backup";
        findings.push(fail("blobs", "blobs in the data folder is not a folder".to_owned(), hint));
    }
    findings.begin_check("server");
    findings.extend(server(config).await);
}

/// Readiness of the running server, which may know of problems that the data does not show.
async fn server(config: &Config) -> Option<Finding> {
    let url = match &config.server {
        Some(url) => url.clone(),
        None => data_folder::address(&config.data_dir).ok().flatten()?,
    };
    let hint = "do what it says; if it names no command, the server recovers by itself when the cause is gone";
    match tokio::time::timeout(limits::DOCTOR_RESPONSE_TIMEOUT, compose::unready(&url)).await {
        Ok(Ok(parts)) if parts.is_empty() => Some(ok("server", "is ready".to_owned())),
        Ok(Ok(parts)) => {
            let reasons: Vec<String> = parts.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
            Some(fail("server", format!("is not ready: {}", reasons.join("; ")), hint))
        }
        // A killed process leaves a stale address behind.
        Ok(Err(_)) if config.server.is_none() => None,
        Ok(Err(failure)) => Some(fail("server", failure.message, "check --server and that the server runs")),
        Err(_) => Some(fail("server", "no answer in time".to_owned(), "look at the server's log")),
    }
}

/// Whether the actors' keys in the store can be decrypted.
fn seal(found: Outcome<(usize, usize)>) -> Option<Finding> {
    const HINT: &str = "restore keys/seal.key from a backup, or set access.seal_key to the secret that all nodes share; \
                        docs/guides/access.md says what to do when it is lost";
    match found {
        Ok((0, _)) => None,
        Ok((count, 0)) => Some(ok("seal_key", format!("decrypts all {count} actors' keys"))),
        Ok((count, closed)) => Some(warn(
            "seal_key",
            format!("{closed} of {count} actors' keys can't be decrypted and are not accepted"),
            HINT,
        )),
        Err(failure) if failure.code == Code::ConfigInvalid => Some(fail("seal_key", failure.message, HINT)),
        // Store problems are already reported.
        Err(_) => None,
    }
}

/// Access settings that nodes of one database must share, but that are local here.
fn shared_access(config: &Config) -> Vec<Finding> {
    if config.database_url.is_none() {
        return Vec::new();
    }
    let access = &config.access;
    let missing = [
        (
            config.redis_url.is_none(),
            "shared_counters",
            "each node counts requests by itself",
            "set redis_url before a second node uses this database",
        ),
        (
            access.token_key.is_none() && !access.hs256,
            "shared_tokens",
            "access tokens are signed with this folder's own key; other nodes reject them",
            "set access.token_key to a secret that all nodes have before a second one uses this database",
        ),
        (
            access.seal_key.is_none(),
            "shared_seal",
            "actors' keys are encrypted with this folder's own key; other nodes can't decrypt them",
            "set access.seal_key to a secret that all nodes have before a second one uses this database",
        ),
    ];
    let missing = missing.into_iter().filter(|(missing, ..)| *missing);
    missing.map(|(_, name, message, hint)| warn(name, message.to_owned(), hint)).collect()
}

/// Whether a file can be written and synced here. The reason contains no path.
pub(crate) fn write_probe(dir: &Path) -> Result<(), String> {
    try_write(dir).map_err(|error| unwritable_message(&error))
}

fn try_write(dir: &Path) -> std::io::Result<()> {
    let path = dir.join("probe");
    let written = File::create(&path).and_then(|mut file| file.write_all(b"probe").and_then(|()| file.sync_all()));
    let _ = std::fs::remove_file(&path);
    written
}

fn unwritable_message(error: &std::io::Error) -> String {
    format!("the data folder can't be written: {}", io_reason(error))
}

fn folder(dir: &Path) -> Finding {
    let wide = dir.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    match try_write(dir) {
        Ok(()) if wide => {
            let message = format!("{} is writable, but other users can read it", dir.display());
            warn("data_folder", message, "chmod 700 the data folder, unless other users need to read it")
        }
        Ok(()) => ok("data_folder", format!("{} is writable", dir.display())),
        Err(_) if !dir.exists() => warn(
            "data_folder",
            format!("{} does not exist yet", dir.display()),
            "chimera dev or chimera serve creates it",
        ),
        Err(error) => {
            let hint = "its owner must be the user that runs chimera, on a disk that is not read-only";
            fail("data_folder", unwritable_message(&error), io_hint(&error).unwrap_or(hint))
        }
    }
}

fn disk(dir: &Path) -> Finding {
    let nearest = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let nearest = if nearest.as_os_str().is_empty() { Path::new(".") } else { nearest };
    match rustix::fs::statvfs(nearest) {
        Ok(stat) => space(stat.f_bavail.saturating_mul(stat.f_frsize)),
        Err(_) => warn("disk", "free space is unknown".to_owned(), "check the disk of the data folder"),
    }
}

fn space(free: u64) -> Finding {
    let message = format!("{} MiB free", free / (1024 * 1024));
    let hint = "free disk space before it runs out: what can't be recorded is not executed";
    match free {
        0..limits::DISK_BYTES_FAIL => fail("disk", message, hint),
        limits::DISK_BYTES_FAIL..limits::DISK_BYTES_WARN => warn("disk", message, hint),
        _ => ok("disk", message),
    }
}

/// Whether the configured secret sources can be read.
fn secret_sources(config: &Config) -> Vec<Finding> {
    let file = config.secrets_file.iter().map(|path| ("secrets.file", path, File::open(path).and_then(read_one)));
    let dir = config.secrets_dir.iter().map(|path| ("secrets.dir", path, std::fs::read_dir(path).map(drop)));
    let found = |(name, path, opened): (&'static str, &PathBuf, std::io::Result<()>)| match opened {
        Ok(()) => ok(name, format!("{} can be read", path.display())),
        Err(error) => fail(
            name,
            format!("{} can't be read: {}", path.display(), io_reason(&error)),
            "correct the setting, or let the user that runs chimera read it",
        ),
    };
    file.chain(dir).map(found).collect()
}

/// A folder can be opened like a file, but not read.
fn read_one(mut file: File) -> std::io::Result<()> {
    file.read(&mut [0]).map(drop)
}

/// Damaged key files; the ledger's key has a check of its own.
fn keys(dir: &Path) -> Option<Finding> {
    let found = data_folder::damaged_keys(dir).into_iter().map(|failure| failure.message);
    let found: Vec<String> = found.filter(|message| !message.contains("keys/ledger.key")).collect();
    let hint =
        "restore them from a backup; keys for tokens, webhooks and links can be removed and are then created again";
    (!found.is_empty()).then(|| fail("keys", found.join("; "), hint))
}

async fn signing_key(config: &Config) -> Finding {
    if let Some(name) = &config.signing_key {
        return match compose::existing_signer(config).await {
            Ok(_) => ok("signing_key", format!("comes from {name}")),
            Err(failure) => fail(
                "signing_key",
                failure.message,
                "the secret must be 64 hex digits, in secrets.file, secrets.dir or the environment",
            ),
        };
    }
    let path = data_folder::ledger_key(&config.data_dir);
    let open = |mode: u32| mode & 0o077 != 0;
    match (data_folder::existing_ledger_seed(&config.data_dir), path.metadata()) {
        (Err(failure), _) if failure.code != Code::ConfigInvalid => {
            fail("signing_key", failure.message, "the user that runs chimera must be able to read keys/ledger.key")
        }
        (Err(failure), _) => fail("signing_key", failure.message, "restore keys/ledger.key from a backup"),
        (Ok(None), _) => warn("signing_key", "there is none yet".to_owned(), "it is created at the first start"),
        (Ok(Some(_)), Ok(meta)) if open(meta.permissions().mode()) => {
            warn("signing_key", "other users can read it".to_owned(), "chmod 600 keys/ledger.key in the data folder")
        }
        (Ok(Some(_)), _) if config.database_url.is_some() => warn(
            "signing_key",
            "is local to this data folder".to_owned(),
            "nodes that share a database should share a key: set ledger.signing_key to a secret they all have",
        ),
        (Ok(Some(_)), _) => ok("signing_key", "present and private".to_owned()),
    }
}

fn store(facts: &StoreFacts) -> Vec<Finding> {
    let mut findings = vec![match (facts.writable, facts.schema_version) {
        (false, _) => {
            let hint = if facts.clock.is_some() {
                "it is a standby, or default_transaction_read_only is on: connect to the primary, or allow its user to write"
            } else {
                "chimera.db in the data folder must be owned and writable by the user that runs chimera"
            };
            fail("store", format!("{} is read-only", facts.kind), hint)
        }
        (true, 0) => ok("store", format!("{}, no data yet", facts.kind)),
        (true, _) => ok("store", format!("{} answers", facts.kind)),
    }];
    if let Some(reason) = &facts.held {
        findings.push(fail(
            "held",
            reason.clone(),
            "chimera resume --after-restore lists what may have happened since; docs/guides/backup.md",
        ));
    }
    if let Some(missed) = &facts.mark_missed {
        findings.push(warn(
            "ledger_mark",
            missed.clone(),
            "mount the disk that it is on, or put it back; the next start begins a new one (docs/guides/backup.md)",
        ));
    }
    let (has, knows) = (facts.schema_version, facts.schema_known);
    findings.push(match has.cmp(&knows) {
        std::cmp::Ordering::Equal => match &facts.lacks {
            Some(reason) => fail("schema", reason.clone(), LACKS_HINT),
            None => ok("schema", format!("version {has}")),
        },
        std::cmp::Ordering::Less if has == 0 => {
            warn("schema", "there is none yet".to_owned(), "chimera migrate or the first start creates it")
        }
        std::cmp::Ordering::Less => {
            warn("schema", format!("version {has}, this binary brings {knows}"), "chimera migrate brings it up to date")
        }
        std::cmp::Ordering::Greater => fail(
            "schema",
            format!("version {has}, this binary knows only {knows}"),
            "use the newer binary that migrated it",
        ),
    });
    findings.push(if facts.fsync {
        ok("durability", "every commit waits for the disk".to_owned())
    } else {
        fail("durability", "commits do not wait for the disk".to_owned(), "set fsync and synchronous_commit to on")
    });
    if facts.lacks.is_none() {
        findings.push(runs(facts.runs));
    }
    findings
}

/// Compares this machine's clock with the store's. A store that does not respond proves nothing.
fn clock(compared: Outcome<ClockComparison>) -> Finding {
    match compared {
        Ok(ClockComparison { against: Some(found), .. }) if found.stops() => {
            fail("clock", found.to_string(), found.hint())
        }
        Ok(ClockComparison { against: Some(found), .. }) => warn("clock", found.to_string(), found.hint()),
        Ok(ClockComparison { now, theirs, .. }) => skew(theirs, now),
        Err(failure) => {
            let message = format!("could not be compared with the store's: {}", failure.message);
            match failure.code {
                Code::StoreDamaged => fail("clock", message, DAMAGE_HINT),
                _ => warn("clock", message, "the clock was not checked; try again when the store responds"),
            }
        }
    }
}

/// The finding for a plausible clock.
fn skew(theirs: Option<Timestamp>, now: Timestamp) -> Finding {
    let Some(theirs) = theirs else { return ok("clock", "is not behind the ledger".to_owned()) };
    let skew = (theirs.micros() - now.micros()).abs() / 1_000_000;
    if skew <= limits::DOCTOR_SKEW_SECONDS_MAX {
        return ok("clock", "agrees with the store's".to_owned());
    }
    warn("clock", format!("differs from the store's by {skew} seconds"), "synchronise both machines (NTP)")
}

fn runs(runs: RunFacts) -> Finding {
    let RunFacts { unfinished, overdue, overdue_signals, long_rollbacks, unattended, in_doubt } = runs;
    let message = format!(
        "unfinished: {unfinished}, overdue: {overdue}, overdue signals: {overdue_signals}, \
         long rollbacks: {long_rollbacks}, unattended: {unattended}, calls in doubt: {in_doubt}"
    );
    if unattended > 0 {
        return fail("runs", message, "chimera migrate makes unattended runs due, and the next start picks them up");
    }
    if overdue > 0 {
        return warn(
            "runs",
            message,
            "overdue runs continue when a server runs on this data; if one does, check its log",
        );
    }
    if overdue_signals > 0 {
        let hint = "overdue signals are consumed when a server runs on this data; if one does, check its log";
        return warn("runs", message, hint);
    }
    if long_rollbacks > 0 {
        let hint =
            "a rollback began more than an hour ago and has not ended; chimera runs show says what is left to undo";
        return warn("runs", message, hint);
    }
    if in_doubt > 0 {
        return warn(
            "runs",
            message,
            "chimera runs doubts lists the calls in doubt and the command that resolves each",
        );
    }
    ok("runs", message)
}

pub(crate) fn render(findings: &[Finding], json: bool) -> String {
    if json {
        let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
        return serde_json::json!({"ok": !failed, "checks": findings}).to_string() + "\n";
    }
    findings.iter().fold(String::new(), |mut text, finding| {
        let word = match finding.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        let _ = writeln!(text, "{word}  {:<12} {}", finding.name, finding.message);
        if let Some(hint) = finding.hint {
            let _ = writeln!(text, "                   hint: {hint}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn facts() -> StoreFacts {
        StoreFacts {
            kind: "PostgreSQL",
            schema_version: 8,
            schema_known: 8,
            fsync: true,
            writable: true,
            clock: None,
            runs: RunFacts::default(),
            held: None,
            lacks: None,
            mark_missed: None,
        }
    }

    fn verdicts(facts: &StoreFacts) -> Vec<(&'static str, Verdict)> {
        store(facts).iter().map(|finding| (finding.name, finding.verdict)).collect()
    }

    #[test]
    fn a_store_without_fsync_or_with_a_newer_schema_fails() {
        let bad = StoreFacts { schema_version: 9, fsync: false, ..facts() };
        let failed = [("schema", Verdict::Fail), ("durability", Verdict::Fail)];
        assert_eq!(verdicts(&bad)[..3], [&[("store", Verdict::Ok)], &failed[..]].concat());
        let old = StoreFacts { schema_version: 7, ..facts() };
        assert_eq!(verdicts(&old)[1], ("schema", Verdict::Warn));
        let torn = StoreFacts { lacks: Some("the schema is not whole".to_owned()), ..facts() };
        assert_eq!(verdicts(&torn)[1], ("schema", Verdict::Fail));
        let locked = StoreFacts { writable: false, ..facts() };
        assert_eq!(verdicts(&locked)[0], ("store", Verdict::Fail));
    }

    #[test]
    fn a_clock_that_differs_is_a_warning() {
        let verdict = |micros| skew(Some(Timestamp::from_micros(micros)), Timestamp::from_micros(0)).verdict;
        assert_eq!([verdict(6_000_000), verdict(-4_000_000)], [Verdict::Warn, Verdict::Ok]);
    }

    /// What keeps the store from answering is reported as that, and the clock is not called wrong or right.
    #[test]
    fn a_clock_that_could_not_be_compared_is_not_blamed() {
        let held = Failure::new(Code::StoreUnavailable, "somebody else holds a lock");
        let finding = clock(Err(held));
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.message, "could not be compared with the store's: somebody else holds a lock");
        assert!(!finding.hint.unwrap().contains("NTP"));
        assert_eq!(clock(Err(Failure::new(Code::StoreDamaged, "it is damaged"))).verdict, Verdict::Fail);
        let same = Timestamp::from_micros(7);
        assert_eq!(clock(Ok(ClockComparison { now: same, theirs: Some(same), against: None })).verdict, Verdict::Ok);
    }

    #[test]
    fn runs_that_nobody_would_take_up_fail_and_late_ones_warn() {
        let verdict = |overdue, overdue_signals, unattended| {
            runs(RunFacts { unfinished: 9, overdue, overdue_signals, unattended, ..RunFacts::default() }).verdict
        };
        assert_eq!(runs(RunFacts { long_rollbacks: 1, ..RunFacts::default() }).verdict, Verdict::Warn);
        let doubted = runs(RunFacts { in_doubt: 500, ..RunFacts::default() });
        assert!(doubted.verdict == Verdict::Warn && doubted.message.ends_with("calls in doubt: 500"), "{doubted:?}");
        assert_eq!([verdict(0, 0, 0), verdict(0, 0, 1)], [Verdict::Ok, Verdict::Fail]);
        assert_eq!([verdict(1, 0, 0), verdict(0, 1, 0)], [Verdict::Warn, Verdict::Warn]);
    }

    #[test]
    fn little_space_warns_and_almost_none_fails() {
        let verdict = |mebibytes: u64| space(mebibytes * 1024 * 1024).verdict;
        assert_eq!([verdict(10), verdict(100), verdict(2_000)], [Verdict::Fail, Verdict::Warn, Verdict::Ok]);
    }
}
