//! Executes one batch on a lane's connection, in two round trips.
//!
//! The first carries everything from BEGIN to the last insert, pipelined. COMMIT is sent only after every answer was
//! read and no transaction lost. The check for foreign objects goes right before it: if it fails, the server turns the
//! commit into a rollback. A check of the lane row behind it tells one from the other. Key conflicts are rare and
//! locating them is expensive, so inserts are plain at first. If one conflicts, the batch is retried with inserts that
//! skip taken keys, and one pass finds every loser.

use super::cells::{DecodedCell, PgCell, PgColumn};
use super::failure::{self, left_out};
use super::objects::{self, OWN_OBJECTS, OwnOids};
use super::statements::{self, ADVANCE, ExpectedAnswer, LOCK, OnKeyConflict, Statement, StatementText};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_LANES};
use chimera_core::limits;
use chimera_core::record::{Conflict, Insert, RowKey, Step, Table, Update, Value};
use chimera_engine::commit::{Batch, BatchOutcome, TxRejection};
use futures::future::join_all;
use std::collections::{BTreeSet, HashMap};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage};
use uuid::Uuid;

/// A lane's connection and its prepared statements.
pub(super) struct LaneSession {
    client: Client,
    prepared: HashMap<StatementText, tokio_postgres::Statement>,
    lease_seconds: f64,
    /// Read with the first batch, and again when they may have changed.
    numbers: Option<OwnOids>,
    /// The quick check failed, and the full check found nothing.
    is_quick_check_wrong: bool,
}

