//! Statements that were spelled before.
//!
//! A text depends on the table and on which columns are named, and a program has few of those
//! shapes, so each is written once and found again by comparing positions.

use super::super::sql::{self, Dialect};
use chimera_core::record::{Insert, Table, Update, Value};

/// Shapes kept per table; a program that has more spells them anew.
const SHAPES_MAX: usize = 64;

/// The texts of one connection.
#[derive(Default)]
pub(super) struct Texts {
    inserts: Vec<Shape>,
    updates: Vec<Shape>,
}

struct Shape {
    table: &'static str,
    /// Positions of the columns named, those set before those expected.
    positions: Vec<usize>,
    /// How many of them are set.
    set: usize,
    text: String,
}

impl Texts {
    /// `INSERT` of a row with these columns.
    pub(super) fn insert(&mut self, insert: &Insert) -> &str {
        let positions = || insert.cells.iter().map(|(at, _)| *at);
        find(&mut self.inserts, insert.table.name, insert.cells.len(), positions, || {
            sql::insert(Dialect::Sqlite, insert.table, positions())
        })
    }

    /// `INSERT` of a row with all columns.
    pub(super) fn whole_row(&mut self, table: &'static Table) -> &str {
        let columns = table.columns.len();
        find(&mut self.inserts, table.name, columns, || 0..columns, || sql::insert(Dialect::Sqlite, table, 0..columns))
    }

    /// `UPDATE` of a row by its key that holds only while the expected columns have their values.
    pub(super) fn update(&mut self, update: &Update) -> &str {
        let positions = || update.set.iter().chain(&update.expect).map(|(at, _)| *at);
        find(&mut self.updates, update.table.name, update.set.len(), positions, || spell(update))
    }
}

fn find<'a, P: Iterator<Item = usize>>(
    shapes: &'a mut Vec<Shape>,
    table: &'static str,
    set: usize,
    positions: impl Fn() -> P,
    spell: impl FnOnce() -> String,
) -> &'a str {
    let same = |shape: &Shape| {
        std::ptr::eq(shape.table, table) && shape.set == set && shape.positions.iter().copied().eq(positions())
    };
    let at = shapes.iter().position(same).unwrap_or_else(|| {
        if shapes.len() >= SHAPES_MAX {
            shapes.clear();
        }
        shapes.push(Shape { table, positions: positions().collect(), set, text: spell() });
        shapes.len() - 1
    });
    &shapes[at].text
}

fn spell(update: &Update) -> String {
    let table = update.table;
    let name = |(at, _): &(usize, Value)| table.columns[*at].name;
    let mut n = 0;
    let mut terms = |columns: Vec<&str>, operator: &str| {
        let term = |column: &str| {
            n += 1;
            format!("{column} {operator} ?{n}")
        };
        columns.into_iter().map(term).collect::<Vec<_>>()
    };
    let set = terms(update.set.iter().map(name).collect(), "=").join(", ");
    let keyed = terms(table.key.to_vec(), "=");
    let expected = terms(update.expect.iter().map(name).collect(), "IS");
    format!("UPDATE {} SET {set} WHERE {}", table.name, [keyed, expected].concat().join(" AND "))
}
