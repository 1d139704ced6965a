//! A ledger entry before and after sealing.
//!
//! Sealing serializes the entry as canonical JSON and digests it with a random salt, so that the digest of a short,
//! guessable entry does not reveal its content. The committer chains sealed entries once their position is known.

use crate::json::{self, Digest32};
use crate::record::escapes_nul;
use crate::time::Timestamp;
use crate::words::words;
use crate::{limits, text};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

words! {
    /// What an entry is about.
    SubjectType {
        Task = "task",
        /// One attempt by a worker.
        WorkerRun = "worker_run",
        WorkerResult = "worker_result",
        JudgeDecision = "judge_decision",
        Transaction = "transaction",
        PublishEvent = "publish_event",
        Other = "other",
    }
}

words! {
    /// Who caused an entry.
    ActorType {
        /// A component of Chimera.
        System = "system",
        Human = "human",
        /// An external service or workflow.
        ExternalNode = "external_node",
    }
}

/// An entry before it is sealed.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub id: String,
    pub tenant_id: String,
    pub subject_type: SubjectType,
    pub subject_id: String,
    pub event_type: String,
    pub actor_type: ActorType,
    pub actor_id: Option<String>,
    pub timestamp: Timestamp,
    /// Digests and references, never payloads or secrets.
    pub data: Value,
    pub run_id: Option<Uuid>,
    /// Sequence number within the run.
    pub run_seq: Option<i64>,
    pub trace_id: Option<String>,
}

/// An immutable entry with its content digest.
#[derive(Clone, Debug, PartialEq)]
pub struct SealedEntry {
    pub entry: Entry,
    /// Canonical JSON of the data: the exact bytes that were digested and are stored.
    pub data_json: String,
    /// Random salt of the content digest.
    pub salt: [u8; 16],
    pub content_digest: Digest32,
}

/// Why an entry can't be sealed.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("entry data is {0}")]
    Data(#[from] json::TooDeep),
    /// The data, or all other fields together, are too large.
    #[error("a part of the entry may have at most {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("entry holds the character U+0000")]
    Nul,
}

impl Entry {
    /// Seals the entry with `salt`. Data that exceeds the limit is shortened, and its size and digest are recorded: an
    /// entry is written however large the input was.
    pub fn seal(mut self, salt: [u8; 16]) -> Result<SealedEntry, EntryError> {
        let (data_json, content) = match self.canonical_texts() {
            Ok(texts) => texts,
            Err(_) => {
                self.data = shorten(self.data);
                self.canonical_texts()?
            }
        };
        let content_digest = content_digest(salt, &content);
        Ok(SealedEntry { entry: self, data_json, salt, content_digest })
    }

    /// The canonical text of the data and of the whole content.
    fn canonical_texts(&self) -> Result<(String, String), EntryError> {
        json::check_depth(&self.data, limits::JSON_DEPTH_MAX)?;
        let data_json = json::canonical(&self.data);
        if data_json.len() > limits::ENTRY_DATA_BYTES_MAX {
            return Err(EntryError::TooLarge { bytes_max: limits::ENTRY_DATA_BYTES_MAX });
        }
        let content = self.content_with(&data_json);
        if content.len() - data_json.len() > limits::ENTRY_TEXT_BYTES_MAX {
            return Err(EntryError::TooLarge { bytes_max: limits::ENTRY_TEXT_BYTES_MAX });
        }
        if escapes_nul(&content) {
            return Err(EntryError::Nul);
        }
        Ok((data_json, content))
    }

    /// The canonical text that is digested: every field of the entry.
    #[must_use]
    pub fn content(&self) -> String {
        self.content_with(&json::canonical(&self.data))
    }

    /// Writes the content around canonical data. Sealing is on the hot path, so no document is built; the members below
    /// are in canonical order.
    pub(super) fn content_with(&self, data_json: &str) -> String {
        let mut out = String::with_capacity(data_json.len() + 512);
        let text = |out: &mut String, name: &str, value: Option<&str>| {
            out.push_str(name);
            match value {
                Some(value) => json::write_text(out, value),
                None => out.push_str("null"),
            }
        };
        text(&mut out, "{\"actor_id\":", self.actor_id.as_deref());
        text(&mut out, ",\"actor_type\":", Some(self.actor_type.as_str()));
        out.push_str(",\"data_json\":");
        out.push_str(data_json);
        text(&mut out, ",\"event_type\":", Some(&self.event_type));
        text(&mut out, ",\"id\":", Some(&self.id));
        let mut spelled = uuid::Uuid::encode_buffer();
        let run_id = self.run_id.map(|id| &*id.hyphenated().encode_lower(&mut spelled));
        text(&mut out, ",\"run_id\":", run_id);
        out.push_str(",\"run_seq\":");
        match self.run_seq {
            Some(number) => json::write_integer(&mut out, number),
            None => out.push_str("null"),
        }
        text(&mut out, ",\"subject_id\":", Some(&self.subject_id));
        text(&mut out, ",\"subject_type\":", Some(self.subject_type.as_str()));
        text(&mut out, ",\"tenant_id\":", Some(&self.tenant_id));
        text(&mut out, ",\"timestamp\":", Some(&self.timestamp.to_string()));
        text(&mut out, ",\"trace_id\":", self.trace_id.as_deref());
        out.push('}');
        out
    }
}

