//! A transaction as data.
//!
//! The bulk part (inserts and compare-and-set updates) has no order of its own, so a store may
//! merge the bulk parts of many transactions into one statement per table. The ordered part runs
//! as written, after the bulk part. Ledger entries come last and are chained by the committer.

use super::{Condition, Table, Value};
use crate::ledger::SealedEntry;
use crate::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_LANES};

/// A row to add.
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// Where.
    pub table: &'static Table,
    /// Column position and value, in column order; columns left out take their default.
    pub cells: Vec<(usize, Value)>,
}

/// A change of one row that holds only if the row still looks as expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Where.
    pub table: &'static Table,
    /// The primary key's values.
    pub key: Vec<Value>,
    /// Columns that must still have these values (null means: still null).
    pub expect: Vec<(usize, Value)>,
    /// Columns that get these values.
    pub set: Vec<(usize, Value)>,
}

/// How many rows a step must touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowCount {
    /// Exactly this many.
    Exactly(u64),
    /// Any number up to this many.
    AtMost(u64),
}

impl RowCount {
    /// Whether `rows` is such a count.
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
    /// Adds one row.
    Insert(Insert),
    /// Locks the rows that meet the conditions until the transaction ends.
    Lock {
        /// Where.
        table: &'static Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// How many there must be.
        rows: RowCount,
    },
    /// Changes the rows that meet the conditions.
    Update {
        /// Where.
        table: &'static Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// New values by column position.
        set: Vec<(usize, Value)>,
        /// How many must change.
        rows: RowCount,
    },
    /// Removes the rows that meet the conditions.
    Delete {
        /// Where.
        table: &'static Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// How many must go.
        rows: RowCount,
    },
}

/// Everything that changes together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tx {
    /// Rows to add, in any order.
    pub inserts: Vec<Insert>,
    /// Rows to change, in any order.
    pub updates: Vec<Update>,
    /// Statements in their order, after the bulk part.
    pub steps: Vec<Step>,
    /// Ledger entries in their order.
    pub entries: Vec<SealedEntry>,
    /// Further rows that the ordered part reads or writes.
    pub touches: Vec<Touch>,
    /// Transactions with the same affinity go to the same lane and keep their order.
    pub affinity: u64,
}

/// A row key by its table, for the names of what clashed.
#[derive(Clone, Debug, PartialEq)]
pub struct RowKey {
    /// The table.
    pub table: &'static str,
    /// The columns of the key.
    pub columns: &'static [&'static str],
    /// Their values.
    pub values: Vec<Value>,
}

/// Why a transaction lost: somebody else changed what it builds on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Conflict {
    /// A row with this key exists already.
    #[error("a row with this key exists in {}", .0.table)]
    Exists(RowKey),
    /// The row is there, but not as expected.
    #[error("the row in {} has changed", .0.table)]
    Stale(RowKey),
    /// The row is not there.
    #[error("the row in {} does not exist", .0.table)]
    Missing(RowKey),
    /// A step of the ordered part touched another number of rows.
    #[error("step {step} on {table} touched {touched} rows")]
    Rows {
        /// The step's position.
        step: usize,
        /// Its table.
        table: &'static str,
        /// How many rows it touched.
        touched: u64,
    },
}

