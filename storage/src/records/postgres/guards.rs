//! The guards of Chimera's own schema: triggers, keys, constraints, and the tables themselves.
//!
//! Somebody may drop or disable a guard, or shadow a table by another one of the same name. Nothing fails then;
//! changes that were rejected before just succeed. So the schema is compared with what the migrations create, by
//! names, kinds and columns, never by definition text, which differs between server versions. The check runs when a
//! lane is claimed, from time to time while a node runs, and in `chimera doctor`. Missing tables and columns are not
//! covered: the statements that need them fail by themselves.

use super::super::plain;
use super::failure::unavailable;
use super::objects;
use crate::migrate;
use chimera_engine::port::{Outage, Unavailable};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tokio_postgres::{Client, Row};

/// The guards of Chimera's schema, one per line: `KIND TABLE NAME COLUMNS`. Kinds: `c` CHECK, `f` foreign key (with
/// the referenced table), `i` unique index, `n` NOT NULL (of a column), `p` primary key, `t` trigger (with type,
/// arguments and `when`), `u` unique.
const OWN: &str = include_str!("guards.txt");

static LINES: LazyLock<Vec<&str>> = LazyLock::new(|| OWN.lines().collect());

/// Every guard of the relations in `own`, as a line and its state, which is empty if it is active.
const FOUND: &str = "SELECT concat_ws(' ', 't', own.name, g.tgname, g.tgtype, encode(g.tgargs, 'escape'), \
             CASE WHEN g.tgqual IS NOT NULL THEN 'when' END) AS line, \
         CASE WHEN g.tgenabled IN ('O', 'A') THEN '' ELSE 'disabled' END AS state \
         FROM own JOIN pg_catalog.pg_trigger g ON g.tgrelid = own.oid WHERE NOT g.tgisinternal \
     UNION ALL SELECT concat_ws(' ', k.contype, own.name, k.conname, \
             (SELECT string_agg(a.attname, ',' ORDER BY o.n) FROM unnest(k.conkey) WITH ORDINALITY AS o(num, n) \
              JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = o.num), \
             (SELECT r.relname FROM pg_catalog.pg_class r WHERE r.oid = k.confrelid)), \
         CASE WHEN NOT k.convalidated OR k.contype IN ('p', 'u') AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index x \
                 WHERE x.indexrelid = k.conindid AND x.indisunique AND x.indisvalid AND x.indisready AND x.indimmediate) \
             THEN 'not valid' \
             WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_trigger g WHERE g.tgconstraint = k.oid AND g.tgenabled NOT IN ('O', 'A')) \
             THEN 'disabled' ELSE '' END \
         FROM own JOIN pg_catalog.pg_constraint k ON k.conrelid = own.oid WHERE k.contype IN ('c', 'f', 'p', 'u', 'x') \
     UNION ALL SELECT concat_ws(' ', 'i', own.name, c.relname, \
             (SELECT string_agg(a.attname, ',' ORDER BY o.n) FROM unnest(x.indkey::smallint[]) WITH ORDINALITY AS o(num, n) \
              JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = o.num), \
             CASE WHEN x.indpred IS NOT NULL THEN 'where' END), \
         CASE WHEN x.indisvalid AND x.indisready THEN '' ELSE 'not valid' END \
         FROM own JOIN pg_catalog.pg_index x ON x.indrelid = own.oid JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid \
         WHERE x.indisunique AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k WHERE k.conindid = x.indexrelid \
             AND k.contype IN ('p', 'u', 'x')) \
     UNION ALL SELECT concat_ws(' ', 'n', own.name, a.attname), CASE WHEN a.attnotnull THEN '' ELSE 'missing' END \
         FROM own JOIN pg_catalog.pg_attribute a ON a.attrelid = own.oid \
         WHERE own.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped";

/// The flaws: kind, table, name, state, columns. Those that cause others come first.
static LOOK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH own AS (SELECT c.oid, c.relname::text AS name, c.relkind, c.relpersistence, c.relnamespace \
             FROM unnest($1::text[]) AS n(name) JOIN pg_catalog.pg_class c ON c.oid = to_regclass(n.name)), \
         home AS (SELECT mode() WITHIN GROUP (ORDER BY relnamespace) AS id FROM own), found AS ({FOUND}) \
         SELECT 1, 'elsewhere', own.name, own.relnamespace::regnamespace::text, home.id::regnamespace::text, '' FROM own, home \
             WHERE own.relnamespace <> home.id \
         UNION ALL SELECT 2, 'child', own.name, h.inhrelid::regclass::text, '', '' FROM own \
             JOIN pg_catalog.pg_inherits h ON h.inhparent = own.oid \
         UNION ALL SELECT 2, 'parent', own.name, h.inhparent::regclass::text, '', '' FROM own \
             JOIN pg_catalog.pg_inherits h ON h.inhrelid = own.oid \
         UNION ALL SELECT 3, 'unlogged', own.name, '', '', '' FROM own WHERE own.relpersistence <> 'p' \
         UNION ALL SELECT 3, 'replica', '', '', '', '' WHERE current_setting('session_replication_role') = 'replica' \
         UNION ALL SELECT array_position(ARRAY['p', 'u', 'i', 'n', 'c', 'f', 't'], split_part(l.line, ' ', 1)) + 3, \
             split_part(l.line, ' ', 1), own.name, split_part(l.line, ' ', 3), coalesce(found.state, 'missing'), \
             split_part(l.line, ' ', 4) \
             FROM unnest($2::text[]) AS l(line) JOIN own ON own.name = split_part(l.line, ' ', 2) \
             LEFT JOIN found ON found.line = l.line \
             WHERE found.state <> '' OR found.line IS NULL AND l.line NOT LIKE 'n %' \
                 AND (l.line NOT LIKE 'f %' OR to_regclass(split_part(l.line, ' ', 5)) IS NOT NULL) \
         ORDER BY 1, 2, 3, 4"
    )
});

