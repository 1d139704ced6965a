//! Rows as structs.
//!
//! Each table has one row struct and one decoder, both declared with its columns by `table!`. A decoder moves the
//! values out of the row; it copies and formats nothing. A value that does not fit is an error that names the table
//! and the column.

use super::{ColumnType, DamagedRows, Decimal, Json, Row, Scope, Select, Table, Value};
use crate::json::Digest32;
use crate::time::Timestamp;
use uuid::Uuid;

/// A type that a column can have in a row struct.
pub trait CellType: Sized {
    const KIND: ColumnType;
    const NULLABLE: bool = false;

    /// Decodes a cell, or none if it has another type, is out of range or is an unknown word.
    fn from_cell(cell: Value) -> Option<Self>;

    /// The JSON document in the cell, if the column holds one.
    fn document(&self) -> Option<&Json> {
        None
    }
}

/// A row of one table as a struct: the whole row, or a part with some of its columns.
pub trait StoredRow: Sized {
    const TABLE: &'static Table;
    /// The columns of the struct.
    const COLUMNS: &'static [&'static str];

    fn decode(row: Row) -> Result<Self, RowError>;

    /// Decodes a copy. Copies the columns of the struct, and no others.
    fn peek(row: &Row) -> Result<Self, RowError>;

    /// The JSON documents of the row.
    fn documents(&self) -> impl Iterator<Item = &Json>;

    /// Selects all rows of the table in `scope`. Fetches the columns of the struct, and no others.
    #[must_use]
    fn select(scope: Scope) -> Select {
        let select = Select::from(Self::TABLE, scope);
        if Self::COLUMNS.len() == Self::TABLE.columns.len() { select } else { select.only(Self::COLUMNS) }
    }
}

/// A stored row that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("{table}.{column} can't be read")]
    Unreadable { table: &'static str, column: &'static str },
    #[error("{table}.{column} has no value")]
    Missing { table: &'static str, column: &'static str },
    #[error("a row of {found} was read as one of {table}")]
    OtherTable { table: &'static str, found: &'static str },
}

impl From<RowError> for DamagedRows {
    fn from(error: RowError) -> Self {
        Self { what: error.to_string() }
    }
}

/// The cells of a row, taken one by one in the order of the table's columns.
pub(crate) struct CellReader {
    table: &'static Table,
    at: usize,
    cells: std::vec::IntoIter<Value>,
}

impl CellReader {
    pub(crate) fn new(table: &'static Table, row: Row) -> Result<Self, RowError> {
        check_table(table, &row)?;
        Ok(Self { table, at: 0, cells: row.cells.into_iter() })
    }

    pub(crate) fn next<T: CellType>(&mut self) -> Result<T, RowError> {
        let cell = self.cells.next().unwrap_or(Value::Null);
        let at = self.at;
        self.at += 1;
        decode_cell(self.table, at, cell)
    }
}

/// Takes one cell out of a row.
pub(crate) fn take<T: CellType>(table: &'static Table, row: &mut Row, at: usize) -> Result<T, RowError> {
    let cell = row.cells.get_mut(at).map_or(Value::Null, |cell| std::mem::replace(cell, Value::Null));
    decode_cell(table, at, cell)
}

/// Copies one cell of a row.
pub(crate) fn copy<T: CellType>(table: &'static Table, row: &Row, at: usize) -> Result<T, RowError> {
    decode_cell(table, at, row.cells.get(at).cloned().unwrap_or(Value::Null))
}

pub(crate) fn check_table(table: &'static Table, row: &Row) -> Result<(), RowError> {
    let same = std::ptr::eq(row.table, table) || row.table == table;
    if same { Ok(()) } else { Err(RowError::OtherTable { table: table.name, found: row.table.name }) }
}

fn decode_cell<T: CellType>(table: &'static Table, at: usize, cell: Value) -> Result<T, RowError> {
    let is_missing = cell.is_null() && !T::NULLABLE;
    T::from_cell(cell).ok_or_else(|| {
        let (table, column) = (table.name, table.columns.get(at).map_or("", |column| column.name));
        if is_missing { RowError::Missing { table, column } } else { RowError::Unreadable { table, column } }
    })
}

/// The name of a column, from an identifier that may be spelled `r#name`, at compile time.
pub(crate) const fn name(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', name @ ..] => match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => identifier,
        },
        _ => identifier,
    }
}

