//! Intents that a file defines: their arguments are the inputs of a workflow, or the input of a tool.

use super::DispatchRequest;
use super::workflow_start::{preview_start, start};
use crate::access::Permit;
use crate::act::Objective;
use crate::error::EngineError;
use crate::intent::router::IntentRouter;
use serde_json::{Value, json};

pub(super) async fn start_workflow(request: &DispatchRequest<'_>, workflow: &str) -> Result<Value, EngineError> {
    let named = json!({"workflow_id": workflow});
    start(request, named, of_workflow(workflow, request.args())).await
}

pub(super) async fn preview_workflow(
    router: &IntentRouter,
    permit: &Permit,
    workflow: &str,
    args: &Value,
) -> Result<(), EngineError> {
    preview_start(router, permit, of_workflow(workflow, args)).await
}

pub(super) async fn call_tool(request: &DispatchRequest<'_>, tool: &str) -> Result<Value, EngineError> {
    start(request, json!({"tool": tool}), of_tool(tool, request.args())).await
}

pub(super) async fn preview_tool(
    router: &IntentRouter,
    permit: &Permit,
    tool: &str,
    args: &Value,
) -> Result<(), EngineError> {
    preview_start(router, permit, of_tool(tool, args)).await
}

fn of_workflow(workflow: &str, args: &Value) -> Objective {
    Objective::Workflow { id: workflow.to_owned(), version: None, inputs: args.clone() }
}

fn of_tool(tool: &str, args: &Value) -> Objective {
    Objective::Steps(vec![(tool.to_owned(), args.clone())])
}
