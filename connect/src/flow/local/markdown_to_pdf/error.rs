//! Why a document can't be rendered.

use chimera_core::error::Code;
use chimera_engine::flow::port::ToolError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RenderError {
    /// It exceeds a limit.
    #[error("the document has too many {what}; at most {max} are allowed")]
    TooMany { what: &'static str, max: usize },
    /// An image can't be shown.
    #[error("image {number} can't be shown: {reason}")]
    Image {
        /// Counted from one.
        number: usize,
        reason: String,
    },
    /// The pages could not be written.
    #[error("the document can't be written as a PDF: {0}")]
    Pages(&'static str),
}

pub(super) const fn too_many(what: &'static str, max: usize) -> RenderError {
    RenderError::TooMany { what, max }
}

impl From<RenderError> for ToolError {
    fn from(refusal: RenderError) -> Self {
        let code = match refusal {
            RenderError::TooMany { .. } => Code::PayloadTooLarge,
            RenderError::Image { .. } => Code::ValidationFailed,
            RenderError::Pages(_) => Code::Internal,
        };
        Self::not_sent(code, refusal.to_string())
    }
}
