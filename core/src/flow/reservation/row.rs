//! The row of a window.

use super::window::{CountedCall, Window, WindowKey};
use crate::record::{DamagedRows, Insert, Json, Unstorable, Update, part, table};
use crate::time::Timestamp;

table! {
    /// What limits have counted, a row per subject and window.
    RESERVATIONS = reservations -> ReservationRow {
        tenant_id: String,
        subject: String,
        window_seconds: i64,
        rule: String,
        entries: Json,
        updated_at: Timestamp,
        expires_at: Timestamp,
        state_version: i64 [default],
    }
    key: [tenant_id, subject, window_seconds],
    tenant: tenant_id,
    rank: 316,
}

part! {
    /// When everything that a row counts has left its window.
    ReservationExpiry of ReservationRow in reservations {
        tenant_id: String,
        subject: String,
        window_seconds: i64,
        expires_at: Timestamp,
    }
}

/// The change that stores a window.
pub enum WindowChange {
    Insert(Insert),
    Update(Update),
}

impl ReservationRow {
    /// The window of this row.
    pub fn window(&self) -> Result<Window, DamagedRows> {
        let key = WindowKey { subject: self.subject.clone(), seconds: u32::try_from(self.window_seconds).unwrap_or(0) };
        Ok(Window::load(key, self.state_version, Json::decode::<Vec<CountedCall>>(&self.entries)?))
    }
}

/// Stores what a window counts now, if its row is still the one that was read.
pub fn window_change(window: &Window, tenant: &str, rule: &str, now: Timestamp) -> Result<WindowChange, Unstorable> {
    let key = window.key();
    let seconds = i64::from(key.seconds);
    let entries = Json::encode(window.entries())?;
    let expires_at = window.entries().last().map_or(now, |entry| entry.at.plus_seconds(seconds));
    let counted = vec![
        (reservations::rule, rule.into()),
        (reservations::entries, entries.into()),
        (reservations::updated_at, now.into()),
        (reservations::expires_at, expires_at.into()),
    ];
    if window.version() > 0 {
        let key = vec![tenant.into(), key.subject.as_str().into(), seconds.into()];
        return Ok(WindowChange::Update(Update::versioned(&RESERVATIONS, key, window.version(), counted)?));
    }
    let mut cells = vec![
        (reservations::tenant_id, tenant.into()),
        (reservations::subject, key.subject.as_str().into()),
        (reservations::window_seconds, seconds.into()),
        (reservations::state_version, window.next_version(now).into()),
    ];
    cells.extend(counted);
    Ok(WindowChange::Insert(Insert::new(&RESERVATIONS, cells)?))
}
