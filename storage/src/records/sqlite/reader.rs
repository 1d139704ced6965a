//! Short reads on separate connections, so that they never wait for the writer.

use super::super::slots::{reader, slots};
use super::super::sql::{self, SqlDialect};
use super::super::task::Task;
use super::file::DataFile;
use super::{cells, failure};
use chimera_core::limits;
use chimera_core::record::{CountQuery, Page, PageBuilder, Row, RowGroup, Scope, Select};
use chimera_core::time::Timestamp;
use chimera_engine::fair_slots::FairSlots;
use chimera_engine::port::{ReadError, Unavailable};
use rusqlite::Connection;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A pool of connections, opened on demand.
pub(super) struct SqliteReaders {
    data: DataFile,
    idle: Mutex<Vec<Connection>>,
    slots: FairSlots,
}

impl SqliteReaders {
    pub(super) fn new(data: DataFile) -> Self {
        Self { data, idle: Mutex::new(Vec::new()), slots: slots(limits::SQLITE_READS_MAX) }
    }

    pub(super) fn path(&self) -> &Path {
        self.data.path()
    }

    /// Runs a read on a blocking thread, at most `limits::SQLITE_READS_MAX` at a time. A separate task waits for a
    /// slot and holds it, so a caller that starts a read and then stops polling it blocks nobody.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        scope: Scope,
        ask: impl FnOnce(&Self) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let readers = Arc::clone(self);
        let asked = Task::spawn(async move {
            let slot = readers.slots.acquire(&reader(&scope)).await;
            tokio::task::spawn_blocking(move || {
                // A read continues when nobody waits for it any more, and keeps its slot until it ends.
                let _slot = slot;
                ask(&readers)
            })
            .await
        });
        let stopped = || ReadError::from(super::stopped("the store is stopped"));
        asked.await.map_err(|_| stopped())?.map_err(|_| stopped())?
    }

    /// A connection with an empty page cache.
    pub(super) fn open_connection(&self) -> Result<Connection, Unavailable> {
        self.data.open_reader()
    }

    /// Closes idle connections, so that whoever closes the last one can remove the log.
    pub(super) fn close_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Reads one page. Blocks the thread.
    pub(super) fn read(&self, select: &Select) -> Result<Page, ReadError> {
        self.on_idle(|conn| page(conn, select))
    }

    /// Counts rows. Blocks the thread.
    pub(super) fn count(&self, count: &CountQuery) -> Result<Vec<RowGroup>, ReadError> {
        self.on_idle(|conn| {
            let tenant = sql::tenant_of(&count.select.scope);
            let text = sql::count(SqlDialect::Sqlite, count, &tenant)?;
            counted(conn, &text).map_err(|error| ReadError::Unavailable(refused(&error)))
        })
    }

    /// Uses an idle connection, which is returned to the pool if it gave an answer.
    fn on_idle<T>(&self, ask: impl FnOnce(&Connection) -> Result<T, ReadError>) -> Result<T, ReadError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.open_connection()?,
        };
        let answer = ask(&conn).map_err(|error| match error {
            ReadError::Unavailable(met) => self.data.explain(met).into(),
            error => error,
        })?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        Ok(answer)
    }
}

fn page(conn: &Connection, select: &Select) -> Result<Page, ReadError> {
    let tenant = sql::tenant_of(&select.scope);
    let text = sql::select(SqlDialect::Sqlite, select, &tenant)?;
    gathered(conn, &text, select).map_err(|error| ReadError::Unavailable(refused(&error)))
}

/// Reads rows until the page is full; the rest is never fetched.
fn gathered(conn: &Connection, text: &sql::SqlText<'_>, select: &Select) -> rusqlite::Result<Page> {
    let mut statement = conn.prepare_cached(&text.sql)?;
    cells::bind(&mut statement, text.params.iter().map(|(_, value)| *value))?;
    let mut found = PageBuilder::new(select);
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let cell = |(at, column): (usize, &chimera_core::record::Column)| {
            row.get_ref(at).map(|cell| cells::read(column.kind, cell))
        };
        let cells = select.table.columns.iter().enumerate().map(cell).collect::<rusqlite::Result<_>>()?;
        if !found.push(Row { table: select.table, cells }) {
            break;
        }
    }
    Ok(found.page())
}

fn counted(conn: &Connection, text: &sql::SqlText<'_>) -> rusqlite::Result<Vec<RowGroup>> {
    let mut statement = conn.prepare_cached(&text.sql)?;
    cells::bind(&mut statement, text.params.iter().map(|(_, value)| *value))?;
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        found.push(RowGroup {
            value: row.get::<_, Option<String>>(0)?.unwrap_or_default(),
            rows: row.get::<_, i64>(1)?.unsigned_abs(),
            oldest: row.get::<_, Option<i64>>(2)?.map(Timestamp::from_micros),
        });
    }
    Ok(found)
}

fn refused(error: &rusqlite::Error) -> Unavailable {
    failure::unavailable(error)
}
