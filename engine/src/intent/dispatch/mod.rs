//! What accepted intents start: one file per intent.
//!
//! Each calls a use case that has its own checks, with a permit that carries the record of the verdict. Each also has a
//! preview that makes the same checks and changes nothing.

mod cache_invalidate;
mod declared;
mod graph_patch;
mod hitl_approve;
mod run_replay;
mod workflow_start;

use super::acceptance::Acceptance;
use super::router::{IntentContext, IntentRouter};
use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::error::Code;
use chimera_core::intent::{BuiltInIntent, Dispatch, Envelope, IntentDefinition};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

/// An accepted intent on its way.
pub(super) struct DispatchRequest<'a> {
    pub(super) router: &'a IntentRouter,
    pub(super) acceptance: &'a Acceptance<'a>,
    pub(super) context: IntentContext,
}

impl DispatchRequest<'_> {
    fn args(&self) -> &Value {
        self.acceptance.envelope().args.value()
    }
}

/// Does what an intent asks for; returns the answer.
pub(super) async fn dispatch(
    request: &DispatchRequest<'_>,
    definition: &IntentDefinition,
) -> Result<Value, EngineError> {
    match &definition.dispatch {
        Dispatch::BuiltIn(BuiltInIntent::WorkflowStart) => workflow_start::dispatch(request).await,
        Dispatch::BuiltIn(BuiltInIntent::RunReplay) => run_replay::dispatch(request).await,
        Dispatch::BuiltIn(BuiltInIntent::HitlApprove) => hitl_approve::dispatch(request).await,
        Dispatch::BuiltIn(BuiltInIntent::GraphPatch) => graph_patch::dispatch(request).await,
        Dispatch::BuiltIn(BuiltInIntent::CacheInvalidate) => cache_invalidate::dispatch(request).await,
        Dispatch::BuiltIn(
            intent @ (BuiltInIntent::LogsStream | BuiltInIntent::ArtifactGet | BuiltInIntent::KbSearch),
        ) => Err(not_available(*intent)),
        Dispatch::Workflow(workflow) => declared::start_workflow(request, workflow).await,
        Dispatch::Tool(tool) => declared::call_tool(request, tool).await,
    }
}

/// Checks what an intent asks for, without doing it.
pub(super) async fn preview(
    router: &IntentRouter,
    permit: &Permit,
    envelope: &Envelope,
    definition: &IntentDefinition,
) -> Result<(), EngineError> {
    let args = &**envelope.args.value();
    match &definition.dispatch {
        Dispatch::BuiltIn(BuiltInIntent::WorkflowStart) => workflow_start::preview(router, permit, args).await,
        Dispatch::BuiltIn(BuiltInIntent::RunReplay) => run_replay::preview(router, permit, args).await,
        Dispatch::BuiltIn(BuiltInIntent::HitlApprove) => hitl_approve::preview(router, permit, args).await,
        Dispatch::BuiltIn(BuiltInIntent::GraphPatch) => graph_patch::preview(router, permit, args).await,
        Dispatch::BuiltIn(BuiltInIntent::CacheInvalidate) => cache_invalidate::preview(router, permit, args).await,
        Dispatch::BuiltIn(
            intent @ (BuiltInIntent::LogsStream | BuiltInIntent::ArtifactGet | BuiltInIntent::KbSearch),
        ) => Err(not_available(*intent)),
        Dispatch::Workflow(workflow) => declared::preview_workflow(router, permit, workflow, args).await,
        Dispatch::Tool(tool) => declared::preview_tool(router, permit, tool, args).await,
    }
}

/// The intent is part of the catalog, but nothing on this server serves it.
fn not_available(intent: BuiltInIntent) -> EngineError {
    EngineError::refused(Code::ToolUnavailable, format!("{} is not available on this server", intent.as_str()))
}

/// Arguments that fit their schema.
fn decode<T: DeserializeOwned>(args: &Value) -> Result<T, EngineError> {
    T::deserialize(args).map_err(|error| EngineError::refused(Code::MalformedArgs, format!("the arguments: {error}")))
}

/// The run that the arguments name.
fn run_of(text: &str) -> Result<Uuid, EngineError> {
    Uuid::parse_str(text).map_err(|_| EngineError::unknown("run", text))
}
