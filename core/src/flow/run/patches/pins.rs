//! The pinned workflow versions of a run: those that it was admitted with.
//!
//! They are stored in the run's request and passed on to child runs. A patch has pins of its own for the nodes that it
//! adds; a workflow that the run has already pinned keeps the run's version.

use crate::flow::pins::Pins;
use crate::flow::run::Run;
use crate::flow::tables::RunRow;
use crate::record::{DamagedRows, Json, JsonError};
use serde_json::Value;
use std::sync::Arc;

/// The member of a stored request that holds the pins.
const PINS: &str = "workflow_versions";

/// The stored form of a request, with its pins. A member of that name in the request itself is dropped.
pub(crate) fn with_pins(request: &Value, pins: &Pins) -> Result<Json, JsonError> {
    if pins.is_empty() && request.get(PINS).is_none() {
        return Json::encode(request);
    }
    let mut members = request.as_object().cloned().unwrap_or_default();
    members.remove(PINS);
    if !pins.is_empty() {
        members.insert(PINS.to_owned(), pins.to_value());
    }
    Json::encode(&members)
}

/// The original request of a run's row, and its pins.
pub fn request_of_row(row: &RunRow) -> Result<(Value, Pins), DamagedRows> {
    let mut request = row.request_payload.value()?;
    let pins = request.as_object_mut().and_then(|members| members.remove(PINS));
    Ok((request, pins.as_ref().map(Pins::from_value).unwrap_or_default()))
}

/// The pinned version of a workflow that a node starts without a version, if there is one.
pub(crate) fn pinned(run: &Run, node: usize, workflow: &str) -> Option<i64> {
    let patched = || {
        let mut applied = run.patches.applied();
        applied.find_map(|overlay| overlay.patch.pins.get(workflow)).filter(|_| run.patches.is_patched(node))
    };
    run.head.pins.get(workflow).or_else(patched)
}

/// The pins of the child run that a node starts.
pub(crate) fn pins_of_child(run: &Run, node: usize) -> Arc<Pins> {
    if !run.patches.is_patched(node) {
        return Arc::clone(&run.head.pins);
    }
    let applied = run.patches.applied();
    Arc::new(applied.fold((*run.head.pins).clone(), |pins, overlay| pins.and(&overlay.patch.pins)))
}
