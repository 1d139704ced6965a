//! Buckets as folders below one root, for the embedded default: `bucket/the/key` is a file.
//!
//! The content type and marker of an object are in a separate file below `.about/`, named by key and content, which
//! is written before the content: a crash in between leaves the old object with its own metadata. Unlike in an object
//! store, `a` and `a/b` can't both be keys. One process owns the folder.

use super::{check_names, escaped};
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::error::io_reason;
use chimera_core::limits::FILE_NAME_BYTES_MAX;
use chimera_engine::flow::port::{BucketError, Buckets, Object};
use chimera_engine::port::Outage;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone)]
pub struct FolderBuckets {
    root: PathBuf,
    /// Serializes changes.
    changing: Arc<Mutex<()>>,
}

impl FolderBuckets {
    /// The buckets below `root`. The root and each bucket are created on first use.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), changing: Arc::new(Mutex::new(())) }
    }

    fn object(&self, bucket: &str, key: &str) -> PathBuf {
        self.root.join(bucket).join(key)
    }

    fn metadata_path(&self, bucket: &str, key: &str, content: &[u8]) -> PathBuf {
        let name = Sha256::new().chain_update(key).chain_update([0]).chain_update(Sha256::digest(content)).finalize();
        self.root.join(".about").join(bucket).join(format!("{}.json", hex::encode(name)))
    }

    fn read(&self, bucket: &str, key: &str, bytes_max: usize) -> io::Result<Option<Object>> {
        let path = self.object(bucket, key);
        let found = match fs::metadata(&path) {
            Ok(found) if found.is_file() => found,
            Ok(_) => return Ok(None),
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if found.len() > bytes_max as u64 {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let content = fs::read(path)?;
        let about: Value = fs::read(self.metadata_path(bucket, key, &content))
            .ok()
            .and_then(|about| serde_json::from_slice(&about).ok())
            .unwrap_or_default();
        let text = |name: &str| about[name].as_str().unwrap_or_default().to_owned();
        Ok(Some(Object { content: Bytes::from(content), content_type: text("content_type"), mark: text("mark") }))
    }

    fn write(&self, bucket: &str, key: &str, object: &Object, replace: bool) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.object(bucket, key);
        let before = self.read(bucket, key, usize::MAX)?;
        if before.is_some() && !replace {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let about = json!({"content_type": object.content_type, "mark": object.mark});
        self.write_atomically(&self.metadata_path(bucket, key, &object.content), about.to_string().as_bytes())?;
        self.write_atomically(&path, &object.content)?;
        if let Some(before) = before.filter(|before| before.content != object.content) {
            let _ = fs::remove_file(self.metadata_path(bucket, key, &before.content));
        }
        Ok(())
    }

    fn remove(&self, bucket: &str, key: &str) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = self.read(bucket, key, usize::MAX)? else { return Ok(()) };
        let path = self.object(bucket, key);
        fs::remove_file(&path)?;
        path.parent().map_or(Ok(()), sync)?;
        let _ = fs::remove_file(self.metadata_path(bucket, key, &before.content));
        // Folders of a key are not objects: they are removed with the last object in them.
        let bucket = self.root.join(bucket);
        let above = path.ancestors().skip(1).take_while(|folder| *folder != bucket);
        above.take_while(|folder| fs::remove_dir(folder).is_ok()).for_each(drop);
        Ok(())
    }

    /// Writes a file atomically: to a temporary file, flushed, then renamed into place.
    fn write_atomically(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let drafts = self.root.join(".tmp");
        crate::folder::create(&drafts)?;
        let draft = drafts.join("draft");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        let folder = path.parent().unwrap_or(&self.root);
        crate::folder::create(folder).map_err(|error| match error.kind() {
            // A file is where a folder should be.
            ErrorKind::AlreadyExists => ErrorKind::NotADirectory.into(),
            _ => error,
        })?;
        fs::rename(&draft, path)?;
        folder.ancestors().take_while(|above| above.starts_with(&self.root)).try_for_each(sync)
    }
}

#[async_trait]
impl Buckets for FolderBuckets {
    async fn put(&self, bucket: &str, key: &str, object: &Object, replace: bool) -> Result<(), BucketError> {
        check_names(bucket, key)?;
        let (folder, object) = (self.clone(), object.clone());
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        blocking(0, move || folder.write(&bucket, &key, &object, replace)).await
    }

    async fn get(&self, bucket: &str, key: &str, bytes_max: usize) -> Result<Option<Object>, BucketError> {
        check_names(bucket, key)?;
        let (folder, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        blocking(bytes_max, move || folder.read(&bucket, &key, bytes_max)).await
    }

    async fn delete(&self, bucket: &str, key: &str) -> Result<(), BucketError> {
        check_names(bucket, key)?;
        let (folder, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        blocking(0, move || folder.remove(&bucket, &key)).await
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn address(&self, bucket: &str, key: &str) -> Result<String, BucketError> {
        check_names(bucket, key)?;
        if key.split('/').any(|segment| segment.len() > FILE_NAME_BYTES_MAX) {
            return Err(segment_too_long());
        }
        Ok(format!("folder://{bucket}/{}", escaped(key)))
    }
}

fn segment_too_long() -> BucketError {
    BucketError::Name("a segment of the key is too long for a file name".to_owned())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

async fn blocking<T: Send + 'static>(
    bytes_max: usize,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BucketError> {
    let stopping = || BucketError::Unavailable("the process is stopping".to_owned());
    let outcome = tokio::task::spawn_blocking(act).await.map_err(|_| stopping())?;
    outcome.map_err(|error| {
        tracing::debug!(%error, "bucket folder failed");
        match error.kind() {
            ErrorKind::AlreadyExists => BucketError::Taken,
            ErrorKind::FileTooLarge => BucketError::TooLarge { bytes_max },
            ErrorKind::InvalidFilename => segment_too_long(),
            ErrorKind::IsADirectory | ErrorKind::NotADirectory | ErrorKind::DirectoryNotEmpty => {
                BucketError::Refused("in a local folder, a key can't be a path prefix of another key".to_owned())
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                BucketError::Unavailable("the disk is full".to_owned())
            }
            _ if Outage::from_io(&error) == Outage::Unusable => {
                BucketError::Refused(format!("the folder can't be read or written: {}", io_reason(&error)))
            }
            _ => BucketError::Unavailable(format!("the folder can't be read or written: {}", io_reason(&error))),
        }
    })
}
