//! A transaction as data.
//!
//! The bulk part (inserts and compare-and-set updates) is unordered, so a store may merge the bulk parts of many
//! transactions into one statement per table. The ordered part runs as written, after the bulk part. Ledger entries
//! come last; the committer chains them.

use super::{Condition, Table, Value};
use crate::ledger::SealedEntry;
use crate::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_LANES};

/// The column with the version of a row, in every table whose rows are compared before they change.
pub const STATE_VERSION: &str = "state_version";

#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    pub table: &'static Table,
    /// Column position and value, in column order. Omitted columns take their default.
    pub cells: Vec<(usize, Value)>,
}

/// A compare-and-set update of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub table: &'static Table,
    pub key: Vec<Value>,
    /// Columns that must still have these values. Null means still null.
    pub expect: Vec<(usize, Value)>,
    /// New values by column position.
    pub set: Vec<(usize, Value)>,
}

/// The number of rows that a step must affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowCount {
    Exactly(u64),
    AtMost(u64),
}

impl RowCount {
    #[must_use]
    pub const fn allows(self, rows: u64) -> bool {
        match self {
            Self::Exactly(n) => rows == n,
            Self::AtMost(n) => rows <= n,
        }
    }
}

/// One statement of the ordered part.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Insert(Insert),
    /// Locks the matching rows until the transaction ends.
    Lock {
        table: &'static Table,
        conditions: Vec<Condition>,
        rows: RowCount,
    },
    /// Updates the matching rows.
    Update {
        table: &'static Table,
        conditions: Vec<Condition>,
        /// New values by column position.
        set: Vec<(usize, Value)>,
        rows: RowCount,
    },
    /// Deletes the matching rows.
    Delete {
        table: &'static Table,
        conditions: Vec<Condition>,
        rows: RowCount,
    },
}

/// A set of changes that commit together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tx {
    /// Inserts, unordered.
    pub inserts: Vec<Insert>,
    /// Updates, unordered.
    pub updates: Vec<Update>,
    /// Ordered statements, executed after the bulk part.
    pub steps: Vec<Step>,
    /// Ledger entries, in order.
    pub entries: Vec<SealedEntry>,
    /// Additional rows that the ordered part reads or writes.
    pub touches: Vec<Touch>,
    /// Transactions with the same affinity use the same lane and keep their order.
    pub affinity: u64,
}

/// Identifies a row, to name what conflicted.
#[derive(Clone, Debug, PartialEq)]
pub struct RowKey {
    pub table: &'static str,
    pub columns: &'static [&'static str],
    pub values: Vec<Value>,
}

/// Why a transaction lost: a concurrent one changed what it depends on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Conflict {
    #[error("a row with this key exists in {}", .0.table)]
    Exists(RowKey),
    /// The row exists, but has changed.
    #[error("the row in {} has changed", .0.table)]
    Stale(RowKey),
    #[error("the row in {} does not exist", .0.table)]
    Missing(RowKey),
    /// An ordered step affected an unexpected number of rows.
    #[error("step {step} on {table} touched {touched} rows")]
    Rows { step: usize, table: &'static str, touched: u64 },
}

