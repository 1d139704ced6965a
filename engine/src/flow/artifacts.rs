//! The blobs that records reference: without them a backup is incomplete.

use super::Flow;
use crate::error::EngineError;
use chimera_core::flow::tables::STEPS;
use chimera_core::id::BlobId;
use chimera_core::limits;
use chimera_core::record::{Json, Row, Scope, Select};
use std::collections::BTreeSet;

impl Flow {
    /// Every blob that a step's output references, as declared by the configured tools. Reads all their steps, page by
    /// page.
    pub async fn artifacts(&self) -> Result<BTreeSet<BlobId>, EngineError> {
        let mut found = BTreeSet::new();
        for spec in self.inner.parts.registry.specs().filter(|spec| spec.has_artifacts()) {
            let steps = Select::from(&STEPS, Scope::System).with("tool", spec.name.as_str());
            let mut steps = steps.take(limits::PAGE_ROWS_MAX);
            loop {
                let page = self.inner.parts.records.read(steps.clone()).await?;
                let output = |row: &Row| row.get("output").as_json().map(Json::to_value);
                found.extend(page.rows.iter().filter_map(output).flat_map(|output| spec.artifacts(&output)));
                match page.next {
                    Some(next) => steps.after = Some(next),
                    None => break,
                }
            }
        }
        Ok(found)
    }
}
