//! Deserializes a validated input into the tool's own type.

use chimera_core::error::Code;
use chimera_engine::flow::port::ToolError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads an input that has passed its schema. An error here means a rule that the schema can't express.
pub(crate) fn read<T: DeserializeOwned>(input: &Value) -> Result<T, ToolError> {
    serde_json::from_value(input.clone())
        .map_err(|error| ToolError::not_sent(Code::MalformedArgs, format!("the input can't be read: {error}")))
}
