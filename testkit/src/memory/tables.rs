//! The tables: applying transactions and answering queries.
//!
//! An undo journal keeps the previous version of each changed row. It rolls back a transaction that conflicts,
//! and shows the changes of one that commits.

use super::defaults::default_of;
use super::order::{SortKey, matches};
use super::views;
use chimera_core::record::{
    Conflict, Direction, Insert, Page, Row, RowCount, Scope, Select, Step, Table, Tx, Update, Value,
};
use chimera_engine::port::ReadError;
use std::collections::BTreeMap;

type Rows = BTreeMap<SortKey, Row>;

#[derive(Default)]
pub(super) struct Tables {
    tables: BTreeMap<&'static str, Rows>,
    journal: Vec<PreviousRow>,
}

/// The previous version of a changed row.
struct PreviousRow {
    table: &'static Table,
    key: SortKey,
    row: Option<Row>,
}

#[derive(Clone, Copy, Debug)]
pub struct RowChange<'a> {
    pub table: &'static Table,
    /// None if the row was inserted.
    pub before: Option<&'a Row>,
    /// None if the row was deleted.
    pub after: Option<&'a Row>,
}

impl Tables {
    pub(super) fn copy(&self) -> Self {
        Self { tables: self.tables.clone(), journal: Vec::new() }
    }

    /// Every row of a table or view, in the order of its key.
    pub(super) fn all(&self, table: &'static Table) -> Vec<Row> {
        views::rows(self, table).unwrap_or_else(|| self.stored(table.name).cloned().collect())
    }

    /// The rows of a table; none for a view.
    pub(super) fn stored(&self, name: &str) -> impl Iterator<Item = &Row> {
        self.tables.get(name).into_iter().flat_map(|rows| rows.values())
    }

    pub(super) fn find(&self, table: &'static Table, key: Vec<Value>) -> Option<&Row> {
        self.tables.get(table.name)?.get(&SortKey(key))
    }

    pub(super) fn put(&mut self, row: Row) {
        self.table(row.table).insert(key_of(&row), row);
    }

    pub(super) fn replace(&mut self, table: &'static Table, rows: Vec<Row>) {
        *self.table(table) = rows.into_iter().map(|row| (key_of(&row), row)).collect();
    }

    /// Applies a transaction atomically.
    pub(super) fn apply(&mut self, tx: &Tx) -> Result<(), Conflict> {
        let begun = self.journal.len();
        let applied = self.try_apply(tx);
        if applied.is_err() {
            for was in self.journal.split_off(begun).into_iter().rev() {
                let rows = self.table(was.table);
                match was.row {
                    Some(row) => drop(rows.insert(was.key, row)),
                    None => drop(rows.remove(&was.key)),
                }
            }
        }
        applied
    }

    fn try_apply(&mut self, tx: &Tx) -> Result<(), Conflict> {
        tx.updates.iter().try_for_each(|update| self.update(update))?;
        tx.inserts.iter().try_for_each(|insert| self.insert(insert))?;
        tx.steps.iter().enumerate().try_for_each(|(at, step)| self.step(at, step))
    }

