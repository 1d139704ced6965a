//! Builds SQL from transactions and reads, in either dialect.
//!
//! Only names from the catalogue become part of the text; every value is a parameter.

use chimera_core::record::{
    Column, ColumnType, Comparison, Condition, CountQuery, Direction, Scope, Select, Table, Value,
};
use chimera_engine::port::ReadError;
use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    Sqlite,
    Postgres,
}

impl SqlDialect {
    /// The placeholder of parameter `n` for a column of this kind.
    pub(crate) fn placeholder(self, n: usize, kind: ColumnType) -> String {
        match (self, kind) {
            (Self::Sqlite, _) => format!("?{n}"),
            (Self::Postgres, ColumnType::Decimal) => format!("${n}::text::numeric"),
            (Self::Postgres, _) => format!("${n}"),
        }
    }

    /// A column in an ordering: texts sort by bytes in both databases, whatever the server's locale.
    fn ordered(self, name: &str, kind: ColumnType) -> String {
        match (self, kind) {
            (Self::Postgres, ColumnType::Text) => format!("{name} COLLATE \"C\""),
            _ => name.to_owned(),
        }
    }

    /// How a column is selected, so that every kind keeps its value.
    fn column(self, name: &str, kind: ColumnType) -> String {
        match (self, kind) {
            (Self::Postgres, ColumnType::Decimal | ColumnType::Json | ColumnType::ExactJson) => format!("{name}::text"),
            _ => name.to_owned(),
        }
    }
}

/// SQL text and its parameters, with the kinds of their columns.
#[derive(Debug, Default)]
pub(crate) struct SqlText<'a> {
    pub(crate) sql: String,
    pub(crate) params: Vec<(ColumnType, &'a Value)>,
}

impl<'a> SqlText<'a> {
    pub(crate) fn bind(&mut self, dialect: SqlDialect, kind: ColumnType, value: &'a Value) -> String {
        self.params.push((kind, value));
        dialect.placeholder(self.params.len(), kind)
    }

    fn push(&mut self, text: &str) {
        self.sql.push_str(text);
    }
}

/// The kind of a column, or an error if the relation lacks it.
fn kind_of(table: &'static Table, column: &str) -> Result<ColumnType, ReadError> {
    let found = table.position(column).map(|at| table.columns[at].kind);
    found.ok_or_else(|| invalid(table, format!("no column {column}")))
}

fn invalid(table: &'static Table, reason: String) -> ReadError {
    ReadError::Invalid { table: table.name, reason }
}

/// `INSERT` of one row that does nothing when a unique key is taken.
pub(crate) fn insert(dialect: SqlDialect, table: &Table, positions: impl Iterator<Item = usize>) -> String {
    let columns: Vec<_> = positions.map(|at| &table.columns[at]).collect();
    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
    let values: Vec<_> = columns.iter().enumerate().map(|(n, c)| dialect.placeholder(n + 1, c.kind)).collect();
    format!("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING", table.name, names.join(", "), values.join(", "))
}

/// `UPDATE` of the rows that meet the conditions.
pub(crate) fn update<'a>(
    dialect: SqlDialect,
    table: &'static Table,
    set: &'a [(usize, Value)],
    conditions: &'a [Condition],
) -> Result<SqlText<'a>, ReadError> {
    let mut text = SqlText { sql: format!("UPDATE {} SET ", table.name), params: Vec::new() };
    for (n, (at, value)) in set.iter().enumerate() {
        let column = &table.columns[*at];
        let placeholder = text.bind(dialect, column.kind, value);
        let _ = write!(text.sql, "{}{} = {placeholder}", if n == 0 { "" } else { ", " }, column.name);
    }
    all_of(dialect, table, conditions, &mut text)?;
    Ok(text)
}

/// `DELETE` of the rows that meet the conditions.
pub(crate) fn delete<'a>(
    dialect: SqlDialect,
    table: &'static Table,
    conditions: &'a [Condition],
) -> Result<SqlText<'a>, ReadError> {
    let mut text = SqlText { sql: format!("DELETE FROM {}", table.name), params: Vec::new() };
    all_of(dialect, table, conditions, &mut text)?;
    Ok(text)
}

