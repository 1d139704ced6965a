//! Idempotency keys of runs, as the store knows them: a unique column.
//!
//! A key is unique in the whole store, as the specification says, and yet private to an actor: when another actor
//! already uses the same text, a derived form is stored instead. Others can't compute that form, so they can't claim it
//! first; and nobody can send it, because a key that looks like it is itself stored in derived form.
//!
//! What a duplicate is answered is not decided here; see engine/src/act/idempotency/mod.rs.

use super::Flow;
use super::spans::PARENT_SPAN;
use crate::access::Permit;
use crate::error::EngineError;
use crate::port::CommitError;
use crate::rows;
use chimera_core::access::mac;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::{RunStatus, request_of_row};
use chimera_core::flow::tables::{RunRow, runs};
use chimera_core::ledger::idempotency::{InvalidIdempotencyKey, check_key};
use chimera_core::record::{Conflict, Scope, StoredRow};
use chimera_core::secret::Secret;
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The prefix of the derived form.
const DERIVED_PREFIX: &str = "own:";

/// A client's idempotency key. The derived forms are rarely needed, so they are computed on demand.
#[derive(Clone, Debug)]
pub struct RunKey {
    said: String,
    /// Tenant, actor and key.
    place: String,
    seal: Secret,
}

impl RunKey {
    /// The key that the caller sent.
    pub fn new(seal: &Secret, permit: &Permit, said: &str) -> Result<Self, InvalidIdempotencyKey> {
        check_key(said)?;
        let place = format!("{}\0{}\0{said}", permit.tenant(), permit.actor());
        Ok(Self { said: said.to_owned(), place, seal: seal.clone() })
    }

    /// The key as the client sent it.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The form that a new run is stored under unless another actor holds it; then it is the derived one.
    pub(super) fn first_form(&self) -> String {
        if self.is_derived() { self.derived() } else { self.said.clone() }
    }

    /// Whether it looks like a derived form.
    fn is_derived(&self) -> bool {
        self.said.starts_with(DERIVED_PREFIX)
    }

    /// The derived forms: the current one, and that of earlier versions.
    fn derived_forms(&self) -> [String; 2] {
        [self.derived(), format!("{DERIVED_PREFIX}{}", hex::encode(Sha256::digest(self.place.as_bytes())))]
    }

    /// The derived form, which nobody else can compute.
    pub(crate) fn derived(&self) -> String {
        format!("{DERIVED_PREFIX}{}", mac::sign(&self.seal, format!("idempotency\0{}", self.place).as_bytes()))
    }
}

/// The run that used an idempotency key.
#[derive(Clone, Debug)]
pub struct KeyedRun {
    pub id: Uuid,
    pub status: RunStatus,
    /// The request as its sender gave it to `flow::start`.
    pub request: Value,
}

impl KeyedRun {
    fn of_row(row: &RunRow) -> Result<Self, EngineError> {
        let (mut request, _) = request_of_row(row)?;
        if let Some(members) = request.as_object_mut() {
            members.remove(PARENT_SPAN);
        }
        Ok(Self { id: row.id, status: row.status, request })
    }

    /// The conflict as clients see it.
    pub(crate) fn conflict(&self) -> ErrorBody {
        ErrorBody::new(Code::ConflictIdempotency, format!("idempotency key already used by run {}", self.id))
            .with("run_id", self.id.to_string())
            .with("status", self.status.as_str())
    }
}

/// The caller's run with this idempotency key.
pub async fn find_run_by_key(flow: &Flow, permit: &Permit, key: &RunKey) -> Result<Option<KeyedRun>, EngineError> {
    let said = run_with_key(flow, key.said()).await?;
    match said {
        // The derived form is used only when another actor holds the plain key.
        None if !key.is_derived() => return Ok(None),
        Some(row) if is_requested_by(permit, &row) => return KeyedRun::of_row(&row).map(Some),
        _ => {}
    }
    for form in key.derived_forms() {
        if let Some(row) = run_with_key(flow, &form).await?
            && is_requested_by(permit, &row)
        {
            return KeyedRun::of_row(&row).map(Some);
        }
    }
    Ok(None)
}

/// The run with a key, of any actor: a key is unique in the whole store.
async fn run_with_key(flow: &Flow, key: &str) -> Result<Option<RunRow>, EngineError> {
    let select = RunRow::select(Scope::System).with(runs::idempotency_key, key);
    rows::find(&*flow.inner.parts.records, select).await
}

fn is_requested_by(permit: &Permit, run: &RunRow) -> bool {
    run.tenant_id == permit.tenant() && run.actor == permit.actor()
}

/// Whether a run was refused because the form of its key is taken.
pub(super) fn is_key_taken(error: &EngineError) -> bool {
    matches!(error, EngineError::Commit(CommitError::Conflict(Conflict::Exists(row))) if row.columns == [runs::idempotency_key])
}
