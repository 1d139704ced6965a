//! The answer of `POST /act`: a run, with what is known of it without reading the store.
//!
//! A run that awaits approval, is a dry run or a duplicate is answered as a whole: its document has all these members.

use crate::access::wire::AutonomyLevel;
use crate::flow::wire::{ApprovalDocument, DryRunDocument, PlanDocument, RiskDocument, RunDocument, RunStatus};
use crate::ops::schema::ErrorDocument;
use crate::problem::ApiError;
use crate::wire::{AnyJson, IntoWire};
use chimera_engine::act::StartedAction;
use chimera_engine::flow::view::PlanView;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A run that `/act` started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActedDocument {
    /// Run id.
    run_id: Uuid,
    /// Current status.
    status: RunStatus,
    /// Autonomy level.
    autonomy_level: AutonomyLevel,
    /// W3C trace id.
    trace_id: String,
    /// The plan.
    plan: PlanDocument,
    /// Risk of the plan.
    #[schema(required)]
    risk: Option<RiskDocument>,
    /// Whether the run is a dry run.
    dry_run: bool,
    /// Dry-run result of each step; null if there was no dry run.
    #[schema(required)]
    dry_run_results: Option<Vec<DryRunDocument>>,
    /// URL of the decision endpoint.
    #[schema(required)]
    approve_url: Option<String>,
    /// Pending approval requests.
    approvals: Vec<ApprovalDocument>,
    /// Result of the run.
    result: AnyJson,
    /// Why it failed.
    #[schema(required)]
    error: Option<ErrorDocument>,
    /// Only for a used idempotency key: whether the request differs from the one that started the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    request_differs: Option<bool>,
}

impl TryFrom<&StartedAction> for ActedDocument {
    type Error = ApiError;

    fn try_from(begun: &StartedAction) -> Result<Self, ApiError> {
        let progress = begun.started.progress.borrow();
        let run_id = begun.started.run_id;
        let ended = progress.ended.as_ref();
        Ok(Self {
            run_id,
            status: progress.status.into(),
            autonomy_level: begun.started.level.into(),
            trace_id: chimera_core::id::trace_id(run_id),
            plan: PlanView::of_plan(&begun.plan).map_err(|_| ApiError::internal())?.into(),
            risk: Some(begun.risk.clone().into()),
            dry_run: begun.dry_run,
            dry_run_results: None,
            approve_url: None,
            approvals: Vec::new(),
            result: ended.and_then(|ended| ended.result.as_deref().cloned()).into_wire(),
            error: ended.and_then(|ended| ended.error.clone()).into_wire(),
            request_differs: None,
        })
    }
}

/// The earlier run with an idempotency key.
#[derive(Serialize)]
pub(crate) struct DuplicateDocument {
    #[serde(flatten)]
    pub(crate) run: RunDocument,
    pub(crate) request_differs: bool,
}