/// Selects rows `FOR UPDATE`; SQLite has one writer and needs no row locks.
pub(crate) fn lock<'a>(
    dialect: SqlDialect,
    table: &'static Table,
    conditions: &'a [Condition],
) -> Result<SqlText<'a>, ReadError> {
    let mut text = SqlText { sql: format!("SELECT 1 FROM {}", table.name), params: Vec::new() };
    all_of(dialect, table, conditions, &mut text)?;
    if dialect == SqlDialect::Postgres {
        let _ = write!(text.sql, " ORDER BY {} FOR UPDATE", table.key.join(", "));
    }
    Ok(text)
}

/// Whether a row with this key exists.
pub(crate) fn exists(dialect: SqlDialect, table: &Table, columns: &[&str]) -> String {
    let kind = |column: &str| table.position(column).map_or(ColumnType::Text, |at| table.columns[at].kind);
    let equal = |(n, column): (usize, &&str)| format!("{column} = {}", dialect.placeholder(n + 1, kind(column)));
    let equals: Vec<_> = columns.iter().enumerate().map(equal).collect();
    format!("SELECT 1 FROM {} WHERE {} LIMIT 1", table.name, equals.join(" AND "))
}

fn all_of<'a>(
    dialect: SqlDialect,
    table: &'static Table,
    conditions: &'a [Condition],
    text: &mut SqlText<'a>,
) -> Result<(), ReadError> {
    for condition in conditions {
        text.push(if text.sql.contains(" WHERE ") { " AND " } else { " WHERE " });
        compare(dialect, table, condition, text)?;
    }
    Ok(())
}

fn compare<'a>(
    dialect: SqlDialect,
    table: &'static Table,
    condition: &'a Condition,
    text: &mut SqlText<'a>,
) -> Result<(), ReadError> {
    let Condition { column, compare, value } = condition;
    let kind = kind_of(table, column)?;
    if *compare == Comparison::OneOf {
        return one_of(dialect, (table, column, kind), value, text);
    }
    if !value.is_null() && !kind.accepts(value) {
        return Err(invalid(table, format!("{column} is compared with another type")));
    }
    let operator = match (compare, value.is_null(), dialect) {
        (Comparison::Is | Comparison::IsNot, true, _) => {
            let not = if *compare == Comparison::IsNot { "NOT " } else { "" };
            let _ = write!(text.sql, "{column} IS {not}NULL");
            return Ok(());
        }
        (_, true, _) => return Err(invalid(table, format!("{column} is ordered against null"))),
        (Comparison::Is, ..) => "=",
        (Comparison::IsNot, _, SqlDialect::Sqlite) => "IS NOT",
        (Comparison::IsNot, _, SqlDialect::Postgres) => "IS DISTINCT FROM",
        (Comparison::Above, ..) => ">",
        (Comparison::AtLeast, ..) => ">=",
        (Comparison::Below, ..) => "<",
        (Comparison::AtMost, ..) => "<=",
        (Comparison::OneOf, ..) => return Err(invalid(table, format!("{column} is compared with a list"))),
    };
    let placeholder = text.bind(dialect, kind, value);
    let equality = matches!(compare, Comparison::Is | Comparison::IsNot);
    let column = if equality { (*column).to_owned() } else { dialect.ordered(column, kind) };
    let _ = write!(text.sql, "{column} {operator} {placeholder}");
    Ok(())
}

