//! Secrets from a directory of files, as Docker and Kubernetes mount them.

use super::{checked, read_file, unreadable};
use async_trait::async_trait;
use chimera_core::limits::SECRET_BYTES_MAX;
use chimera_core::secret::{Secret, SecretName};
use chimera_engine::port::{SecretError, Secrets};
use std::path::PathBuf;

/// One file per secret, named after it; a trailing line end is not part of the value.
///
/// Symbolic links are followed, since mounted secrets are links; a name itself can't leave the directory.
pub struct DirectorySecrets {
    directory: PathBuf,
}

impl DirectorySecrets {
    /// The files in `directory`. A missing directory has no secrets.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }
}

#[async_trait]
impl Secrets for DirectorySecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        // Two more bytes, for the line end.
        let read = read_file(&self.directory.join(name.as_str()), SECRET_BYTES_MAX + 2).await;
        let bytes =
            read.map_err(|error| unreadable(name, &error))?.ok_or_else(|| SecretError::Missing(name.clone()))?;
        let line = bytes.strip_suffix(b"\n").map_or(bytes.as_slice(), |line| line.strip_suffix(b"\r").unwrap_or(line));
        checked(name, line)
    }
}
