//! Idempotency: the same request under the same key takes effect once.
//!
//! | record       | same request          | different request      | after its expiry |
//! |--------------|-----------------------|------------------------|------------------|
//! | none         | `Fresh`               | `Fresh`                | –                |
//! | in flight    | `InFlight`            | `Mismatch`             | `TakeOver`       |
//! | done         | `Done`                | `Mismatch`             | `TakeOver`       |
//!
//! A decision is data for the transaction that it guards, never a separate write: the record and the
//! change commit together. When two requests begin concurrently, the loser's transaction conflicts; it
//! reads and decides again. Records of different owners are isolated.
//!
//! Not used by `/act`, whose key is a column of `runs`; see engine/src/act/idempotency/mod.rs.

use super::Digest32;
use super::tables::{IDEMPOTENCY_RECORDS, IdempotencyRow, idempotency_records};
use crate::limits;
use crate::record::{
    Comparison, Condition, Insert, InvalidTx, Json, JsonError, Row, RowCount, RowError, Step, StoredRow, Unstorable,
    Update, Value,
};
use crate::time::Timestamp;
use crate::words::words;
use std::fmt;
use uuid::Uuid;

/// The scope in which a key is unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// Requests of one user of one tenant.
    User { tenant: String, user: String },
    /// Skill invocations of one agent.
    Agent(Uuid),
    /// External effects of one tenant.
    Effect { tenant: String },
}

impl fmt::Display for KeyOwner {
    /// Unambiguous for any characters in the names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { tenant, user } => write!(f, "user:{}:{tenant}:{user}", tenant.len()),
            Self::Agent(agent) => write!(f, "agent:{agent}"),
            Self::Effect { tenant } => write!(f, "effect:{tenant}"),
        }
    }
}

/// A request under an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedRequest {
    owner: String,
    key: String,
    fingerprint: Digest32,
    resource_id: Option<String>,
    ttl_seconds: i64,
    answer: Option<serde_json::Value>,
}

/// The key is empty, too long, or holds U+0000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key must have 1 to {} characters", limits::IDEMPOTENCY_KEY_CHARS_MAX)]
pub struct InvalidIdempotencyKey;

/// Checks the form of an idempotency key, whatever it is used for.
pub fn check_key(key: &str) -> Result<(), InvalidIdempotencyKey> {
    let chars = key.chars().take(limits::IDEMPOTENCY_KEY_CHARS_MAX + 1).count();
    let is_valid = (1..=limits::IDEMPOTENCY_KEY_CHARS_MAX).contains(&chars) && !key.contains('\0');
    if is_valid { Ok(()) } else { Err(InvalidIdempotencyKey) }
}

impl KeyedRequest {
    /// A request with `body` under `key`, with the default TTL.
    pub fn new(owner: &KeyOwner, key: &str, body: &serde_json::Value) -> Result<Self, InvalidIdempotencyKey> {
        check_key(key)?;
        Ok(Self {
            owner: owner.to_string(),
            key: key.to_owned(),
            fingerprint: Digest32::of(body),
            resource_id: None,
            ttl_seconds: limits::IDEMPOTENCY_TTL_SECONDS,
            answer: None,
        })
    }

    /// Sets the response, for a request whose response is known before its change commits: its record is completed
    /// from the start.
    #[must_use]
    pub fn with_answer(mut self, answer: serde_json::Value) -> Self {
        self.answer = Some(answer);
        self
    }

    /// Sets the resource that the request creates, so that a duplicate can refer to it while the request is in flight.
    #[must_use]
    pub fn with_resource(mut self, resource_id: impl Into<String>) -> Self {
        self.resource_id = Some(resource_id.into());
        self
    }

    /// Sets the TTL.
    #[must_use]
    pub const fn with_ttl(mut self, seconds: i64) -> Self {
        self.ttl_seconds = seconds;
        self
    }

    /// What a record is compared with.
    #[must_use]
    pub const fn fingerprint(&self) -> Digest32 {
        self.fingerprint
    }

    /// The primary key of its record.
    #[must_use]
    pub fn row_key(&self) -> Vec<Value> {
        vec![self.owner.as_str().into(), self.key.as_str().into()]
    }
}

