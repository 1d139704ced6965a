//! An intruder who owns the database: changes behind the guards are detected and located.
//!
//! The guards are removed as only the owner of the tables can, rows are changed with SQL that both stores accept, and
//! restored from a copy before the next attempt.

use super::sites;
use crate::records::{fresh_database, one_lane, sqlite};
use chimera_core::audit::VerificationReport;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::ledger::{ActorType, ChainHead, LedgerFault, StoredEntry, SubjectType};
use chimera_core::record::{Comparison, Scope, Select, Tx};
use chimera_engine::audit::verify;
use chimera_engine::ledger::audit::EventRecord;
use chimera_engine::ledger::last_checkpoint;
use chimera_engine::port::{Clock as _, Records};
use chimera_testkit::ledger_fixture::LedgerFixture;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;
use uuid::Uuid;

const TABLES: [&str; 4] = ["audit_log_entries", "ledger_lanes", "ledger_checkpoints", "ledger_nodes"];
const COVERED: i64 = 300;
const LAST: i64 = 303;

enum DirectAccess {
    Postgres(tokio_postgres::Client),
    Sqlite(rusqlite::Connection, #[expect(dead_code, reason = "the folder lives as long")] tempfile::TempDir),
}

/// A ledger of one lane, with direct access. Two checkpoints cover 300 entries; three more follow them.
struct TamperedLedger {
    world: LedgerFixture,
    store: Arc<dyn Records>,
    door: DirectAccess,
}

impl TamperedLedger {
    async fn both() -> [Self; 2] {
        let url = fresh_database();
        let postgres =
            Self::set(Arc::new(one_lane(&url).await), DirectAccess::Postgres(sites::client(&url).await)).await;
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(sqlite(folder.path()).unwrap());
        let door = DirectAccess::Sqlite(sites::file(folder.path()), folder);
        [postgres, Self::set(store, door).await]
    }

    async fn set(store: Arc<dyn Records>, door: DirectAccess) -> Self {
        let scene = Self { world: LedgerFixture::new(1), store, door };
        for (from, to) in [(1, 100), (101, COVERED), (COVERED + 1, LAST)] {
            let mut tx = Tx::default();
            for n in from..=to {
                scene.world.writer().event(&mut tx, scene.event(n)).unwrap();
                scene.world.advance_seconds(1);
            }
            scene.store.commit(tx).await.unwrap();
            if to <= COVERED {
                scene.world.checkpoint(&*scene.store).await;
            }
        }
        scene.open().await;
        for table in TABLES {
            scene.run(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}")).await;
        }
        scene
    }

    /// No two neighbours have a value in common.
    fn event(&self, n: i64) -> EventRecord {
        let even = n % 2 == 0;
        EventRecord {
            tenant_id: format!("tenant-{n}"),
            subject_type: if even { SubjectType::Task } else { SubjectType::Other },
            subject_id: format!("subject-{n}"),
            event_type: format!("event-{n}"),
            actor_type: if even { ActorType::Human } else { ActorType::System },
            actor_id: Some(format!("actor-{n}")),
            data: json!({"n": n, "at": self.world.clock.now().to_string()}),
            run_id: Some(Uuid::from_u128(n.unsigned_abs().into())),
            run_seq: Some(n),
            trace_id: even.then(|| "0af7651916cd43dd8448eb211c80319c".to_owned()),
            operator_of: None,
        }
    }

    async fn run(&self, text: &str) {
        match &self.door {
            DirectAccess::Postgres(client) => client.batch_execute(text).await.unwrap(),
            DirectAccess::Sqlite(connection, _) => connection.execute_batch(text).unwrap(),
        }
    }

    /// Takes the guards down.
    async fn open(&self) {
        for table in ["audit_log_entries", "ledger_checkpoints"] {
            let text = match &self.door {
                DirectAccess::Postgres(_) => format!("ALTER TABLE {table} DISABLE TRIGGER {table}_append_only"),
                DirectAccess::Sqlite(..) => {
                    ["update", "delete", "replace"].map(|act| format!("DROP TRIGGER {table}_no_{act}")).join(";")
                }
            };
            self.run(&text).await;
        }
    }

    /// Puts everything back as it was.
    async fn restore(&self) {
        for table in TABLES {
            self.run(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}")).await;
        }
        assert!(self.report().await.is_intact());
    }

    async fn report(&self) -> VerificationReport {
        verify(&*self.store, &self.world.keys()).await.unwrap()
    }

