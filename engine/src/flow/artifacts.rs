//! The blobs that records reference: without them a backup is incomplete.

use super::Flow;
use crate::error::EngineError;
use chimera_core::flow::tables::{StepOutput, steps};
use chimera_core::id::BlobId;
use chimera_core::limits;
use chimera_core::record::{Json, Scope, StoredRow};
use std::collections::BTreeSet;

/// Every blob that a step's output references, as declared by the configured tools. Reads all their steps, page by
/// page.
pub async fn referenced_blobs(flow: &Flow) -> Result<BTreeSet<BlobId>, EngineError> {
    let mut found = BTreeSet::new();
    for spec in flow.inner.parts.registry.specs().iter().filter(|spec| spec.has_artifacts()) {
        let steps = StepOutput::select(Scope::System).with(steps::tool, spec.name.as_str());
        let mut steps = steps.take(limits::PAGE_ROWS_MAX);
        loop {
            let page = flow.inner.parts.records.read(steps.clone()).await?;
            for row in page.rows {
                let output = StepOutput::decode(row)?.output.as_ref().map(Json::value).transpose()?;
                found.extend(output.iter().flat_map(|output| spec.artifacts(output)));
            }
            match page.next {
                Some(next) => steps.after = Some(next),
                None => break,
            }
        }
    }
    Ok(found)
}
