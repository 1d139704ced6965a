//! Encodes and decodes values in PostgreSQL's binary formats.
//!
//! Bulk statements bind one array per column. A list column can't be unnested from an array of arrays, so its values
//! are sent as array literals in text and cast back in the statement.

use bytes::BytesMut;
use chimera_core::record::{ColumnType, Json, Value};
use chimera_core::time::Timestamp;
use postgres_protocol::{IsNull as ArrayIsNull, types as wire};
use std::error::Error;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

type BoxedError = Box<dyn Error + Sync + Send>;

/// Microseconds between the Unix epoch and PostgreSQL's, 2000-01-01.
const EPOCH_OFFSET: i64 = 946_684_800_000_000;

/// The array type of a column in a bulk statement.
pub(crate) const fn array_type(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Bool => "boolean[]",
        ColumnType::Int32 => "integer[]",
        ColumnType::Int => "bigint[]",
        ColumnType::Text | ColumnType::Decimal | ColumnType::Uuids | ColumnType::Texts => "text[]",
        ColumnType::Uuid => "uuid[]",
        ColumnType::Time => "timestamptz[]",
        ColumnType::LocalTime => "timestamp[]",
        ColumnType::Json => "jsonb[]",
        ColumnType::ExactJson => "json[]",
        ColumnType::Bytes => "bytea[]",
    }
}

/// Converts an element of such an array to the column's value.
pub(crate) fn element(kind: ColumnType, name: &str) -> String {
    match kind {
        ColumnType::Decimal => format!("{name}::numeric"),
        ColumnType::Uuids => format!("{name}::uuid[]"),
        ColumnType::Texts => format!("{name}::text[]"),
        _ => name.to_owned(),
    }
}

#[derive(Debug)]
pub(crate) struct PgCell<'a>(pub(crate) &'a Value);

impl ToSql for PgCell<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        write(self.0, ty, out)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[derive(Debug)]
pub(crate) struct PgColumn<'a>(pub(crate) Vec<&'a Value>);

impl ToSql for PgColumn<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        let tokio_postgres::types::Kind::Array(member) = ty.kind() else { return Err("not an array".into()) };
        let dimension = wire::ArrayDimension { len: i32::try_from(self.0.len())?, lower_bound: 1 };
        wire::array_to_sql(
            [dimension],
            member.oid(),
            self.0.iter(),
            |value, out| {
                Ok(match write(value, member, out)? {
                    IsNull::Yes => ArrayIsNull::Yes,
                    IsNull::No => ArrayIsNull::No,
                })
            },
            out,
        )?;
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn write(value: &Value, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
    match value {
        Value::Null => return Ok(IsNull::Yes),
        Value::Bool(b) => wire::bool_to_sql(*b, out),
        Value::Int(n) if *ty == Type::INT4 => wire::int4_to_sql(i32::try_from(*n)?, out),
        Value::Int(n) => wire::int8_to_sql(*n, out),
        Value::Text(text) | Value::Decimal(text) => wire::text_to_sql(text, out),
        Value::Uuid(id) => wire::uuid_to_sql(*id.as_bytes(), out),
        Value::Time(at) => wire::timestamp_to_sql(at.micros().saturating_sub(EPOCH_OFFSET), out),
        Value::Json(json) => {
            if *ty == Type::JSONB {
                out.extend_from_slice(&[1]);
            }
            wire::text_to_sql(json.as_str(), out);
        }
        Value::Bytes(bytes) => wire::bytea_to_sql(bytes, out),
        Value::Uuids(ids) if *ty == Type::TEXT => wire::text_to_sql(&literal(ids.iter().map(Uuid::to_string)), out),
        Value::Texts(texts) if *ty == Type::TEXT => wire::text_to_sql(&literal(texts.iter().cloned()), out),
        Value::Uuids(ids) => {
            let ids: Vec<Value> = ids.iter().map(|id| Value::Uuid(*id)).collect();
            return PgColumn(ids.iter().collect()).to_sql(ty, out);
        }
        Value::Texts(texts) => {
            let texts: Vec<Value> = texts.iter().map(|text| Value::Text(text.clone())).collect();
            return PgColumn(texts.iter().collect()).to_sql(ty, out);
        }
    }
    Ok(IsNull::No)
}

/// An array literal with every element quoted.
fn literal(elements: impl Iterator<Item = String>) -> String {
    let quote = |element: String| format!("\"{}\"", element.replace('\\', "\\\\").replace('"', "\\\""));
    format!("{{{}}}", elements.map(quote).collect::<Vec<_>>().join(","))
}

pub(crate) struct DecodedCell(pub(crate) Value);

impl<'a> FromSql<'a> for DecodedCell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxedError> {
        let value = match *ty {
            Type::BOOL => Value::Bool(wire::bool_from_sql(raw)?),
            Type::INT4 => Value::Int(i64::from(wire::int4_from_sql(raw)?)),
            Type::INT8 => Value::Int(wire::int8_from_sql(raw)?),
            Type::UUID => Value::Uuid(Uuid::from_bytes(wire::uuid_from_sql(raw)?)),
            Type::TIMESTAMPTZ | Type::TIMESTAMP => {
                Value::Time(Timestamp::from_micros(wire::timestamp_from_sql(raw)?.saturating_add(EPOCH_OFFSET)))
            }
            Type::BYTEA => Value::Bytes(raw.to_vec()),
            Type::UUID_ARRAY => Value::Uuids(Vec::from_sql(ty, raw)?),
            Type::TEXT_ARRAY => Value::Texts(Vec::from_sql(ty, raw)?),
            _ => Value::Text(wire::text_from_sql(raw)?.to_owned()),
        };
        Ok(Self(value))
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxedError> {
        Ok(Self(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Converts a value as read to what a column of this kind holds.
pub(crate) fn shape(kind: ColumnType, value: Value) -> Value {
    match (kind, value) {
        (ColumnType::Json | ColumnType::ExactJson, Value::Text(text)) => Value::Json(Json::from_stored(text)),
        (ColumnType::Decimal, Value::Text(text)) => Value::Decimal(text),
        (_, value) => value,
    }
}