/// A text column with one of these values.
fn one_of<'a>(
    dialect: SqlDialect,
    (table, column, kind): (&'static Table, &str, ColumnType),
    values: &'a Value,
    text: &mut SqlText<'a>,
) -> Result<(), ReadError> {
    if kind != ColumnType::Text || !ColumnType::Texts.accepts(values) {
        return Err(invalid(table, format!("{column} is compared with another type")));
    }
    let placeholder = text.bind(dialect, ColumnType::Texts, values);
    let _ = match dialect {
        SqlDialect::Sqlite => write!(text.sql, "{column} IN (SELECT value FROM json_each({placeholder}))"),
        SqlDialect::Postgres => write!(text.sql, "{column} = ANY({placeholder}::text[])"),
    };
    Ok(())
}

/// The SQL for a page: one extra row tells whether there is a next page.
pub(crate) fn select<'a>(dialect: SqlDialect, select: &'a Select, tenant: &'a Value) -> Result<SqlText<'a>, ReadError> {
    let table = select.table;
    let column = |c: &Column| if select.is_fetched(c.name) { dialect.column(c.name, c.kind) } else { "NULL".into() };
    let columns: Vec<_> = table.columns.iter().map(column).collect();
    let mut text = SqlText { sql: format!("SELECT {} FROM {}", columns.join(", "), table.name), params: Vec::new() };
    found_by(dialect, select, tenant, &mut text)?;
    let (operator, direction) = match select.direction {
        Direction::Ascending => (">", "ASC"),
        Direction::Descending => ("<", "DESC"),
    };
    let mut order = Vec::new();
    for column in select.order_columns() {
        let found = table.columns.iter().find(|c| c.name == column && select.may_order_by(column));
        let refusal = || invalid(table, "it is ordered by a column that is absent or may be null".to_owned());
        order.push(found.ok_or_else(refusal)?);
    }
    let names: Vec<_> = order.iter().map(|column| dialect.ordered(column.name, column.kind)).collect();
    if let Some(cursor) = &select.after {
        let values = order.iter().zip(&cursor.position);
        let places: Vec<_> = values.map(|(column, value)| text.bind(dialect, column.kind, value)).collect();
        text.push(if text.sql.contains(" WHERE ") { " AND " } else { " WHERE " });
        let _ = write!(text.sql, "({}) {operator} ({})", names.join(", "), places.join(", "));
    }
    let order: Vec<_> = names.iter().map(|name| format!("{name} {direction}")).collect();
    let _ = write!(text.sql, " ORDER BY {} LIMIT {}", order.join(", "), select.limit() + 1);
    Ok(text)
}

/// The conditions of a read, the tenant's first.
fn found_by<'a>(
    dialect: SqlDialect,
    select: &'a Select,
    tenant: &'a Value,
    text: &mut SqlText<'a>,
) -> Result<(), ReadError> {
    let table = select.table;
    if matches!(select.scope, Scope::Tenant(_)) {
        let column = table.tenant.ok_or_else(|| invalid(table, "it has no tenant".to_owned()))?;
        let placeholder = text.bind(dialect, ColumnType::Text, tenant);
        let _ = write!(text.sql, " WHERE {column} = {placeholder}");
    }
    all_of(dialect, table, &select.conditions, text)
}

/// The SQL for a count. Each result row has a value, its number of rows, and the earliest time.
pub(crate) fn count<'a>(
    dialect: SqlDialect,
    count: &'a CountQuery,
    tenant: &'a Value,
) -> Result<SqlText<'a>, ReadError> {
    let CountQuery { select, by, oldest, rows_max } = count;
    kind_of(select.table, by)?;
    kind_of(select.table, oldest)?;
    let begin = format!("SELECT {by}, count(*), min({oldest}) FROM (SELECT {by}, {oldest} FROM {}", select.table.name);
    let mut text = SqlText { sql: begin, params: Vec::new() };
    found_by(dialect, select, tenant, &mut text)?;
    let _ = write!(text.sql, " LIMIT {rows_max}) AS found GROUP BY {by}");
    Ok(text)
}

/// The tenant parameter of a scope; `Null` for the system's.
pub(crate) fn tenant_of(scope: &Scope) -> Value {
    match scope {
        Scope::Tenant(tenant) => Value::Text(tenant.clone()),
        Scope::System => Value::Null,
    }
}
