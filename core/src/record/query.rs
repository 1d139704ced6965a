//! Queries as data: one relation, conditions, an order, a limit.

use super::{Cursor, InvalidCursor, Table, Value};
use crate::limits;
use crate::time::Timestamp;

/// On whose behalf rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One tenant. The store adds the tenant to the conditions; a relation without a tenant column cannot be read.
    Tenant(String),
    /// The system itself (recovery, verification, maintenance): every row.
    System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
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
    /// A text that is one of a list of texts.
    OneOf,
}

/// One condition on one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub column: &'static str,
    pub compare: Comparison,
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
    pub table: &'static Table,
    pub scope: Scope,
    /// Conditions, combined with AND.
    pub conditions: Vec<Condition>,
    /// Order columns, which must not be null in any row that is found. Empty: the primary key.
    pub order: &'static [&'static str],
    pub direction: Direction,
    /// Where the previous page ended.
    pub after: Option<Cursor>,
    /// The columns to fetch. `None`: all.
    only: Option<&'static [&'static str]>,
    limit: usize,
}

impl Select {
    /// All rows of `table` in `scope`, in key order, one page of the default size.
    #[must_use]
    pub const fn from(table: &'static Table, scope: Scope) -> Self {
        Self {
            table,
            scope,
            conditions: Vec::new(),
            order: &[],
            direction: Direction::Ascending,
            after: None,
            only: None,
            limit: limits::PAGE_ROWS_DEFAULT,
        }
    }

    #[must_use]
    pub fn filter(mut self, column: &'static str, compare: Comparison, value: impl Into<Value>) -> Self {
        self.conditions.push(Condition { column, compare, value: value.into() });
        self
    }

    /// Adds an equality condition.
    #[must_use]
    pub fn with(self, column: &'static str, value: impl Into<Value>) -> Self {
        self.filter(column, Comparison::Is, value)
    }

    /// Adds the condition that a text is one of these.
    #[must_use]
    pub fn one_of(self, column: &'static str, texts: Vec<String>) -> Self {
        self.filter(column, Comparison::OneOf, texts)
    }

    #[must_use]
    pub const fn by(mut self, order: &'static [&'static str], direction: Direction) -> Self {
        self.order = order;
        self.direction = direction;
        self
    }

    /// Sets the page size, clamped to the page limit.
    #[must_use]
    pub fn take(mut self, rows: usize) -> Self {
        self.limit = rows.clamp(1, limits::PAGE_ROWS_MAX);
        self
    }

    /// Fetches these columns, the key and the order columns; the others read as null. Use [`StoredRow::select`].
    ///
    /// [`StoredRow::select`]: super::StoredRow::select
    #[must_use]
    pub(super) const fn only(mut self, columns: &'static [&'static str]) -> Self {
        self.only = Some(columns);
        self
    }

    /// Whether a column is fetched.
    #[must_use]
    pub fn is_fetched(&self, column: &str) -> bool {
        let is_wanted = self.only.is_none_or(|only| only.contains(&column));
        is_wanted || self.order.contains(&column) || self.table.key.contains(&column)
    }

    /// The maximum number of rows of a page.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Continues after a cursor that a page of this same query returned.
    pub fn continue_at(mut self, cursor: &str) -> Result<Self, InvalidCursor> {
        self.after = Some(Cursor::parse(cursor, &self)?);
        Ok(self)
    }

    /// The order columns, then the rest of the primary key.
    #[must_use]
    pub fn order_columns(&self) -> Vec<&'static str> {
        let rest = self.table.key.iter().filter(|column| !self.order.contains(column));
        self.order.iter().chain(rest).copied().collect()
    }

    /// Whether rows can be ordered by a column: it is never null, or a condition excludes null.
    #[must_use]
    pub fn may_order_by(&self, column: &str) -> bool {
        let compared = |condition: &Condition| {
            condition.column == column && condition.compare != Comparison::IsNot && !condition.value.is_null()
        };
        let nullable = |at: usize| self.table.columns[at].nullable;
        self.table.position(column).is_some_and(|at| !nullable(at) || self.conditions.iter().any(compared))
    }

    /// Builds a page from rows that were read with `limit + 1`.
    #[must_use]
    pub fn page(&self, rows: Vec<Row>) -> Page {
        let mut gathered = PageBuilder::new(self);
        for row in rows {
            if !gathered.push(row) {
                break;
            }
        }
        gathered.page()
    }
}

/// Builds a page row by row.
///
/// It is full at the requested number of rows, or when the next row would exceed [`limits::PAGE_BYTES_MAX`] bytes. It
/// holds at least one row if there is one, however large.
pub struct PageBuilder<'a> {
    select: &'a Select,
    rows: Vec<Row>,
    bytes: usize,
    more: bool,
}

impl<'a> PageBuilder<'a> {
    #[must_use]
    pub const fn new(select: &'a Select) -> Self {
        Self { select, rows: Vec::new(), bytes: 0, more: false }
    }

    /// Adds the next row. Returns false when the page is full; further rows are refused too.
    pub fn push(&mut self, row: Row) -> bool {
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

    /// Estimates how many more rows fit, plus one to know whether there is a next page.
    #[must_use]
    pub fn rows_left(&self) -> usize {
        let each = self.bytes.checked_div(self.rows.len()).unwrap_or(0).max(1);
        let by_bytes = limits::PAGE_BYTES_MAX.saturating_sub(self.bytes) / each;
        by_bytes.min(self.select.limit.saturating_sub(self.rows.len())) + 1
    }

    /// The page, with a cursor if a row did not fit.
    #[must_use]
    pub fn page(self) -> Page {
        let last = self.rows.last().filter(|_| self.more);
        let next = last.map(|row| Cursor::after(self.select, row));
        Page { rows: self.rows, next }
    }
}

/// Counts rows grouped by one column.
#[derive(Clone, Debug, PartialEq)]
pub struct CountQuery {
    /// The rows to count. Order, cursor and limit are ignored.
    pub select: Select,
    /// The text column to group by.
    pub by: &'static str,
    /// The time column whose minimum is reported.
    pub oldest: &'static str,
    /// Maximum number of rows to scan.
    pub rows_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// The group value, empty when it is null.
    pub value: String,
    pub rows: u64,
    /// The earliest time in the group.
    pub oldest: Option<Timestamp>,
}

impl CountQuery {
    /// Adds rows to the counts.
    pub fn add(&self, rows: &[Row], counted: &mut Vec<RowGroup>) {
        for row in rows {
            let value = row.get(self.by).as_text().unwrap_or_default();
            let at = row.get(self.oldest).as_time();
            match counted.iter_mut().find(|counted| counted.value == value) {
                Some(counted) => {
                    counted.rows += 1;
                    counted.oldest = [counted.oldest, at].into_iter().flatten().min();
                }
                None => counted.push(RowGroup { value: value.to_owned(), rows: 1, oldest: at }),
            }
        }
    }
}

/// A row. Cells are in the order of the table's columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub table: &'static Table,
    pub cells: Vec<Value>,
}

impl Row {
    /// A cell by column name. An unknown column reads as null.
    #[must_use]
    pub fn get(&self, column: &str) -> &Value {
        self.table.position(column).and_then(|at| self.cells.get(at)).unwrap_or(&Value::Null)
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.cells.iter().map(Value::bytes).fold(0, usize::saturating_add)
    }
}

/// A page of a listing. A short page is not necessarily the last one: large rows make short pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// At least one row if there is any.
    pub rows: Vec<Row>,
    /// The cursor of the next page, if there is one.
    pub next: Option<Cursor>,
}
