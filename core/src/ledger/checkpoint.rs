//! Signed checkpoints: the state of the whole ledger at one moment.
//!
//! A checkpoint contains the size, Merkle root and chain head of each lane, and the digest of the previous
//! checkpoint. Anyone who keeps one can later detect whether anything it covers was changed, reordered or truncated.
//! The exact signed bytes are stored and compared.

use super::tables::{CheckpointRow, LEDGER_CHECKPOINTS, ledger_checkpoints};
use super::{ChainHead, Digest32};
use crate::json;
use crate::record::{Insert, InvalidTx, Json, Row, StoredRow};
use crate::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::fmt;

const VERSION: i64 = 1;

/// The state of a lane at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    pub lane: i64,
    /// The last entry. Its number is also the size of the tree.
    pub head: ChainHead,
    /// The Merkle root over the entries' hashes.
    pub root: Digest32,
}

/// The content of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Identifies the ledger.
    pub origin: String,
    /// Sequence number, starting at 1.
    pub seq: i64,
    pub created_at: Timestamp,
    /// Digest of the previous checkpoint.
    pub previous: Option<Digest32>,
    /// Every lane that has entries, in ascending order.
    pub lanes: Vec<LaneState>,
}

/// A checkpoint with its exact signed bytes and signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint {
    pub checkpoint: Checkpoint,
    pub body: String,
    pub signature: [u8; 64],
    pub key_id: String,
}

/// Why a checkpoint is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointFault {
    /// Its bytes are not the canonical form of a checkpoint.
    #[error("checkpoint is malformed")]
    Malformed,
    /// The signing key is not trusted.
    #[error("checkpoint is signed by an unknown key")]
    UnknownKey,
    /// The signature does not match the bytes.
    #[error("checkpoint signature is wrong")]
    Signature,
}

/// A key that verifies checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Parses a 32-byte key. Weak keys are rejected.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        VerifyingKey::from_bytes(bytes).ok().filter(|key| !key.is_weak()).map(Self)
    }

    /// The key spelled by 64 hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        Self::from_bytes(&Digest32::from_hex(text)?.0)
    }

    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The key id: the first eight bytes of its SHA-256, as hex.
    #[must_use]
    pub fn id(&self) -> String {
        hex::encode(&Sha256::digest(self.0.as_bytes())[..8])
    }

    /// Whether `signature` is this key's over `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.to_bytes()))
    }
}

/// The private key that signs checkpoints and exports.
pub struct Signer {
    key: SigningKey,
    key_id: String,
}

