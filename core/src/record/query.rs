//! Reads as data: one relation, conditions, an order, a bound.

use super::{Cursor, InvalidCursor, Table, Value};
use crate::limits;
use crate::time::Timestamp;
use uuid::Uuid;

/// On whose behalf a read happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One tenant: the store adds the tenant to the query's key, and a relation without a tenant
    /// column can't be read.
    Tenant(String),
    /// The system itself (recovery, verification, upkeep): every row.
    System,
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal; null equals null.
    Is,
    /// Different; null differs from every value.
    IsNot,
    /// Greater.
    Above,
    /// Greater or equal.
    AtLeast,
    /// Smaller.
    Below,
    /// Smaller or equal.
    AtMost,
}

/// One condition on one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The column.
    pub column: &'static str,
    /// The comparison.
    pub compare: Compare,
    /// The value compared with.
    pub value: Value,
}

/// The order of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direction {
    /// Smallest first.
    #[default]
    Ascending,
    /// Greatest first.
    Descending,
}

/// A bounded read of one table or view, ordered by `order` and then by the primary key.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// What is read.
    pub table: &'static Table,
    /// For whom.
    pub scope: Scope,
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// Columns the listing is ordered by; they must not be nullable. Empty: the primary key.
    pub order: &'static [&'static str],
    /// Smallest or greatest first.
    pub direction: Direction,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    without: &'static [&'static str],
    limit: usize,
}

impl Select {
    /// Everything in `table` that `scope` may see, in key order, one page of the default size.
    #[must_use]
    pub const fn from(table: &'static Table, scope: Scope) -> Self {
        Self {
            table,
            scope,
            conditions: Vec::new(),
            order: &[],
            direction: Direction::Ascending,
            after: None,
            without: &[],
            limit: limits::PAGE_ROWS_DEFAULT,
        }
    }

    /// Adds a condition.
    #[must_use]
    pub fn filter(mut self, column: &'static str, compare: Compare, value: impl Into<Value>) -> Self {
        self.conditions.push(Condition { column, compare, value: value.into() });
        self
    }

    /// Adds an equality.
    #[must_use]
    pub fn with(self, column: &'static str, value: impl Into<Value>) -> Self {
        self.filter(column, Compare::Is, value)
    }

    /// Orders by these columns.
    #[must_use]
    pub const fn by(mut self, order: &'static [&'static str], direction: Direction) -> Self {
        self.order = order;
        self.direction = direction;
        self
    }

    /// Takes at most `rows`, and never more than the page limit.
    #[must_use]
    pub fn take(mut self, rows: usize) -> Self {
        self.limit = rows.clamp(1, limits::PAGE_ROWS_MAX);
        self
    }

    /// Leaves the content of these columns in the store: they read as null. For whoever looks through many rows and
    /// needs little of each. A column of the order can't be left out.
    #[must_use]
    pub const fn without(mut self, columns: &'static [&'static str]) -> Self {
        self.without = columns;
        self
    }

    /// Whether the content of a column is read.
    #[must_use]
    pub fn reads(&self, column: &str) -> bool {
        !self.without.contains(&column) || self.order.contains(&column) || self.table.key.contains(&column)
    }

    /// How many rows a page has at the most.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Continues behind a cursor that a page of this very query gave out.
    pub fn continue_at(mut self, cursor: &str) -> Result<Self, InvalidCursor> {
        self.after = Some(Cursor::parse(cursor, &self)?);
        Ok(self)
    }

    /// The columns that decide the order: those asked for, then the rest of the primary key.
    #[must_use]
    pub fn order_columns(&self) -> Vec<&'static str> {
        let rest = self.table.key.iter().filter(|column| !self.order.contains(column));
        self.order.iter().chain(rest).copied().collect()
    }

    /// The page made of `rows`, of which one more than asked for was read if there were any.
    #[must_use]
    pub fn page(&self, rows: Vec<Row>) -> Page {
        let mut gathered = Gathered::of(self);
        for row in rows {
            if !gathered.take(row) {
                break;
            }
        }
        gathered.page()
    }
}

