//! Either store behind one small SQL dialect, so that one list of statements tests both.
//!
//! `{u1}` is a UUID, `{b32}` thirty-two bytes, `{now}` a time, `{true}` and `{false}` booleans, `{none}` an empty
//! array. On PostgreSQL each test runs in one transaction that is never committed, one after the other, because
//! creating a database for each takes far longer.

use crate::migrate::{migrated_sqlite, shared_postgres};
use rusqlite::Connection;
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::Client;

/// A store with the whole schema and nothing in it.
pub(crate) enum Store {
    Postgres(Client, MutexGuard<'static, ()>),
    Sqlite(Connection),
}

/// Why a store refused a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Check,
    ForeignKey,
    Unique,
    NotNull,
    Guard(String),
    Other(String),
}

/// Both stores, fresh.
pub(crate) async fn both() -> [Store; 2] {
    [postgres().await, Store::Sqlite(migrated_sqlite())]
}

/// PostgreSQL alone.
pub(crate) async fn postgres() -> Store {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let client = shared_postgres().await;
    client.batch_execute("BEGIN").await.unwrap();
    Store::Postgres(client, turn)
}

impl Store {
    /// Runs a statement and says how many rows it touched.
    pub(crate) async fn run(&self, sql: &str) -> Result<u64, Refusal> {
        match self {
            Self::Postgres(client, _) => {
                client.batch_execute("SAVEPOINT statement").await.unwrap();
                let outcome = client.execute(&postgres_text(sql), &[]).await;
                if outcome.is_err() {
                    client.batch_execute("ROLLBACK TO SAVEPOINT statement").await.unwrap();
                }
                outcome.map_err(|error| postgres_refusal(&error))
            }
            Self::Sqlite(conn) => {
                conn.execute(&sqlite_text(sql), []).map(|rows| rows as u64).map_err(|e| sqlite_refusal(&e))
            }
        }
    }

    /// Runs statements that must all succeed.
    pub(crate) async fn given(&self, statements: &[&str]) {
        for sql in statements {
            self.run(sql).await.unwrap_or_else(|refusal| panic!("{sql}: {refusal:?}"));
        }
    }

    /// Runs a statement that must be refused.
    pub(crate) async fn refusal(&self, sql: &str) -> Refusal {
        match self.run(sql).await {
            Ok(rows) => panic!("not refused ({rows} rows): {sql}"),
            Err(refusal) => refusal,
        }
    }

    /// Runs an insert that must be refused because its key is taken. On a guarded table of SQLite
    /// the guard sees that before the key does.
    pub(crate) async fn taken(&self, sql: &str) {
        match self.refusal(sql).await {
            Refusal::Unique => {}
            Refusal::Guard(message) if message.ends_with("(key exists)") => {}
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// The only value of a query, as a number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        match self {
            Self::Postgres(client, _) => client.query_one(&postgres_text(sql), &[]).await.unwrap().get(0),
            Self::Sqlite(conn) => conn.query_row(&sqlite_text(sql), [], |row| row.get(0)).unwrap(),
        }
    }
}

/// The refusal by a guard with this message.
pub(crate) fn guard(message: &str) -> Refusal {
    Refusal::Guard(message.to_owned())
}

fn postgres_text(sql: &str) -> String {
    let sql = (1..=9).fold(sql.to_owned(), |sql, n| {
        sql.replace(&format!("{{u{n}}}"), &format!("'00000000-0000-7000-8000-00000000000{n}'"))
    });
    let sql =
        sql.replace("{b32}", "decode(repeat('00', 32), 'hex')").replace("{b64}", "decode(repeat('00', 64), 'hex')");
    sql.replace("{now}", "now()").replace("{true}", "true").replace("{false}", "false").replace("{none}", "'{}'")
}

fn sqlite_text(sql: &str) -> String {
    let sql = (1..=9).fold(sql.to_owned(), |sql, n| {
        sql.replace(&format!("{{u{n}}}"), &format!("x'0000000000007000800000000000000{n}'"))
    });
    let sql = sql.replace("{b32}", "zeroblob(32)").replace("{b64}", "zeroblob(64)");
    sql.replace("{now}", "1000000").replace("{true}", "1").replace("{false}", "0").replace("{none}", "'[]'")
}

fn postgres_refusal(error: &tokio_postgres::Error) -> Refusal {
    let Some(db) = error.as_db_error() else {
        return Refusal::Other(error.to_string());
    };
    match db.code().code() {
        "23514" | "22001" => Refusal::Check,
        "23503" => Refusal::ForeignKey,
        "23505" => Refusal::Unique,
        "23502" => Refusal::NotNull,
        "CH001" => Refusal::Guard(db.message().to_owned()),
        _ => Refusal::Other(db.message().to_owned()),
    }
}

fn sqlite_refusal(error: &rusqlite::Error) -> Refusal {
    let rusqlite::Error::SqliteFailure(failure, Some(message)) = error else {
        return Refusal::Other(error.to_string());
    };
    match failure.extended_code {
        rusqlite::ffi::SQLITE_CONSTRAINT_CHECK => Refusal::Check,
        rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY => Refusal::ForeignKey,
        rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY => Refusal::Unique,
        rusqlite::ffi::SQLITE_CONSTRAINT_NOTNULL => Refusal::NotNull,
        rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER => Refusal::Guard(message.clone()),
        _ => Refusal::Other(message.clone()),
    }
}
