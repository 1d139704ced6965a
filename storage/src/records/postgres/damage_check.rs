//! Checks a database for damage. Reads everything, because the server verifies its pages only when they are read.
//!
//! A table is read completely. Its indexes are checked by amcheck where that is installed, and walked from end to end
//! otherwise.

use super::super::usage::TableOps;
use super::failure::unavailable;
use chimera_core::record::Table;
use chimera_engine::port::{Outage, Unavailable};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// A check may take any amount of time.
const SESSION: &str = "SET statement_timeout = 0; SET enable_seqscan = on; SET jit = off";

/// Forces ordered reads to use the index.
const BY_INDEX: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
     SET max_parallel_workers_per_gather = 0";

const TABLES: &str = "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
     AND relkind = 'r' ORDER BY relname";

const INDEXES: &str = "SELECT i.indexrelid::regclass::text, i.indrelid::regclass::text, \
     (SELECT string_agg(pg_get_indexdef(i.indexrelid, k, true), ', ' ORDER BY k) \
      FROM generate_series(1, i.indnkeyatts) AS k), \
     pg_get_expr(i.indpred, i.indrelid) \
     FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam \
     WHERE a.amname = 'btree' AND i.indrelid = to_regclass($1) ORDER BY 1";

/// A temporary table that is dropped with its transaction. Its content is not compressed, and it starts without
/// pages: each row needs free space.
const ROOM: &str = "BEGIN; SET LOCAL temp_tablespaces = ''; CREATE TEMPORARY TABLE chimera_room (filler text) ON COMMIT DROP; \
     ALTER TABLE chimera_room ALTER filler SET STORAGE EXTERNAL; \
     INSERT INTO chimera_room SELECT string_agg(md5(n::text), '') FROM generate_series(1, {blocks} * 256) AS n \
     GROUP BY n % {blocks}; ROLLBACK";

/// Bytes per row of it.
const ROOM_ROW_BYTES: u64 = 8_192;

/// Proves that all of this could be done: tables, columns and privileges exist.
pub(in super::super) async fn prove_usable(client: &Client, uses: &TableOps) -> Result<(), Unavailable> {
    let all: String = uses.statements().map(|text| format!("EXPLAIN {text};")).collect();
    client.batch_execute(&all).await.map_err(|error| unavailable(&error))
}

/// Proves that there is space for so many bytes, and leaves nothing behind.
pub(super) async fn prove_space(client: &Client, bytes: u64) -> Result<(), Unavailable> {
    let text = ROOM.replace("{blocks}", &bytes.div_ceil(ROOM_ROW_BYTES).to_string());
    match client.batch_execute(&text).await {
        // Without the privilege to create temporary tables, the ledger probe has to be enough.
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(()),
        tried => tried.map_err(|error| unavailable(&error)),
    }
}

pub(crate) async fn tables(client: &Client) -> Result<Vec<String>, Unavailable> {
    client.batch_execute(SESSION).await.map_err(|error| unavailable(&error))?;
    let rows = client.query(TABLES, &[]).await.map_err(|error| unavailable(&error))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Checks one table and its indexes completely.
pub(crate) async fn check_table(client: &Client, name: &str) -> Result<(), Unavailable> {
    let named = |error: &tokio_postgres::Error| {
        let why = unavailable(error);
        Unavailable::new(why.outage, format!("{}: {name}", why.reason))
    };
    client.batch_execute(SESSION).await.map_err(|error| named(&error))?;
    let table = quoted(name);
    // The length of a row's text requires every value in it, including TOAST values.
    let text = format!("SELECT count(*), max(length(t::text)) FROM {table} t");
    client.query_one(&text, &[]).await.map_err(|error| named(&error))?;
    let amcheck = "SELECT to_regprocedure('bt_index_check(regclass, boolean)') IS NOT NULL";
    let amcheck: bool = client.query_one(amcheck, &[]).await.map_err(|error| named(&error))?.get(0);
    for row in client.query(INDEXES, &[&table]).await.map_err(|error| named(&error))? {
        let (index, of, columns): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if amcheck {
            let checked = client.query("SELECT bt_index_check(to_regclass($1), true)", &[&index]).await;
            checked.map_err(|error| named(&error))?;
            continue;
        }
        let only = row.get::<_, Option<String>>(3).map(|only| format!(" WHERE {only}")).unwrap_or_default();
        let walk = format!("SELECT count(*) FROM (SELECT 1 FROM {of}{only} ORDER BY {columns} OFFSET 0) walked");
        client.batch_execute(BY_INDEX).await.map_err(|error| named(&error))?;
        let walked = client.query_one(&walk, &[]).await;
        client.batch_execute("RESET ALL; SET statement_timeout = 0").await.map_err(|error| named(&error))?;
        walked.map_err(|error| named(&error))?;
    }
    Ok(())
}

/// Those of these relations that are intact now.
pub(crate) async fn intact_tables(client: &Client, tables: Vec<&'static Table>) -> Vec<&'static Table> {
    let mut found = Vec::new();
    for table in tables {
        if !check_table(client, table.name).await.is_err_and(|why| why.outage != Outage::Unusable) {
            found.push(table);
        }
    }
    found
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
