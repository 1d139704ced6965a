//! The catalogue in `core` and the live schema of both stores say the same.

use crate::migrate::{migrated_sqlite, shared_postgres};
use chimera_core::catalog;
use chimera_core::record::{Column, ColumnType, Table, Value};
use chimera_testkit::memory::default_of;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Client;

/// The record of migrations is nobody's data.
const NOT_IN_THE_CATALOGUE: &str = "schema_migrations";

/// Child, its columns, parent, its columns, what a delete of the parent does.
type ForeignKey = (String, Vec<String>, String, Vec<String>, String);

fn postgres_type(column: &Column) -> String {
    match (column.kind, column.chars_max) {
        (ColumnType::Text, Some(chars)) => format!("character varying({chars})"),
        (ColumnType::Text, None) => "text".to_owned(),
        (kind, _) => postgres_kind(kind).to_owned(),
    }
}

const fn postgres_kind(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Bool => "boolean",
        ColumnType::Int32 => "integer",
        ColumnType::Int => "bigint",
        ColumnType::Decimal => "numeric",
        ColumnType::Text => "text",
        ColumnType::Uuid => "uuid",
        ColumnType::Time => "timestamp with time zone",
        ColumnType::LocalTime => "timestamp without time zone",
        ColumnType::Json => "jsonb",
        ColumnType::ExactJson => "json",
        ColumnType::Bytes => "bytea",
        ColumnType::Uuids => "uuid[]",
        ColumnType::Texts => "text[]",
    }
}

const fn sqlite_kind(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Bool | ColumnType::Int32 | ColumnType::Int | ColumnType::Time | ColumnType::LocalTime => "INTEGER",
        ColumnType::Decimal
        | ColumnType::Text
        | ColumnType::Json
        | ColumnType::ExactJson
        | ColumnType::Uuids
        | ColumnType::Texts => "TEXT",
        ColumnType::Uuid | ColumnType::Bytes => "BLOB",
    }
}

/// Name, type, whether it must have a value, whether it has a default.
fn expected_columns(table: &Table, kind: impl Fn(&Column) -> String, view: bool) -> Vec<(String, String, bool, bool)> {
    let line = |c: &Column| (c.name.to_owned(), kind(c), !c.nullable && !view, c.default && !view);
    table.columns.iter().map(line).collect()
}

fn expected_uniques(table: &Table) -> BTreeSet<Vec<String>> {
    table.uniques.iter().map(|unique| unique.iter().map(|column| (*column).to_owned()).collect()).collect()
}

fn names(relations: &BTreeMap<String, bool>) -> Vec<&str> {
    relations.keys().map(String::as_str).collect()
}

fn catalogue_names() -> Vec<&'static str> {
    let mut names: Vec<_> = catalog().iter().map(|table| table.name).collect();
    names.sort_unstable();
    names
}

/// Every relation, and whether it is a view.
async fn postgres_relations(client: &Client) -> BTreeMap<String, bool> {
    let query = "SELECT table_name::text, table_type = 'VIEW' FROM information_schema.tables
        WHERE table_schema = 'public' AND table_name <> $1";
    let rows = client.query(query, &[&NOT_IN_THE_CATALOGUE]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn the_catalogue_is_the_live_schema_of_postgres() {
    let client = shared_postgres().await;
    let relations = postgres_relations(&client).await;
    assert_eq!(names(&relations), catalogue_names());
    let columns = "SELECT a.attname::text,
            CASE WHEN t.typname = 'numeric' THEN 'numeric' ELSE format_type(a.atttypid, a.atttypmod) END,
            a.attnotnull, a.atthasdef
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 ORDER BY a.attnum";
    let keys = "SELECT i.indisprimary, array_agg(a.attname::text ORDER BY k.position)
        FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, position)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE i.indrelid = $1::text::regclass AND i.indisunique AND i.indpred IS NULL
        GROUP BY i.indexrelid, i.indisprimary";
    for table in catalog() {
        let view = relations[table.name];
        let rows = client.query(columns, &[&table.name]).await.unwrap();
        let live: Vec<(String, String, bool, bool)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
        assert_eq!(live, expected_columns(table, postgres_type, view), "{}", table.name);
        if view {
            continue;
        }
        let rows = client.query(keys, &[&table.name]).await.unwrap();
        let (primary, further): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, bool>(0));
        assert_eq!(primary[0].get::<_, Vec<String>>(1), table.key, "{}", table.name);
        let further: BTreeSet<Vec<String>> = further.iter().map(|row| row.get(1)).collect();
        assert_eq!(further, expected_uniques(table), "{}", table.name);
    }
}