/// The schema that holds Chimera's tables, if new tables would be created in another one.
const HOME: &str = "SELECT n.nspname::text, coalesce(current_schema()::text, '') FROM pg_catalog.pg_class c \
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.oid = to_regclass('ledger_lanes') AND n.nspname IS DISTINCT FROM current_schema()";

/// One flaw of Chimera's own schema.
struct SchemaFlaw {
    kind: String,
    table: String,
    name: String,
    state: String,
    columns: String,
}

impl SchemaFlaw {
    fn of(row: &Row) -> Self {
        Self { kind: row.get(1), table: row.get(2), name: row.get(3), state: row.get(4), columns: row.get(5) }
    }

    /// Its name in a message.
    fn words(&self) -> String {
        let kind = match &*self.kind {
            "t" => "trigger",
            "p" => "primary key",
            "u" => "unique constraint",
            "i" => "unique index",
            "n" => "NOT NULL of",
            "c" => "CHECK",
            _ => "foreign key",
        };
        format!("{kind} {} on {}", self.name, self.table)
    }

    /// What is wrong, and what to do about it.
    fn reason(&self) -> String {
        let Self { kind, table, name, state, .. } = self;
        let name = plain(name);
        let how = match (&**kind, &**state) {
            ("elsewhere", home) => {
                return format!(
                    "{table} in the database resolves to schema {name}, but Chimera's tables are in {}; drop or rename \
                     {name}.{table}, or correct search_path",
                    plain(home)
                );
            }
            ("child", _) => {
                return format!(
                    "{name} in the database inherits from {table}, so its rows appear in {table}; run ALTER TABLE {name} \
                     NO INHERIT {table}"
                );
            }
            ("parent", _) => {
                return format!(
                    "{table} in the database inherits from {name}, so changes through {name} bypass its triggers; remove \
                     the inheritance"
                );
            }
            ("unlogged", _) => {
                return format!(
                    "{table} in the database is unlogged, and a crash of the server empties it; make it logged"
                );
            }
            ("replica", _) => {
                return "session_replication_role is replica in the database, so foreign keys don't count; set it to origin"
                    .to_owned();
            }
            _ if self.repair().is_some() => "`chimera migrate` repairs it",
            ("f", "disabled") => "enable the triggers of both tables",
            (_, "not valid") => "rebuild it, or restore a backup",
            _ => "add it again, or restore a backup",
        };
        format!("{} in the database is {state}; {how}", self.words())
    }

    /// The statements that repair it. They contain only names from Chimera's own list.
    fn repair(&self) -> Option<String> {
        let Self { table, name, columns, .. } = self;
        match (&*self.kind, &*self.state) {
            ("t", _) => {
                let made = migrate::postgres_trigger(name)?;
                Some(format!("CREATE OR REPLACE {made}; ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"))
            }
            ("p", "missing") => Some(format!(
                "DROP INDEX IF EXISTS {name}; ALTER TABLE {table} ADD CONSTRAINT {name} PRIMARY KEY ({columns})"
            )),
            ("u", "missing") => Some(format!(
                "DROP INDEX IF EXISTS {name}; ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE ({columns})"
            )),
            ("n", _) => Some(format!("ALTER TABLE {table} ALTER {name} SET NOT NULL")),
            ("c" | "f", "not valid") => Some(format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}")),
            _ => None,
        }
    }

    fn unusable(&self) -> Unavailable {
        Unavailable::new(Outage::Unusable, self.reason())
    }
}

/// The names of the constraints and unique indexes of Chimera's schema.
pub(super) fn constraints() -> impl Iterator<Item = &'static str> {
    let named = |line: &&'static str| !line.starts_with("n ") && !line.starts_with("t ");
    LINES.iter().copied().filter(named).filter_map(|line| line.split(' ').nth(2))
}