/// A page while its rows are read, one after the other.
///
/// It is full when it has as many rows as were asked for, or when one row more would have it hold more than
/// [`limits::PAGE_BYTES_MAX`] bytes. It has at least one row if there is one, however large.
pub struct Gathered<'a> {
    select: &'a Select,
    rows: Vec<Row>,
    bytes: usize,
    more: bool,
}

impl<'a> Gathered<'a> {
    /// A page of this query, without rows so far.
    #[must_use]
    pub const fn of(select: &'a Select) -> Self {
        Self { select, rows: Vec::new(), bytes: 0, more: false }
    }

    /// Takes the next row; false when it has no place any more, and nor has any behind it.
    pub fn take(&mut self, row: Row) -> bool {
        let bytes = self.bytes.saturating_add(row.bytes());
        let is_full = self.rows.len() >= self.select.limit || bytes > limits::PAGE_BYTES_MAX;
        if self.more || (is_full && !self.rows.is_empty()) {
            self.more = true;
            return false;
        }
        self.bytes = bytes;
        self.rows.push(row);
        true
    }

    /// How many rows like those before would fill it, with one more to know whether there is a next page.
    #[must_use]
    pub fn rows_left(&self) -> usize {
        let each = self.bytes.checked_div(self.rows.len()).unwrap_or(0).max(1);
        let by_bytes = limits::PAGE_BYTES_MAX.saturating_sub(self.bytes) / each;
        by_bytes.min(self.select.limit.saturating_sub(self.rows.len())) + 1
    }

    /// The page, with a cursor if a row had no place.
    #[must_use]
    pub fn page(self) -> Page {
        let last = self.rows.last().filter(|_| self.more);
        let next = last.map(|row| Cursor::behind(self.select, row));
        Page { rows: self.rows, next }
    }
}

/// A count of rows, for each value of one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// Which rows; its order, cursor and limit don't matter.
    pub select: Select,
    /// The text column whose values are told apart.
    pub by: &'static str,
    /// The time column whose smallest value is wanted.
    pub oldest: &'static str,
    /// No more rows than this are looked at.
    pub rows_max: usize,
}

/// The rows with one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The value; empty when it is null.
    pub value: String,
    /// How many.
    pub rows: u64,
    /// The smallest time among them.
    pub oldest: Option<Timestamp>,
}

impl Count {
    /// Counts these rows too.
    pub fn add(&self, rows: &[Row], counted: &mut Vec<Counted>) {
        for row in rows {
            let (value, at) = (row.text(self.by), row.get(self.oldest).as_time());
            match counted.iter_mut().find(|counted| counted.value == value) {
                Some(counted) => {
                    counted.rows += 1;
                    counted.oldest = [counted.oldest, at].into_iter().flatten().min();
                }
                None => counted.push(Counted { value: value.to_owned(), rows: 1, oldest: at }),
            }
        }
    }
}

/// One row, its cells in the order of the table's columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The table or view it came from.
    pub table: &'static Table,
    /// Its cells.
    pub cells: Vec<Value>,
}

impl Row {
    /// A cell by column name; a column the table doesn't have reads as null.
    #[must_use]
    pub fn get(&self, column: &str) -> &Value {
        self.table.position(column).and_then(|at| self.cells.get(at)).unwrap_or(&Value::Null)
    }

    /// How large its content is, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.cells.iter().map(Value::bytes).fold(0, usize::saturating_add)
    }

    /// Text of a column, empty when it is null.
    #[must_use]
    pub fn text(&self, column: &str) -> &str {
        self.get(column).as_text().unwrap_or_default()
    }

    /// Number of a column, zero when it is null.
    #[must_use]
    pub fn int(&self, column: &str) -> i64 {
        self.get(column).as_int().unwrap_or_default()
    }

    /// UUID of a column, nil when it is null.
    #[must_use]
    pub fn uuid(&self, column: &str) -> Uuid {
        self.get(column).as_uuid().unwrap_or_default()
    }
}

/// A bounded part of a listing. How many rows it has says nothing about whether there are more: large rows make short
/// pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The rows; at least one if there is any.
    pub rows: Vec<Row>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}
