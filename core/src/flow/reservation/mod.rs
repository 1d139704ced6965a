//! Limits over time: how often, or up to which sum, something may be done within a sliding window.
//!
//! A rule declares its limits on a call as data ([`Limit`]). The calls that a limit has counted are one row per subject
//! and window. The run reads these rows before it makes the call (`Consult`), [`Window::check`] decides, and the
//! transaction that dispatches the call also replaces the rows, compared by their versions. So two nodes can't both use
//! the last free place.
//!
//! Nothing has to be written when the call ends: the row of its effect says how it ended. A write that failed
//! without effect gives its place back when somebody needs it ([`Window::release`]); whether one of its calls may have
//! taken effect all the same, their rows say. Everything else stays counted until
//! it leaves the window. A crash between the two leaves nothing to clean up.

mod amount;
mod row;
mod window;

pub use amount::{AmountError, format_amount, parse_amount};
pub use row::{RESERVATIONS, ReservationExpiry, ReservationRow, WindowChange, reservations, window_change};
pub use window::{CountedCall, LimitReached, Window, WindowKey};

use super::approval::ApprovalRequirement;
use crate::error::{Code, ErrorBody};
use crate::json::Digest32;
use crate::limits::CALL_LIMITS_MAX;
use crate::time::Timestamp;
use serde_json::json;
use std::fmt;
use uuid::Uuid;

/// What a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Calls.
    Count,
    /// The value at this JSON pointer of the input, in millionths.
    Sum { of: String },
}

/// What happens to a call beyond a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeyondLimit {
    Deny,
    /// It is made after approval, and counted.
    Ask(ApprovalRequirement),
}

/// One limit on one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The rule that declares it.
    pub rule: String,
    pub key: WindowKey,
    pub measure: Measure,
    /// The largest total within the window.
    pub most: i64,
    /// What this call adds, or why that can't be read from its input. Such a call is denied.
    pub amount: Result<i64, String>,
    pub beyond: BeyondLimit,
}

impl Limit {
    /// Whether the call fits into the window.
    pub fn check(&self, window: &Window, effect: Uuid, now: Timestamp) -> Result<(), BeyondReason> {
        let amount = self.amount.clone().map_err(BeyondReason::Unreadable)?;
        window.check(effect, amount, self.most, now).map_err(BeyondReason::Reached)
    }

    /// Why the call is refused, with what to do.
    #[must_use]
    pub fn refusal(&self, why: &BeyondReason) -> String {
        let Self { rule, most, .. } = self;
        let per = format_window(self.key.seconds);
        let allowed = match &self.measure {
            Measure::Count => format!("at most {most} {} per {per}", if *most == 1 { "call" } else { "calls" }),
            Measure::Sum { of } => format!("a sum of {of} of at most {} per {per}", format_amount(*most)),
        };
        match why {
            BeyondReason::Unreadable(why) => format!("the rule {rule} allows {allowed}, and {why}"),
            BeyondReason::Reached(LimitReached { free_at: Some(at), .. }) => {
                format!("the rule {rule} allows {allowed}; try again after {at}")
            }
            BeyondReason::Reached(LimitReached { free_at: None, .. }) => {
                format!("the rule {rule} allows {allowed}, and this call alone is more")
            }
        }
    }

    /// The error of a call that the limit denies.
    #[must_use]
    pub fn error(&self, why: &BeyondReason) -> ErrorBody {
        let shown = |amount: i64| match self.measure {
            Measure::Count => json!(amount),
            Measure::Sum { .. } => json!(format_amount(amount)),
        };
        let mut limit = json!({"most": shown(self.most), "window_seconds": self.key.seconds});
        if let Measure::Sum { of } = &self.measure {
            limit["of"] = of.as_str().into();
        }
        if let BeyondReason::Reached(LimitReached { used, free_at }) = why {
            limit["used"] = shown(*used);
            limit["free_at"] = json!(free_at);
        }
        ErrorBody::new(Code::PolicyDenied, self.refusal(why)).with("rule", self.rule.as_str()).with("limit", limit)
    }
}

/// Why a call is beyond a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeyondReason {
    Reached(LimitReached),
    /// What the call adds can't be read.
    Unreadable(String),
}

impl BeyondReason {
    /// The call has more limits than are read for one.
    #[must_use]
    pub fn too_many_limits() -> Self {
        Self::Unreadable(format!("a call has at most {CALL_LIMITS_MAX} limits"))
    }

    /// Whether the same call is beyond the limit at any time.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::Unreadable(_) | Self::Reached(LimitReached { free_at: None, .. }))
    }
}

/// A place in a window that a dispatched call takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub key: WindowKey,
    /// The rule that declares the limit.
    pub rule: String,
    pub most: i64,
    pub entry: CountedCall,
    /// It was approved beyond the limit.
    pub is_approved_beyond: bool,
}

/// What was read for the limits on a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts(pub Vec<Window>);

impl Facts {
    /// Identifies in the ledger what a decision was based on.
    #[must_use]
    pub fn digest<'a>(windows: impl IntoIterator<Item = &'a Window>) -> Digest32 {
        // The version and the last entry tell the states of a row apart.
        let read = windows.into_iter().map(|window| {
            let (key, entries) = (window.key(), window.entries());
            json!([key.subject, key.seconds, window.version(), entries.len(), entries.last()])
        });
        Digest32::of(&read.collect::<Vec<_>>().into())
    }
}

/// A duration in its largest whole unit.
#[must_use]
pub fn format_window(seconds: u32) -> impl fmt::Display {
    let (number, unit) = match seconds {
        seconds if seconds.is_multiple_of(86_400) => (seconds / 86_400, "d"),
        seconds if seconds.is_multiple_of(3_600) => (seconds / 3_600, "h"),
        seconds if seconds.is_multiple_of(60) => (seconds / 60, "min"),
        seconds => (seconds, "s"),
    };
    format!("{number} {unit}")
}
