//! The example workflows that `chimera dev` installs.
//!
//! An existing workflow of the same id is not changed. An example that needs a tool that is not configured is
//! skipped.

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

/// Child workflows come before the workflows that start them.
const EXAMPLES: &[(&str, &str)] = &[
    example!("publish-with-approval"),
    example!("summarize-and-file"),
    example!("judged-summary"),
    example!("file-many"),
    example!("first-answer-wins"),
    example!("watch-and-remind"),
    example!("order-with-payment"),
    example!("upload-and-notify"),
    example!("newsletter-with-review"),
];

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
                tracing::info!(workflow_id = id, reason = body.message, "skipped an example workflow");
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}
