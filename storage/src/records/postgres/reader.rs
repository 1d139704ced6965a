//! Reads on pooled connections, each with its prepared statements.

use super::super::slots::{reader, slots};
use super::super::sql::{self, SqlDialect};
use super::super::task::Task;
use super::cells::{DecodedCell, PgCell, shape};
use super::connect::Server;
use super::failure;
use chimera_core::limits;
use chimera_core::record::{ColumnType, CountQuery, Page, PageBuilder, Row, RowGroup, Scope, Select, Value};
use chimera_engine::fair_slots::FairSlots;
use chimera_engine::port::{ReadError, Unavailable};
use futures::TryStreamExt;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, RowStream, Statement};

/// A connection and its prepared statements.
pub(super) struct ReadSession {
    client: Client,
    prepared: HashMap<String, Statement>,
}

/// A pool of sessions, opened on demand and dropped when they fail.
pub(super) struct PostgresReaders {
    server: Server,
    idle: Mutex<Vec<ReadSession>>,
    slots: FairSlots,
}

impl PostgresReaders {
    pub(super) fn new(server: Server) -> Self {
        Self { server, idle: Mutex::new(Vec::new()), slots: slots(limits::POSTGRES_READS_MAX) }
    }

    /// Reads one page, or counts rows. A separate task waits for a slot and holds it, so a caller that starts a read
    /// and then stops polling it blocks nobody.
    pub(super) async fn ask<Q: Query>(self: &Arc<Self>, query: Q) -> Result<Q::Answer, ReadError> {
        let readers = Arc::clone(self);
        let asked = Task::spawn(async move { readers.read(&query).await });
        asked.await.unwrap_or_else(|_| Err(super::connect::passing("the store is stopped").into()))
    }

    /// A session that died while idle is replaced once.
    async fn read<Q: Query>(&self, query: &Q) -> Result<Q::Answer, ReadError> {
        let _slot = self.slots.acquire(&reader(query.scope())).await;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut session) = idle.filter(|session| !session.client.is_closed()) {
            match query.answer(&mut session).await {
                Err(QueryFailure::Lost) => {}
                answer => return self.give_back(session, answer),
            }
        }
        let mut session = ReadSession { client: self.server.connect().await?, prepared: HashMap::new() };
        let answer = query.answer(&mut session).await;
        self.give_back(session, answer)
    }

    /// Closes idle sessions.
    pub(super) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn give_back<T>(&self, session: ReadSession, answer: Result<T, QueryFailure>) -> Result<T, ReadError> {
        match answer {
            Ok(answer) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
                Ok(answer)
            }
            Err(QueryFailure::Lost) => Err(super::connect::passing("the database can't be reached").into()),
            Err(QueryFailure::Refused(reason)) => Err(reason.into()),
            Err(QueryFailure::Invalid(error)) => Err(error),
        }
    }
}

/// A query that a session can run.
pub(super) trait Query: Send + Sync + 'static {
    type Answer: Send + 'static;

    fn scope(&self) -> &Scope;

    fn answer(&self, session: &mut ReadSession) -> impl Future<Output = Result<Self::Answer, QueryFailure>> + Send;
}

impl Query for Select {
    type Answer = Page;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    async fn answer(&self, session: &mut ReadSession) -> Result<Page, QueryFailure> {
        session.page(self).await
    }
}

impl Query for CountQuery {
    type Answer = Vec<RowGroup>;

    fn scope(&self) -> &Scope {
        &self.select.scope
    }

    async fn answer(&self, session: &mut ReadSession) -> Result<Vec<RowGroup>, QueryFailure> {
        session.count(self).await
    }
}

/// Adds rows to a page while they fit; returns how many did.
async fn gather(found: &mut PageBuilder<'_>, select: &Select, rows: RowStream) -> Result<usize, tokio_postgres::Error> {
    let (mut rows, mut taken) = (pin!(rows), 0);
    while let Some(row) = rows.try_next().await? {
        let cell = |(at, column): (usize, &chimera_core::record::Column)| {
            row.try_get::<_, DecodedCell>(at).map_or(Value::Null, |read| shape(column.kind, read.0))
        };
        let cells = select.table.columns.iter().enumerate().map(cell).collect();
        if !found.push(Row { table: select.table, cells }) {
            break;
        }
        taken += 1;
    }
    Ok(taken)
}

pub(super) enum QueryFailure {
    Lost,
    Refused(Unavailable),
    Invalid(ReadError),
}

impl From<tokio_postgres::Error> for QueryFailure {
    fn from(error: tokio_postgres::Error) -> Self {
        if failure::is_lost(&error) { Self::Lost } else { Self::Refused(failure::unavailable(&error)) }
    }
}

impl ReadSession {
    async fn page(&mut self, select: &Select) -> Result<Page, QueryFailure> {
        let tenant = sql::tenant_of(&select.scope);
        let text = sql::select(SqlDialect::Postgres, select, &tenant).map_err(QueryFailure::Invalid)?;
        let cells: Vec<PgCell<'_>> = text.params.iter().map(|(_, value)| PgCell(value)).collect();
        let params: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as _).collect();
        let statement = self.prepare(&text.sql).await?;
        let mut found = PageBuilder::new(select);
        if select.limit() < limits::POSTGRES_ROWS_FETCHED_FIRST {
            gather(&mut found, select, self.client.query_raw(&statement, params).await?).await?;
            return Ok(found.page());
        }
        // A long page is fetched in chunks, so that rows which don't fit are not even sent.
        let transaction = self.client.transaction().await?;
        let portal = transaction.bind(&statement, &params).await?;
        let mut rows = limits::POSTGRES_ROWS_FETCHED_FIRST;
        loop {
            let most = i32::try_from(rows).unwrap_or(i32::MAX);
            let piece = transaction.query_portal_raw(&portal, most).await?;
            if gather(&mut found, select, piece).await? < rows {
                break;
            }
            rows = found.rows_left();
        }
        transaction.commit().await?;
        Ok(found.page())
    }

    async fn count(&mut self, count: &CountQuery) -> Result<Vec<RowGroup>, QueryFailure> {
        let tenant = sql::tenant_of(&count.select.scope);
        let text = sql::count(SqlDialect::Postgres, count, &tenant).map_err(QueryFailure::Invalid)?;
        let cells: Vec<PgCell<'_>> = text.params.iter().map(|(_, value)| PgCell(value)).collect();
        let params: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as _).collect();
        let statement = self.prepare(&text.sql).await?;
        let rows = self.client.query(&statement, &params).await?;
        let counted = |row: &tokio_postgres::Row| {
            let oldest = row.try_get::<_, DecodedCell>(2).map_or(Value::Null, |read| shape(ColumnType::Time, read.0));
            RowGroup {
                value: row.try_get(0).unwrap_or_default(),
                rows: row.try_get::<_, i64>(1).unwrap_or_default().unsigned_abs(),
                oldest: oldest.as_time(),
            }
        };
        Ok(rows.iter().map(counted).collect())
    }

    async fn prepare(&mut self, text: &str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.prepared.get(text) {
            return Ok(statement.clone());
        }
        if self.prepared.len() >= limits::POSTGRES_READ_STATEMENTS_MAX {
            self.prepared.clear();
        }
        let statement = self.client.prepare(text).await?;
        self.prepared.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }
}
