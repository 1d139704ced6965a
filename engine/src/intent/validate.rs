//! Checks an envelope without doing anything: every finding, and nothing written.

use super::dispatch;
use super::router::IntentRouter;
use super::sighting::Sighting;
use super::stage::{Finding, Stopped};
use super::stages;
use crate::access::Permit;
use crate::error::EngineError;
use serde::Serialize;

/// What would become of an envelope that is sent now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValidationReport {
    /// In the order of the checks: the first one decides the code of a refusal.
    pub findings: Vec<Finding>,
}

/// Keeps what a check found; `None` if it refused.
fn keep<T>(findings: &mut Vec<Finding>, checked: Result<T, Stopped>) -> Result<Option<T>, EngineError> {
    match checked {
        Ok(value) => Ok(Some(value)),
        Err(Stopped::Refused(stage, error)) => {
            findings.push(Finding { stage, error: *error });
            Ok(None)
        }
        Err(Stopped::Failed(error)) => Err(error),
    }
}

/// Checks an envelope by every rule, whether or not an earlier one refuses it.
pub async fn validate(router: &IntentRouter, permit: &Permit, bytes: &[u8]) -> Result<ValidationReport, EngineError> {
    let mut findings = Vec::new();
    let Some(envelope) = keep(&mut findings, stages::read(router, bytes))? else {
        return Ok(ValidationReport { findings });
    };
    let signed = keep(&mut findings, stages::check_signature(router, permit, &envelope))?;
    // Only the holder of the key learns when an envelope was seen.
    let sighting = match &signed {
        Some(key) => Sighting::look(router, &envelope, key.expires_at).await?,
        None => Sighting::default(),
    };
    keep(&mut findings, stages::check_age(router, &envelope, &sighting))?;
    keep(&mut findings, stages::check_idempotency(router, permit, &envelope).await)?;
    let definition = keep(&mut findings, stages::check_args(router, &envelope))?;
    let permit = stages::under_roles(router, permit, &envelope);
    let mut may_look = false;
    if let Some(definition) = &definition {
        may_look = keep(&mut findings, stages::check_rights(&permit, &envelope, definition))?.is_some();
    }
    let policy = keep(&mut findings, stages::check_policy(&envelope))?;
    if let Some(definition) = definition.filter(|_| may_look && policy.is_some() && signed.is_some()) {
        let preview = Box::pin(dispatch::preview(router, &permit, &envelope, &definition)).await;
        keep(&mut findings, preview.map_err(Stopped::of_dispatch))?;
    }
    Ok(ValidationReport { findings })
}
