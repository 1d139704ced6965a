//! Workflows.

use super::pages;
use crate::wire::{DateTime, JsonObject, wire};
use chimera_engine::flow::view;

wire! {
    /// A workflow in a list.
    pub(crate) WorkflowEntry from view::WorkflowEntry {
        /// Workflow id.
        workflow_id: String,
        /// Latest version number.
        version: i64,
        /// SHA-256 of its canonical JSON.
        digest: String,
        /// Description from the document.
        description: Option<String>,
        /// Actor who applied it; null if another tenant shares it.
        created_by: Option<String>,
        /// When it was applied.
        created_at: Option<DateTime>,
        /// Whether every tenant may start it.
        shared: bool,
    }

    /// A version of a workflow.
    pub WorkflowDocument from view::WorkflowView {
        /// Workflow id.
        workflow_id: String,
        /// Version number.
        version: i64,
        /// SHA-256 of its canonical JSON.
        digest: String,
        /// Actor who applied it; null if another tenant shares it.
        created_by: Option<String>,
        /// When it was applied.
        created_at: Option<DateTime>,
        /// Whether every tenant may start it.
        shared: bool,
        /// The AIR document.
        document: Option<JsonObject>,
    }
}

pages! {
    /// A page of workflows.
    pub WorkflowPage of WorkflowEntry from view::WorkflowEntry: "Ordered by id.";
}
