//! A record store in memory, small enough to read, that keeps the contract of the port; and the
//! ways to tamper with it and to break it.

use async_trait::async_trait;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_LANES};
use chimera_core::ledger::{Digest32, Head, StoredEntry};
use chimera_core::record::{
    Compare, Condition, Conflict, Direction, Insert, Page, Row, Scope, Select, Step, Table, Tx, Update, Value,
};
use chimera_core::time::Timestamp;
use chimera_engine::port::{CommitError, ReadError, Receipt, Records, Unavailable};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::sync::watch;

type Tables = BTreeMap<&'static str, Vec<Vec<Value>>>;

/// How many lanes affinities are spread over.
const LANES: u64 = 2;

pub(crate) struct Memory {
    tables: Mutex<Tables>,
    broken: Mutex<bool>,
    commits: watch::Sender<u64>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { tables: Mutex::default(), broken: Mutex::new(false), commits: watch::Sender::new(0) }
    }

    /// From now on, whether the store can write.
    pub(crate) fn set_broken(&self, broken: bool) {
        *self.broken.lock().unwrap() = broken;
    }

    /// Counts commits, for tests that wait for one.
    pub(crate) fn commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    pub(crate) fn rows(&self, table: &'static Table) -> Vec<Row> {
        let tables = self.tables.lock().unwrap();
        let rows = tables.get(table.name).cloned().unwrap_or_default();
        rows.into_iter().map(|cells| Row { table, cells }).collect()
    }

    /// Changes rows behind everybody's back, as an intruder with the database's password would.
    pub(crate) fn tamper(&self, table: &'static Table, change: impl FnOnce(&mut Vec<Vec<Value>>)) {
        change(self.tables.lock().unwrap().entry(table.name).or_default());
    }
}

fn apply(tables: &mut Tables, tx: &Tx) -> Result<Receipt, Conflict> {
    tx.inserts.iter().try_for_each(|insert| add(tables, insert))?;
    tx.updates.iter().try_for_each(|update| change(tables, update))?;
    for (number, step) in tx.steps.iter().enumerate() {
        let (table, touched, expected) = match step {
            Step::Insert(insert) => {
                add(tables, insert)?;
                continue;
            }
            Step::Delete { table, conditions, rows } => {
                let all = tables.entry(table.name).or_default();
                let before = all.len();
                all.retain(|cells| !meets(table, cells, conditions));
                (table, before - all.len(), rows)
            }
            Step::Lock { table, conditions, rows } => (table, count(tables, table, conditions), rows),
            Step::Update { table, conditions, set, rows } => {
                let touched = count(tables, table, conditions);
                for cells in tables.entry(table.name).or_default() {
                    if meets(table, cells, conditions) {
                        set.iter().for_each(|(at, value)| cells[*at] = value.clone());
                    }
                }
                (table, touched, rows)
            }
        };
        if !expected.allows(touched as u64) {
            return Err(Conflict::Rows { step: number, table: table.name, touched: touched as u64 });
        }
    }
    append(tables, tx)
}

fn append(tables: &mut Tables, tx: &Tx) -> Result<Receipt, Conflict> {
    let lane = i64::try_from(tx.affinity % LANES).unwrap() + 1;
    let lanes = tables.entry(LEDGER_LANES.name).or_default();
    if !lanes.iter().any(|cells| cells[0] == Value::Int(lane)) {
        let epoch = Value::Time(Timestamp::from_micros(0));
        lanes.push(vec![lane.into(), 1.into(), 0.into(), vec![0_u8; 32].into(), Value::Null, epoch, Value::Null]);
    }
    let at = lanes.iter().position(|cells| cells[0] == Value::Int(lane)).unwrap();
    let hash = Digest32::from_slice(lanes[at][3].as_bytes().unwrap()).unwrap();
    let mut head = Head { seq: lanes[at][2].as_int().unwrap(), hash };
    let first = head.seq + 1;
    for sealed in &tx.entries {
        let stored = StoredEntry::after(lane, head, sealed.clone());
        head = stored.link.head();
        tables.entry(AUDIT_LOG_ENTRIES.name).or_default().push(stored.row().cells);
    }
    let lanes = tables.entry(LEDGER_LANES.name).or_default();
    (lanes[at][2], lanes[at][3]) = (head.seq.into(), head.hash.0.to_vec().into());
    let first_seq = (!tx.entries.is_empty()).then_some(first);
    Ok(Receipt { lane, epoch: 1, first_seq, head_seq: head.seq })
}

