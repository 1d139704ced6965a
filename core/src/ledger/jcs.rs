//! Canonical JSON (RFC 8785).

/// Why a document has no canonical form.
#[derive(Debug, thiserror::Error)]
pub enum JcsError {
    /// A whole number beyond 2^53, which not every reader keeps exactly.
    #[error("integer beyond 2^53")]
    IntegerTooLarge,
    /// Anything else.
    #[error("not canonicalisable")]
    Other,
}

/// The canonical text of a document.
pub fn canonical(value: &serde_json::Value) -> Result<String, JcsError> {
    serde_json::to_string(value).map_err(|_| JcsError::Other)
}
