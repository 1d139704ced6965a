//! `workflow.start`: starts a workflow as `/act` does, with the same risk, level, rules and approvals.

use super::{DispatchRequest, decode};
use crate::access::Permit;
use crate::act::{self, ActOutcome, ActRequest, Objective};
use crate::error::EngineError;
use crate::intent::router::IntentRouter;
use crate::intent::verdict::masked;
use chimera_core::error::Code;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct WorkflowStartArgs {
    workflow_id: String,
    #[serde(default = "no_inputs")]
    inputs: Value,
}

fn no_inputs() -> Value {
    json!({})
}

pub(super) async fn dispatch(request: &DispatchRequest<'_>) -> Result<Value, EngineError> {
    let WorkflowStartArgs { workflow_id, inputs } = decode(request.args())?;
    start(request, json!({"workflow_id": workflow_id}), Objective::Workflow { id: workflow_id, version: None, inputs })
        .await
}

pub(super) async fn preview(router: &IntentRouter, permit: &Permit, args: &Value) -> Result<(), EngineError> {
    let WorkflowStartArgs { workflow_id, inputs } = decode(args)?;
    preview_start(router, permit, Objective::Workflow { id: workflow_id, version: None, inputs }).await
}

/// Starts a run. The answer is `named` with the id of the run.
pub(super) async fn start(request: &DispatchRequest<'_>, named: Value, what: Objective) -> Result<Value, EngineError> {
    let directory = request.router.actions.access().directory();
    let run = request.context.run_id.unwrap_or_else(|| directory.parts.random.row_id(directory.parts.clock.now()));
    let envelope = request.acceptance.envelope();
    let document = json!({
        "intent": envelope.intent_type, "envelope_digest": envelope.digest(),
        "idempotency_key": masked(&envelope.idempotency_key), "trace_id": envelope.trace_id.as_deref().map(masked),
    });
    let mut result = named;
    result["run_id"] = json!(run);
    let permit = request.acceptance.permit_with(&result, Some(run))?;
    let ask =
        ActRequest { run_id: Some(run), parent_span: request.context.parent_span, ..ActRequest::of(what, document) };
    match Box::pin(act::act(&request.router.actions, &permit, ask)).await? {
        ActOutcome::Started(_) => Ok(result),
        ActOutcome::Duplicate { .. } => Err(EngineError::refused(Code::Internal, "the run was started before")),
    }
}

/// Checks whether a run could start.
pub(super) async fn preview_start(router: &IntentRouter, permit: &Permit, what: Objective) -> Result<(), EngineError> {
    let ask = ActRequest::of(what, Value::Null);
    Box::pin(act::check(&router.actions, permit, ask)).await
}
