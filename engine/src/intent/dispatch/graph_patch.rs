//! `graph.patch`: adds nodes and edges to an active run. The patch is checked against tool schemas, rights and rules,
//! compiled to an overlay, and applied by the run itself. A patch that its author could not run freely waits for a
//! person.

use super::{DispatchRequest, decode, run_of};
use crate::access::Permit;
use crate::act;
use crate::error::EngineError;
use crate::flow::{CheckedPatch, PatchRequest};
use crate::intent::router::IntentRouter;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};

#[derive(Deserialize)]
struct GraphPatchArgs {
    run_id: String,
    patch: Value,
}

pub(super) async fn dispatch(request: &DispatchRequest<'_>) -> Result<Value, EngineError> {
    let GraphPatchArgs { run_id, patch } = decode(request.args())?;
    let run = run_of(&run_id)?;
    let answer = Mutex::new(Value::Null);
    let permit_for = |checked: &CheckedPatch| {
        let proposed = json!({"run_id": run, "patch": checked.number(), "waits_for_approval": checked.waits()});
        let permit = request.acceptance.permit_with(&proposed, Some(run));
        *answer.lock().unwrap_or_else(PoisonError::into_inner) = proposed;
        permit
    };
    let patch = PatchRequest { may_wait: true, ..PatchRequest::new(run, patch) };
    let permit = request.acceptance.permit();
    Box::pin(act::patch_with(&request.router.actions, permit, patch, &permit_for)).await?;
    Ok(answer.into_inner().unwrap_or_else(PoisonError::into_inner))
}

pub(super) async fn preview(router: &IntentRouter, permit: &Permit, args: &Value) -> Result<(), EngineError> {
    let GraphPatchArgs { run_id, patch } = decode(args)?;
    let patch = PatchRequest { dry_run: true, may_wait: true, ..PatchRequest::new(run_of(&run_id)?, patch) };
    Box::pin(act::patch(&router.actions, permit, patch)).await.map(drop)
}
