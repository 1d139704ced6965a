//! Blobs in a local folder.
//!
//! Content is written to `tmp/`, flushed to disk, and renamed into place. File and folder are both synced, so a
//! returned id survives a power cut. A writer locks its unfinished file: an unlocked file in `tmp/` belongs to a dead
//! writer and is removed when the folder is opened.

use super::content::{HashingContent, verify};
use super::{LinkSigner, folder_of, id_of, key, unavailable};
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::error::io_reason;
use chimera_core::id::BlobId;
use chimera_core::limits::BLOB_BYTES_MAX;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{
    Blob, BlobError, BlobStat, Blobs, InvalidLink, PresentedLink, PresignedUrl, UploadStream,
};
use chimera_engine::port::{Outage, Random, Unavailable};
use futures::{StreamExt, stream};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const READ_BYTES: usize = 128 * 1024;

pub struct FolderBlobs {
    root: PathBuf,
    links: LinkSigner,
    random: Arc<dyn Random>,
    bytes_max: u64,
}

impl FolderBlobs {
    /// Opens the blobs below `root`. The folder is created on first use. Removes unfinished files of dead writers,
    /// best effort.
    #[must_use]
    pub fn open(root: impl Into<PathBuf>, links: LinkSigner, random: Arc<dyn Random>) -> Self {
        let root = root.into();
        let removed = sweep(&root.join("tmp"));
        if removed > 0 {
            tracing::info!(removed, "removed unfinished blobs");
        }
        Self { root, links, random, bytes_max: BLOB_BYTES_MAX }
    }

    /// Lowers the size limit to `bytes_max`.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max.min(BLOB_BYTES_MAX);
        self
    }

    fn path(&self, id: BlobId) -> PathBuf {
        self.root.join(key(id))
    }

    async fn draft(&self) -> Result<TempFile, BlobError> {
        let folder = self.root.join("tmp");
        let path = folder.join(self.random.opaque_id());
        blocking(move || {
            if !folder.try_exists()? {
                crate::folder::create(&folder)?;
                folder.ancestors().skip(1).take(2).filter(|above| above.is_dir()).try_for_each(sync)?;
            }
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            let draft = TempFile { file: Arc::new(file), path, kept: false };
            draft.file.try_lock().map_err(|_| ErrorKind::ResourceBusy)?;
            // Between creation and lock, another process may have removed it as abandoned.
            if draft.path.try_exists()? { Ok(draft) } else { Err(ErrorKind::ResourceBusy.into()) }
        })
        .await
    }
}

#[async_trait]
impl Blobs for FolderBlobs {
    async fn put(&self, content: UploadStream) -> Result<BlobStat, BlobError> {
        let draft = self.draft().await?;
        let mut content = HashingContent::new(content, self.bytes_max);
        while let Some(piece) = content.next().await? {
            let file = draft.file.clone();
            blocking(move || (&*file).write_all(&piece)).await?;
        }
        let stat = content.finish();
        let (root, path) = (self.root.clone(), self.path(stat.id));
        blocking(move || draft.persist(&root, &path)).await?;
        Ok(stat)
    }

    async fn get(&self, id: BlobId) -> Result<Blob, BlobError> {
        let path = self.path(id);
        let opened =
            blocking(move || absent_as_none(File::open(path).and_then(|f| Ok((f.metadata()?.len(), f))))).await?;
        let (size, file) = opened.ok_or(BlobError::NotFound(id))?;
        let pieces = stream::try_unfold(Arc::new(file), async |file| {
            let from = file.clone();
            let piece = blocking(move || {
                let mut piece = Vec::with_capacity(READ_BYTES);
                (&*from).take(READ_BYTES as u64).read_to_end(&mut piece)?;
                Ok(piece)
            })
            .await?;
            Ok(if piece.is_empty() { None } else { Some((Bytes::from(piece), file)) })
        });
        Ok(Blob { stat: BlobStat { id, size }, content: verify(id, pieces.boxed()) })
    }

    async fn stat(&self, id: BlobId) -> Result<Option<BlobStat>, BlobError> {
        let path = self.path(id);
        let found = blocking(move || absent_as_none(fs::metadata(path))).await?;
        Ok(found.filter(fs::Metadata::is_file).map(|file| BlobStat { id, size: file.len() }))
    }

    async fn ids(&self, first: u8) -> Result<Vec<BlobId>, BlobError> {
        let folder = self.root.join(folder_of(first));
        blocking(move || {
            let Some(files) = absent_as_none(fs::read_dir(folder))? else { return Ok(Vec::new()) };
            let names = files.map(|file| file.map(|file| file.file_name()));
            let names = names.collect::<io::Result<Vec<_>>>()?;
            let mut ids: Vec<BlobId> = names.iter().filter_map(|name| id_of(first, name.to_str()?)).collect();
            ids.sort_unstable();
            Ok(ids)
        })
        .await
    }

    async fn delete(&self, id: BlobId) -> Result<(), BlobError> {
        let path = self.path(id);
        blocking(move || match absent_as_none(fs::remove_file(&path))? {
            Some(()) => sync_parent(&path),
            None => Ok(()),
        })
        .await
    }

    async fn presign(&self, id: BlobId, seconds: u64, now: Timestamp) -> Result<PresignedUrl, BlobError> {
        self.stat(id).await?.ok_or(BlobError::NotFound(id))?;
        Ok(self.links.sign(id, seconds, now))
    }

    fn check_link(&self, link: &PresentedLink<'_>, now: Timestamp) -> Result<(), InvalidLink> {
        self.links.check(link, now)
    }

    async fn ready(&self) -> Result<(), BlobError> {
        let draft = self.draft().await?;
        blocking(move || {
            (&*draft.file).write_all(b"ready")?;
            draft.file.sync_all()
        })
        .await
    }
}

/// An unfinished file; removed on drop unless it was kept.
struct TempFile {
    file: Arc<File>,
    path: PathBuf,
    kept: bool,
}

impl TempFile {
    /// Makes it durable under its final name. An existing blob has the same content or is damaged: either way it may
    /// be replaced.
    fn persist(mut self, root: &Path, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        let folder = path.parent().unwrap_or(root);
        crate::folder::create(folder)?;
        fs::rename(&self.path, path)?;
        self.kept = true;
        // Every parent folder, even an existing one: its creator may have died before it was synced.
        folder.ancestors().take_while(|above| above.starts_with(root)).try_for_each(sync)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept {
            // If it can't be removed now, the next `open` removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync)
}

/// Removes files that no live writer has locked; returns how many.
fn sweep(folder: &Path) -> usize {
    let abandoned = |entry: &fs::DirEntry| File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(abandoned).filter(|entry| fs::remove_file(entry.path()).is_ok()).count()
}

fn absent_as_none<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, BlobError> {
    match tokio::task::spawn_blocking(act).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::debug!(%error, "blob folder failed");
            Err(BlobError::Unavailable(Unavailable::new(Outage::from_io(&error), reason(&error))))
        }
        Err(_) => Err(unavailable("the process is stopping")),
    }
}

/// The reason for an operator, without the path.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => "the disk is full".into(),
        ErrorKind::ReadOnlyFilesystem => "the folder is read-only".into(),
        ErrorKind::PermissionDenied => "the folder can't be written".into(),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "the folder is not a folder".into(),
        _ => format!("the folder failed: {}", io_reason(error)),
    }
}