/// The position of a column in a list, at compile time. The length of the list if it is not there.
pub(crate) const fn position(columns: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < columns.len() && !is_same(columns[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl<T: CellType> CellType for Option<T> {
    const KIND: ColumnType = T::KIND;
    const NULLABLE: bool = true;

    fn from_cell(cell: Value) -> Option<Self> {
        if cell.is_null() { Some(None) } else { T::from_cell(cell).map(Some) }
    }

    fn document(&self) -> Option<&Json> {
        self.as_ref().and_then(T::document)
    }
}

impl CellType for Json {
    const KIND: ColumnType = ColumnType::Json;

    fn from_cell(cell: Value) -> Option<Self> {
        if let Value::Json(value) = cell { Some(value) } else { None }
    }

    fn document(&self) -> Option<&Json> {
        Some(self)
    }
}

impl<const N: usize> CellType for [u8; N] {
    const KIND: ColumnType = ColumnType::Bytes;

    fn from_cell(cell: Value) -> Option<Self> {
        cell.as_bytes().and_then(|bytes| bytes.try_into().ok())
    }
}

macro_rules! cell_types {
    ($($cell:ty: $kind:ident, $pattern:pat => $decoded:expr;)*) => {$(
        impl CellType for $cell {
            const KIND: ColumnType = ColumnType::$kind;

            fn from_cell(cell: Value) -> Option<Self> {
                if let $pattern = cell { $decoded } else { None }
            }
        }
    )*};
}

cell_types! {
    bool: Bool, Value::Bool(value) => Some(value);
    i32: Int32, Value::Int(value) => value.try_into().ok();
    u32: Int32, Value::Int(value) => value.try_into().ok();
    i64: Int, Value::Int(value) => Some(value);
    u64: Int, Value::Int(value) => value.try_into().ok();
    Decimal: Decimal, Value::Decimal(value) => Some(Self(value));
    String: Text, Value::Text(value) => Some(value);
    Uuid: Uuid, Value::Uuid(value) => Some(value);
    Timestamp: Time, Value::Time(value) => Some(value);
    Vec<u8>: Bytes, Value::Bytes(value) => Some(value);
    Digest32: Bytes, Value::Bytes(value) => Self::from_slice(&value);
    Vec<String>: Texts, Value::Texts(value) => Some(value);
    Vec<Uuid>: Uuids, Value::Uuids(value) => Some(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tables::{EntryPlace, FEED_CURSORS, FeedCursorRow, MerkleNodeRow, StoreStateRow};
    use crate::ledger::tables::{EntryRow, IdempotencyRow};
    use crate::ledger::tables::{audit_log_entries, idempotency_records, store_state};

    const NOON: Timestamp = Timestamp::from_micros(43_200_000_000);

    fn row<R: StoredRow>(cells: Vec<Value>) -> Row {
        assert_eq!(cells.len(), R::COLUMNS.len());
        Row { table: R::TABLE, cells }
    }

    fn error<R: StoredRow + std::fmt::Debug>(cells: Vec<Value>) -> String {
        R::decode(row::<R>(cells)).unwrap_err().to_string()
    }

    #[test]
    fn a_row_becomes_its_struct() {
        let cells = vec!["billing".into(), 2.into(), 7.into(), NOON.into()];
        let decoded = FeedCursorRow { consumer: "billing".to_owned(), lane: 2, seq: 7, updated_at: NOON };
        assert_eq!(FeedCursorRow::decode(row::<FeedCursorRow>(cells.clone())), Ok(decoded.clone()));
        assert_eq!(FeedCursorRow::peek(&row::<FeedCursorRow>(cells)), Ok(decoded));
        let state = vec![1.into(), 3.into(), Value::Null, NOON.into(), 0.into()];
        let state = StoreStateRow::decode(row::<StoreStateRow>(state)).unwrap();
        assert_eq!((state.held_reason, state.held_at), (None, Some(NOON)));
    }

    #[test]
    fn what_can_not_be_decoded_names_its_table_and_column() {
        let missing = vec!["billing".into(), Value::Null, 7.into(), NOON.into()];
        assert_eq!(error::<FeedCursorRow>(missing), "feed_cursors.lane has no value");
        let other_type = vec![1.into(), 3.into(), 4.into(), Value::Null, 0.into()];
        assert_eq!(error::<StoreStateRow>(other_type), "store_state.held_reason can't be read");
        let out_of_range = vec![1.into(), 0.into(), (-1).into(), vec![0_u8; 32].into()];
        assert_eq!(error::<MerkleNodeRow>(out_of_range), "ledger_nodes.idx can't be read");
        let short = vec![1.into(), 0.into(), 1.into(), vec![0_u8; 31].into()];
        assert_eq!(error::<MerkleNodeRow>(short), "ledger_nodes.hash can't be read");
        let mut word = vec!["ann".into(), "k".into(), vec![0_u8; 32].into(), "lost".into(), Value::Null, Value::Null];
        word.extend([NOON.into(), NOON.into(), 1.into()]);
        assert_eq!(error::<IdempotencyRow>(word), "idempotency_records.state can't be read");
        let cells = FEED_CURSORS.columns.iter().map(|_| Value::Null).collect();
        let other_table = Row { table: &FEED_CURSORS, cells };
        assert!(matches!(StoreStateRow::decode(other_table.clone()), Err(RowError::OtherTable { .. })));
        assert!(matches!(EntryPlace::peek(&other_table), Err(RowError::OtherTable { .. })));
    }

    #[test]
    fn a_part_fetches_and_decodes_its_own_columns() {
        let select = EntryPlace::select(Scope::System);
        assert!(select.is_fetched(audit_log_entries::id) && select.is_fetched(audit_log_entries::seq));
        assert!(!select.is_fetched(audit_log_entries::data_json));
        assert!(EntryRow::select(Scope::System).is_fetched(audit_log_entries::data_json));
        let mut cells = vec![Value::Null; EntryRow::COLUMNS.len()];
        for (column, value) in EntryPlace::COLUMNS.iter().zip([Value::Int(3), Value::Int(41), "e".into()]) {
            cells[EntryRow::TABLE.position(column).unwrap()] = value;
        }
        let place = EntryPlace { lane: 3, seq: 41, id: "e".to_owned() };
        assert_eq!(EntryPlace::peek(&row::<EntryRow>(cells.clone())), Ok(place.clone()));
        assert_eq!(EntryPlace::decode(row::<EntryRow>(cells)), Ok(place));
    }

    #[test]
    fn a_column_is_spelled_as_in_the_schema() {
        assert_eq!((store_state::held_at, idempotency_records::key), ("held_at", "key"));
        assert_eq!(crate::swarm::tables::swarm_envelopes::r#type, "type");
    }
}
