//! The export format: canonical JSON lines, from a header to a trailer.
//!
//! A full export holds every entry and every checkpoint, each checkpoint directly after the entries it covers. A
//! tenant export holds one checkpoint and that tenant's entries, each with its inclusion proof, so it can be verified
//! without other tenants' entries. Every byte is significant: a line is accepted only if serializing it again gives
//! the same bytes, and the trailer digests all lines before it.

use crate::json::{canonical, parse_nested};
use crate::ledger::checkpoint::{Checkpoint, PublicKey, SignedCheckpoint, Signer};
use crate::ledger::{ActorType, ChainLink, Digest32, Entry, SealedEntry, StoredEntry, SubjectType};
use crate::limits::EXPORT_LINE_DEPTH_MAX;
use crate::time::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

const FORMAT: &str = "chimera-ledger-export";
const VERSION: i64 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportHeader {
    pub created_at: Timestamp,
    /// The tenant, or none for a full export.
    pub tenant: Option<String>,
    /// The keys that signed its checkpoints, as claimed by the export.
    pub keys: Vec<PublicKey>,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportTrailer {
    pub entries: u64,
    pub checkpoints: u64,
    /// SHA-256 of all lines before, including line breaks.
    pub digest: Digest32,
    /// Key id, and signature over the trailer without this member.
    pub signature: Option<(String, [u8; 64])>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExportLine {
    Header(ExportHeader),
    /// An entry, with an inclusion proof in a tenant export.
    Entry(Box<StoredEntry>, Option<Vec<Digest32>>),
    Checkpoint(SignedCheckpoint),
    Trailer(ExportTrailer),
}

/// Produces the lines of one export.
#[derive(Clone, Debug)]
pub struct Exporter {
    digest: Sha256,
    entries: u64,
    checkpoints: u64,
}

impl Exporter {
    /// Begins an export; returns the exporter and the first line.
    #[must_use]
    pub fn begin(header: ExportHeader) -> (Self, String) {
        let mut exporter = Self { digest: Sha256::new(), entries: 0, checkpoints: 0 };
        let line = exporter.line(&ExportLine::Header(header));
        (exporter, line)
    }

    /// The line of an entry.
    #[must_use]
    pub fn entry(&mut self, entry: StoredEntry, proof: Option<Vec<Digest32>>) -> String {
        self.entries += 1;
        self.line(&ExportLine::Entry(Box::new(entry), proof))
    }

    /// The line of a checkpoint.
    #[must_use]
    pub fn checkpoint(&mut self, checkpoint: SignedCheckpoint) -> String {
        self.checkpoints += 1;
        self.line(&ExportLine::Checkpoint(checkpoint))
    }

    /// The last line. If signed, it also protects entries that no checkpoint covers yet.
    #[must_use]
    pub fn finish(self, signer: Option<&Signer>) -> String {
        let digest = Digest32(self.digest.finalize().into());
        let mut trailer =
            ExportTrailer { entries: self.entries, checkpoints: self.checkpoints, digest, signature: None };
        if let Some(signer) = signer {
            let signature = signer.sign(trailer.signed_text().as_bytes());
            trailer.signature = Some((signer.key_id().to_owned(), signature));
        }
        ExportLine::Trailer(trailer).write() + "\n"
    }

    fn line(&mut self, line: &ExportLine) -> String {
        let text = line.write() + "\n";
        self.digest.update(text.as_bytes());
        text
    }
}

impl ExportTrailer {
    /// The signed text.
    pub(crate) fn signed_text(&self) -> String {
        ExportLine::Trailer(Self { signature: None, ..self.clone() }).write()
    }
}

impl ExportLine {
    /// The canonical text, without a line break.
    #[must_use]
    pub fn write(&self) -> String {
        let value = match self {
            Self::Header(header) => json!({
                "kind": "header",
                "format": FORMAT,
                "version": VERSION,
                "created_at": header.created_at.to_string(),
                "tenant": header.tenant,
                "keys": header.keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
            }),
            Self::Entry(entry, proof) => entry_value(entry, proof.as_deref()),
            Self::Checkpoint(signed) => json!({
                "kind": "checkpoint",
                "body": signed.checkpoint.to_value(),
                "signature": hex::encode(signed.signature),
                "key_id": signed.key_id,
                "digest": signed.digest().to_string(),
            }),
            Self::Trailer(trailer) => json!({
                "kind": "trailer",
                "entries": trailer.entries,
                "checkpoints": trailer.checkpoints,
                "digest": trailer.digest.to_string(),
                "signature": trailer.signature.as_ref().map(|(key_id, signature)| json!({
                    "key_id": key_id,
                    "signature": hex::encode(signature),
                })),
            }),
        };
        canonical(&value)
    }

    /// Parses a line, or none if it is not exactly what `write` would produce.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let value = parse_nested(bytes, EXPORT_LINE_DEPTH_MAX).ok()?;
        let line = Self::from_members(value.as_object()?)?;
        (line.write().as_bytes() == bytes).then_some(line)
    }

    fn from_members(members: &Map<String, Value>) -> Option<Self> {
        let text = |name| members.get(name).and_then(Value::as_str);
        Some(match text("kind")? {
            "header" => {
                let keys = members.get("keys")?.as_array()?.iter();
                Self::Header(ExportHeader {
                    created_at: text("created_at")?.parse().ok()?,
                    tenant: text("tenant").map(str::to_owned),
                    keys: keys.map(|key| PublicKey::from_hex(key.as_str()?)).collect::<Option<_>>()?,
                })
            }
            "entry" => {
                let proof = match members.get("proof")? {
                    Value::Null => None,
                    steps => Some(digests(steps)?),
                };
                Self::Entry(Box::new(parse_entry(members)?), proof)
            }
            "checkpoint" => {
                let body = Checkpoint::from_value(members.get("body")?)?.body();
                let signed = SignedCheckpoint::parse(body, bytes(text("signature")?)?, text("key_id")?.to_owned());
                Self::Checkpoint(signed.ok()?)
            }
            "trailer" => {
                let signature = match members.get("signature")? {
                    Value::Null => None,
                    signature => Some((
                        signature.get("key_id")?.as_str()?.to_owned(),
                        bytes(signature.get("signature")?.as_str()?)?,
                    )),
                };
                Self::Trailer(ExportTrailer {
                    entries: members.get("entries")?.as_u64()?,
                    checkpoints: members.get("checkpoints")?.as_u64()?,
                    digest: Digest32::from_hex(text("digest")?)?,
                    signature,
                })
            }
            _ => return None,
        })
    }
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode(text).ok()?.try_into().ok()
}

fn digests(value: &Value) -> Option<Vec<Digest32>> {
    value.as_array()?.iter().map(|digest| Digest32::from_hex(digest.as_str()?)).collect()
}

fn entry_value(stored: &StoredEntry, proof: Option<&[Digest32]>) -> Value {
    let SealedEntry { entry, salt, content_digest, .. } = &stored.sealed;
    json!({
        "kind": "entry",
        "lane": stored.lane,
        "seq": stored.link.seq,
        "id": entry.id,
        "tenant_id": entry.tenant_id,
        "subject_type": entry.subject_type.as_str(),
        "subject_id": entry.subject_id,
        "event_type": entry.event_type,
        "actor_type": entry.actor_type.as_str(),
        "actor_id": entry.actor_id,
        "timestamp": entry.timestamp.to_string(),
        "data_json": entry.data,
        "run_id": entry.run_id.map(|id| id.to_string()),
        "run_seq": entry.run_seq,
        "trace_id": entry.trace_id,
        "salt": hex::encode(salt),
        "content_digest": content_digest.to_string(),
        "prev_hash": stored.link.prev_hash.to_string(),
        "hash": stored.link.hash.to_string(),
        "proof": proof.map(|steps| steps.iter().map(ToString::to_string).collect::<Vec<_>>()),
    })
}

fn parse_entry(members: &Map<String, Value>) -> Option<StoredEntry> {
    let text = |name| members.get(name).and_then(Value::as_str);
    let owned = |name| text(name).map(str::to_owned);
    let int = |name| members.get(name).and_then(Value::as_i64);
    let digest = |name| text(name).and_then(Digest32::from_hex);
    let data = members.get("data_json")?.clone();
    let data_json = canonical(&data);
    let entry = Entry {
        id: owned("id")?,
        tenant_id: owned("tenant_id")?,
        subject_type: SubjectType::parse(text("subject_type")?)?,
        subject_id: owned("subject_id")?,
        event_type: owned("event_type")?,
        actor_type: ActorType::parse(text("actor_type")?)?,
        actor_id: owned("actor_id"),
        timestamp: text("timestamp")?.parse().ok()?,
        data,
        run_id: text("run_id").and_then(|id| Uuid::parse_str(id).ok()),
        run_seq: int("run_seq"),
        trace_id: owned("trace_id"),
    };
    let sealed =
        SealedEntry { entry, data_json, salt: bytes(text("salt")?)?, content_digest: digest("content_digest")? };
    let link = ChainLink { seq: int("seq")?, prev_hash: digest("prev_hash")?, hash: digest("hash")? };
    Some(StoredEntry { lane: int("lane")?, link, sealed })
}
