//! Single-use requests.
//!
//! A request's nonce commits alongside the change it asks for (`alongside.rs`), so both are stored or neither. A request
//! that was refused or lost can be sent again unchanged; one that was executed can't.

use crate::error::EngineError;
use crate::port::{Clock, CommitError, Records};
use chimera_core::access::signature::is_nonce;
use chimera_core::access::tables::{NONCES, nonces};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{CLOCK_SKEW_SECONDS, NONCE_CHARS_MAX};
use chimera_core::record::{Conflict, Insert, Scope, Select, Tx};
use chimera_core::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nonce {
    pub(super) text: String,
    /// When the request claims it was made, if not now: it may become valid later.
    pub(super) made_at: Option<Timestamp>,
}

impl From<String> for Nonce {
    fn from(text: String) -> Self {
        Self { text, made_at: None }
    }
}

/// The nonces of a single-use request.
#[derive(Debug)]
pub(super) struct RequestNonces {
    actor: String,
    nonces: Vec<String>,
    rows: Vec<Insert>,
}

impl RequestNonces {
    /// One nonce for each signature that the request could be replayed with.
    pub(super) fn new(actor: &str, mut nonces: Vec<Nonce>, clock: &dyn Clock) -> Result<Self, ErrorBody> {
        // Of duplicates, keep the one that expires last.
        nonces.sort_by(|a, b| b.cmp(a));
        nonces.dedup_by(|a, b| a.text == b.text);
        let rows = nonces.iter().map(|nonce| nonce_row(actor, nonce, clock)).collect::<Result<_, _>>()?;
        let nonces = nonces.into_iter().map(|nonce| nonce.text).collect();
        Ok(Self { actor: actor.to_owned(), nonces, rows })
    }

    /// The rows of the used nonces.
    pub(super) fn rows(&self) -> &[Insert] {
        &self.rows
    }

    /// Refuses a request that was already executed.
    pub(super) async fn check(&self, records: &dyn Records) -> Result<(), ErrorBody> {
        for nonce in &self.nonces {
            let select = Select::from(&NONCES, Scope::System).with(nonces::actor_id, self.actor.as_str());
            let found = records.read(select.with(nonces::nonce, nonce.as_str()).take(1)).await;
            if !found.map_err(|error| EngineError::from(error).body())?.rows.is_empty() {
                return Err(nonce_used());
            }
        }
        Ok(())
    }

    /// Commits the nonces alone: the request changed nothing.
    pub(super) async fn consume(&self, records: &dyn Records) -> Result<(), ErrorBody> {
        let tx = Tx { inserts: self.rows.clone(), ..Tx::default() };
        records.commit(tx).await.map(drop).map_err(|error| EngineError::from(error).body())
    }
}

/// Whether a transaction failed because its nonce was already used.
pub(crate) fn is_nonce_conflict(error: &CommitError) -> bool {
    matches!(error, CommitError::Conflict(Conflict::Exists(key)) if key.table == NONCES.name)
}

/// The refusal of a request that was already executed.
pub(crate) fn nonce_used() -> ErrorBody {
    ErrorBody::new(Code::ExpiredTtl, "the nonce was already used").with("reason", "nonce_used")
}

/// The row of a used nonce.
pub(super) fn nonce_row(actor: &str, nonce: &Nonce, clock: &dyn Clock) -> Result<Insert, ErrorBody> {
    if !is_nonce(&nonce.text) {
        let message = format!("a nonce must have 1 to {NONCE_CHARS_MAX} characters");
        return Err(ErrorBody::new(Code::SchemaInvalid, message).with("pointer", "/nonce"));
    }
    // A request is fresh within the clock skew in either direction, inclusive. A clock that is set back makes old
    // requests fresh again, so the later clock decides how long the nonce is kept.
    let latest = clock.later().plus_seconds(CLOCK_SKEW_SECONDS);
    let until = nonce.made_at.map_or(latest, |made_at| made_at.max(latest)).plus_seconds(CLOCK_SKEW_SECONDS + 1);
    let cells = vec![
        (nonces::actor_id, actor.into()),
        (nonces::nonce, nonce.text.as_str().into()),
        (nonces::seen_at, clock.now().into()),
        (nonces::expires_at, until.into()),
    ];
    Insert::new(&NONCES, cells).map_err(|_| ErrorBody::new(Code::Internal, "the request could not be processed"))
}
