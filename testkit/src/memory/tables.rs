//! The tables themselves: what a transaction does to them, and what a query finds.
//!
//! A table is copied only when a transaction that might still lose touches it.

use super::defaults::default_of;
use super::order::{SortKey, meets};
use super::views;
use chimera_core::record::{
    Conflict, Direction, Insert, Page, Row, RowCount, Scope, Select, Step, Table, Tx, Update, Value,
};
use chimera_engine::port::ReadError;
use std::collections::BTreeMap;
use std::sync::Arc;

type Rows = BTreeMap<SortKey, Row>;

#[derive(Clone, Default)]
pub(super) struct Tables(BTreeMap<&'static str, Arc<Rows>>);

impl Tables {
    /// Every row of a table or view, in the order of its key.
    pub(super) fn all(&self, table: &'static Table) -> Vec<Row> {
        views::rows(self, table).unwrap_or_else(|| self.stored(table.name).cloned().collect())
    }

    /// The rows that are stored under a name.
    pub(super) fn stored(&self, name: &str) -> impl Iterator<Item = &Row> {
        self.0.get(name).into_iter().flat_map(|rows| rows.values())
    }

    pub(super) fn put(&mut self, row: Row) {
        self.table(row.table).insert(key_of(&row), row);
    }

    pub(super) fn replace(&mut self, table: &'static Table, rows: Vec<Row>) {
        *self.table(table) = rows.into_iter().map(|row| (key_of(&row), row)).collect();
    }

    pub(super) fn apply(&mut self, tx: &Tx) -> Result<(), Conflict> {
        tx.updates.iter().try_for_each(|update| self.update(update))?;
        tx.inserts.iter().try_for_each(|insert| self.insert(insert))?;
        tx.steps.iter().enumerate().try_for_each(|(at, step)| self.step(at, step))
    }

    fn table(&mut self, table: &'static Table) -> &mut Rows {
        Arc::make_mut(self.0.entry(table.name).or_default())
    }

    fn insert(&mut self, insert: &Insert) -> Result<(), Conflict> {
        let table = insert.table;
        for key in insert.keys().filter_map(|columns| insert.key(columns)) {
            let same = |row: &Row| key.columns.iter().zip(&key.values).all(|(column, value)| row.get(column) == value);
            let taken = if key.columns == table.key {
                self.0.get(table.name).is_some_and(|rows| rows.contains_key(&SortKey(key.values.clone())))
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
        self.put(Row { table, cells });
        Ok(())
    }

    fn update(&mut self, update: &Update) -> Result<(), Conflict> {
        let Some(row) = self.table(update.table).get_mut(&SortKey(update.key.clone())) else {
            return Err(Conflict::Missing(update.row_key()));
        };
        if update.expect.iter().any(|(at, value)| row.cells[*at] != *value) {
            return Err(Conflict::Stale(update.row_key()));
        }
        set(row, &update.set);
        Ok(())
    }

    fn step(&mut self, at: usize, step: &Step) -> Result<(), Conflict> {
        let (table, conditions, rows) = match step {
            Step::Insert(insert) => return self.insert(insert),
            Step::Lock { table, conditions, rows }
            | Step::Update { table, conditions, rows, .. }
            | Step::Delete { table, conditions, rows } => (*table, conditions, *rows),
        };
        let found: Vec<Row> = self.stored(table.name).filter(|row| meets(row, conditions)).cloned().collect();
        check_rows(at, table, rows, found.len() as u64)?;
        for mut row in found {
            match step {
                Step::Insert(_) | Step::Lock { .. } => continue,
                Step::Delete { .. } => drop(self.table(table).remove(&key_of(&row))),
                Step::Update { set: values, .. } => {
                    self.table(table).remove(&key_of(&row));
                    set(&mut row, values);
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
        let place = |row: &Row| SortKey(columns.iter().map(|column| row.get(column).clone()).collect());
        let behind = |row: &Row| {
            select.after.as_ref().is_none_or(|cursor| {
                let order = place(row).cmp(&SortKey(cursor.position.clone()));
                if select.direction == Direction::Ascending { order.is_gt() } else { order.is_lt() }
            })
        };
        let own = |row: &Row| tenant.as_ref().is_none_or(|(column, value)| row.get(column) == value);
        let wanted = |row: &Row| own(row) && meets(row, &select.conditions) && behind(row);
        let mut rows: Vec<Row> = match views::rows(self, table) {
            Some(rows) => rows.into_iter().filter(wanted).collect(),
            None => self.stored(table.name).filter(|row| wanted(row)).cloned().collect(),
        };
        rows.sort_by_cached_key(place);
        if select.direction == Direction::Descending {
            rows.reverse();
        }
        rows.truncate(select.limit() + 1);
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
