//! Sources of secrets: the environment, a directory of files, one file.
//!
//! `LayeredSecrets` asks its sources in order and takes the first that has the name; the usual order is environment,
//! directory, file. Every lookup reads the source again. A source that can't be read ends the search: a
//! lower-priority value must not replace one that is only temporarily out of reach.

mod directory;
mod environment;
mod file;

pub use directory::DirectorySecrets;
pub use environment::EnvironmentSecrets;
pub use file::FileSecrets;

use async_trait::async_trait;
use chimera_core::error::io_reason;
use chimera_core::limits::SECRET_BYTES_MAX;
use chimera_core::secret::{Secret, SecretName};
use chimera_engine::port::{SecretError, Secrets};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Several sources, in order of precedence.
#[derive(Default)]
pub struct LayeredSecrets {
    sources: Vec<Box<dyn Secrets>>,
}

impl LayeredSecrets {
    #[must_use]
    pub fn new(sources: Vec<Box<dyn Secrets>>) -> Self {
        Self { sources }
    }
}

#[async_trait]
impl Secrets for LayeredSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        for source in &self.sources {
            match source.resolve(name).await {
                Err(SecretError::Missing(_)) => {}
                found => return found,
            }
        }
        Err(SecretError::Missing(name.clone()))
    }
}

/// The bytes of a file of at most `bytes_max`; `None` if it does not exist.
async fn read_file(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max { Err(ErrorKind::FileTooLarge.into()) } else { Ok(Some(bytes)) }
    });
    read.await.unwrap_or_else(|_| Err(ErrorKind::Other.into()))
}

/// Describes an I/O error without the path.
fn unreadable(name: &SecretName, error: &io::Error) -> SecretError {
    match error.kind() {
        ErrorKind::FileTooLarge => SecretError::TooLarge(name.clone()),
        _ => SecretError::Unreadable { name: name.clone(), reason: io_reason(error) },
    }
}

fn checked(name: &SecretName, value: impl Into<Vec<u8>>) -> Result<Secret, SecretError> {
    let secret = Secret::new(value);
    if secret.expose().len() > SECRET_BYTES_MAX { Err(SecretError::TooLarge(name.clone())) } else { Ok(secret) }
}
