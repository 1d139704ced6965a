//! Runs CPU-bound tool work on blocking threads, so that it delays no request.

use chimera_core::error::Code;
use chimera_engine::flow::port::ToolError;

/// Runs work on the blocking thread pool. A panic in it fails the tool call, not the process.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ToolError::not_sent(Code::Internal, "the tool failed on this input")),
    }
}
