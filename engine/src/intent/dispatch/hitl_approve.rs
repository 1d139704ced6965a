//! `hitl.approve`: a person decides on what waits for one. The same rules hold as for a decision by any other way.

use super::{DispatchRequest, decode, run_of};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{self, Decide, Decision, NodeReference};
use crate::intent::router::IntentRouter;
use chimera_core::error::Code;
use chimera_core::json::Digest32;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct HitlApproveArgs {
    run_id: String,
    node_id: Option<String>,
    decision: Decision,
    reason: Option<String>,
    digest: Option<String>,
}

impl HitlApproveArgs {
    fn reference(&self) -> Result<NodeReference<'_>, EngineError> {
        let digest = self.digest.as_deref().map(|text| {
            Digest32::from_hex(text).ok_or_else(|| EngineError::refused(Code::MalformedArgs, "not a SHA-256 digest"))
        });
        let run = run_of(&self.run_id)?;
        Ok(NodeReference { run, node: self.node_id.as_deref(), decision: self.decision, digest: digest.transpose()? })
    }
}

pub(super) async fn dispatch(request: &DispatchRequest<'_>) -> Result<Value, EngineError> {
    let args: HitlApproveArgs = decode(request.args())?;
    let reference = args.reference()?;
    let flow = request.router.actions.flow();
    let found = flow::find_waiting(flow, request.acceptance.permit(), &reference).await?;
    let result = json!({
        "run_id": reference.run, "node_id": found.node, "approval_id": found.approval,
        "decision": args.decision.as_str(),
    });
    let permit = request.acceptance.permit_with(&result, Some(reference.run))?;
    let decide = Decide {
        run: reference.run,
        decision: args.decision,
        approval: Some(found.approval),
        step: found.step,
        digest: reference.digest,
        reason: args.reason,
    };
    flow::decide(flow, &permit, decide).await?;
    Ok(result)
}

pub(super) async fn preview(router: &IntentRouter, permit: &Permit, args: &Value) -> Result<(), EngineError> {
    let args: HitlApproveArgs = decode(args)?;
    flow::find_waiting(router.actions.flow(), permit, &args.reference()?).await.map(drop)
}
