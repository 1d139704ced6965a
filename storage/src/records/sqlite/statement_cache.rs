//! A cache of statement texts.
//!
//! A text depends on the table and its named columns, and a program has few such shapes, so each is built once and
//! found by comparing positions. Within a batch a shape keeps its number, so that its statement is looked up once.

use super::super::sql::{self, SqlDialect};
use chimera_core::limits;
use chimera_core::record::{Insert, Table, Update, Value};

/// The statement texts of one connection.
#[derive(Default)]
pub(super) struct StatementCache(Vec<StatementShape>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Insert,
    Append,
    Update,
}

/// What a statement does, apart from the columns that it names.
#[derive(Clone, Copy)]
struct Operation {
    verb: Verb,
    table: &'static str,
    /// How many of the named columns are set.
    set: usize,
}

impl Operation {
    fn is_same(self, other: Self) -> bool {
        self.verb == other.verb && std::ptr::eq(self.table, other.table) && self.set == other.set
    }
}

struct StatementShape {
    operation: Operation,
    /// Positions of the named columns, those set before those expected.
    positions: Vec<usize>,
    text: String,
}

impl StatementCache {
    /// Clears the cache if it has grown large. Earlier numbers become invalid.
    pub(super) fn trim(&mut self) {
        if self.0.len() > limits::SQLITE_SHAPES_MAX {
            self.0.clear();
        }
    }

    /// The text with this number.
    pub(super) fn text(&self, number: usize) -> &str {
        self.0.get(number).map_or("", |shape| &shape.text)
    }

    /// The number of the `INSERT` of a row with these columns.
    pub(super) fn insert(&mut self, insert: &Insert) -> usize {
        let positions = || insert.cells.iter().map(|(at, _)| *at);
        let operation = Operation { verb: Verb::Insert, table: insert.table.name, set: insert.cells.len() };
        self.find(operation, positions, || sql::insert(SqlDialect::Sqlite, insert.table, positions()))
    }

    /// The number of the `INSERT` of a row with all columns into an append-only table. A failure ends the whole
    /// batch, so SQLite need not keep page copies to undo the single statement.
    pub(super) fn append(&mut self, table: &'static Table) -> usize {
        let columns = table.columns.len();
        let operation = Operation { verb: Verb::Append, table: table.name, set: columns };
        let spell = || sql::insert(SqlDialect::Sqlite, table, 0..columns).replacen("INSERT", "INSERT OR FAIL", 1);
        self.find(operation, || 0..columns, spell)
    }

    /// The number of the `UPDATE` of a row by its key, conditional on the expected column values.
    pub(super) fn update(&mut self, update: &Update) -> usize {
        let positions = || update.set.iter().chain(&update.expect).map(|(at, _)| *at);
        let operation = Operation { verb: Verb::Update, table: update.table.name, set: update.set.len() };
        self.find(operation, positions, || spell(update))
    }

    fn find<P: Iterator<Item = usize>>(
        &mut self,
        operation: Operation,
        positions: impl Fn() -> P,
        spell: impl FnOnce() -> String,
    ) -> usize {
        let same = |shape: &StatementShape| {
            shape.operation.is_same(operation) && shape.positions.iter().copied().eq(positions())
        };
        self.0.iter().position(same).unwrap_or_else(|| {
            self.0.push(StatementShape { operation, positions: positions().collect(), text: spell() });
            self.0.len() - 1
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;

    /// SQLite copies each page that a statement with a trigger touches if that statement might be undone alone: if it
    /// halts with "abort" (2) somewhere, or calls a function.
    #[test]
    fn an_entry_is_appended_without_copies_of_pages() {
        let mut conn = rusqlite::Connection::open_in_memory().unwrap();
        crate::migrate::sqlite(&mut conn).unwrap();
        let mut texts = StatementCache::default();
        let number = texts.append(&AUDIT_LOG_ENTRIES);
        let mut statement = conn.prepare(&format!("EXPLAIN {}", texts.text(number))).unwrap();
        let program: Vec<(String, i64, i64)> = statement
            .query_map(rusqlite::params_from_iter((0..AUDIT_LOG_ENTRIES.columns.len()).map(|_| 0)), |row| {
                Ok((row.get("opcode")?, row.get("p1")?, row.get("p2")?))
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(program.iter().any(|(opcode, ..)| opcode == "Program"), "the guard against replacing is gone");
        for (opcode, p1, p2) in program {
            assert!(!opcode.contains("Func"), "{opcode}");
            assert!(opcode != "Halt" || p1 == 0 || p2 != 2, "halts with {p1}, {p2}");
        }
    }
}
