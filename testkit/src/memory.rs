//! The record store of the simulator: tables in memory, the real committer in front of them.
//!
//! It is synchronous inside: a commit is decided before the call returns, in the order of the
//! calls. A fault hook may replace the outcome of any batch, so that a test can make the store
//! refuse, disconnect or forget at a moment of its choice. Checks and foreign keys of the
//! database are not modelled; everything the catalogue knows is.

use async_trait::async_trait;
use chimera_core::ledger::{Head, Link, SealedEntry};
use chimera_core::record::{
    Compare, Condition, Conflict, Direction, Insert, Page, Row, RowCount, Scope, Select, Step, Table, Tx, Update, Value,
};
use chimera_engine::commit::{Batch, Command, Committer, Event, Lane, Loss, Outcome, Prepared, Settled};
use chimera_engine::port::{CommitError, ReadError, Receipt, Records, Unavailable};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Decides what becomes of a batch before it is applied; `None` applies it.
pub type Fault = Box<dyn FnMut(&Batch) -> Option<Outcome> + Send>;

/// Tables in memory.
pub struct MemoryRecords {
    state: Mutex<State>,
}

struct State {
    committer: Committer<u64>,
    tables: Tables,
    lane: Lane,
    last_batch: Option<uuid::Uuid>,
    fault: Option<Fault>,
    waiters: u64,
}

impl Default for MemoryRecords {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryRecords {
    /// An empty store that never fails.
    #[must_use]
    pub fn new() -> Self {
        let lane = Lane { id: 1, epoch: 1, head: Head::EMPTY };
        let mut committer = Committer::new();
        committer.step(Event::Claimed(lane));
        let tables = Tables::default();
        Self { state: Mutex::new(State { committer, tables, lane, last_batch: None, fault: None, waiters: 0 }) }
    }

    /// Lets `fault` decide about every batch from now on.
    pub fn inject(&self, fault: Fault) {
        self.lock().fault = Some(fault);
    }

    /// Every batch is applied again.
    pub fn heal(&self) {
        self.lock().fault = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Records for MemoryRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        self.lock().commit(tx)
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        self.lock().tables.read(&select)
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        self.lock().commit(Tx::default()).map(drop).map_err(|error| Unavailable { reason: error.to_string() })
    }

    async fn close(&self) {
        self.lock().committer.step(Event::Closing);
    }
}

impl State {
    fn commit(&mut self, tx: Tx) -> Result<Receipt, CommitError> {
        let tx = Prepared::new(tx)?;
        self.waiters += 1;
        let me = self.waiters;
        let mut answer = Err(CommitError::Unavailable(Unavailable { reason: "the store is stopped".to_owned() }));
        let mut commands: VecDeque<_> = self.committer.step(Event::Submitted { tx, waiter: me }).into();
        commands.extend(self.committer.start());
        while let Some(command) = commands.pop_front() {
            let event = match command {
                Command::Reply(waiter, told) => {
                    if waiter == me {
                        answer = told;
                    }
                    continue;
                }
                Command::Execute(batch) => {
                    let outcome = self.execute(&batch);
                    Event::Executed { batch, outcome }
                }
                Command::Claim => {
                    self.lane.epoch += 1;
                    Event::Claimed(self.lane)
                }
                Command::Settle(batch) => {
                    self.lane.epoch += 1;
                    let ours = self.last_batch == Some(batch.id);
                    let settled = if ours { Settled::Ours(self.lane) } else { Settled::Never(self.lane) };
                    Event::Settled { batch, settled }
                }
                Command::Release(_) => continue,
            };
            commands.extend(self.committer.step(event));
            commands.extend(self.committer.start());
        }
        answer
    }

    fn execute(&mut self, batch: &Batch) -> Outcome {
        if let Some(outcome) = self.fault.as_mut().and_then(|fault| fault(batch)) {
            if matches!(outcome, Outcome::Committed { .. }) {
                // The commit happens and its answer is lost.
                let lost = self.apply(batch);
                return Outcome::Unsure { lost };
            }
            return outcome;
        }
        if batch.lane != self.lane {
            return Outcome::Fenced;
        }
        let lost = self.apply(batch);
        Outcome::Committed { head: self.lane.head, lost }
    }

    fn apply(&mut self, batch: &Batch) -> Vec<(usize, Loss)> {
        let mut lost = Vec::new();
        for (at, tx) in batch.txs.iter().enumerate() {
            let before = self.tables.clone();
            if let Err(conflict) = self.tables.apply(tx) {
                self.tables = before;
                lost.push((at, Loss::Conflict(conflict)));
            }
        }
        let keep = |at: usize| lost.iter().all(|(position, _)| *position != at);
        let (links, head) = batch.chain(keep);
        let kept = batch.txs.iter().enumerate().filter(|(at, _)| keep(*at));
        for (sealed, link) in kept.flat_map(|(_, tx)| &tx.entries).zip(&links) {
            self.tables.append(batch.lane.id, sealed, link);
        }
        self.lane.head = head;
        self.last_batch = Some(batch.id);
        lost
    }
}

/// A primary key that sorts as both databases sort it.
#[derive(Clone, Debug, PartialEq)]
struct SortKey(Vec<Value>);

impl Eq for SortKey {}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        pairs.map(|(a, b)| order(a, b)).find(|o| o.is_ne()).unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}

fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        (Value::Time(a), Value::Time(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

#[derive(Clone, Default)]
struct Tables(BTreeMap<&'static str, BTreeMap<SortKey, Row>>);

impl Tables {
    fn apply(&mut self, tx: &Tx) -> Result<(), Conflict> {
        tx.updates.iter().try_for_each(|update| self.update(update))?;
        tx.inserts.iter().try_for_each(|insert| self.insert(insert))?;
        tx.steps.iter().enumerate().try_for_each(|(at, step)| self.step(at, step))
    }

    fn insert(&mut self, insert: &Insert) -> Result<(), Conflict> {
        let table = insert.table;
        for key in insert.keys().filter_map(|columns| insert.key(columns)) {
            let same = |row: &Row| key.columns.iter().zip(&key.values).all(|(column, value)| row.get(column) == value);
            if self.rows(table).values().any(same) {
                return Err(Conflict::Exists(key));
            }
        }
        let cells = table.columns.iter().map(|column| insert.value(column.name).clone()).collect();
        self.put(Row { table, cells });
        Ok(())
    }

    fn update(&mut self, update: &Update) -> Result<(), Conflict> {
        let rows = self.0.entry(update.table.name).or_default();
        let Some(row) = rows.get_mut(&SortKey(update.key.clone())) else {
            return Err(Conflict::Missing(update.row_key()));
        };
        if update.expect.iter().any(|(at, value)| row.cells[*at] != *value) {
            return Err(Conflict::Stale(update.row_key()));
        }
        update.set.iter().for_each(|(at, value)| row.cells[*at] = value.clone());
        Ok(())
    }

    fn step(&mut self, at: usize, step: &Step) -> Result<(), Conflict> {
        let (table, conditions, rows) = match step {
            Step::Insert(insert) => return self.insert(insert),
            Step::Lock { table, conditions, rows }
            | Step::Update { table, conditions, rows, .. }
            | Step::Delete { table, conditions, rows } => (*table, conditions, *rows),
        };
        let found: Vec<SortKey> =
            self.rows(table).iter().filter(|(_, row)| meets(row, conditions)).map(|(k, _)| k.clone()).collect();
        check_rows(at, table, rows, found.len() as u64)?;
        for key in found {
            let Some(mut row) = self.0.get_mut(table.name).and_then(|rows| rows.remove(&key)) else { continue };
            match step {
                Step::Delete { .. } => continue,
                Step::Update { set, .. } => set.iter().for_each(|(at, value)| row.cells[*at] = value.clone()),
                Step::Insert(_) | Step::Lock { .. } => {}
            }
            self.put(row);
        }
        Ok(())
    }

    fn rows(&mut self, table: &'static Table) -> &BTreeMap<SortKey, Row> {
        self.0.entry(table.name).or_default()
    }

    fn put(&mut self, row: Row) {
        let key = SortKey(row.table.key.iter().map(|column| row.get(column).clone()).collect());
        self.0.entry(row.table.name).or_default().insert(key, row);
    }

    fn append(&mut self, lane: i64, sealed: &SealedEntry, link: &Link) {
        self.put(sealed.row(lane, link));
    }

    fn read(&mut self, select: &Select) -> Result<Page, ReadError> {
        let table = select.table;
        let invalid = |reason: &str| ReadError::Invalid { table: table.name, reason: reason.to_owned() };
        let tenant = match (&select.scope, table.tenant) {
            (Scope::System, _) => None,
            (Scope::Tenant(tenant), Some(column)) => Some((column, Value::Text(tenant.clone()))),
            (Scope::Tenant(_), None) => return Err(invalid("it has no tenant")),
        };
        let columns = select.order_columns();
        if columns.iter().chain(select.conditions.iter().map(|c| &c.column)).any(|c| table.position(c).is_none()) {
            return Err(invalid("no such column"));
        }
        let place = |row: &Row| SortKey(columns.iter().map(|column| row.get(column).clone()).collect());
        let behind = |row: &Row| {
            select.after.as_ref().is_none_or(|cursor| {
                let order = place(row).cmp(&SortKey(cursor.position.clone()));
                if select.direction == Direction::Ascending { order.is_gt() } else { order.is_lt() }
            })
        };
        let own = |row: &Row| tenant.as_ref().is_none_or(|(column, value)| row.get(column) == value);
        let all = self.rows(table).values();
        let mut rows: Vec<Row> = all.filter(|r| own(r) && meets(r, &select.conditions) && behind(r)).cloned().collect();
        rows.sort_by_key(place);
        if select.direction == Direction::Descending {
            rows.reverse();
        }
        rows.truncate(select.limit() + 1);
        Ok(select.page(rows))
    }
}

fn meets(row: &Row, conditions: &[Condition]) -> bool {
    conditions.iter().all(|Condition { column, compare, value }| {
        let cell = row.get(column);
        match compare {
            Compare::Is => cell == value,
            Compare::IsNot => cell != value,
            _ if cell.is_null() || value.is_null() => false,
            Compare::Above => order(cell, value).is_gt(),
            Compare::AtLeast => order(cell, value).is_ge(),
            Compare::Below => order(cell, value).is_lt(),
            Compare::AtMost => order(cell, value).is_le(),
        }
    })
}

fn check_rows(step: usize, table: &'static Table, rows: RowCount, touched: u64) -> Result<(), Conflict> {
    if rows.allows(touched) { Ok(()) } else { Err(Conflict::Rows { step, table: table.name, touched }) }
}
