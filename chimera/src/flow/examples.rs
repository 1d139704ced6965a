//! The workflows that `chimera dev` begins with.
//!
//! One that is there already stays as it is, whatever became of it; one that needs a tool which is
//! not set up here is left out.

use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::Flow;

macro_rules! example {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../examples/workflows/", $name, ".json")))
    };
}

/// Children stand before those who start them.
const EXAMPLES: &[(&str, &str)] = &[
    example!("publish-with-approval"),
    example!("summarize-and-file"),
    example!("file-many"),
    example!("first-answer-wins"),
    example!("watch-and-remind"),
    example!("upload-and-notify"),
    example!("newsletter-with-review"),
];

/// Applies those that are missing.
pub(crate) async fn apply(flow: &Flow, permit: &Permit) -> Outcome {
    for (id, text) in EXAMPLES {
        let failed = |error: EngineError| {
            let body = error.body();
            let code = Code::parse(&body.code).unwrap_or(Code::Internal);
            Failure::new(code, format!("the example {id}: {}", body.message))
        };
        if flow.workflows().row(permit.tenant(), id, None).await.map_err(failed)?.is_some() {
            continue;
        }
        match flow.workflows().apply(permit, id, text).await {
            Ok(_) => {}
            Err(EngineError::Refused(body)) => {
                tracing::info!(workflow_id = id, reason = body.message, "an example can't be used here");
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}
