//! Reads what limits have counted.
//!
//! When a limit is reached, the effects of its writes are looked up: one that failed without effect gives its place back.
//! The calls of a failed effect say whether one of them may have taken effect; then it counts. The row is read before the effects, and it is compared when it is replaced, so an effect that is sent again
//! meanwhile is not lost.

use crate::error::EngineError;
use crate::flow::engine::EngineState;
use crate::rows;
use chimera_core::flow::call::may_have_taken_effect;
use chimera_core::flow::reservation::{Facts, Limit, ReservationRow, Window, WindowKey, reservations};
use chimera_core::flow::run::{EffectStatus, KnownWindows};
use chimera_core::flow::tables::{EffectRow, ToolCallRow, effects, tool_calls};
use chimera_core::limits;
use chimera_core::record::{Scope, StoredRow};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// Effects that are known to keep their place: they succeeded, or may have happened although they failed. They need
/// not be looked up again.
#[derive(Default)]
pub(in crate::flow) struct EffectOutcomes(Mutex<BTreeSet<Uuid>>);

impl EffectOutcomes {
    fn keeps_place(&self, effect: Uuid) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&effect)
    }

    fn keep_place(&self, effect: Uuid) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= limits::SETTLED_EFFECTS_KEPT_MAX {
            known.clear();
        }
        known.insert(effect);
    }
}

/// What the limits on a call have counted. While the store can't be read, it is tried again.
pub(in crate::flow) async fn consult(inner: &EngineState, tenant: &str, limits: &[Limit]) -> Facts {
    let mut pause = limits::STORE_RETRY_PAUSE_FIRST;
    loop {
        match read_windows(inner, tenant, limits).await {
            Ok(facts) => return facts,
            Err(error) => tracing::warn!(%error, "what a limit has counted could not be read"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(limits::STORE_RETRY_PAUSE_MAX);
    }
}

/// What the limits on a call have counted.
pub(in crate::flow) async fn read_windows(
    inner: &EngineState,
    tenant: &str,
    limits: &[Limit],
) -> Result<Facts, EngineError> {
    metrics::counter!("chimera_limits_consulted_total").increment(1);
    let keys: BTreeSet<&WindowKey> = limits.iter().take(limits::CALL_LIMITS_MAX).map(|limit| &limit.key).collect();
    let mut facts = Vec::with_capacity(keys.len());
    for key in keys {
        let is_reached = |window: &Window| {
            let now = inner.parts.clock.steady();
            limits.iter().any(|limit| limit.key == *key && limit.check(window, Uuid::nil(), now).is_err())
        };
        // Another process may have counted more since. If it has, the turn is not committed, and this is read again.
        if let Some(known) = inner.joined.latest(tenant, key).filter(|known| !is_reached(known)) {
            facts.push(known);
            continue;
        }
        let mut window = read_window(inner, tenant, key).await?;
        if is_reached(&window) {
            release_failed(inner, tenant, &mut window).await?;
        }
        facts.push(window);
    }
    Ok(Facts(facts))
}

/// What one window has counted.
pub(super) async fn read_window(inner: &EngineState, tenant: &str, key: &WindowKey) -> Result<Window, EngineError> {
    let select = ReservationRow::select(Scope::Tenant(tenant.to_owned()))
        .with(reservations::subject, key.subject.as_str())
        .with(reservations::window_seconds, i64::from(key.seconds));
    let row: Option<ReservationRow> = rows::find(&*inner.parts.records, select).await?;
    Ok(match row {
        Some(row) => row.window()?,
        None => Window::empty(key.clone()),
    })
}

/// Gives the places of failed writes back.
async fn release_failed(inner: &EngineState, tenant: &str, window: &mut Window) -> Result<(), EngineError> {
    let counted: Vec<Uuid> = window.releasable(inner.parts.clock.steady()).collect();
    for effect in counted.into_iter().filter(|effect| !inner.outcomes.keeps_place(*effect)) {
        let select = EffectRow::select(Scope::Tenant(tenant.to_owned())).with(effects::id, effect);
        let row: Option<EffectRow> = rows::find(&*inner.parts.records, select).await?;
        // Without its row, it counts.
        let Some(EffectRow { step_id: step, status, .. }) = row else { continue };
        match status {
            EffectStatus::Failed if !may_have_happened(inner, tenant, step, effect).await? => window.release(effect),
            EffectStatus::Failed | EffectStatus::Succeeded => inner.outcomes.keep_place(effect),
            // It is in flight, or its outcome is unknown: it counts.
            _ => {}
        }
    }
    Ok(())
}

/// Whether a call of a failed effect may have taken effect, although the last one did not.
async fn may_have_happened(inner: &EngineState, tenant: &str, step: Uuid, effect: Uuid) -> Result<bool, EngineError> {
    let select = ToolCallRow::select(Scope::Tenant(tenant.to_owned())).with(tool_calls::step_id, step);
    let mut may_have = false;
    rows::each(&*inner.parts.records, select, |call: ToolCallRow| {
        if let Some(error) = call.error_data.filter(|_| call.effect_id == Some(effect)) {
            may_have |= may_have_taken_effect(&error.decode()?);
        }
        Ok(())
    })
    .await?;
    Ok(may_have)
}
