//! Secrets from one TOML or JSON file of names and values.

use super::{checked, read_file, unreadable};
use async_trait::async_trait;
use chimera_core::limits;
use chimera_core::secret::{Secret, SecretName};
use chimera_engine::port::{SecretError, Secrets};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A flat table `name = "value"`: JSON if the file's name ends in `.json`, TOML otherwise.
pub struct FileSecrets {
    path: PathBuf,
}

impl FileSecrets {
    /// The file at `path`. A missing file has no secrets.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn parse(&self, text: &str) -> Option<BTreeMap<String, String>> {
        if self.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            serde_json::from_str(text).ok()
        } else {
            toml::from_str(text).ok()
        }
    }
}

#[async_trait]
impl Secrets for FileSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        let read = read_file(&self.path, limits::SECRETS_FILE_BYTES_MAX).await;
        let bytes =
            read.map_err(|error| unreadable(name, &error))?.ok_or_else(|| SecretError::Missing(name.clone()))?;
        // A parser's error message quotes the surrounding text, so it is not passed on.
        let table = std::str::from_utf8(&bytes).ok().and_then(|text| self.parse(text));
        let reason = || "the file is not a flat table of names and texts".to_owned();
        let mut table = table.ok_or_else(|| SecretError::Unreadable { name: name.clone(), reason: reason() })?;
        let value = table.remove(name.as_str()).ok_or_else(|| SecretError::Missing(name.clone()))?;
        checked(name, value)
    }
}