    /// Runs statements, returns which entry is found broken and why, and reverts them.
    async fn after(&self, text: &str) -> (Option<i64>, LedgerFault) {
        self.run(text).await;
        let report = self.report().await;
        let broken = report.first_fault.unwrap_or_else(|| panic!("not found: {text}"));
        self.restore().await;
        (broken.seq, broken.fault)
    }

    /// The stored entries from number `first` on.
    async fn entries(&self, first: i64) -> Vec<StoredEntry> {
        let select = Select::from(&AUDIT_LOG_ENTRIES, Scope::System).filter("seq", Comparison::AtLeast, first);
        let rows = self.store.read(select.take(1_000)).await.unwrap().rows;
        rows.iter().map(|row| StoredEntry::from_row(row).unwrap()).collect()
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        match &self.door {
            DirectAccess::Postgres(_) => format!("decode('{hex}', 'hex')"),
            DirectAccess::Sqlite(..) => format!("x'{hex}'"),
        }
    }

    /// The statement that makes the lane end at `head`.
    fn end_at(&self, head: ChainHead) -> String {
        let hash = self.bytes(&head.hash.0);
        format!("UPDATE ledger_lanes SET head_seq = {}, head_hash = {hash};", head.seq)
    }

    /// The statement that replaces an entry's content and hashes with forged ones.
    fn forge(&self, entry: &StoredEntry) -> String {
        let (digest, link) = (self.bytes(&entry.sealed.content_digest.0), &entry.link);
        format!(
            "UPDATE audit_log_entries SET actor_id = '{}', content_digest = {digest}, prev_hash = {}, hash = {} \
             WHERE seq = {};",
            entry.sealed.entry.actor_id.as_deref().unwrap_or_default(),
            self.bytes(&link.prev_hash.0),
            self.bytes(&link.hash.0),
            link.seq
        )
    }
}

/// `entry` by another actor, with matching digest and hash, after `head`.
fn forged(entry: &StoredEntry, head: ChainHead, actor: &str) -> StoredEntry {
    let mut content = entry.sealed.entry.clone();
    content.actor_id = Some(actor.to_owned());
    StoredEntry::after(entry.lane, head, content.seal(entry.sealed.salt).unwrap())
}

fn before(entry: &StoredEntry) -> ChainHead {
    ChainHead { seq: entry.link.seq - 1, hash: entry.link.prev_hash }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untouched_ledger_verifies_on_both_stores() {
    for scene in TamperedLedger::both().await {
        let report = scene.report().await;
        assert!(report.is_intact(), "{report:?}");
        assert_eq!((report.entries, report.lanes, report.checkpoints, report.covered), (303, 1, 2, 300));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_any_column_of_an_entry_is_found_and_named() {
    for scene in TamperedLedger::both().await {
        for column in AUDIT_LOG_ENTRIES.columns.iter().map(|column| column.name) {
            let other = match column {
                "lane" | "seq" => "1000".to_owned(),
                _ => format!("(SELECT o.{column} FROM audit_log_entries o WHERE o.seq = 43)"),
            };
            let text = format!("UPDATE audit_log_entries SET {column} = {other} WHERE seq = 42");
            let expected = match column {
                "lane" | "seq" => (Some(43), LedgerFault::Link),
                "prev_hash" | "hash" => (Some(42), LedgerFault::Link),
                _ => (Some(42), LedgerFault::Content),
            };
            assert_eq!(scene.after(&text).await, expected, "{column}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_payload_is_found_even_when_its_digests_fit() {
    for scene in TamperedLedger::both().await {
        let plain = r#"UPDATE audit_log_entries SET data_json = '{"n":42}' WHERE seq = 42"#;
        assert_eq!(scene.after(plain).await, (Some(42), LedgerFault::Content));
        let spelled = "UPDATE audit_log_entries SET data_json = '{ \"a\": 1 }' WHERE seq = 42";
        assert_eq!(scene.after(spelled).await, (Some(42), LedgerFault::Content));
        let entries = scene.entries(42).await;
        let one = scene.forge(&forged(&entries[0], before(&entries[0]), "nobody"));
        assert_eq!(scene.after(&one).await, (Some(43), LedgerFault::Link), "the next entry names the old hash");
        let mut head = before(&entries[0]);
        let mut text = String::new();
        for (at, entry) in entries.iter().enumerate() {
            let actor = if at == 0 { "nobody" } else { entry.sealed.entry.actor_id.as_deref().unwrap() };
            let entry = forged(entry, head, actor);
            head = entry.link.head();
            text += &scene.forge(&entry);
        }
        let whole = scene.after(&(text + &scene.end_at(head))).await;
        assert_eq!(whole, (Some(1), LedgerFault::Checkpoint), "the signature covers the first hundred entries");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_and_swapped_entries_are_found_and_named() {
    for scene in TamperedLedger::both().await {
        let delete = |seq| format!("DELETE FROM audit_log_entries WHERE seq = {seq}");
        assert_eq!(scene.after(&delete(1)).await, (Some(2), LedgerFault::Link));
        assert_eq!(scene.after(&delete(42)).await, (Some(43), LedgerFault::Link));
        assert_eq!(scene.after(&delete(COVERED)).await, (Some(COVERED), LedgerFault::Checkpoint));
        assert_eq!(scene.after(&delete(LAST)).await, (Some(LAST), LedgerFault::Lane));
        let rename = |from, to| format!("UPDATE audit_log_entries SET seq = {to} WHERE seq = {from};");
        let swap = rename(41, 1000) + &rename(42, 41) + &rename(1000, 42);
        assert_eq!(scene.after(&swap).await, (Some(41), LedgerFault::Link));
    }
}

/// No guard rejects an added row, so this needs no ownership of the tables.
#[tokio::test(flavor = "multi_thread")]
async fn an_added_entry_that_no_head_leads_to_is_found() {
    for scene in TamperedLedger::both().await {
        let columns: Vec<&str> = AUDIT_LOG_ENTRIES.columns.iter().map(|column| column.name).skip(2).collect();
        let columns = columns.join(", ");
        let add = |lane: i64, seq: i64| {
            format!(
                "INSERT INTO audit_log_entries (lane, seq, {columns}) \
                 SELECT {lane}, {seq}, {columns} FROM audit_log_entries WHERE seq = 42"
            )
        };
        for (lane, seq) in [(1, LAST + 1), (1, LAST + 1_000), (77, 1), (0, 9)] {
            assert_eq!(scene.after(&add(lane, seq)).await, (Some(seq), LedgerFault::Lane), "lane {lane}");
        }
        let unknown = scene.after("DELETE FROM ledger_lanes").await;
        assert_eq!(unknown, (Some(1), LedgerFault::Lane), "entries without their lane");
    }
}

/// A truncation that includes the lane's head goes unnoticed only after the newest checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_tail_is_found_up_to_the_newest_checkpoint() {
    for scene in TamperedLedger::both().await {
        let entries = scene.entries(1).await;
        let cut = |last: i64| {
            let head = entries[usize::try_from(last - 1).unwrap()].link.head();
            format!("DELETE FROM audit_log_entries WHERE seq > {last};") + &scene.end_at(head)
        };
        assert_eq!(scene.after(&cut(COVERED - 1)).await, (Some(COVERED), LedgerFault::Checkpoint));
        assert_eq!(scene.after(&cut(50)).await, (Some(51), LedgerFault::Checkpoint));
        let alone = format!("DELETE FROM audit_log_entries WHERE seq > {COVERED}");
        assert_eq!(scene.after(&alone).await, (Some(COVERED + 1), LedgerFault::Lane), "the head still names them");
        scene.run(&cut(COVERED)).await;
        let report = scene.report().await;
        assert_eq!((report.first_fault, report.entries, report.covered), (None, 300, 300));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_checkpoints_tree_hashes_and_heads_are_found() {
    for scene in TamperedLedger::both().await {
        let (hash, signature) = (scene.bytes(&[9; 32]), scene.bytes(&[9; 64]));
        let head = format!("UPDATE ledger_lanes SET head_hash = {hash}");
        assert_eq!(scene.after(&head).await, (Some(LAST), LedgerFault::Lane));
        let node = format!("UPDATE ledger_nodes SET hash = {hash}");
        assert_eq!(scene.after(&node).await, (Some(1), LedgerFault::Lane));
        assert_eq!(scene.after("DELETE FROM ledger_nodes").await, (Some(1), LedgerFault::Lane));
        let forged = format!("UPDATE ledger_checkpoints SET signature = {signature} WHERE seq = 2");
        assert_eq!(scene.after(&forged).await, (None, LedgerFault::Signature));
        assert_eq!(scene.after("DELETE FROM ledger_checkpoints WHERE seq = 1").await, (None, LedgerFault::Checkpoint));
        let newest = last_checkpoint(&*scene.store).await.unwrap().unwrap();
        assert_eq!(newest.checkpoint.seq, 2);
    }
}
