//! The catalogue of tables that transactions, queries and stores share.
//!
//! The catalogue deliberately repeats the migrations. A test compares it with the live schema of both stores and
//! fails when they disagree.

use super::{CellType, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `boolean`
    Bool,
    /// `integer`, 32 bits
    Int32,
    /// `bigint`, 64 bits
    Int,
    /// `numeric`
    Decimal,
    /// `text` or `varchar(n)`
    Text,
    /// `uuid`
    Uuid,
    /// `timestamp with time zone`
    Time,
    /// `timestamp` without a zone, in UTC
    LocalTime,
    /// `jsonb`
    Json,
    /// `json`: the stored text is kept byte for byte
    ExactJson,
    /// `bytea`
    Bytes,
    /// `uuid[]`
    Uuids,
    /// `text[]`
    Texts,
}

impl ColumnType {
    /// Whether a column of this type accepts a value other than null.
    #[must_use]
    pub const fn accepts(self, value: &Value) -> bool {
        matches!(
            (self, value),
            (Self::Bool, Value::Bool(_))
                | (Self::Int, Value::Int(_))
                | (Self::Decimal, Value::Decimal(_))
                | (Self::Text, Value::Text(_))
                | (Self::Uuid, Value::Uuid(_))
                | (Self::Time | Self::LocalTime, Value::Time(_))
                | (Self::Json | Self::ExactJson, Value::Json(_))
                | (Self::Bytes, Value::Bytes(_))
                | (Self::Uuids, Value::Uuids(_))
                | (Self::Texts, Value::Texts(_))
        ) || matches!((self, value), (Self::Int32, Value::Int(n)) if *n >= i32::MIN as i64 && *n <= i32::MAX as i64)
    }
}

#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: ColumnType,
    pub nullable: bool,
    /// Whether the database has a default for it.
    pub default: bool,
    /// Maximum number of characters (`varchar(n)`).
    pub chars_max: Option<u16>,
    /// Whether the value is generated per row, so that no two rows compete for it.
    pub fresh: bool,
}

impl Column {
    /// A required column.
    #[must_use]
    pub const fn new(name: &'static str, kind: ColumnType) -> Self {
        Self { name, kind, nullable: false, default: false, chars_max: None, fresh: false }
    }

    /// The column of a field with this type.
    #[must_use]
    pub const fn of<T: CellType>(name: &'static str) -> Self {
        Self { nullable: T::NULLABLE, ..Self::new(name, T::KIND) }
    }

    #[must_use]
    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Keeps the text of JSON byte for byte.
    #[must_use]
    pub const fn exact(mut self) -> Self {
        self.kind = ColumnType::ExactJson;
        self
    }

    /// Stores a time without a zone.
    #[must_use]
    pub const fn local(mut self) -> Self {
        self.kind = ColumnType::LocalTime;
        self
    }

    #[must_use]
    pub const fn default(mut self) -> Self {
        self.default = true;
        self
    }

    /// Marks the value as generated per row: no two rows compete for it.
    #[must_use]
    pub const fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// Limits the number of characters.
    #[must_use]
    pub const fn chars(mut self, max: u16) -> Self {
        self.chars_max = Some(max);
        self
    }
}

/// A table or a view. For a view, `key` is the only known constraint.
pub struct Table {
    pub name: &'static str,
    /// Columns in schema order.
    pub columns: &'static [Column],
    pub key: &'static [&'static str],
    /// Additional unique keys.
    pub uniques: &'static [&'static [&'static str]],
    /// The tenant column, if there is one.
    pub tenant: Option<&'static str>,
    /// Tables have a higher rank than the tables that they reference.
    pub rank: u16,
}

impl Table {
    #[must_use]
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == column)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Tables are static, so the name identifies one.
impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Table {}
