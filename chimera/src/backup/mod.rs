//! A backup: a folder with a manifest, and everything that the manifest names.
//!
//! `manifest.json` lists every part with its digest, and `manifest.sig` signs its bytes with the
//! ledger's key. A backup gets its final name only when it is complete.

pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod staging;

use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::ledger::checkpoint::{PublicKey, Signer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The version of the format.
pub(crate) const FORMAT: u32 = 1;
/// The list of everything in a backup.
const MANIFEST: &str = "manifest.json";
/// Its signature.
const SIGNATURE: &str = "manifest.sig";
/// The list of blobs and buckets that are not in it.
pub(crate) const BLOB_LIST: &str = "blobs.jsonl";
/// The sealed keys of the data folder.
pub(crate) const KEYS: &str = "keys.sealed";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    pub(crate) version: String,
    pub(crate) made_at: String,
    pub(crate) store: StoreKind,
    pub(crate) schema_version: i64,
    pub(crate) generation: i64,
    pub(crate) lanes: Vec<LaneHead>,
    pub(crate) blobs: BlobPlacement,
    /// Blobs that the records refer to and that were missing when the backup was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) blobs_missing: Vec<String>,
    pub(crate) keys_sealed: bool,
    pub(crate) tables: Vec<TablePart>,
    pub(crate) parts: Vec<BackupFile>,
}

/// Which store the records come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    Sqlite,
    Postgres,
}

/// Where the blobs of a backup are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BlobPlacement {
    /// In the data folder; the backup lists them.
    Listed,
    /// In the backup.
    Whole,
    /// In object storage, which has backups of its own.
    Elsewhere,
}

/// The head of a ledger lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LaneHead {
    pub(crate) lane: i64,
    pub(crate) epoch: i64,
    pub(crate) entries: i64,
    pub(crate) hash: String,
}

/// A table of a database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TablePart {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: u64,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BackupFile {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

#[derive(Serialize, Deserialize)]
struct ManifestSignature {
    key: String,
    signature: String,
}

/// A verified backup.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedBackup {
    pub(crate) manifest: Manifest,
    /// `None` means not signed.
    pub(crate) signed_by: Option<String>,
    /// The key is one that the caller or the configuration trusts.
    pub(crate) trusted: bool,
}

impl Manifest {
    /// Writes the manifest into a folder whose other files it lists, and signs it.
    pub(crate) fn write(&self, folder: &Path, signer: Option<&Signer>) -> Outcome {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| Failure::new(Code::Internal, format!("the manifest: {error}")))?;
        files::write(&folder.join(MANIFEST), text.as_bytes())?;
        let Some(signer) = signer else { return Ok(()) };
        let signed = ManifestSignature {
            key: hex::encode(signer.public_key().to_bytes()),
            signature: hex::encode(signer.sign(text.as_bytes())),
        };
        let text = serde_json::to_string(&signed);
        let text = text.map_err(|error| Failure::new(Code::Internal, format!("the signature: {error}")))?;
        files::write(&folder.join(SIGNATURE), text.as_bytes())
    }
}

fn broken(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::LedgerBroken, format!("the backup {} is not what was written: {why}", path.display()))
        .hint("use another one; nothing was changed")
}

/// Verifies the signature, every digest, and that there are no other files. `trust` are the keys given by the
/// caller, `known` those from the configuration.
pub(crate) fn verify(path: &Path, trust: &[PublicKey], known: &[PublicKey]) -> Outcome<VerifiedBackup> {
    let bytes = std::fs::read(path.join(MANIFEST))
        .map_err(|error| Failure::file("there is no backup that can be read at", path, &error))?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| broken(path, error))?;
    if manifest.format != FORMAT {
        let message = format!("the backup has format {}, this binary reads {FORMAT}", manifest.format);
        return Err(Failure::new(Code::ValidationFailed, message).hint("use the binary that made it, or a newer one"));
    }
    let signed_by = signature(path, &bytes)?;
    let among = |keys: &[PublicKey]| signed_by.as_ref().is_some_and(|key| keys.contains(key));
    if !trust.is_empty() && !among(trust) {
        return Err(broken(path, "it is not signed with a key that you trust"));
    }
    if trust.is_empty() && !known.is_empty() && !among(known) {
        let why = match &signed_by {
            None => "it is not signed".to_owned(),
            Some(key) => format!("it is signed with {}, which is not trusted here", hex::encode(key.to_bytes())),
        };
        return Err(broken(path, why).hint("--trust HEX accepts a backup of another ledger's key"));
    }
    let listed: BTreeMap<&str, &BackupFile> = manifest.parts.iter().map(|part| (part.path.as_str(), part)).collect();
    let mut there = files::list(path)?;
    there.retain(|name| name != MANIFEST && name != SIGNATURE);
    if let Some(extra) = there.iter().find(|name| !listed.contains_key(name.as_str())) {
        return Err(broken(path, format!("{extra} is not in its manifest")));
    }
    for part in &manifest.parts {
        if !files::is_inside(&part.path) {
            return Err(broken(path, format!("{} leads out of it", part.path)));
        }
        let file = path.join(&part.path);
        let found = files::digest(&file).map_err(|_| broken(path, format!("{} is missing", part.path)))?;
        if found != (part.bytes, part.sha256.clone()) {
            return Err(broken(path, format!("{} has another digest", part.path)));
        }
    }
    let trusted = among(trust) || among(known);
    Ok(VerifiedBackup { manifest, signed_by: signed_by.map(|key| hex::encode(key.to_bytes())), trusted })
}

fn signature(path: &Path, manifest: &[u8]) -> Outcome<Option<PublicKey>> {
    let text = match std::fs::read(path.join(SIGNATURE)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file("can't read", &path.join(SIGNATURE), &error)),
    };
    let signed: ManifestSignature = serde_json::from_slice(&text).map_err(|error| broken(path, error))?;
    let key = PublicKey::from_hex(&signed.key).ok_or_else(|| broken(path, "its key can't be read"))?;
    let signature = hex::decode(&signed.signature).ok().and_then(|bytes| bytes.try_into().ok());
    let signature: [u8; 64] = signature.ok_or_else(|| broken(path, "its signature can't be read"))?;
    if !key.verifies(manifest, &signature) {
        return Err(broken(path, "its signature does not fit its manifest"));
    }
    Ok(Some(key))
}

pub(crate) fn draft_of(path: &Path, id: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".partial-{id}"));
    path.with_file_name(name)
}
