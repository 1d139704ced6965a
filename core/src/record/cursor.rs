//! Opaque pagination cursors.
//!
//! A cursor holds the order columns of the last row and a fingerprint of the query, so that it cannot be used to
//! continue a different one.

use super::{ColumnType, Row, Select, Value};
use crate::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A position in one listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    fingerprint: [u8; 8],
    /// The order columns' values in the last row of the previous page.
    pub position: Vec<Value>,
}

#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("cursor does not belong to this listing")]
pub struct InvalidCursor;

impl Cursor {
    /// The position after `row` in the listing `select`.
    #[must_use]
    pub fn after(select: &Select, row: &Row) -> Self {
        let position = select.order_columns().iter().map(|column| row.get(column).clone()).collect();
        Self { fingerprint: fingerprint(select), position }
    }

    #[must_use]
    pub fn encode(&self) -> String {
        let values: Vec<String> = self.position.iter().map(encode_value).collect();
        let mut bytes = self.fingerprint.to_vec();
        bytes.extend(serde_json::to_vec(&values).unwrap_or_default());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses a cursor that the listing `select` returned.
    pub fn parse(text: &str, select: &Select) -> Result<Self, InvalidCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidCursor)?;
        let (head, tail) = bytes.split_first_chunk::<8>().ok_or(InvalidCursor)?;
        let values: Vec<String> = serde_json::from_slice(tail).map_err(|_| InvalidCursor)?;
        let columns = select.order_columns();
        if *head != fingerprint(select) || values.len() != columns.len() {
            return Err(InvalidCursor);
        }
        let position = columns
            .iter()
            .zip(values)
            .map(|(column, value)| decode_value(select, column, &value))
            .collect::<Option<_>>();
        Ok(Self { fingerprint: *head, position: position.ok_or(InvalidCursor)? })
    }
}

fn fingerprint(select: &Select) -> [u8; 8] {
    let shape = format!(
        "{}|{:?}|{:?}|{:?}|{:?}",
        select.table.name, select.scope, select.conditions, select.order, select.direction
    );
    let digest: [u8; 32] = Sha256::digest(shape).into();
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    head
}

fn encode_value(value: &Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::Text(text) | Value::Decimal(text) => text.clone(),
        Value::Uuid(id) => id.to_string(),
        Value::Time(at) => at.micros().to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Bytes(bytes) => hex::encode(bytes),
        _ => String::new(),
    }
}

fn decode_value(select: &Select, column: &str, text: &str) -> Option<Value> {
    let kind = select.table.columns.get(select.table.position(column)?)?.kind;
    Some(match kind {
        ColumnType::Int | ColumnType::Int32 => Value::Int(text.parse().ok()?),
        ColumnType::Text => Value::Text(text.to_owned()),
        ColumnType::Decimal => Value::Decimal(text.to_owned()),
        ColumnType::Uuid => Value::Uuid(Uuid::parse_str(text).ok()?),
        ColumnType::Time | ColumnType::LocalTime => Value::Time(Timestamp::from_micros(text.parse().ok()?)),
        ColumnType::Bool => Value::Bool(text.parse().ok()?),
        ColumnType::Bytes => Value::Bytes(hex::decode(text).ok()?),
        ColumnType::Json | ColumnType::ExactJson | ColumnType::Uuids | ColumnType::Texts => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tables::AUDIT_LOG_ENTRIES;
    use crate::record::Scope;

    fn cursor() -> (Select, Cursor) {
        let select = Select::from(&AUDIT_LOG_ENTRIES, Scope::System).with("lane", 3);
        let mut cells = vec![Value::Null; AUDIT_LOG_ENTRIES.columns.len()];
        cells[AUDIT_LOG_ENTRIES.position("lane").unwrap()] = Value::Int(3);
        cells[AUDIT_LOG_ENTRIES.position("seq").unwrap()] = Value::Int(41);
        let row = Row { table: &AUDIT_LOG_ENTRIES, cells };
        let cursor = Cursor::after(&select, &row);
        (select, cursor)
    }

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let (select, cursor) = cursor();
        assert_eq!(Cursor::parse(&cursor.encode(), &select), Ok(cursor));
    }

    #[test]
    fn a_cursor_of_another_listing_is_refused() {
        let (select, cursor) = cursor();
        let other = select.with("seq", 7);
        assert_eq!(Cursor::parse(&cursor.encode(), &other), Err(InvalidCursor));
        assert_eq!(Cursor::parse("not a cursor", &other), Err(InvalidCursor));
    }
}
