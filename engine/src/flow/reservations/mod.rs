//! Limits over time: reads what they have counted, and commits turns that take places within them.

mod check;
mod join;
mod read;
mod sweep;

pub(crate) use check::{CallTime, check_limits};
pub(super) use join::{JoinedTurns, ReservingTurn, commit};
pub(super) use read::{EffectOutcomes, consult, read_windows};
pub(super) use sweep::sweep;

use chimera_core::flow::reservation::RESERVATIONS;
use chimera_core::limits;
use chimera_core::record::Conflict;
use std::time::Duration;
use uuid::Uuid;

/// How long a run waits before it reads a limit again, `tried` times after it lost a place. The times are spread, so that
/// not all losers come back at once.
pub(super) fn retry_pause(run: Uuid, tried: u32) -> Duration {
    let (_, dice) = run.as_u64_pair();
    let first = limits::RESERVE_RETRY_PAUSE_FIRST;
    let spread = u128::from(dice.rotate_left(tried)) % first.as_micros();
    let pause = first + Duration::from_micros(u64::try_from(spread).unwrap_or_default());
    (pause * tried).min(limits::RESERVE_RETRY_PAUSE_MAX)
}

/// Whether a turn lost a place within a limit to another run. Reading the limit again is all it takes.
pub(super) fn is_contended(conflict: &Conflict) -> bool {
    let table = match conflict {
        Conflict::Exists(row) | Conflict::Stale(row) | Conflict::Missing(row) => row.table,
        Conflict::Rows { table, .. } => table,
    };
    table == RESERVATIONS.name
}
