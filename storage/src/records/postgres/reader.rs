//! Reads on pooled connections, each with the statements that were prepared on it.

use super::super::sql::{self, Dialect};
use super::cells::{Cell, Read, shape};
use super::connect::Server;
use super::failure;
use chimera_core::record::{Page, Row, Select, Value};
use chimera_engine::port::{ReadError, Unavailable};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

/// Reads that may run at once.
const READERS_MAX: usize = 8;

/// Statements kept prepared per session; more begin anew.
const PREPARED_MAX: usize = 256;

/// A connection and the statements prepared on it.
struct Session {
    client: Client,
    prepared: HashMap<String, Statement>,
}

/// A few sessions, opened when needed and dropped when they fail.
pub(super) struct Readers {
    server: Server,
    idle: Mutex<Vec<Session>>,
    slots: Semaphore,
}

impl Readers {
    pub(super) const fn new(server: Server) -> Self {
        Self { server, idle: Mutex::new(Vec::new()), slots: Semaphore::const_new(READERS_MAX) }
    }

    /// Reads one page. A session that died while idle is replaced once.
    pub(super) async fn read(&self, select: &Select) -> Result<Page, ReadError> {
        let _slot = self.slots.acquire().await;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut session) = idle.filter(|session| !session.client.is_closed()) {
            match session.page(select).await {
                Err(Failure::Lost) => {}
                answer => return self.give_back(session, answer),
            }
        }
        let mut session = Session { client: self.server.connect().await?, prepared: HashMap::new() };
        let answer = session.page(select).await;
        self.give_back(session, answer)
    }

    /// Ends the sessions that nobody uses.
    pub(super) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn give_back(&self, session: Session, answer: Result<Page, Failure>) -> Result<Page, ReadError> {
        match answer {
            Ok(page) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
                Ok(page)
            }
            Err(Failure::Lost) => Err(super::connect::reason("the database can't be reached").into()),
            Err(Failure::Refused(reason)) => Err(reason.into()),
            Err(Failure::Invalid(error)) => Err(error),
        }
    }
}

enum Failure {
    Lost,
    Refused(Unavailable),
    Invalid(ReadError),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        if failure::is_lost(&error) { Self::Lost } else { Self::Refused(failure::unavailable(&error)) }
    }
}

impl Session {
    async fn page(&mut self, select: &Select) -> Result<Page, Failure> {
        let tenant = sql::tenant_of(&select.scope);
        let text = sql::select(Dialect::Postgres, select, &tenant).map_err(Failure::Invalid)?;
        let cells: Vec<Cell<'_>> = text.params.iter().map(|(_, value)| Cell(value)).collect();
        let params: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as _).collect();
        let statement = self.prepare(&text.sql).await?;
        let rows = self.client.query(&statement, &params).await?;
        let row = |row: &tokio_postgres::Row| {
            let cell = |(at, column): (usize, &chimera_core::record::Column)| {
                row.try_get::<_, Read>(at).map_or(Value::Null, |read| shape(column.kind, read.0))
            };
            Row { table: select.table, cells: select.table.columns.iter().enumerate().map(cell).collect() }
        };
        Ok(select.page(rows.iter().map(row).collect()))
    }

    async fn prepare(&mut self, text: &str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.prepared.get(text) {
            return Ok(statement.clone());
        }
        if self.prepared.len() >= PREPARED_MAX {
            self.prepared.clear();
        }
        let statement = self.client.prepare(text).await?;
        self.prepared.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }
}