/// Why a transaction is rejected before it reaches a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTx {
    #[error("{table} has no column {column}")]
    UnknownColumn { table: &'static str, column: String },
    #[error("{table}.{column} must have a value")]
    MissingValue { table: &'static str, column: &'static str },
    #[error("{table}.{column} takes another type")]
    WrongType { table: &'static str, column: &'static str },
    #[error("{table}.{column} takes at most {chars_max} characters")]
    TooLong { table: &'static str, column: &'static str, chars_max: u16 },
    #[error("{table}.{column} can't hold the character U+0000")]
    Nul { table: &'static str, column: &'static str },
    #[error("two changes of one row in {table}")]
    DuplicateRow { table: &'static str },
    /// Only the committer writes this table: a row that it did not chain would break the ledger.
    #[error("{table} is written by the committer alone")]
    Reserved { table: &'static str },
    #[error("a transaction may hold at most {rows_max} rows")]
    TooLarge { rows_max: usize },
}

/// A row key as a number, to decide which transactions may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// Digest of table, key columns and values. The same in every process.
    pub digest: u64,
    /// Whether lanes must lock it. Values that are generated per row cannot conflict between lanes and need no lock.
    pub lock: bool,
}

impl Touch {
    #[must_use]
    pub fn new(table: &Table, columns: &[&str], values: &[&Value]) -> Self {
        let mut digest = Fnv::new();
        digest.write(table.name.as_bytes());
        for (column, value) in columns.iter().zip(values) {
            digest.write(column.as_bytes());
            digest.value(value);
        }
        let lock = !values.iter().all(|value| matches!(value, Value::Uuid(_)));
        Self { digest: digest.finish(), lock }
    }
}

impl Insert {
    /// Builds an insert from column names and values.
    pub fn new(table: &'static Table, cells: Vec<(&'static str, Value)>) -> Result<Self, InvalidTx> {
        Ok(Self { table, cells: positions(table, cells)? })
    }

    /// The value of a column, null when it is omitted.
    #[must_use]
    pub fn value(&self, column: &str) -> &Value {
        let at = self.table.position(column);
        self.cells.iter().find(|(position, _)| Some(*position) == at).map_or(&Value::Null, |(_, value)| value)
    }

    /// The key of `columns` in this row, or none if a part of it is null.
    #[must_use]
    pub fn key(&self, columns: &'static [&'static str]) -> Option<RowKey> {
        let values: Vec<Value> = columns.iter().map(|column| self.value(column).clone()).collect();
        values.iter().all(|value| !value.is_null()).then_some(RowKey { table: self.table.name, columns, values })
    }

    /// The primary key and all unique keys of the row.
    pub fn keys(&self) -> impl Iterator<Item = &'static [&'static str]> {
        std::iter::once(self.table.key).chain(self.table.uniques.iter().copied())
    }

    fn touches<'a>(&'a self) -> impl Iterator<Item = Touch> + 'a {
        self.keys().filter_map(|columns| {
            let values: Vec<&Value> = columns.iter().map(|column| self.value(column)).collect();
            let touch =
                values.iter().all(|value| !value.is_null()).then(|| Touch::new(self.table, columns, &values))?;
            let is_fresh = |name: &&str| self.table.columns.iter().any(|column| column.name == *name && column.fresh);
            Some(Touch { lock: touch.lock && !columns.iter().any(is_fresh), ..touch })
        })
    }

    fn check(&self) -> Result<(), InvalidTx> {
        check_cells(self.table, &self.cells)?;
        // Cells are sorted by column.
        let mut given = self.cells.iter().map(|(at, _)| *at).peekable();
        for (at, column) in self.table.columns.iter().enumerate() {
            let is_given = given.next_if_eq(&at).is_some();
            if !is_given && !column.nullable && !column.default {
                return Err(InvalidTx::MissingValue { table: self.table.name, column: column.name });
            }
        }
        Ok(())
    }
}