/// What the statements of a batch did.
enum StatementsResult<'a> {
    Executed,
    /// Somebody else holds the lane.
    Fenced,
    /// The database skipped rows of this table.
    LeftOut(&'static str),
    /// The losers of conflicts.
    Lost(Vec<Loser<'a>>),
}

impl<'a> StatementsResult<'a> {
    fn of(
        fenced: Vec<Row>,
        statements: &[Statement<'a>],
        answers: Vec<Result<StatementAnswer, Error>>,
    ) -> Result<Self, Error> {
        if fenced.is_empty() {
            return Ok(Self::Fenced);
        }
        let mut lost = Vec::new();
        for (statement, answer) in statements.iter().zip(answers) {
            let rows = match answer {
                // A skipped row breaks the references to it: report the loss instead.
                Err(error) if !lost.is_empty() && matches!(failure::of_batch(&error), BatchOutcome::Refused(_)) => {
                    break;
                }
                Err(error) => return Err(error),
                Ok(StatementAnswer::Count { table, left_out: true }) => return Ok(Self::LeftOut(table)),
                Ok(StatementAnswer::Count { .. }) => continue,
                Ok(StatementAnswer::Rows(rows)) => rows,
            };
            if matches!(statement.expects, ExpectedAnswer::Entries(entries) if entries != rows.len()) {
                return Ok(Self::LeftOut(AUDIT_LOG_ENTRIES.name));
            }
            lost.extend(losers(statement, &rows));
        }
        Ok(if lost.is_empty() { Self::Executed } else { Self::Lost(lost) })
    }
}

fn is_failed_check(error: &Error) -> bool {
    error.code() == Some(&SqlState::DIVISION_BY_ZERO)
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitAnswer {
    Committed,
    RolledBack,
    /// Rolled back, because the tables are not as Chimera created them.
    CheckFailed,
    /// The check of the lane failed: the batch may be committed.
    Unknown,
}

/// The id of the last batch of a lane.
const LAST_BATCH: &str = "SELECT last_batch_id FROM ledger_lanes WHERE lane = $1";

impl LaneSession {
    pub(super) fn new(client: Client, lease_seconds: f64) -> Self {
        Self { client, prepared: HashMap::new(), lease_seconds, numbers: None, is_quick_check_wrong: false }
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// Executes the batch. No transaction stays open, whatever happens.
    pub(super) async fn execute(&mut self, batch: &Batch) -> BatchOutcome {
        for inserts in [OnKeyConflict::Plain, OnKeyConflict::Skip] {
            return match self.attempt(batch, inserts).await {
                Ok(outcome @ (BatchOutcome::Committed { .. } | BatchOutcome::Unknown { .. })) => outcome,
                Ok(outcome) => self.rolled_back(outcome).await,
                Err(error) if failure::is_lost(&error) => BatchOutcome::Unavailable(failure::unavailable(&error)),
                Err(error) if inserts == OnKeyConflict::Plain && failure::is_taken_key(&error) => {
                    self.rolled_back(BatchOutcome::Contended).await;
                    continue;
                }
                Err(error) => self.refused(failure::of_batch(&error)).await,
            };
        }
        BatchOutcome::Contended
    }

    /// A failed statement also aborts the check behind it, so the check runs now.
    async fn refused(&self, outcome: BatchOutcome) -> BatchOutcome {
        match self.rolled_back(outcome).await {
            BatchOutcome::Contended => BatchOutcome::Contended,
            outcome => objects::check_objects(&self.client).await.map_or_else(BatchOutcome::Unavailable, |()| outcome),
        }
    }

    async fn rolled_back(&self, outcome: BatchOutcome) -> BatchOutcome {
        // A session that can't roll back is lost, and its transaction with it.
        let _ = self.client.batch_execute("ROLLBACK").await;
        outcome
    }

    async fn attempt(&mut self, batch: &Batch, inserts: OnKeyConflict) -> Result<BatchOutcome, Error> {
        let (links, head) = batch.chain(|_| true);
        let entries = statements::entry_rows(batch, &links);
        let statements = match statements::statements(batch, &entries, inserts) {
            Ok(statements) => statements,
            Err((tx, error)) => return Ok(BatchOutcome::Lost(vec![(tx, TxRejection::Rejected(error.to_string()))])),
        };
        let locks: Vec<Value> = batch.locks.iter().map(|key| Value::Int(key.cast_signed())).collect();
        let question = self.question(batch, &statements).await?;
        let asked = question.as_deref().unwrap_or(objects::LOOK).to_owned();
        let texts = [ADVANCE.into(), LOCK.into(), LAST_BATCH.into(), asked.into()].map(StatementText::Words);
        let texts: Vec<&StatementText> =
            texts.iter().chain(statements.iter().map(|statement| &statement.text)).collect();
        let prepared = self.prepare(&texts).await?;
        let lane = batch.lane;
        let hash = Value::Bytes(head.hash.0.to_vec());
        let advance: [&(dyn ToSql + Sync); 7] =
            [&lane.id, &lane.epoch, &lane.head.seq, &head.seq, &PgCell(&hash), &batch.id, &self.lease_seconds];
        let keys = PgColumn(locks.iter().collect());
        let keys: [&(dyn ToSql + Sync); 1] = [&keys];

        let begin = self.client.batch_execute("BEGIN");
        // Skip the lock statement if there is nothing to lock.
        let queue =
            async { if locks.is_empty() { Ok(Vec::new()) } else { self.client.query(&prepared[1], &keys).await } };
        let fence = self.client.query(&prepared[0], &advance);
        let params: Vec<Vec<&(dyn ToSql + Sync)>> = statements.iter().map(borrowed).collect();
        let sent = prepared[4..].iter().zip(&statements).zip(&params);
        let work = join_all(sent.map(|((text, statement), params)| self.answer(statement, text, params)));
        let is_quick = question.is_some();
        let own = OWN_OBJECTS.params();
        let look = async { if is_quick { Ok(Vec::new()) } else { self.client.query(&prepared[3], &own).await } };
        let (begun, queued, fenced, answers, looked) = tokio::join!(biased; begin, queue, fence, work, look);
        begun?;
        queued?;
        if let Some(foreign) = looked.as_ref().ok().and_then(|rows| objects::first_foreign(rows)) {
            return Ok(BatchOutcome::Unavailable(foreign));
        }
        let result = StatementsResult::of(fenced?, &statements, answers)?;
        // A foreign object may have caused it.
        if is_quick
            && !matches!(result, StatementsResult::Executed)
            && let Some(outcome) = self.failed_check(&prepared[3]).await?
        {
            return Ok(outcome);
        }
        match result {
            StatementsResult::Executed => {}
            StatementsResult::Fenced => return Ok(BatchOutcome::Fenced),
            StatementsResult::LeftOut(table) => return Ok(BatchOutcome::Lacking(left_out(table))),
            StatementsResult::Lost(lost) => return Ok(BatchOutcome::Lost(self.name_losses(batch, lost).await?)),
        }
        looked?;
        if batch.txs.iter().any(super::super::is_probe) && !self.probe(batch).await? {
            return Ok(BatchOutcome::Lacking(left_out(AUDIT_LOG_ENTRIES.name)));
        }
        let check = is_quick.then_some(&prepared[3]);
        match self.commit(batch.lane.id, batch.id, check).await {
            Ok(CommitAnswer::Committed) => Ok(BatchOutcome::Committed { head, lost: Vec::new() }),
            Ok(CommitAnswer::RolledBack) => Ok(BatchOutcome::Contended),
            Ok(CommitAnswer::CheckFailed) => Ok(self.find_foreign().await),
            Ok(CommitAnswer::Unknown) => Ok(BatchOutcome::Unknown { lost: Vec::new() }),
            Err(error) if failure::is_lost(&error) => Ok(BatchOutcome::Unknown { lost: Vec::new() }),
            Err(error) => Err(error),
        }
    }

    /// Runs the quick check in the open transaction, which ends if it fails. A transaction in which a statement failed
    /// can't be checked.
    async fn failed_check(&mut self, check: &tokio_postgres::Statement) -> Result<Option<BatchOutcome>, Error> {
        match self.client.query(check, &[]).await {
            Ok(_) => Ok(None),
            Err(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => Ok(None),
            Err(error) if is_failed_check(&error) => {
                self.client.batch_execute("ROLLBACK").await?;
                Ok(Some(self.find_foreign().await))
            }
            Err(error) => Err(error),
        }
    }

    /// What made the quick check fail. If it is nothing, the objects were made again: the batch is executed again with
    /// the full check, and the next one with new OIDs.
    async fn find_foreign(&mut self) -> BatchOutcome {
        self.numbers = None;
        self.is_quick_check_wrong = true;
        objects::check_objects(&self.client).await.map_or_else(BatchOutcome::Unavailable, |()| BatchOutcome::Contended)
    }

    /// The quick check of the tables that a batch changes. A probe checks all of them.
    async fn question(&mut self, batch: &Batch, statements: &[Statement<'_>]) -> Result<Option<String>, Error> {
        if std::mem::take(&mut self.is_quick_check_wrong) || batch.txs.iter().any(super::super::is_probe) {
            return Ok(None);
        }
        let numbers = match self.numbers.take() {
            Some(numbers) => numbers,
            None => OwnOids::read(&self.client).await?,
        };
        let mut tables: BTreeSet<&str> = statements.iter().map(Statement::table).collect();
        tables.insert(LEDGER_LANES.name);
        let question = numbers.quick_check_sql(&tables);
        self.numbers = Some(numbers);
        Ok(question)
    }

    /// Sends a statement and reads its answer. The rows of plain inserts are counted: a database that silently skips
    /// some must not pass for one that stores them.
    async fn answer(
        &self,
        statement: &Statement<'_>,
        text: &tokio_postgres::Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<StatementAnswer, Error> {
        match statement.expects {
            ExpectedAnswer::Count { table, rows } => {
                let kept = self.client.execute(text, params).await?;
                Ok(StatementAnswer::Count { table, left_out: kept != rows as u64 })
            }
            _ => Ok(StatementAnswer::Rows(self.client.query(text, params).await?)),
        }
    }

    /// Sends COMMIT and checks the lane right behind it: the driver reports success for a commit that the server
    /// turned into a rollback, but then the batch id is missing. A failed quick check of the objects causes that.
    async fn commit(
        &mut self,
        lane: i64,
        batch: Uuid,
        quick_check: Option<&tokio_postgres::Statement>,
    ) -> Result<CommitAnswer, Error> {
        let place: [&(dyn ToSql + Sync); 1] = [&lane];
        let last = self.prepare(&[&StatementText::Words(LAST_BATCH.into())]).await?.remove(0);
        let check = async {
            match quick_check {
                Some(check) => self.client.query(check, &[]).await.map(drop),
                None => Ok(()),
            }
        };
        let commit = self.client.batch_execute("COMMIT");
        let last = self.client.query(&last, &place);
        let (checked, committed, last) = tokio::join!(biased; check, commit, last);
        committed?;
        let Ok(last) = last else { return Ok(CommitAnswer::Unknown) };
        if last.first().and_then(|row| row.get(0)) == Some(batch) {
            return Ok(CommitAnswer::Committed);
        }
        match checked {
            Ok(()) => Ok(CommitAnswer::RolledBack),
            Err(error) if is_failed_check(&error) => Ok(CommitAnswer::CheckFailed),
            Err(error) => Err(error),
        }
    }

    /// Whether the ledger accepts appends, up to the commit; rolls back.
    async fn probe(&self, batch: &Batch) -> Result<bool, Error> {
        let text = format!(
            "SAVEPOINT probe; \
             INSERT INTO audit_log_entries (lane, seq, id, tenant_id, subject_type, subject_id, event_type, actor_type, \
             timestamp, data_json, salt, content_digest, prev_hash, hash) VALUES ({}, 9223372036854775807, '', '', \
             'other', '', 'probe', 'system', now(), '{{}}', '', '', '', ''); \
             SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK TO probe; RELEASE probe",
            batch.lane.id
        );
        let answers = self.client.simple_query(&text).await?;
        Ok(answers.iter().any(|answer| matches!(answer, SimpleQueryMessage::CommandComplete(1))))
    }

    async fn prepare(&mut self, texts: &[&StatementText]) -> Result<Vec<tokio_postgres::Statement>, Error> {
        if self.prepared.len() > limits::POSTGRES_LANE_STATEMENTS_MAX {
            self.prepared.clear();
        }
        let mut statements = Vec::with_capacity(texts.len());
        for text in texts {
            let statement = match self.prepared.get(*text) {
                Some(statement) => statement.clone(),
                None => {
                    let statement = self.client.prepare(&text.spell()).await?;
                    self.prepared.insert((*text).clone(), statement.clone());
                    statement
                }
            };
            statements.push(statement);
        }
        Ok(statements)
    }

    /// Finds out what each loser conflicted with. The transaction is still open and sees it.
    async fn name_losses(&mut self, batch: &Batch, lost: Vec<Loser<'_>>) -> Result<Vec<(usize, TxRejection)>, Error> {
        // A loser must not see rows that its own batch just wrote.
        self.client.batch_execute("ROLLBACK").await?;
        let mut named: Vec<(usize, TxRejection)> = Vec::new();
        for Loser { tx, why } in lost {
            if named.iter().any(|(known, _)| *known == tx) || tx >= batch.txs.len() {
                continue;
            }
            let loss = match why {
                LossCause::Insert(insert) => self.taken(batch, insert).await?,
                LossCause::Update(update) => {
                    let key = update.row_key();
                    let there = self.exists(update.table, &key).await?;
                    TxRejection::Conflict(if there { Conflict::Stale(key) } else { Conflict::Missing(key) })
                }
                LossCause::Rows { step, table, touched } => {
                    TxRejection::Conflict(Conflict::Rows { step, table, touched })
                }
            };
            named.push((tx, loss));
        }
        Ok(named)
    }

    async fn taken(&mut self, batch: &Batch, insert: &Insert) -> Result<TxRejection, Error> {
        for key in insert.keys().filter_map(|columns| insert.key(columns)) {
            if self.exists(insert.table, &key).await? {
                return Ok(TxRejection::Conflict(Conflict::Exists(key)));
            }
        }
        // No row has its keys: the conflicting row is gone, or the batch contains the same row twice.
        Ok(if has_duplicate_key(batch, insert) {
            TxRejection::Rejected(format!("unique key of {}", insert.table.name))
        } else {
            TxRejection::Lacking(left_out(insert.table.name))
        })
    }

    async fn exists(&mut self, table: &Table, key: &RowKey) -> Result<bool, Error> {
        let text = super::super::sql::exists(super::super::sql::SqlDialect::Postgres, table, key.columns);
        let statement = self.prepare(&[&StatementText::Words(text.into())]).await?.remove(0);
        let cells: Vec<PgCell<'_>> = key.values.iter().map(PgCell).collect();
        let params: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as _).collect();
        Ok(!self.client.query(&statement, &params).await?.is_empty())
    }
}

enum StatementAnswer {
    Rows(Vec<Row>),
    Count { table: &'static str, left_out: bool },
}

fn borrowed<'a>(statement: &'a Statement<'_>) -> Vec<&'a (dyn ToSql + Sync)> {
    statement.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

/// A transaction that lost to a conflict.
struct Loser<'a> {
    tx: usize,
    why: LossCause<'a>,
}

enum LossCause<'a> {
    Insert(&'a Insert),
    Update(&'a Update),
    Rows { step: usize, table: &'static str, touched: u64 },
}

fn losers<'a>(statement: &Statement<'a>, rows: &[Row]) -> Vec<Loser<'a>> {
    match &statement.expects {
        ExpectedAnswer::Updates(updates) if rows.len() < updates.len() => {
            let lost = |(tx, update): &(usize, &'a Update)| Loser { tx: *tx, why: LossCause::Update(update) };
            statements::missing_updates(updates, rows).map(lost).collect()
        }
        ExpectedAnswer::Inserts(inserts) if rows.len() < inserts.len() => {
            let keys: Vec<Vec<Value>> = rows.iter().map(key_of).collect();
            let absent = |insert: &Insert| insert.key(insert.table.key).is_none_or(|key| !keys.contains(&key.values));
            let missing = inserts.iter().filter(|(_, insert)| absent(insert));
            missing.map(|(tx, insert)| Loser { tx: *tx, why: LossCause::Insert(insert) }).collect()
        }
        ExpectedAnswer::Step { tx, at, step } => step_loser(*tx, *at, step, rows),
        ExpectedAnswer::Updates(_)
        | ExpectedAnswer::Inserts(_)
        | ExpectedAnswer::Entries(_)
        | ExpectedAnswer::Count { .. } => Vec::new(),
    }
}

/// Whether another row of the batch has a key of this one.
fn has_duplicate_key(batch: &Batch, insert: &Insert) -> bool {
    let steps = batch.txs.iter().flat_map(|tx| &tx.steps).filter_map(|step| match step {
        Step::Insert(insert) => Some(insert),
        Step::Lock { .. } | Step::Update { .. } | Step::Delete { .. } => None,
    });
    let others = batch.txs.iter().flat_map(|tx| &tx.inserts).chain(steps);
    let mut others = others.filter(|other| other.table.name == insert.table.name && !std::ptr::eq(*other, insert));
    let shares =
        |other: &Insert| insert.keys().any(|key| insert.key(key).is_some_and(|own| other.key(key) == Some(own)));
    others.any(shares)
}

fn key_of(row: &Row) -> Vec<Value> {
    (0..row.len()).map(|at| row.try_get::<_, DecodedCell>(at).map_or(Value::Null, |read| read.0)).collect()
}

fn step_loser<'a>(tx: usize, at: usize, step: &'a Step, rows: &[Row]) -> Vec<Loser<'a>> {
    let touched = rows.len() as u64;
    let (table, allowed) = match step {
        Step::Insert(insert) if touched == 1 => return Vec::new(),
        Step::Insert(insert) => return vec![Loser { tx, why: LossCause::Insert(insert) }],
        Step::Lock { table, rows, .. } | Step::Update { table, rows, .. } | Step::Delete { table, rows, .. } => {
            (table, rows)
        }
    };
    if allowed.allows(touched) {
        Vec::new()
    } else {
        vec![Loser { tx, why: LossCause::Rows { step: at, table: table.name, touched } }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_testkit::postgres::PrivatePostgres;

    /// The driver reports success for such a commit.
    #[tokio::test]
    async fn a_commit_that_the_server_turned_into_a_rollback_is_not_success() {
        let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
        let server = super::super::connect::Server::parse(&url).unwrap();
        let mut client = server.connect().await.unwrap();
        crate::migrate::postgres(&mut client).await.unwrap();
        let lane = super::super::lane::claim(&client, "test", 15.0, None).await.unwrap();
        let (mut session, batch) = (LaneSession::new(client, 15.0), Uuid::from_u64_pair(1, 1));
        session.prepare(&[&StatementText::Words(LAST_BATCH.into())]).await.unwrap();
        let mark = "UPDATE ledger_lanes SET last_batch_id = $1";
        session.client().batch_execute("BEGIN").await.unwrap();
        session.client().execute(mark, &[&batch]).await.unwrap();
        assert!(session.client().batch_execute("SELECT 1 / 0").await.is_err());
        assert_eq!(session.commit(lane.id, batch, None).await.unwrap(), CommitAnswer::RolledBack);
        session.client().batch_execute("BEGIN").await.unwrap();
        session.client().execute(mark, &[&batch]).await.unwrap();
        assert_eq!(session.commit(lane.id, batch, None).await.unwrap(), CommitAnswer::Committed);
    }
}