/// Shortens the data to a quarter of the limit, and adds the size and digest of the original.
fn shorten(data: Value) -> Value {
    let whole = json::canonical(&data);
    let shortened = json!({"bytes": whole.len(), "digest": Digest32::of_bytes(whole.as_bytes())});
    let mut members =
        match text::truncate_value(data, limits::ENTRY_DATA_BYTES_MAX / 4, limits::ENTRY_SHORTENED_CHARS_MAX) {
            Value::Object(members) => members,
            other => Map::from_iter([("data".to_owned(), other)]),
        };
    members.insert("shortened".to_owned(), shortened);
    Value::Object(members)
}

/// `SHA-256(salt ‖ content)`.
#[must_use]
pub fn content_digest(salt: [u8; 16], content: &str) -> Digest32 {
    let mut hasher = Sha256::new();
    hasher.update(salt);
    hasher.update(content.as_bytes());
    Digest32(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            id: "e1".into(),
            tenant_id: "acme".into(),
            subject_type: SubjectType::Task,
            subject_id: "t1".into(),
            event_type: "task.created".into(),
            actor_type: ActorType::Human,
            actor_id: Some("ann \"the\" operator".into()),
            timestamp: Timestamp::from_micros(1_770_391_800_123_000),
            data: json!({"b": 1, "a": [null, 2.5, "é"]}),
            run_id: Some(Uuid::from_u128(7)),
            run_seq: Some(3),
            trace_id: None,
        }
    }

    #[test]
    fn the_content_is_the_canonical_text_of_every_field() {
        let entry = entry();
        let document = json!({
            "id": entry.id, "tenant_id": entry.tenant_id, "subject_type": "task", "subject_id": "t1",
            "event_type": entry.event_type, "actor_type": "human", "actor_id": entry.actor_id,
            "timestamp": "2026-02-06T15:30:00.123000Z", "data_json": entry.data,
            "run_id": "00000000-0000-0000-0000-000000000007", "run_seq": 3, "trace_id": null,
        });
        assert_eq!(entry.content(), json::canonical(&document));
    }

    #[test]
    fn the_same_content_behind_another_salt_has_another_digest() {
        let (one, two) = (entry().seal([1; 16]).unwrap(), entry().seal([2; 16]).unwrap());
        assert_ne!(one.content_digest, two.content_digest);
        assert!(one.is_intact() && two.is_intact());
        assert!(!SealedEntry { salt: [2; 16], ..one }.is_intact());
    }

    #[test]
    fn a_nul_in_a_name_is_refused_and_its_spelling_is_not() {
        assert!(matches!(Entry { subject_id: "a\0".into(), ..entry() }.seal([0; 16]), Err(EntryError::Nul)));
        assert!(Entry { data: json!({"a": "\\u0000"}), ..entry() }.seal([0; 16]).is_ok());
    }

    #[test]
    fn data_that_no_entry_takes_is_entered_shortened() {
        let long = "x\0\"".repeat(limits::ENTRY_DATA_BYTES_MAX);
        let deep = (0..100).fold(json!(1), |inner, _| json!({"a": inner}));
        let many: Vec<Value> = (0..100_000).map(|n| json!({"reason": "\n\"".repeat(400), "n": n})).collect();
        let empty: Vec<Value> = (0..100_000).map(|_| json!([])).collect();
        for data in
            [json!({"a": long, "b": 1}), json!({"b": 1, "c": deep}), json!({"a": many}), json!(empty), json!(long)]
        {
            let digest = Digest32::of(&data);
            let sealed = Entry { data: data.clone(), ..entry() }.seal([0; 16]).unwrap();
            assert_eq!(sealed.entry.data["shortened"]["digest"], json!(digest));
            assert!(sealed.is_intact() && sealed.data_json.len() < limits::ENTRY_DATA_BYTES_MAX);
        }
        let whole = json!({"a": "é\n\u{1}", "b": "x".repeat(limits::ENTRY_DATA_BYTES_MAX / 2)});
        assert_eq!(Entry { data: whole.clone(), ..entry() }.seal([0; 16]).unwrap().entry.data, whole);
    }

    #[test]
    fn a_name_beyond_its_limit_is_refused() {
        let subject_id = "x".repeat(limits::ENTRY_TEXT_BYTES_MAX);
        assert!(matches!(Entry { subject_id, ..entry() }.seal([0; 16]), Err(EntryError::TooLarge { .. })));
    }
}