impl Signer {
    /// The signer with this 32-byte seed.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        let key_id = PublicKey(key.verifying_key()).id();
        Self { key, key_id }
    }

    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.key.verifying_key())
    }

    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The signature over `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// The canonical bytes.
    #[must_use]
    pub fn body(&self) -> String {
        json::canonical(&self.to_value())
    }

    pub(crate) fn to_value(&self) -> Value {
        let lane = |state: &LaneState| {
            json!({
                "lane": state.lane,
                "size": state.head.seq,
                "root": state.root.to_string(),
                "head_hash": state.head.hash.to_string(),
            })
        };
        json!({
            "version": VERSION,
            "origin": self.origin,
            "seq": self.seq,
            "created_at": self.created_at.to_string(),
            "previous": self.previous.map(|digest| digest.to_string()),
            "lanes": self.lanes.iter().map(lane).collect::<Vec<_>>(),
        })
    }

    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        let members = value.as_object()?;
        let text = |name| members.get(name).and_then(Value::as_str);
        if members.get("version").and_then(Value::as_i64) != Some(VERSION) {
            return None;
        }
        let lanes: Vec<LaneState> = members.get("lanes")?.as_array()?.iter().map(lane_state).collect::<Option<_>>()?;
        lanes.is_sorted_by(|a, b| a.lane < b.lane).then_some(())?;
        Some(Self {
            origin: text("origin")?.to_owned(),
            seq: members.get("seq")?.as_i64()?,
            created_at: text("created_at")?.parse().ok()?,
            previous: match members.get("previous")? {
                Value::Null => None,
                digest => Some(Digest32::from_hex(digest.as_str()?)?),
            },
            lanes,
        })
    }

    #[must_use]
    pub fn sign(self, signer: &Signer) -> SignedCheckpoint {
        let body = self.body();
        let signature = signer.sign(body.as_bytes());
        SignedCheckpoint { checkpoint: self, body, signature, key_id: signer.key_id.clone() }
    }

    /// The state of a lane, or none if the checkpoint does not contain it.
    #[must_use]
    pub fn lane(&self, lane: i64) -> Option<&LaneState> {
        self.lanes.iter().find(|state| state.lane == lane)
    }
}

fn lane_state(value: &Value) -> Option<LaneState> {
    let members: &Map<String, Value> = value.as_object()?;
    let digest = |name| members.get(name).and_then(Value::as_str).and_then(Digest32::from_hex);
    let seq = members.get("size")?.as_i64().filter(|size| *size > 0)?;
    let head = ChainHead { seq, hash: digest("head_hash")? };
    Some(LaneState { lane: members.get("lane")?.as_i64()?, head, root: digest("root")? })
}

impl SignedCheckpoint {
    /// Parses a signed checkpoint. The bytes must be canonical.
    pub fn parse(body: String, signature: [u8; 64], key_id: String) -> Result<Self, CheckpointFault> {
        let value = json::parse(&body).map_err(|_| CheckpointFault::Malformed)?;
        let checkpoint = Checkpoint::from_value(&value).ok_or(CheckpointFault::Malformed)?;
        if checkpoint.body() != body {
            return Err(CheckpointFault::Malformed);
        }
        Ok(Self { checkpoint, body, signature, key_id })
    }

    /// Decodes a row of `ledger_checkpoints`.
    pub fn from_row(row: &Row) -> Result<Self, CheckpointFault> {
        let row = CheckpointRow::peek(row).map_err(|_| CheckpointFault::Malformed)?;
        let signed = Self::parse(row.body.as_str().to_owned(), row.signature, row.key_id)?;
        let agrees = row.seq == signed.checkpoint.seq
            && row.created_at == signed.checkpoint.created_at
            && row.digest == signed.digest();
        if agrees { Ok(signed) } else { Err(CheckpointFault::Malformed) }
    }

    pub fn insert(&self) -> Result<Insert, InvalidTx> {
        Insert::new(
            &LEDGER_CHECKPOINTS,
            vec![
                (ledger_checkpoints::seq, self.checkpoint.seq.into()),
                (ledger_checkpoints::created_at, self.checkpoint.created_at.into()),
                (ledger_checkpoints::body, Json::from_stored(self.body.clone()).into()),
                (ledger_checkpoints::signature, self.signature.to_vec().into()),
                (ledger_checkpoints::key_id, self.key_id.clone().into()),
                (ledger_checkpoints::digest, self.digest().0.to_vec().into()),
            ],
        )
    }

    /// The digest that the next checkpoint refers to.
    #[must_use]
    pub fn digest(&self) -> Digest32 {
        Digest32(Sha256::digest(self.body.as_bytes()).into())
    }

    /// Verifies the signature with the key in `keys` that it names.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<(), CheckpointFault> {
        let key = keys.iter().find(|key| key.id() == self.key_id).ok_or(CheckpointFault::UnknownKey)?;
        if key.verifies(self.body.as_bytes(), &self.signature) { Ok(()) } else { Err(CheckpointFault::Signature) }
    }

    /// The checkpoint as a signed note for an external witness: origin, number of entries, digest of the body, one line
    /// per lane, then `signer`'s signature over these lines.
    #[must_use]
    pub fn to_note(&self, signer: &Signer) -> String {
        let checkpoint = &self.checkpoint;
        let entries: i64 = checkpoint.lanes.iter().map(|state| state.head.seq).sum();
        let mut text = format!("{}\n{entries}\n{}\n", checkpoint.origin, STANDARD.encode(self.digest().0));
        for LaneState { lane, head, root } in &checkpoint.lanes {
            text.push_str(&format!("lane {lane} {} {}\n", head.seq, STANDARD.encode(root.0)));
        }
        let public = signer.public_key().to_bytes();
        let name = Sha256::new().chain_update(&checkpoint.origin).chain_update(b"\n\x01").chain_update(public);
        let mut mark = name.finalize()[..4].to_vec();
        mark.extend(signer.sign(text.as_bytes()));
        format!("{text}\n— {} {}\n", checkpoint.origin, STANDARD.encode(mark))
    }
}