impl Step {
    /// Updates every row that matches the conditions.
    pub fn update(
        table: &'static Table,
        conditions: Vec<Condition>,
        set: Vec<(&'static str, Value)>,
        rows: RowCount,
    ) -> Result<Self, InvalidTx> {
        Ok(Self::Update { table, conditions, set: positions(table, set)?, rows })
    }
}

impl Update {
    /// Updates the row with this primary key.
    pub fn new(
        table: &'static Table,
        key: Vec<Value>,
        expect: Vec<(&'static str, Value)>,
        set: Vec<(&'static str, Value)>,
    ) -> Result<Self, InvalidTx> {
        Ok(Self { table, key, expect: positions(table, expect)?, set: positions(table, set)? })
    }

    /// Updates the row only at `version`, and increments its [`STATE_VERSION`].
    pub fn versioned(
        table: &'static Table,
        key: Vec<Value>,
        version: i64,
        mut set: Vec<(&'static str, Value)>,
    ) -> Result<Self, InvalidTx> {
        set.push((STATE_VERSION, Value::Int(version + 1)));
        Self::new(table, key, vec![(STATE_VERSION, Value::Int(version))], set)
    }

    #[must_use]
    pub fn row_key(&self) -> RowKey {
        RowKey { table: self.table.name, columns: self.table.key, values: self.key.clone() }
    }

    fn touch(&self) -> Touch {
        let values: Vec<&Value> = self.key.iter().collect();
        Touch { lock: true, ..Touch::new(self.table, self.table.key, &values) }
    }
}

impl Tx {
    /// Adds the changes of another transaction after its own. The affinity stays.
    pub fn append(&mut self, other: Self) {
        self.inserts.extend(other.inserts);
        self.updates.extend(other.updates);
        self.steps.extend(other.steps);
        self.entries.extend(other.entries);
        self.touches.extend(other.touches);
    }

    /// Validates everything that does not need the store.
    pub fn check(&self) -> Result<(), InvalidTx> {
        let rows_max = crate::limits::TX_ROWS_MAX;
        if self.inserts.len() + self.updates.len() + self.steps.len() + self.entries.len() > rows_max {
            return Err(InvalidTx::TooLarge { rows_max });
        }
        if let Some(table) = self.tables().find(|table| [&AUDIT_LOG_ENTRIES, &LEDGER_LANES].contains(table)) {
            return Err(InvalidTx::Reserved { table: table.name });
        }
        self.inserts.iter().try_for_each(Insert::check)?;
        for update in &self.updates {
            check_cells(update.table, &update.expect)?;
            check_cells(update.table, &update.set)?;
        }
        for step in &self.steps {
            match step {
                Step::Insert(insert) => insert.check()?,
                Step::Update { table, set, .. } => check_cells(table, set)?,
                Step::Lock { .. } | Step::Delete { .. } => {}
            }
        }
        self.check_unique_rows()
    }

    fn tables(&self) -> impl Iterator<Item = &'static Table> {
        let steps = self.steps.iter().map(|step| match step {
            Step::Insert(insert) => insert.table,
            Step::Lock { table, .. } | Step::Update { table, .. } | Step::Delete { table, .. } => table,
        });
        let bulk = self.inserts.iter().map(|insert| insert.table).chain(self.updates.iter().map(|update| update.table));
        bulk.chain(steps)
    }

    /// Each row may be changed once: the result of two changes would depend on their order.
    fn check_unique_rows(&self) -> Result<(), InvalidTx> {
        let inserts =
            self.inserts.iter().flat_map(|insert| insert.touches().map(|touch| (touch.digest, insert.table.name)));
        let updates = self.updates.iter().map(|update| (update.touch().digest, update.table.name));
        let mut seen: Vec<_> = inserts.chain(updates).collect();
        seen.sort_unstable();
        match seen.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(InvalidTx::DuplicateRow { table: pair[0].1 }),
            None => Ok(()),
        }
    }

    /// Sorts the bulk part into the order in which every store executes it, so that all of them report the same one of
    /// several conflicts: tables by rank, then rows of one shape by key.
    pub fn sort(&mut self) {
        let shape = |cells: &[(usize, Value)]| cells.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        let first_id = |insert: &Insert| insert.table.key.first().and_then(|key| insert.value(key).as_uuid());
        if self.inserts.len() > 1 {
            self.inserts.sort_by_cached_key(|i| (i.table.rank, i.table.name, shape(&i.cells), first_id(i)));
        }
        if self.updates.len() > 1 {
            self.updates.sort_by_cached_key(|u| (u.table.rank, u.table.name, shape(&u.set), shape(&u.expect)));
        }
    }

    /// Every row key that this transaction depends on, sorted and deduplicated.
    #[must_use]
    pub fn all_touches(&self) -> Vec<Touch> {
        let mut all: Vec<Touch> = self.inserts.iter().flat_map(Insert::touches).collect();
        all.extend(self.updates.iter().map(Update::touch));
        all.extend(self.touches.iter().copied());
        for step in &self.steps {
            match step {
                Step::Insert(insert) => all.extend(insert.touches()),
                Step::Lock { table, conditions, .. }
                | Step::Update { table, conditions, .. }
                | Step::Delete { table, conditions, .. } => {
                    all.push(step_touch(table, conditions));
                }
            }
        }
        all.sort_unstable_by_key(|touch| (touch.digest, !touch.lock));
        all.dedup_by_key(|touch| touch.digest);
        all
    }
}

/// A step with conditions on the whole primary key touches that row; any other touches its whole table.
fn step_touch(table: &'static Table, conditions: &[Condition]) -> Touch {
    let value = |column: &&str| {
        conditions.iter().find(|c| c.column == *column && c.compare == super::Comparison::Is).map(|c| &c.value)
    };
    let touch = match table.key.iter().map(value).collect::<Option<Vec<_>>>() {
        Some(values) => Touch::new(table, table.key, &values),
        None => Touch::new(table, &[], &[]),
    };
    Touch { lock: true, ..touch }
}

fn positions(table: &'static Table, cells: Vec<(&'static str, Value)>) -> Result<Vec<(usize, Value)>, InvalidTx> {
    // Cells are mostly in column order, so the search starts after the previous one.
    let mut next = 0;
    let place = |(column, value): (&'static str, Value)| {
        let (before, behind) = table.columns.split_at(next);
        let at = behind.iter().position(|c| c.name == column).map(|at| next + at);
        let at = at
            .or_else(|| before.iter().position(|c| c.name == column))
            .ok_or_else(|| InvalidTx::UnknownColumn { table: table.name, column: column.to_owned() })?;
        next = at + 1;
        Ok((at, value))
    };
    let mut placed = cells.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
    placed.sort_by_key(|(at, _)| *at);
    Ok(placed)
}

fn check_cells(table: &'static Table, cells: &[(usize, Value)]) -> Result<(), InvalidTx> {
    for (at, value) in cells {
        let Some(column) = table.columns.get(*at) else {
            return Err(InvalidTx::UnknownColumn { table: table.name, column: at.to_string() });
        };
        let (table, name) = (table.name, column.name);
        if value.is_null() {
            if column.nullable {
                continue;
            }
            return Err(InvalidTx::MissingValue { table, column: name });
        }
        if !column.kind.accepts(value) {
            return Err(InvalidTx::WrongType { table, column: name });
        }
        if value.has_nul() {
            return Err(InvalidTx::Nul { table, column: name });
        }
        if let (Some(chars_max), Some(text)) = (column.chars_max, value.as_text())
            && text.len() > usize::from(chars_max)
            && text.chars().count() > usize::from(chars_max)
        {
            return Err(InvalidTx::TooLong { table, column: name, chars_max });
        }
    }
    Ok(())
}

/// FNV-1a with a final mix: small, stable across processes, and a collision only costs a wait.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.0 = (self.0 ^ 0xff).wrapping_mul(0x0100_0000_01b3);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Text(text) | Value::Decimal(text) => self.write(text.as_bytes()),
            Value::Uuid(id) => self.write(id.as_bytes()),
            Value::Int(n) => self.write(&n.to_be_bytes()),
            Value::Time(at) => self.write(&at.micros().to_be_bytes()),
            Value::Bool(b) => self.write(&[u8::from(*b)]),
            Value::Bytes(bytes) => self.write(bytes),
            Value::Json(json) => self.write(json.as_str().as_bytes()),
            Value::Uuids(ids) => ids.iter().for_each(|id| self.write(id.as_bytes())),
            Value::Texts(texts) => texts.iter().for_each(|text| self.write(text.as_bytes())),
            Value::Null => self.write(&[]),
        }
    }

    const fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Column, ColumnType};

    static NOTES: Table = Table {
        name: "notes",
        columns: &[
            Column::new("actor", ColumnType::Text),
            Column::new("id", ColumnType::Text).fresh(),
            Column::new("slug", ColumnType::Text).nullable(),
        ],
        key: &["actor", "id"],
        uniques: &[&["slug"]],
        tenant: None,
        rank: 1,
    };

    #[test]
    fn lanes_queue_for_what_two_may_want_and_not_for_what_is_made_for_one_row() {
        let locks = |cells: Vec<(&'static str, Value)>| {
            let insert = Insert::new(&NOTES, cells).unwrap();
            insert.touches().map(|touch| touch.lock).collect::<Vec<_>>()
        };
        let (actor, id, slug) = (("actor", "ada".into()), ("id", "n1".into()), ("slug", "same".into()));
        assert_eq!(locks(vec![actor.clone(), id.clone()]), [false]);
        assert_eq!(locks(vec![actor, id, slug]), [false, true]);
    }
}
