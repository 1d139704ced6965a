//! What a signing key may be like, and how many there may be.

use super::directory::{Directory, Snapshot};
use super::signing_keys::NewSigningKey;
use crate::error::EngineError;
use chimera_core::access::{Pool, SigningKey};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{
    CLOCK_SKEW_SECONDS, SIGNING_KEY_LABEL_CHARS_MAX, SIGNING_KEY_OVERLAP_SECONDS, SIGNING_KEY_OVERLAP_SECONDS_MAX,
    SIGNING_KEYS_MAX, SIGNING_KEYS_OWN_MIN, SIGNING_KEYS_RECENT_MAX, SIGNING_KEYS_TOTAL_MAX, TENANT_SIGNING_KEYS_MAX,
};
use chimera_core::text::escape_invisible_line;
use chimera_core::time::Timestamp;

/// Checks the label and the validity period of a new key. Returns when it becomes valid.
pub(super) fn check_period(new: &NewSigningKey, now: Timestamp) -> Result<Timestamp, EngineError> {
    check_words("/label", "a label", new.label.as_deref(), SIGNING_KEY_LABEL_CHARS_MAX)?;
    let not_before = new.not_before.unwrap_or(now);
    if not_before < now.plus_seconds(-CLOCK_SKEW_SECONDS) {
        return Err(refused("/not_before", "not_before is in the past; without it the key is valid from now on"));
    }
    let not_before = not_before.max(now);
    if new.expires_at.is_some_and(|expires_at| expires_at <= not_before) {
        return Err(refused("/expires_at", "the key would expire before it becomes valid"));
    }
    Ok(not_before)
}

/// When a key that is replaced at `now` expires.
pub(super) fn overlap_end(overlap_seconds: Option<u32>, now: Timestamp) -> Result<Timestamp, EngineError> {
    let seconds = overlap_seconds.unwrap_or(SIGNING_KEY_OVERLAP_SECONDS);
    if seconds > SIGNING_KEY_OVERLAP_SECONDS_MAX {
        let message = format!("an overlap can have at most {SIGNING_KEY_OVERLAP_SECONDS_MAX} seconds");
        return Err(refused("/overlap_seconds", &message));
    }
    Ok(now.plus_seconds(i64::from(seconds)))
}

/// Refuses an empty, long or unreadable text.
pub(super) fn check_words(pointer: &str, what: &str, words: Option<&str>, chars_max: usize) -> Result<(), EngineError> {
    let Some(words) = words else { return Ok(()) };
    let is_plain = words.trim() == words && escape_invisible_line(words) == words;
    if is_plain && (1..=chars_max).contains(&words.chars().count()) {
        return Ok(());
    }
    let message = format!("{what} must have 1 to {chars_max} printable characters on one line");
    Err(refused(pointer, &message))
}

/// Refuses one more key beyond the limits. `replaced` is a key of the actor as it will be then. No tenant can use up
/// another's share, nor the default tenant's.
pub(super) fn check_limits(
    directory: &Directory,
    snapshot: &Snapshot,
    tenant: &str,
    actor: &str,
    replaced: Option<&SigningKey>,
) -> Result<(), EngineError> {
    let now = directory.parts.clock.now();
    let counts = |key: &SigningKey| match replaced.filter(|replaced| replaced.kid == key.kid) {
        Some(replaced) => replaced.is_usable(now),
        None => key.is_usable(now),
    };
    let (mut usable, mut recent) = (0, 0);
    for key in snapshot.signing_keys.recent(tenant, actor) {
        recent += 1;
        usable += usize::from(counts(key));
    }
    if usable >= SIGNING_KEYS_MAX {
        let message = format!("an actor can have at most {SIGNING_KEYS_MAX} signing keys; revoke one that is not used");
        return Err(refused("/public_key", &message));
    }
    if recent >= SIGNING_KEYS_RECENT_MAX {
        let message =
            format!("the actor has had {SIGNING_KEYS_RECENT_MAX} signing keys within 30 days, which is the limit");
        return Err(refused("/public_key", &message));
    }
    check_totals(directory, snapshot, tenant)
}

fn check_totals(directory: &Directory, snapshot: &Snapshot, tenant: &str) -> Result<(), EngineError> {
    let own = directory.settings.tenant.as_str();
    if snapshot.signing_keys.count(|_| true) >= SIGNING_KEYS_TOTAL_MAX {
        return Err(refused("/public_key", "the registry has no room for another signing key"));
    }
    if tenant == own {
        return Ok(());
    }
    let (taken, held) = (snapshot.signing_keys.count(|of| of != own), snapshot.signing_keys.count(|of| of == tenant));
    let pool = Pool { total: SIGNING_KEYS_TOTAL_MAX - SIGNING_KEYS_OWN_MIN, taken, held };
    if held < TENANT_SIGNING_KEYS_MAX && pool.may_take_slot(true) {
        return Ok(());
    }
    let message = format!("the tenant {} has {held} signing keys, which is its limit", snapshot.slug_of(tenant));
    Err(refused("/public_key", &message))
}

fn refused(pointer: &str, message: &str) -> EngineError {
    ErrorBody::new(Code::ValidationFailed, message).with("pointer", pointer).into()
}
