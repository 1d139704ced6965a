//! Tool calls whose outcome is unknown.

use super::{RunStatus, pages};
use crate::wire::{DateTime, wire, words};
use chimera_engine::flow::view;
use uuid::Uuid;

words! {
    /// `execute`: the step waits until the call is resolved; `undo`: a rollback could not finish.
    pub(crate) DoubtfulCall from view::DoubtfulCall {
        Execute = "execute",
        Undo = "undo",
    }
}

wire! {
    /// A tool call whose outcome is unknown.
    pub(crate) DoubtDocument from view::DoubtView {
        /// Id of the run.
        run_id in run: Uuid,
        /// What a person calls the run: the goal, the tools of its steps, or the id of its workflow.
        title in run: String,
        /// Id of the workflow.
        workflow_id in run: Option<String>,
        /// Actor who requested the run.
        actor in run: String,
        /// Status of the run.
        run_status in run: RunStatus,
        /// Id of the step.
        step_id: Uuid,
        /// Id of the node.
        node_id: String,
        /// Index of the map item.
        map_index: Option<i64>,
        /// Name of the tool.
        tool: Option<String>,
        /// The call that is in doubt.
        call: DoubtfulCall,
        /// Attempts of the step so far.
        attempt: i64,
        /// When the outcome became unknown.
        since: Option<DateTime>,
        /// Reason.
        reason: Option<String>,
        /// URL of the endpoint that resolves it: `…/resolve` or `…/rollback`.
        resolve_url in resolution: String,
        /// CLI commands, any of which resolves it.
        resolve_commands in resolution: Vec<String>,
    }
}

pages! {
    /// A page of tool calls whose outcome is unknown.
    pub DoubtPage of DoubtDocument from view::DoubtView: "Calls of the oldest steps first.";
}
