//! Cell values, the same for every store.

use super::DamagedRows;
use crate::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// An integer. Stores check the width of the column.
    Int(i64),
    /// An exact decimal number as text, never binary floating point.
    Decimal(String),
    /// Text without the NUL character, which PostgreSQL can't store.
    Text(String),
    Uuid(Uuid),
    Time(Timestamp),
    Json(Json),
    Bytes(Vec<u8>),
    Uuids(Vec<Uuid>),
    Texts(Vec<String>),
}

/// An exact decimal number as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal(pub String);

/// A borrowed cell value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Uuid(Option<Uuid>),
    Time(Timestamp),
    /// A serialized JSON document.
    Json(&'a str),
    Bytes(&'a [u8]),
}

impl From<Cell<'_>> for Value {
    fn from(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Int(n) => n.into(),
            Cell::Text(text) => text.map(str::to_owned).into(),
            Cell::Uuid(id) => id.into(),
            Cell::Time(at) => at.into(),
            Cell::Json(text) => Self::Json(Json::from_stored(text.to_owned())),
            Cell::Bytes(bytes) => bytes.to_vec().into(),
        }
    }
}

impl Value {
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        if let Self::Int(n) = self { Some(*n) } else { None }
    }

    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    #[must_use]
    pub const fn as_uuid(&self) -> Option<Uuid> {
        if let Self::Uuid(id) = self { Some(*id) } else { None }
    }

    #[must_use]
    pub const fn as_time(&self) -> Option<Timestamp> {
        if let Self::Time(at) = self { Some(*at) } else { None }
    }

    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    #[must_use]
    pub const fn as_json(&self) -> Option<&Json> {
        if let Self::Json(json) = self { Some(json) } else { None }
    }

    /// Approximate size: the bytes of its text, or of the number type.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Bool(_) | Self::Int(_) | Self::Time(_) => size_of::<i64>(),
            Self::Uuid(_) => size_of::<Uuid>(),
            Self::Text(text) | Self::Decimal(text) => text.len(),
            Self::Json(json) => json.as_str().len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Uuids(ids) => ids.len().saturating_mul(size_of::<Uuid>()),
            Self::Texts(texts) => texts.iter().map(String::len).fold(0, usize::saturating_add),
        }
    }

    /// Whether a text in here holds the NUL character.
    pub(crate) fn has_nul(&self) -> bool {
        match self {
            Self::Text(text) | Self::Decimal(text) => text.contains('\0'),
            Self::Texts(texts) => texts.iter().any(|text| text.contains('\0')),
            _ => false,
        }
    }
}

/// A JSON document as the text that is stored. It is serialized once, by its producer.
#[derive(Clone, Debug)]
pub struct Json(String);

/// Why a value can't become a stored JSON document.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("value does not serialise to JSON")]
    Serialise(#[source] serde_json::Error),
    /// It holds U+0000, which PostgreSQL can't store.
    #[error("JSON text holds the character U+0000")]
    Nul,
}

impl Json {
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        Self::checked(serde_json::to_string(value).map_err(JsonError::Serialise)?)
    }

    /// Checks that the text is valid JSON.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(JsonError::Serialise)?;
        Self::checked(text.to_owned())
    }

    /// Wraps text that a store read from a JSON column.
    #[must_use]
    pub const fn from_stored(text: String) -> Self {
        Self(text)
    }

    fn checked(text: String) -> Result<Self, JsonError> {
        if escapes_nul(&text) { Err(JsonError::Nul) } else { Ok(Self(text)) }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parsed document.
    pub fn value(&self) -> Result<serde_json::Value, DamagedRows> {
        self.decode()
    }

    /// The document as a type of its own.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, DamagedRows> {
        serde_json::from_str(&self.0).map_err(|error| DamagedRows { what: format!("a stored document: {error}") })
    }
}

/// Copies the stored text without parsing it into a document. `null` means a damaged column.
impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&serde_json::value::RawValue>(&self.0) {
            Ok(raw) => raw.serialize(serializer),
            Err(_) => serializer.serialize_unit(),
        }
    }
}

/// Documents are compared by value: PostgreSQL reformats what it stores.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        let same_value = || Some(self.value().ok()? == other.value().ok()?);
        self.0 == other.0 || same_value().unwrap_or(false)
    }
}

/// Whether the text contains an unescaped `\u0000` escape.
pub(crate) fn escapes_nul(text: &str) -> bool {
    // Most texts have no escapes, and searching for one byte is fast.
    text.contains('\\')
        && text.match_indices("\\u0000").any(|(at, _)| {
            let backslashes = text[..at].bytes().rev().take_while(|b| *b == b'\\').count();
            backslashes % 2 == 0
        })
}

macro_rules! from {
    ($($source:ty => $variant:ident),* $(,)?) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

from!(bool => Bool, i64 => Int, i32 => Int, u32 => Int, &str => Text, String => Text, Uuid => Uuid, Timestamp => Time, Json => Json, Vec<u8> => Bytes, Vec<Uuid> => Uuids, Vec<String> => Texts);

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_with_an_escaped_nul_is_refused_and_an_escaped_backslash_is_not() {
        assert!(matches!(Json::encode("a\0b"), Err(JsonError::Nul)));
        assert!(Json::encode("a\\u0000b").is_ok());
        assert!(Json::parse(r#"{"a":"\\\u0000"}"#).is_err());
    }

    #[test]
    fn a_stored_document_is_copied_as_it_is() {
        let stored = r#"{"b": [1,2.50], "a":"\u00e9"}"#;
        assert_eq!(serde_json::to_string(&[Json::parse(stored).unwrap()]).unwrap(), format!("[{stored}]"));
        assert_eq!(serde_json::to_value(Json::parse(stored).unwrap()).unwrap()["b"][1], 2.5);
        assert_eq!(serde_json::to_string(&Json::from_stored("{".to_owned())).unwrap(), "null");
    }

    #[test]
    fn equal_documents_compare_equal_in_any_spelling() {
        assert_eq!(Json::parse(r#"{"a":1,"b":2}"#).unwrap(), Json::parse(r#"{ "b": 2, "a": 1 }"#).unwrap());
        assert_ne!(Json::parse("1").unwrap(), Json::parse("2").unwrap());
    }
}
