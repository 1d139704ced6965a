//! The wire format: what JSON bodies are made of, and how read models become wire types.
//!
//! A wire type is the OpenAPI schema of what it serialises to. It is declared with the read model that it is made
//! from, and the fields are converted one by one, so a new field of the one does not compile without the other.
//! Every member of an answer is always present, and null if there is nothing, unless it is declared under `maybe`.

use chimera_core::json::Digest32;
use chimera_core::record::Json;
use chimera_core::time::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

/// A read model, or a part of one, that becomes a wire type.
pub(crate) trait IntoWire<W> {
    fn into_wire(self) -> W;
}

impl<T: IntoWire<W>, W> IntoWire<Option<W>> for Option<T> {
    fn into_wire(self) -> Option<W> {
        self.map(IntoWire::into_wire)
    }
}

impl<T: IntoWire<W>, W> IntoWire<Vec<W>> for Vec<T> {
    fn into_wire(self) -> Vec<W> {
        self.into_iter().map(IntoWire::into_wire).collect()
    }
}

macro_rules! unchanged {
    ($($kind:ty),*) => {
        $(impl IntoWire<$kind> for $kind {
            fn into_wire(self) -> $kind {
                self
            }
        })*
    };
}

unchanged!(String, bool, i64, u16, u32, u64, usize, Uuid, [u64; 2]);

impl IntoWire<String> for Digest32 {
    fn into_wire(self) -> String {
        self.to_string()
    }
}

/// An RFC 3339 time. Its name gives it the format `date-time` in the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DateTime(Timestamp);

impl Serialize for DateTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl IntoWire<DateTime> for Timestamp {
    fn into_wire(self) -> DateTime {
        DateTime(self)
    }
}

/// JSON that a caller or a tool wrote. Stored text is copied without being parsed.
#[derive(Debug, Default, Serialize)]
#[serde(untagged)]
pub(crate) enum AnyJson {
    #[default]
    Null,
    Stored(Json),
    Raw(Box<RawValue>),
    Parsed(Value),
}

/// Like [`AnyJson`], and always an object.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct JsonObject(AnyJson);

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        let about = "Any JSON value. Its shape belongs to whoever wrote it: a caller, a workflow or a tool.";
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(about)).into()
    }
}

impl ToSchema for AnyJson {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("AnyJson")
    }
}

impl PartialSchema for JsonObject {
    fn schema() -> RefOr<Schema> {
        let about = "A JSON object. Its members belong to whoever wrote it, or depend on a type or code beside it.";
        let any = AdditionalProperties::FreeForm(true);
        ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(any)).description(Some(about)).into()
    }
}

impl ToSchema for JsonObject {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("JsonObject")
    }
}

impl IntoWire<AnyJson> for Option<Json> {
    fn into_wire(self) -> AnyJson {
        self.map_or(AnyJson::Null, AnyJson::Stored)
    }
}

impl IntoWire<AnyJson> for Option<Value> {
    fn into_wire(self) -> AnyJson {
        self.map_or(AnyJson::Null, AnyJson::Parsed)
    }
}

impl IntoWire<AnyJson> for Value {
    fn into_wire(self) -> AnyJson {
        AnyJson::Parsed(self)
    }
}

impl IntoWire<AnyJson> for Box<RawValue> {
    fn into_wire(self) -> AnyJson {
        AnyJson::Raw(self)
    }
}

impl IntoWire<JsonObject> for Json {
    fn into_wire(self) -> JsonObject {
        JsonObject(AnyJson::Stored(self))
    }
}

impl IntoWire<JsonObject> for Value {
    fn into_wire(self) -> JsonObject {
        JsonObject(AnyJson::Parsed(self))
    }
}

impl IntoWire<JsonObject> for Map<String, Value> {
    fn into_wire(self) -> JsonObject {
        JsonObject(AnyJson::Parsed(Value::Object(self)))
    }
}

/// Declares wire types and how each is made from its read model. The fields of a part of the model stand beside the
/// others.
macro_rules! wire {
    ($(
        $(#[$about:meta])*
        $visible:vis $name:ident from $source:ty {
            $($(#[$doc:meta])* $field:ident $(in $group:ident)?: $kind:ty,)*
        } $(+ maybe {
            $($(#[$maybe_doc:meta])* $maybe:ident: $maybe_kind:ty,)*
        })? $(+ maybe of $part:ident {
            $($(#[$part_doc:meta])* $part_field:ident: $part_kind:ty,)*
        })*
    )*) => {
        $(
            $(#[$about])*
            #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
            $visible struct $name {
                $($(#[$doc])* #[schema(required)] pub(crate) $field: $kind,)*
                $($(
                    $(#[$maybe_doc])*
                    #[serde(skip_serializing_if = "Option::is_none")]
                    #[schema(value_type = $maybe_kind, required = false)]
                    pub(crate) $maybe: Option<$maybe_kind>,
                )*)?
                $($(
                    $(#[$part_doc])*
                    #[serde(skip_serializing_if = "Option::is_none")]
                    #[schema(value_type = $part_kind, required = false)]
                    pub(crate) $part_field: Option<$part_kind>,
                )*)*
            }

            impl From<$source> for $name {
                fn from(model: $source) -> Self {
                    Self {
                        $($field: $crate::wire::IntoWire::into_wire(model.$($group.)?$field),)*
                        $($($maybe: $crate::wire::IntoWire::into_wire(model.$maybe),)*)?
                        $($($part_field: $crate::wire::IntoWire::into_wire(model.$part.$part_field),)*)*
                    }
                }
            }

            impl $crate::wire::IntoWire<$name> for $source {
                fn into_wire(self) -> $name {
                    self.into()
                }
            }
        )*
    };
}

/// Declares the words of an enum on the wire.
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $visible:vis $name:ident from $source:ty { $($(#[$doc:meta])* $variant:ident = $word:tt,)* }
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
            $visible enum $name {
                $($(#[$doc])* #[serde(rename = $word)] $variant,)*
            }

            impl From<$source> for $name {
                fn from(word: $source) -> Self {
                    match word {
                        $(<$source>::$variant => Self::$variant,)*
                    }
                }
            }

            impl From<$name> for $source {
                fn from(word: $name) -> Self {
                    match word {
                        $($name::$variant => Self::$variant,)*
                    }
                }
            }

            impl $crate::wire::IntoWire<$name> for $source {
                fn into_wire(self) -> $name {
                    self.into()
                }
            }
        )*
    };
}

pub(crate) use {wire, words};

/// A reference to a schema of the document.
pub(crate) fn reference<T: ToSchema>() -> Ref {
    Ref::from_schema_name(T::name())
}
