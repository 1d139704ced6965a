//! The pinned versions of a run's workflows and tools: those that it was admitted with.
//!
//! They are stored in the run's request and passed on to child runs. A patch has pins of its own for the nodes that it
//! adds; a workflow or tool that the run has already pinned keeps the run's version.

use crate::flow::patch::Patch;
use crate::flow::pins::Pins;
use crate::flow::run::Run;
use crate::flow::tables::RunRow;
use crate::record::{DamagedRows, Json, JsonError};
use serde_json::Value;
use std::sync::Arc;

/// The member of a stored request that holds the pinned workflows.
const WORKFLOWS: &str = "workflow_versions";

/// The member of a stored request that holds the pinned tools.
const TOOLS: &str = "tool_versions";

/// The stored form of a request, with its pins. Members of these names in the request itself are dropped.
pub(crate) fn with_pins(request: &Value, pins: &Pins) -> Result<Json, JsonError> {
    if pins.is_empty() && request.get(WORKFLOWS).is_none() && request.get(TOOLS).is_none() {
        return Json::encode(request);
    }
    let mut members = request.as_object().cloned().unwrap_or_default();
    for (name, value) in [(WORKFLOWS, pins.workflows_value()), (TOOLS, pins.tools_value())] {
        members.remove(name);
        members.extend(value.map(|value| (name.to_owned(), value)));
    }
    Json::encode(&members)
}

/// The original request of a run's row, and its pins.
pub fn request_of_row(row: &RunRow) -> Result<(Value, Pins), DamagedRows> {
    let mut request = row.request_payload.value()?;
    let mut take = |name| request.as_object_mut().and_then(|members| members.remove(name));
    let (workflows, tools) = (take(WORKFLOWS), take(TOOLS));
    Ok((request, Pins::from_values(workflows.as_ref(), tools.as_ref())))
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
    let with_patch = |pins: Pins, patch: &Patch| pins.and(&patch.pins).and_tools(&patch.tools);
    Arc::new(applied.fold((*run.head.pins).clone(), |pins, overlay| with_patch(pins, &overlay.patch)))
}