fn cell(table: &Table, cells: &[Value], column: &str) -> Value {
    cells[table.position(column).unwrap()].clone()
}

fn add(tables: &mut Tables, insert: &Insert) -> Result<(), Conflict> {
    let table = insert.table;
    let rows = tables.entry(table.name).or_default();
    for columns in insert.keys() {
        let Some(key) = insert.key(columns) else { continue };
        let same = |cells: &Vec<Value>| columns.iter().zip(&key.values).all(|(c, v)| cell(table, cells, c) == *v);
        if rows.iter().any(same) {
            return Err(Conflict::Exists(key));
        }
    }
    rows.push(table.columns.iter().map(|column| insert.value(column.name).clone()).collect());
    Ok(())
}

fn change(tables: &mut Tables, update: &Update) -> Result<(), Conflict> {
    let table = update.table;
    let rows = tables.entry(table.name).or_default();
    let same = |cells: &&mut Vec<Value>| table.key.iter().zip(&update.key).all(|(c, v)| cell(table, cells, c) == *v);
    let Some(cells) = rows.iter_mut().find(same) else { return Err(Conflict::Missing(update.row_key())) };
    if update.expect.iter().any(|(at, value)| cells[*at] != *value) {
        return Err(Conflict::Stale(update.row_key()));
    }
    update.set.iter().for_each(|(at, value)| cells[*at] = value.clone());
    Ok(())
}

fn count(tables: &Tables, table: &Table, conditions: &[Condition]) -> usize {
    let rows = tables.get(table.name).map_or(&[][..], Vec::as_slice);
    rows.iter().filter(|cells| meets(table, cells, conditions)).count()
}

fn meets(table: &Table, cells: &[Value], conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| {
        let value = cell(table, cells, condition.column);
        match condition.compare {
            Compare::Is => value == condition.value,
            Compare::IsNot => value != condition.value,
            Compare::Above => order(&value, &condition.value).is_gt(),
            Compare::AtLeast => order(&value, &condition.value).is_ge(),
            Compare::Below => order(&value, &condition.value).is_lt(),
            Compare::AtMost => order(&value, &condition.value).is_le(),
        }
    })
}

fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Time(a), Value::Time(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => panic!("{a:?} and {b:?} have no order"),
    }
}

#[async_trait]
impl Records for Memory {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        tx.check()?;
        tokio::task::yield_now().await;
        if *self.broken.lock().unwrap() {
            return Err(Unavailable { reason: "the disk is full".into() }.into());
        }
        let mut tables = self.tables.lock().unwrap();
        let mut changed = tables.clone();
        let receipt = apply(&mut changed, &tx)?;
        *tables = changed;
        drop(tables);
        self.commits.send_modify(|commits| *commits += 1);
        Ok(receipt)
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        tokio::task::yield_now().await;
        let mut rows = self.rows(select.table);
        rows.retain(|row| meets(select.table, &row.cells, &select.conditions));
        if let Scope::Tenant(tenant) = &select.scope {
            let column = select.table.tenant.expect("a table with tenants");
            rows.retain(|row| row.text(column) == tenant);
        }
        let columns = select.order_columns();
        rows.sort_by(|a, b| {
            let by = columns.iter().map(|column| order(a.get(column), b.get(column)));
            let ascending = by.fold(Ordering::Equal, Ordering::then);
            if select.direction == Direction::Ascending { ascending } else { ascending.reverse() }
        });
        rows.truncate(select.limit() + 1);
        Ok(select.page(rows))
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    async fn close(&self) {}
}

/// The position of an entry among the rows of its table.
pub(crate) fn entry_at(rows: &[Vec<Value>], lane: i64, seq: i64) -> usize {
    let same = |cells: &Vec<Value>| cells[0] == Value::Int(lane) && cells[1] == Value::Int(seq);
    assert_eq!(AUDIT_LOG_ENTRIES.key, ["lane", "seq"]);
    rows.iter().position(same).unwrap()
}
