//! The examples of the OpenAPI document: one file per room, beside its endpoints, by operation id.
//!
//! An entry has the members `request`, `parameters` (by name) and one per status of the answer. A test compares each
//! example with its schema.

use serde_json::{Map, Value};
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Content, RefOr};

const FILES: [&str; 7] = [
    include_str!("ops/examples.json"),
    include_str!("access/examples.json"),
    include_str!("flow/examples.json"),
    include_str!("act/examples.json"),
    include_str!("intent/examples.json"),
    include_str!("job/examples.json"),
    include_str!("audit/examples.json"),
];

/// Every example, by operation id.
pub(crate) fn all() -> Map<String, Value> {
    FILES.iter().filter_map(|text| serde_json::from_str::<Map<String, Value>>(text).ok()).flatten().collect()
}

/// Adds the examples of an operation.
pub(crate) fn add(operation: &mut Operation, examples: &Value) {
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.content.values_mut().for_each(|content| set(content, examples.get("request")));
    }
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response {
            response.content.values_mut().for_each(|content| set(content, examples.get(status)));
        }
    }
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter
            && let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema
        {
            schema.examples.extend(examples["parameters"].get(&parameter.name).cloned());
        }
    }
}

fn set(content: &mut RefOr<Content>, example: Option<&Value>) {
    if let RefOr::T(content) = content {
        content.example = example.cloned();
    }
}