/// The flaws of a database with this binary's schema version; other versions are reported elsewhere.
async fn flaws(client: &Client) -> Result<Vec<SchemaFlaw>, Unavailable> {
    if migrate::postgres_version(client).await.map_err(|error| unavailable(&error))? != migrate::newest() {
        return Ok(Vec::new());
    }
    let found = client.query(&**LOOK, &[&objects::OWN_OBJECTS.names(), &*LINES]).await;
    Ok(found.map_err(|error| unavailable(&error))?.iter().map(SchemaFlaw::of).collect())
}

/// Rejects a database in which a guard of Chimera's own schema is missing or inactive.
pub(in super::super) async fn check_guards(client: &Client) -> Result<(), Unavailable> {
    flaws(client).await?.first().map_or(Ok(()), |flaw| Err(flaw.unusable()))
}

/// Rejects a database in which new tables would be created outside Chimera's schema. A running node is not affected.
pub(in super::super) async fn check_home_schema(client: &Client) -> Result<(), Unavailable> {
    let Some(row) = client.query_opt(HOME, &[]).await.map_err(|error| unavailable(&error))? else { return Ok(()) };
    let (home, first): (&str, &str) = (row.get(0), row.get(1));
    let (home, first) = (plain(home), plain(first));
    let reason = format!(
        "Chimera's tables in the database are in schema {home}, and search_path begins with schema {first}; let it begin with {home}"
    );
    Err(Unavailable::new(Outage::Unusable, reason))
}

/// Restores what can be restored, all or nothing, and describes it.
pub(in super::super) async fn restore(client: &Client) -> Result<Vec<String>, Unavailable> {
    let mut done = Vec::new();
    client
        .batch_execute("BEGIN; SET LOCAL client_min_messages = warning")
        .await
        .map_err(|error| unavailable(&error))?;
    let mended = repair_all(client, &mut done).await;
    let end = if mended.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await.map_err(|error| unavailable(&error));
    mended.and(ended).map(|()| done)
}

async fn repair_all(client: &Client, done: &mut Vec<String>) -> Result<(), Unavailable> {
    for flaw in flaws(client).await? {
        let Some(text) = flaw.repair() else { return Err(flaw.unusable()) };
        client.batch_execute(&text).await.map_err(|error| not_put_back(&flaw, &error))?;
        done.push(flaw.words());
    }
    Ok(())
}

/// Existing rows may violate it, or the privilege to restore it may be missing.
fn not_put_back(flaw: &SchemaFlaw, error: &tokio_postgres::Error) -> Unavailable {
    let why = unavailable(error);
    let reason = format!("{} can't be put back in the database ({}); restore a backup", flaw.words(), why.reason);
    Unavailable::new(Outage::Unusable, reason)
}

/// The last result of the guard check; shared by all lanes of a store.
#[derive(Clone, Default)]
pub(super) struct GuardWatch(Arc<Mutex<Option<Unavailable>>>);

impl GuardWatch {
    /// Runs the check and publishes the result. A failure to check says nothing about the guards.
    pub(super) async fn run_check(&self, client: &Client) -> Result<(), Unavailable> {
        let seen = check_guards(client).await;
        match &seen {
            Err(why) if why.outage != Outage::Unusable => {}
            seen => self.publish(seen.as_ref().err()),
        }
        seen
    }

    fn publish(&self, flaw: Option<&Unavailable>) {
        let mut cell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*cell, flaw) {
            (before, Some(why)) if before.as_ref() != Some(why) => {
                tracing::error!(
                    critical = true,
                    reason = why.reason,
                    "a guard of the database is gone; nothing is written"
                );
            }
            (Some(_), None) => tracing::warn!("the guards of the database are whole again"),
            _ => {}
        }
        *cell = flaw.cloned();
    }

    /// Fails while a guard is missing.
    pub(super) fn check(&self) -> Result<(), Unavailable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_testkit::postgres::PrivatePostgres;

    /// Compares the list with what the migrations create, and every trigger in it can be created again.
    #[tokio::test]
    async fn every_guard_of_the_schema_is_known_and_no_other() {
        let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
        let mut client = super::super::connect::Server::parse(&url).unwrap().connect().await.unwrap();
        migrate::postgres(&mut client).await.unwrap();
        let text = format!(
            "WITH own AS (SELECT oid, relname::text AS name, relkind FROM pg_class \
             WHERE relnamespace = current_schema()::regnamespace), found AS ({FOUND}) \
             SELECT line COLLATE \"C\" FROM found WHERE state = '' ORDER BY 1"
        );
        let found: Vec<String> = client.query(&text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(found.join("\n") + "\n", OWN, "write them into guards.txt");
        let triggers = LINES.iter().filter(|line| line.starts_with("t "));
        for name in triggers.filter_map(|line| line.split(' ').nth(2)) {
            assert!(migrate::postgres_trigger(name).is_some(), "{name}");
        }
        assert_eq!(check_guards(&client).await, Ok(()));
        assert_eq!(restore(&client).await, Ok(Vec::new()));
    }
}
