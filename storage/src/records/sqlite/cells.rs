//! Encodes and decodes values: UUIDs as 16-byte blobs, times as microseconds, lists as JSON.

use chimera_core::record::{Cell as Borrowed, ColumnType, Json, Value};
use chimera_core::time::Timestamp;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Statement, ToSql};
use uuid::Uuid;

struct SqliteCell<'a>(&'a Value);

impl ToSql for SqliteCell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let borrowed = match self.0 {
            Value::Null => ValueRef::Null,
            Value::Bool(b) => ValueRef::Integer(i64::from(*b)),
            Value::Int(n) => ValueRef::Integer(*n),
            Value::Time(at) => ValueRef::Integer(at.micros()),
            Value::Text(text) | Value::Decimal(text) => ValueRef::Text(text.as_bytes()),
            Value::Uuid(id) => ValueRef::Blob(id.as_bytes()),
            Value::Json(json) => ValueRef::Text(json.as_str().as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Uuids(ids) => return Ok(list(ids.iter().map(Uuid::to_string).collect::<Vec<_>>())),
            Value::Texts(texts) => return Ok(list(texts.clone())),
        };
        Ok(ToSqlOutput::Borrowed(borrowed))
    }
}

fn list(texts: Vec<String>) -> ToSqlOutput<'static> {
    ToSqlOutput::Owned(rusqlite::types::Value::Text(serde_json::Value::from(texts).to_string()))
}

/// Binds values as parameters 1, 2, …
pub(crate) fn bind<'a>(statement: &mut Statement<'_>, values: impl Iterator<Item = &'a Value>) -> rusqlite::Result<()> {
    for (n, value) in values.enumerate() {
        statement.raw_bind_parameter(n + 1, SqliteCell(value))?;
    }
    Ok(())
}

/// Binds borrowed values as parameters 1, 2, …
pub(crate) fn bind_borrowed(statement: &mut Statement<'_>, values: &[Borrowed<'_>]) -> rusqlite::Result<()> {
    for (n, value) in values.iter().enumerate() {
        let at = n + 1;
        match value {
            Borrowed::Int(number) => statement.raw_bind_parameter(at, number)?,
            Borrowed::Text(text) => statement.raw_bind_parameter(at, text)?,
            Borrowed::Json(text) => statement.raw_bind_parameter(at, text)?,
            Borrowed::Uuid(id) => statement.raw_bind_parameter(at, id.as_ref().map(|id| id.as_bytes().as_slice()))?,
            Borrowed::Time(time) => statement.raw_bind_parameter(at, time.micros())?,
            Borrowed::Bytes(bytes) => statement.raw_bind_parameter(at, bytes)?,
        }
    }
    Ok(())
}

/// Decodes a value. One that doesn't fit the kind was not written by us: it reads as null.
pub(crate) fn read(kind: ColumnType, cell: ValueRef<'_>) -> Value {
    let text = || cell.as_str().unwrap_or_default().to_owned();
    match (kind, cell) {
        (ColumnType::Bool, ValueRef::Integer(n)) => Value::Bool(n != 0),
        (ColumnType::Int | ColumnType::Int32, ValueRef::Integer(n)) => Value::Int(n),
        (ColumnType::Time | ColumnType::LocalTime, ValueRef::Integer(n)) => Value::Time(Timestamp::from_micros(n)),
        (ColumnType::Text, ValueRef::Text(_)) => Value::Text(text()),
        (ColumnType::Decimal, ValueRef::Text(_)) => Value::Decimal(text()),
        (ColumnType::Json | ColumnType::ExactJson, ValueRef::Text(_)) => Value::Json(Json::from_stored(text())),
        (ColumnType::Uuid, ValueRef::Blob(bytes)) => Uuid::from_slice(bytes).map_or(Value::Null, Value::Uuid),
        (ColumnType::Bytes, ValueRef::Blob(bytes)) => Value::Bytes(bytes.to_vec()),
        (ColumnType::Uuids, ValueRef::Text(_)) => serde_json::from_str(&text()).map_or(Value::Null, Value::Uuids),
        (ColumnType::Texts, ValueRef::Text(_)) => serde_json::from_str(&text()).map_or(Value::Null, Value::Texts),
        _ => Value::Null,
    }
}