    /// Passes each change since the last call to `show`, and clears the journal.
    pub(super) fn changes(&mut self, mut show: impl FnMut(RowChange<'_>)) {
        for was in std::mem::take(&mut self.journal) {
            let after = self.tables.get(was.table.name).and_then(|rows| rows.get(&was.key));
            show(RowChange { table: was.table, before: was.row.as_ref(), after });
        }
    }

    fn table(&mut self, table: &'static Table) -> &mut Rows {
        self.tables.entry(table.name).or_default()
    }

    fn note(&mut self, table: &'static Table, key: SortKey) {
        let row = self.tables.get(table.name).and_then(|rows| rows.get(&key)).cloned();
        self.journal.push(PreviousRow { table, key, row });
    }

    fn insert(&mut self, insert: &Insert) -> Result<(), Conflict> {
        let table = insert.table;
        for key in insert.keys().filter_map(|columns| insert.key(columns)) {
            let same = |row: &Row| key.columns.iter().zip(&key.values).all(|(column, value)| row.get(column) == value);
            let taken = if key.columns == table.key {
                self.find(table, key.values.clone()).is_some()
            } else {
                self.stored(table.name).any(same)
            };
            if taken {
                return Err(Conflict::Exists(key));
            }
        }
        let given = |at: usize| insert.cells.iter().find(|(position, _)| *position == at);
        let cell = |(at, column)| given(at).map_or_else(|| default_of(table, column), |(_, value)| value.clone());
        let cells = table.columns.iter().enumerate().map(cell).collect();
        let row = Row { table, cells };
        self.note(table, key_of(&row));
        self.put(row);
        Ok(())
    }

    fn update(&mut self, update: &Update) -> Result<(), Conflict> {
        let key = SortKey(update.key.clone());
        let Some(row) = self.table(update.table).get(&key) else {
            return Err(Conflict::Missing(update.row_key()));
        };
        if update.expect.iter().any(|(at, value)| row.cells[*at] != *value) {
            return Err(Conflict::Stale(update.row_key()));
        }
        self.note(update.table, key.clone());
        if let Some(row) = self.table(update.table).get_mut(&key) {
            set(row, &update.set);
        }
        Ok(())
    }

    fn step(&mut self, at: usize, step: &Step) -> Result<(), Conflict> {
        let (table, conditions, rows) = match step {
            Step::Insert(insert) => return self.insert(insert),
            Step::Lock { table, conditions, rows }
            | Step::Update { table, conditions, rows, .. }
            | Step::Delete { table, conditions, rows } => (*table, conditions, *rows),
        };
        let found: Vec<Row> = self.stored(table.name).filter(|row| matches(row, conditions)).cloned().collect();
        check_rows(at, table, rows, found.len() as u64)?;
        for mut row in found {
            match step {
                Step::Insert(_) | Step::Lock { .. } => continue,
                Step::Delete { .. } => {
                    self.note(table, key_of(&row));
                    self.table(table).remove(&key_of(&row));
                }
                Step::Update { set: values, .. } => {
                    self.note(table, key_of(&row));
                    self.table(table).remove(&key_of(&row));
                    set(&mut row, values);
                    self.note(table, key_of(&row));
                    self.put(row);
                }
            }
        }
        Ok(())
    }

    pub(super) fn read(&self, select: &Select) -> Result<Page, ReadError> {
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
        if columns.iter().any(|column| !select.may_order_by(column)) {
            return Err(invalid("it is ordered by a column that may be null"));
        }
        let place = |row: &Row| SortKey(columns.iter().map(|column| row.get(column).clone()).collect());
        let behind = |row: &Row| {
            select.after.as_ref().is_none_or(|cursor| {
                let order = place(row).cmp(&SortKey(cursor.position.clone()));
                if select.direction == Direction::Ascending { order.is_gt() } else { order.is_lt() }
            })
        };
        let own = |row: &Row| tenant.as_ref().is_none_or(|(column, value)| row.get(column) == value);
        let wanted = |row: &Row| own(row) && matches(row, &select.conditions) && behind(row);
        let mut rows: Vec<Row> = match views::rows(self, table) {
            Some(rows) => rows.into_iter().filter(wanted).collect(),
            None => self.stored(table.name).filter(|row| wanted(row)).cloned().collect(),
        };
        rows.sort_by_cached_key(place);
        if select.direction == Direction::Descending {
            rows.reverse();
        }
        rows.truncate(select.limit() + 1);
        for row in &mut rows {
            let unread = table.columns.iter().zip(&mut row.cells).filter(|(column, _)| !select.is_fetched(column.name));
            unread.for_each(|(_, cell)| *cell = Value::Null);
        }
        Ok(select.page(rows))
    }
}

fn key_of(row: &Row) -> SortKey {
    SortKey(row.table.key.iter().map(|column| row.get(column).clone()).collect())
}

fn set(row: &mut Row, values: &[(usize, Value)]) {
    values.iter().for_each(|(at, value)| row.cells[*at] = value.clone());
}

fn check_rows(step: usize, table: &'static Table, rows: RowCount, touched: u64) -> Result<(), Conflict> {
    if rows.allows(touched) { Ok(()) } else { Err(Conflict::Rows { step, table: table.name, touched }) }
}