words! {
    /// The stored word of a [`RecordState`].
    RecordWord {
        InFlight = "in_flight",
        Done = "done",
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum RecordState {
    /// Accepted, without a response yet.
    InFlight,
    /// Completed.
    Done {
        /// The stored response.
        answer: serde_json::Value,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct IdempotencyRecord {
    pub owner: String,
    pub key: String,
    pub fingerprint: Digest32,
    pub state: RecordState,
    pub resource_id: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub state_version: i64,
}

/// The outcome for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyDecision {
    /// First use of the key: the insert, and the resulting record.
    Fresh(Insert, IdempotencyRecord),
    /// The previous record has expired: the update that replaces it, and the resulting record.
    TakeOver(Update, IdempotencyRecord),
    /// The same request is in flight.
    InFlight(IdempotencyRecord),
    /// The same request has completed.
    Done(IdempotencyRecord),
    /// The key was used for a different request.
    Mismatch(IdempotencyRecord),
}

/// Decides about `request`, given the existing record under its key.
pub fn decide(
    existing: Option<IdempotencyRecord>,
    request: &KeyedRequest,
    now: Timestamp,
) -> Result<KeyDecision, Unstorable> {
    let claimed = |state_version| IdempotencyRecord {
        owner: request.owner.clone(),
        key: request.key.clone(),
        fingerprint: request.fingerprint,
        state: request.answer.clone().map_or(RecordState::InFlight, |answer| RecordState::Done { answer }),
        resource_id: request.resource_id.clone(),
        created_at: now,
        expires_at: now.plus_seconds(request.ttl_seconds),
        state_version,
    };
    let Some(existing) = existing else {
        let record = claimed(1);
        return Ok(KeyDecision::Fresh(record.insert()?, record));
    };
    if existing.expires_at <= now {
        let record = claimed(existing.state_version + 1);
        let update = Update::versioned(
            &IDEMPOTENCY_RECORDS,
            request.row_key(),
            existing.state_version,
            vec![
                (idempotency_records::fingerprint, record.fingerprint.0.to_vec().into()),
                (idempotency_records::state, record.word().into()),
                (idempotency_records::answer, record.answer_cell()?),
                (idempotency_records::resource_id, record.resource_id.clone().into()),
                (idempotency_records::created_at, record.created_at.into()),
                (idempotency_records::expires_at, record.expires_at.into()),
            ],
        )?;
        return Ok(KeyDecision::TakeOver(update, record));
    }
    if existing.fingerprint != request.fingerprint {
        return Ok(KeyDecision::Mismatch(existing));
    }
    Ok(match existing.state {
        RecordState::InFlight => KeyDecision::InFlight(existing),
        RecordState::Done { .. } => KeyDecision::Done(existing),
    })
}

/// Why a response cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    #[error("the request already has a response")]
    Done,
    #[error(transparent)]
    Answer(#[from] JsonError),
    #[error(transparent)]
    Invalid(#[from] InvalidTx),
}

impl IdempotencyRecord {
    /// Decodes a row of `idempotency_records`.
    pub fn from_row(row: Row) -> Result<Self, RowError> {
        let row = IdempotencyRow::decode(row)?;
        let unreadable = RowError::Unreadable { table: IDEMPOTENCY_RECORDS.name, column: idempotency_records::answer };
        let state = match (row.state, row.answer) {
            (RecordWord::InFlight, _) => RecordState::InFlight,
            (RecordWord::Done, Some(answer)) => RecordState::Done { answer: answer.value().map_err(|_| unreadable)? },
            (RecordWord::Done, None) => return Err(unreadable),
        };
        Ok(Self {
            owner: row.owner,
            key: row.key,
            fingerprint: row.fingerprint,
            state,
            resource_id: row.resource_id,
            created_at: row.created_at,
            expires_at: row.expires_at,
            state_version: row.state_version,
        })
    }

    const fn word(&self) -> RecordWord {
        match self.state {
            RecordState::InFlight => RecordWord::InFlight,
            RecordState::Done { .. } => RecordWord::Done,
        }
    }

    fn answer_cell(&self) -> Result<Value, JsonError> {
        match &self.state {
            RecordState::InFlight => Ok(Value::Null),
            RecordState::Done { answer } => Ok(Json::encode(answer)?.into()),
        }
    }

    fn insert(&self) -> Result<Insert, Unstorable> {
        Ok(Insert::new(
            &IDEMPOTENCY_RECORDS,
            vec![
                (idempotency_records::owner, self.owner.as_str().into()),
                (idempotency_records::key, self.key.as_str().into()),
                (idempotency_records::fingerprint, self.fingerprint.0.to_vec().into()),
                (idempotency_records::state, self.word().into()),
                (idempotency_records::answer, self.answer_cell()?),
                (idempotency_records::resource_id, self.resource_id.clone().into()),
                (idempotency_records::created_at, self.created_at.into()),
                (idempotency_records::expires_at, self.expires_at.into()),
                (idempotency_records::state_version, self.state_version.into()),
            ],
        )?)
    }

    fn row_key(&self) -> Vec<Value> {
        vec![self.owner.as_str().into(), self.key.as_str().into()]
    }

    /// The update that stores the response, with a TTL of `seconds` from `now`. It applies only while nobody took the
    /// record over.
    pub fn complete(&self, answer: &serde_json::Value, now: Timestamp, seconds: i64) -> Result<Update, FinishError> {
        if self.state != RecordState::InFlight {
            return Err(FinishError::Done);
        }
        let set = vec![
            (idempotency_records::state, RecordWord::Done.into()),
            (idempotency_records::answer, Json::encode(answer)?.into()),
            (idempotency_records::expires_at, now.plus_seconds(seconds).into()),
        ];
        Ok(Update::versioned(&IDEMPOTENCY_RECORDS, self.row_key(), self.state_version, set)?)
    }

    /// The step that deletes the record of a request without effect, so that it can be retried.
    #[must_use]
    pub fn abandon(&self) -> Step {
        let is = |column, value| Condition { column, compare: Comparison::Is, value };
        Step::Delete {
            table: &IDEMPOTENCY_RECORDS,
            conditions: vec![
                is(idempotency_records::owner, self.owner.as_str().into()),
                is(idempotency_records::key, self.key.as_str().into()),
                is(idempotency_records::state, RecordWord::InFlight.into()),
                is(idempotency_records::state_version, self.state_version.into()),
            ],
            rows: RowCount::Exactly(1),
        }
    }
}
