//! Column defaults, as the migrations define them.
//!
//! The catalogue records that a column has a default, not which one; a test compares these with the
//! live schema. The current time is always [`NOON`].

use crate::build::NOON;
use chimera_core::record::{Column, ColumnType, Json, Table, Value};

/// The default of a column; null when it has none.
#[must_use]
pub fn default_of(table: &Table, column: &Column) -> Value {
    if !column.default {
        return Value::Null;
    }
    match column.kind {
        ColumnType::Time | ColumnType::LocalTime => NOON.into(),
        ColumnType::Bool => Value::Bool(false),
        ColumnType::Texts => Value::Texts(Vec::new()),
        ColumnType::Json | ColumnType::ExactJson => Value::Json(Json::from_stored("[]".to_owned())),
        ColumnType::Decimal => Value::Decimal(if column.name == "temperature" { "0.2" } else { "0" }.to_owned()),
        ColumnType::Int | ColumnType::Int32 => Value::Int(number(table.name, column.name)),
        ColumnType::Text => word(table.name, column.name).into(),
        ColumnType::Uuid | ColumnType::Bytes | ColumnType::Uuids => Value::Null,
    }
}

fn number(table: &str, column: &str) -> i64 {
    match (table, column) {
        (_, "state_version" | "round" | "approvals_needed") | ("tool_calls" | "effects", "attempt") => 1,
        (_, "priority") => 5,
        (_, "quota_per_minute") => 60,
        _ => 0,
    }
}

fn word(table: &str, column: &str) -> &'static str {
    match (table, column) {
        ("tenants", "status") => "active",
        ("agent_jobs", "status") => "created",
        ("swarm_publish_events", "status") => "scheduled",
        ("runs", "source") => "act",
        ("steps", "node_type") => "function",
        ("effects", "kind") => "tool",
        ("job_details", "sandbox_state") => "none",
        ("swarm_tasks", "priority") => "normal",
        _ => "pending",
    }
}
