//! A ledger entry before and after its content is fixed.
//!
//! Sealing writes the entry as canonical JSON and digests it behind a random salt, so that the
//! digest of a short, guessable entry tells nobody its content. Chaining comes later, when the
//! committer knows the entry's place.

use super::chain::Digest32;
use super::jcs;
use crate::limits;
use crate::time::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word in tables and documents.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// The value that a word stands for.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }
    };
}

words! {
    /// What an entry is about.
    SubjectType {
        /// A task.
        Task = "task",
        /// One attempt of a worker.
        WorkerRun = "worker_run",
        /// What a worker produced.
        WorkerResult = "worker_result",
        /// A judge's decision.
        JudgeDecision = "judge_decision",
        /// A payment.
        Transaction = "transaction",
        /// A publication.
        PublishEvent = "publish_event",
        /// Anything else.
        Other = "other",
    }
}

words! {
    /// Who caused an entry.
    ActorType {
        /// A component of Chimera.
        System = "system",
        /// A person.
        Human = "human",
        /// A service or workflow outside.
        ExternalNode = "external_node",
    }
}

/// An entry as its author writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Opaque id.
    pub id: String,
    /// Whose it is.
    pub tenant_id: String,
    /// What it is about.
    pub subject_type: SubjectType,
    /// Which one.
    pub subject_id: String,
    /// What happened.
    pub event_type: String,
    /// Who caused it.
    pub actor_type: ActorType,
    /// Which one.
    pub actor_id: Option<String>,
    /// When.
    pub timestamp: Timestamp,
    /// Details: digests and references, never payloads or secrets.
    pub data: Value,
    /// The run it belongs to.
    pub run_id: Option<Uuid>,
    /// Its number within the run.
    pub run_seq: Option<i64>,
    /// The trace it belongs to.
    pub trace_id: Option<String>,
}

/// An entry whose content can't change any more.
#[derive(Clone, Debug, PartialEq)]
pub struct SealedEntry {
    /// What was sealed.
    pub entry: Entry,
    /// Canonical JSON of the data, the exact bytes that were digested and are stored.
    pub data_json: String,
    /// What hides the content behind its digest.
    pub salt: [u8; 16],
    /// Digest of salt and content.
    pub content_digest: Digest32,
}

/// Why an entry can't be sealed.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Its data has no canonical form.
    #[error("entry data has no canonical form")]
    Data(#[from] jcs::JcsError),
    /// Its data is too large.
    #[error("entry data may have at most {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A text holds U+0000.
    #[error("entry holds the character U+0000")]
    Nul,
}

impl Entry {
    /// Fixes the content behind `salt`.
    pub fn seal(self, salt: [u8; 16]) -> Result<SealedEntry, EntryError> {
        let data_json = jcs::canonical(&self.data)?;
        if data_json.len() > limits::ENTRY_DATA_BYTES_MAX {
            return Err(EntryError::TooLarge { bytes_max: limits::ENTRY_DATA_BYTES_MAX });
        }
        let content = self.content()?;
        if content.contains("\\u0000") {
            return Err(EntryError::Nul);
        }
        let content_digest = content_digest(salt, &content);
        Ok(SealedEntry { entry: self, data_json, salt, content_digest })
    }

    /// The canonical bytes that are digested: every field of the entry.
    pub fn content(&self) -> Result<String, jcs::JcsError> {
        jcs::canonical(&json!({
            "id": self.id,
            "tenant_id": self.tenant_id,
            "subject_type": self.subject_type.as_str(),
            "subject_id": self.subject_id,
            "event_type": self.event_type,
            "actor_type": self.actor_type.as_str(),
            "actor_id": self.actor_id,
            "timestamp": self.timestamp.to_string(),
            "data_json": self.data,
            "run_id": self.run_id.map(|id| id.to_string()),
            "run_seq": self.run_seq,
            "trace_id": self.trace_id,
        }))
    }
}

/// `SHA-256(salt ‖ content)`.
#[must_use]
pub fn content_digest(salt: [u8; 16], content: &str) -> Digest32 {
    let mut hasher = Sha256::new();
    hasher.update(salt);
    hasher.update(content.as_bytes());
    Digest32(hasher.finalize().into())
}