/// Why a transaction can't be tried at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTx {
    /// A column the table doesn't have.
    #[error("{table} has no column {column}")]
    UnknownColumn {
        /// The table.
        table: &'static str,
        /// The column.
        column: String,
    },
    /// A required column without a value.
    #[error("{table}.{column} must have a value")]
    MissingValue {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// A value of another type than the column's.
    #[error("{table}.{column} takes another type")]
    WrongType {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// Text that is too long for the column.
    #[error("{table}.{column} takes at most {chars_max} characters")]
    TooLong {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The limit.
        chars_max: u16,
    },
    /// Text with the NUL character.
    #[error("{table}.{column} can't hold the character U+0000")]
    Nul {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// Two changes of one row in one transaction.
    #[error("two changes of one row in {table}")]
    Twice {
        /// The table.
        table: &'static str,
    },
    /// A table that only the committer writes: a row there that it did not chain would break the
    /// ledger.
    #[error("{table} is written by the committer alone")]
    Reserved {
        /// The table.
        table: &'static str,
    },
    /// More rows than a transaction may hold.
    #[error("a transaction may hold at most {rows_max} rows")]
    TooLarge {
        /// The limit.
        rows_max: usize,
    },
}

/// A row key reduced to a number, for deciding which transactions may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// Digest of table, key columns and values: the same in every process.
    pub digest: u64,
    /// Whether lanes must queue for it. What is made for one row can't clash between lanes, so no lock.
    pub lock: bool,
}

impl Touch {
    /// The touch of a key of `table`.
    #[must_use]
    pub fn of(table: &Table, columns: &[&str], values: &[&Value]) -> Self {
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
    /// A row of `table` from column names and values. Unknown names are kept aside for `check`.
    pub fn into(table: &'static Table, cells: Vec<(&'static str, Value)>) -> Result<Self, InvalidTx> {
        Ok(Self { table, cells: positions(table, cells)? })
    }

    /// The value of a column, null when it is left out.
    #[must_use]
    pub fn value(&self, column: &str) -> &Value {
        let at = self.table.position(column);
        self.cells.iter().find(|(position, _)| Some(*position) == at).map_or(&Value::Null, |(_, value)| value)
    }

    /// The key of `columns` in this row, unless a part of it is null.
    #[must_use]
    pub fn key(&self, columns: &'static [&'static str]) -> Option<RowKey> {
        let values: Vec<Value> = columns.iter().map(|column| self.value(column).clone()).collect();
        values.iter().all(|value| !value.is_null()).then_some(RowKey { table: self.table.name, columns, values })
    }

    /// The primary key and every further unique key of the row.
    pub fn keys(&self) -> impl Iterator<Item = &'static [&'static str]> {
        std::iter::once(self.table.key).chain(self.table.uniques.iter().copied())
    }

    fn touches<'a>(&'a self) -> impl Iterator<Item = Touch> + 'a {
        self.keys().filter_map(|columns| {
            let values: Vec<&Value> = columns.iter().map(|column| self.value(column)).collect();
            let touch = values.iter().all(|value| !value.is_null()).then(|| Touch::of(self.table, columns, &values))?;
            let is_fresh = |name: &&str| self.table.columns.iter().any(|column| column.name == *name && column.fresh);
            Some(Touch { lock: touch.lock && !columns.iter().any(is_fresh), ..touch })
        })
    }

    fn check(&self) -> Result<(), InvalidTx> {
        check_cells(self.table, &self.cells)?;
        // Cells stand in the order of their columns.
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
    /// A change of every row that meets the conditions.
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
    /// A change of the row with this primary key.
    pub fn of(
        table: &'static Table,
        key: Vec<Value>,
        expect: Vec<(&'static str, Value)>,
        set: Vec<(&'static str, Value)>,
    ) -> Result<Self, InvalidTx> {
        Ok(Self { table, key, expect: positions(table, expect)?, set: positions(table, set)? })
    }

    /// A change that holds only at `version`, and makes the row's `state_version` one greater.
    pub fn versioned(
        table: &'static Table,
        key: Vec<Value>,
        version: i64,
        mut set: Vec<(&'static str, Value)>,
    ) -> Result<Self, InvalidTx> {
        set.push(("state_version", Value::Int(version + 1)));
        Self::of(table, key, vec![("state_version", Value::Int(version))], set)
    }

    /// The row's primary key.
    #[must_use]
    pub fn row_key(&self) -> RowKey {
        RowKey { table: self.table.name, columns: self.table.key, values: self.key.clone() }
    }

    fn touch(&self) -> Touch {
        let values: Vec<&Value> = self.key.iter().collect();
        Touch { lock: true, ..Touch::of(self.table, self.table.key, &values) }
    }
}

impl Tx {
    /// Checks everything that can be known before a store is asked.
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
        self.check_once()
    }

    /// Every table that is written or locked.
    fn tables(&self) -> impl Iterator<Item = &'static Table> {
        let steps = self.steps.iter().map(|step| match step {
            Step::Insert(insert) => insert.table,
            Step::Lock { table, .. } | Step::Update { table, .. } | Step::Delete { table, .. } => table,
        });
        let bulk = self.inserts.iter().map(|insert| insert.table).chain(self.updates.iter().map(|update| update.table));
        bulk.chain(steps)
    }

    /// One change per row: what a second change of the same row would mean depends on the order.
    fn check_once(&self) -> Result<(), InvalidTx> {
        let inserts =
            self.inserts.iter().flat_map(|insert| insert.touches().map(|touch| (touch.digest, insert.table.name)));
        let updates = self.updates.iter().map(|update| (update.touch().digest, update.table.name));
        let mut seen: Vec<_> = inserts.chain(updates).collect();
        seen.sort_unstable();
        match seen.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(InvalidTx::Twice { table: pair[0].1 }),
            None => Ok(()),
        }
    }

    /// Puts the bulk part into the one order in which every store works it off, so that of several
    /// conflicts all of them report the same: tables by rank, then rows of one shape by their key.
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

    /// Every row key this transaction depends on, sorted, each once.
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

/// A step that names a whole primary key touches that row; any other touches its whole table.
fn step_touch(table: &'static Table, conditions: &[Condition]) -> Touch {
    let value = |column: &&str| {
        conditions.iter().find(|c| c.column == *column && c.compare == super::Compare::Is).map(|c| &c.value)
    };
    let touch = match table.key.iter().map(value).collect::<Option<Vec<_>>>() {
        Some(values) => Touch::of(table, table.key, &values),
        None => Touch::of(table, &[], &[]),
    };
    Touch { lock: true, ..touch }
}

fn positions(table: &'static Table, cells: Vec<(&'static str, Value)>) -> Result<Vec<(usize, Value)>, InvalidTx> {
    // Cells mostly come in the order of their columns, so each is looked for behind the one before.
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
    use crate::record::{Column, Kind};

    static NOTES: Table = Table {
        name: "notes",
        columns: &[
            Column::new("actor", Kind::Text),
            Column::new("id", Kind::Text).fresh(),
            Column::new("slug", Kind::Text).nullable(),
        ],
        key: &["actor", "id"],
        uniques: &[&["slug"]],
        tenant: None,
        rank: 1,
    };

    #[test]
    fn lanes_queue_for_what_two_may_want_and_not_for_what_is_made_for_one_row() {
        let locks = |cells: Vec<(&'static str, Value)>| {
            let insert = Insert::into(&NOTES, cells).unwrap();
            insert.touches().map(|touch| touch.lock).collect::<Vec<_>>()
        };
        let (actor, id, slug) = (("actor", "ada".into()), ("id", "n1".into()), ("slug", "same".into()));
        assert_eq!(locks(vec![actor.clone(), id.clone()]), [false]);
        assert_eq!(locks(vec![actor, id, slug]), [false, true]);
    }
}
