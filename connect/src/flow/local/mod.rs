//! Tools that need nothing outside this process.

mod echo;
mod markdown_to_pdf;
mod summarize;

use chimera_core::json::schema::InvalidSchema;
use chimera_engine::flow::TenantBlobs;
use chimera_engine::flow::port::Tool;
use std::sync::Arc;

/// All local tools; PDFs are stored in, and images taken from, `blobs`.
pub fn local_tools(blobs: TenantBlobs) -> Result<Vec<Arc<dyn Tool>>, InvalidSchema> {
    Ok(vec![
        Arc::new(echo::Echo::new()?),
        Arc::new(summarize::Summarize::new()?),
        Arc::new(markdown_to_pdf::MarkdownToPdf::new(blobs)?),
    ])
}
