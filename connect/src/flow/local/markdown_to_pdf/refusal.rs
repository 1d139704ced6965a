//! Why a document does not become a PDF.

use chimera_core::error::Code;
use chimera_engine::flow::port::ToolError;

/// Why a document does not become a PDF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// It has more of something than a document may have.
    #[error("the document has too many {what}; at most {max} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it may have.
        max: usize,
    },
    /// An image can't be shown.
    #[error("image {number} can't be shown: {reason}")]
    Image {
        /// Which, from one.
        number: usize,
        /// Why.
        reason: String,
    },
    /// The pages could not be written.
    #[error("the document can't be written as a PDF: {0}")]
    Pages(&'static str),
}

/// Too many of something.
pub(super) const fn too_many(what: &'static str, max: usize) -> Refusal {
    Refusal::TooMany { what, max }
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::TooMany { .. } => Code::PayloadTooLarge,
            Refusal::Image { .. } => Code::ValidationFailed,
            Refusal::Pages(_) => Code::Internal,
        };
        Self::not_sent(code, refusal.to_string())
    }
}
