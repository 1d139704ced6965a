//! The published schemas: of the envelope, and of the arguments of each intent that Chimera brings along.

use crate::json::parse;
use crate::json::schema::{InvalidSchema, Schema};

/// The name of the envelope's schema.
pub const ENVELOPE_NAME: &str = "envelope";

/// The text of the envelope's schema.
pub const ENVELOPE: &str = include_str!("schemas/envelope.json");

/// Compiles the text of a schema.
pub(super) fn compile(text: &str) -> Result<Schema, InvalidSchema> {
    let document = parse(text).map_err(|error| InvalidSchema { reason: error.to_string() })?;
    Schema::compile(document)
}
