//! What a table looks like: the catalogue that transactions, reads and stores share.
//!
//! The catalogue repeats the migrations on purpose. A test reads the live schema of both stores
//! and fails when the two disagree, so neither can drift.

use super::Value;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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

impl Kind {
    /// Whether a value (other than null) may stand in a column of this kind.
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

/// One column.
#[derive(Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Whether it may be null.
    pub nullable: bool,
    /// Whether the database fills it when an insert leaves it out.
    pub default: bool,
    /// The most characters it takes (`varchar(n)`).
    pub chars_max: Option<u16>,
    /// Whether each row gets a value of its own, made for it alone.
    pub fresh: bool,
}

impl Column {
    /// A column that must be given.
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, nullable: false, default: false, chars_max: None, fresh: false }
    }

    /// A column that may be null.
    #[must_use]
    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// A column with a default.
    #[must_use]
    pub const fn default(mut self) -> Self {
        self.default = true;
        self
    }

    /// A column whose value is made for its row alone: two rows don't race for it.
    #[must_use]
    pub const fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// A column with a limit on its characters.
    #[must_use]
    pub const fn chars(mut self, max: u16) -> Self {
        self.chars_max = Some(max);
        self
    }
}

/// A table, or a view when `key` is all that is known of its constraints.
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns in the order of the schema.
    pub columns: &'static [Column],
    /// The primary key.
    pub key: &'static [&'static str],
    /// Further unique keys.
    pub uniques: &'static [&'static [&'static str]],
    /// The column that holds the tenant, where there is one.
    pub tenant: Option<&'static str>,
    /// Parents have a smaller rank than the tables that refer to them.
    pub rank: u16,
}

impl Table {
    /// The position of a column.
    #[must_use]
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == column)
    }
}

/// The name says it all.
impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Tables are static: one name, one table.
impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Table {}