fn sqlite_relations(conn: &Connection) -> BTreeMap<String, bool> {
    let query = "SELECT name, type = 'view' FROM pragma_table_list
        WHERE schema = 'main' AND name NOT LIKE 'sqlite_%' AND name <> ?1";
    let mut statement = conn.prepare(query).unwrap();
    let rows = statement.query_map([NOT_IN_THE_CATALOGUE], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn sqlite_texts(conn: &Connection, query: &str, of: &str) -> Vec<String> {
    let mut statement = conn.prepare(query).unwrap();
    statement.query_map([of], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn the_catalogue_is_the_live_schema_of_sqlite() {
    let conn = migrated_sqlite();
    let relations = sqlite_relations(&conn);
    assert_eq!(names(&relations), catalogue_names());
    for table in catalog() {
        let view = relations[table.name];
        let query = "SELECT name, type, \"notnull\", dflt_value IS NOT NULL FROM pragma_table_info(?1) ORDER BY cid";
        let mut statement = conn.prepare(query).unwrap();
        let rows = statement.query_map([table.name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
        let live: Vec<(String, String, bool, bool)> = rows.unwrap().map(Result::unwrap).collect();
        let kind = |column: &Column| sqlite_kind(column.kind).to_owned();
        assert_eq!(live, expected_columns(table, kind, view), "{}", table.name);
        if view {
            continue;
        }
        let key = "SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk";
        assert_eq!(sqlite_texts(&conn, key, table.name), table.key, "{}", table.name);
        let indexes = "SELECT name FROM pragma_index_list(?1) WHERE \"unique\" AND NOT partial AND origin <> 'pk'";
        let columns = "SELECT name FROM pragma_index_info(?1) ORDER BY seqno";
        let indexes = sqlite_texts(&conn, indexes, table.name);
        let live: BTreeSet<Vec<String>> = indexes.iter().map(|index| sqlite_texts(&conn, columns, index)).collect();
        assert_eq!(live, expected_uniques(table), "{}", table.name);
    }
}

#[test]
fn every_table_of_sqlite_is_strict_and_checks_lengths_uuids_and_booleans() {
    let conn = migrated_sqlite();
    let relations = sqlite_relations(&conn);
    for table in catalog().into_iter().filter(|table| !relations[table.name]) {
        let strict = "SELECT strict FROM pragma_table_list WHERE name = ?1";
        assert!(conn.query_row(strict, [table.name], |row| row.get::<_, bool>(0)).unwrap(), "{}", table.name);
        let sql =
            &sqlite_texts(&conn, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", table.name)[0];
        for column in table.columns {
            let name = column.name;
            let check = match (column.kind, column.chars_max) {
                // A check that calls a function would make SQLite copy pages at every append.
                (ColumnType::Uuid, _) if table.name == "audit_log_entries" => continue,
                (ColumnType::Uuid, _) => format!("CHECK (length({name}) = 16)"),
                (ColumnType::Bool, _) => format!("CHECK ({name} IN (0, 1))"),
                (_, Some(chars)) => format!("CHECK (length({name}) <= {chars})"),
                _ => continue,
            };
            assert!(sql.contains(&check), "{}: {check}", table.name);
        }
    }
}

async fn postgres_foreign_keys(client: &Client) -> BTreeSet<ForeignKey> {
    let query = "SELECT c.conrelid::regclass::text,
            ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k(n, p)
                JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.n ORDER BY k.p),
            c.confrelid::regclass::text,
            ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY AS k(n, p)
                JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.n ORDER BY k.p),
            CASE c.confdeltype WHEN 'c' THEN 'CASCADE' ELSE 'NO ACTION' END,
            c.condeferrable
        FROM pg_constraint c WHERE c.contype = 'f'";
    let rows = client.query(query, &[]).await.unwrap();
    assert!(rows.iter().all(|row| !row.get::<_, bool>(5)), "foreign keys are checked at once");
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))).collect()
}

fn sqlite_foreign_keys(conn: &Connection) -> BTreeSet<ForeignKey> {
    let query = "SELECT id, \"table\", \"from\", \"to\", on_delete FROM pragma_foreign_key_list(?1) ORDER BY id, seq";
    let mut all = BTreeSet::new();
    for child in sqlite_relations(conn).keys() {
        let mut keys: BTreeMap<i64, ForeignKey> = BTreeMap::new();
        let mut statement = conn.prepare(query).unwrap();
        let mut rows = statement.query([child]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let parent: String = row.get(1).unwrap();
            let fresh = (child.clone(), Vec::new(), parent, Vec::new(), row.get(4).unwrap());
            let key = keys.entry(row.get(0).unwrap()).or_insert(fresh);
            key.1.push(row.get(2).unwrap());
            key.3.push(row.get(3).unwrap());
        }
        all.extend(keys.into_values());
    }
    all
}

#[tokio::test]
async fn both_stores_have_the_same_foreign_keys() {
    let postgres = postgres_foreign_keys(&shared_postgres().await).await;
    let sqlite = sqlite_foreign_keys(&migrated_sqlite());
    assert_eq!(postgres, sqlite);
}

#[tokio::test]
async fn parents_have_a_smaller_rank_than_the_tables_that_refer_to_them() {
    let rank: BTreeMap<&str, u16> = catalog().iter().map(|table| (table.name, table.rank)).collect();
    for (child, _, parent, _, _) in postgres_foreign_keys(&shared_postgres().await).await {
        assert!(child == parent || rank[parent.as_str()] < rank[child.as_str()], "{child} refers to {parent}");
    }
}

#[tokio::test]
async fn both_stores_have_the_same_named_indexes() {
    let client = shared_postgres().await;
    let query = "SELECT indexname::text FROM pg_indexes WHERE schemaname = 'public' AND indexname LIKE 'idx_%'";
    let rows = client.query(query, &[]).await.unwrap();
    let mut postgres: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(postgres.remove("idx_tasks_depends_on"), "an array index has no counterpart in SQLite");
    let conn = migrated_sqlite();
    let query = "SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE ?1";
    let sqlite: BTreeSet<String> = sqlite_texts(&conn, query, "idx_%").into_iter().collect();
    assert_eq!(postgres, sqlite);
}

/// SWARM-005
#[test]
fn every_relation_of_records_has_a_tenant_or_a_view_that_does() {
    let without: BTreeSet<&str> =
        catalog().iter().filter(|table| table.tenant.is_none()).map(|table| table.name).collect();
    let viewed = [
        "agent_executions",
        "agent_jobs",
        "agent_outputs",
        "agents",
        "approval_requests",
        "audit_logs",
        "objectives",
        "plans",
        "skill_invocations",
        "tasks",
        "trends",
    ];
    let upkeep = [
        "feed_cursors",
        "idempotency_records",
        "intent_sightings",
        "ledger_checkpoints",
        "ledger_lanes",
        "ledger_nodes",
        "nonces",
        "refresh_tokens",
        "store_state",
        "tenants",
    ];
    assert_eq!(without, viewed.iter().chain(&upkeep).copied().collect());
    for name in viewed {
        let view = format!("scoped_{}", if name == "approval_requests" { "approvals" } else { name });
        let view = catalog().into_iter().find(|table| table.name == view).unwrap();
        assert_eq!(view.tenant, Some("tenant_id"), "{name}");
    }
}

/// A default as PostgreSQL spells it, without the type that it appends.
fn spelled(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Decimal(number) => number.clone(),
        Value::Text(text) => format!("'{text}'"),
        Value::Time(_) => "now()".to_owned(),
        Value::Texts(_) => "'{}'".to_owned(),
        Value::Json(json) => format!("'{}'", json.as_str()),
        other => panic!("{other:?} is no default"),
    }
}

#[tokio::test]
async fn the_memory_store_fills_what_the_database_fills() {
    let client = shared_postgres().await;
    let query = "SELECT column_default FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name = $1 AND column_name = $2";
    for table in catalog() {
        for column in table.columns.iter().filter(|column| column.default && !table.name.starts_with("scoped_")) {
            let row = client.query_one(query, &[&table.name, &column.name]).await.unwrap();
            let Some(default) = row.get::<_, Option<String>>(0) else { continue };
            let default = default.split("::").next().unwrap_or_default();
            assert_eq!(spelled(&default_of(table, column)), default, "{}.{}", table.name, column.name);
        }
    }
}
