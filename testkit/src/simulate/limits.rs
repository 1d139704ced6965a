//! Limits over time in a simulation: three tools are limited, one of which workers execute, and every commit is checked.
//!
//! * a limited call is dispatched only together with its entry in the row of its window
//! * no row counts more than its limit
//! * an entry leaves its row only when its time is over, or because its effect failed
//! * a row is deleted only when nothing in it counts any more

use crate::memory::RowChange;
use chimera_core::flow::reservation::{CountedCall, ReservationRow};
use chimera_core::flow::run::EffectStatus;
use chimera_core::flow::status::EffectPurpose;
use chimera_core::flow::tables::EffectRow;
use chimera_core::record::StoredRow;
use chimera_core::time::Timestamp;
use chimera_engine::act::rules::{Rule, Rules};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Limited tools: the rule, the tool, the most calls, and the seconds of the window.
const LIMITED: [(&str, &str, usize, i64); 3] =
    [("firm calls", "firm", 3, 60), ("fixed calls", "fixed", 2, 20), ("chore calls", "chore", 2, 40)];

/// The rules of every simulated node.
#[must_use]
pub(super) fn rules() -> Rules {
    let rule = |(name, tool, count, seconds): (&str, &str, usize, i64)| {
        let at_most = json!({"count": count, "per": format!("{seconds}s")});
        let rule = json!({"name": name, "tool": tool, "effect": "limit", "at_most": at_most});
        serde_json::from_value::<Rule>(rule).expect("a rule")
    };
    Rules(LIMITED.map(rule).into())
}

/// What was committed about limited calls.
#[derive(Default)]
pub(super) struct LimitChecker {
    failed: BTreeSet<Uuid>,
    /// The entries of each rule's row.
    counted: BTreeMap<String, Vec<CountedCall>>,
    /// Calls that were dispatched in this batch, with their tool.
    dispatched: Vec<(Uuid, String)>,
    /// Entries that left a row in this batch before their time.
    left: Vec<Uuid>,
}

impl LimitChecker {
    /// Looks at a changed effect.
    pub(super) fn effect(&mut self, changed: RowChange<'_>) {
        let Some(Ok(row)) = changed.after.map(EffectRow::peek) else { return };
        if row.kind == EffectPurpose::Compensation || !LIMITED.iter().any(|(_, tool, ..)| *tool == row.tool) {
            return;
        }
        match row.status {
            EffectStatus::Failed => drop(self.failed.insert(row.id)),
            EffectStatus::Dispatched => {
                self.failed.remove(&row.id);
                self.dispatched.push((row.id, row.tool));
            }
            _ => drop(self.failed.remove(&row.id)),
        }
    }

    /// Looks at a changed window.
    pub(super) fn window(&mut self, changed: RowChange<'_>, now: Timestamp) -> Option<String> {
        let read = |row| ReservationRow::peek(row).expect("a row of a window");
        let entries = |row: &ReservationRow| row.window().expect("a window").entries().to_vec();
        let before = changed.before.map(read);
        let Some(after) = changed.after.map(read) else {
            let before = before?;
            self.counted.remove(&before.rule);
            let is_over = before.expires_at <= now;
            return (!is_over).then(|| format!("the window of {} was deleted while it counts", before.rule));
        };
        let counted = entries(&after);
        let (_, _, most, seconds) = LIMITED.iter().find(|(rule, ..)| *rule == after.rule)?;
        let latest = counted.last()?.at;
        let counts = |entry: &&CountedCall| entry.at.plus_seconds(*seconds) > latest;
        let gone = before.iter().flat_map(entries).filter(|entry| counts(&entry)).filter_map(|entry| entry.effect);
        self.left.extend(gone.filter(|effect| !counted.iter().any(|entry| entry.effect == Some(*effect))));
        let used = counted.iter().filter(counts).count();
        let wrong = (used > *most).then(|| format!("{used} calls are counted by {}, which allows {most}", after.rule));
        self.counted.insert(after.rule, counted);
        wrong
    }

    /// Checks a complete batch.
    pub(super) fn committed(&mut self) -> Vec<String> {
        let (dispatched, left) = (std::mem::take(&mut self.dispatched), std::mem::take(&mut self.left));
        let is_counted = |effect: Uuid, tool: &str| {
            let rule = LIMITED.iter().find(|(_, limited, ..)| *limited == tool).map_or("", |(rule, ..)| rule);
            self.counted.get(rule).is_some_and(|entries| entries.iter().any(|entry| entry.effect == Some(effect)))
        };
        let uncounted = dispatched.iter().filter(|(effect, tool)| !is_counted(*effect, tool));
        let lost = left.iter().filter(|effect| !self.failed.contains(effect));
        let uncounted = uncounted.map(|(effect, tool)| format!("the call {effect} of {tool} is not counted"));
        uncounted.chain(lost.map(|effect| format!("the call {effect} is no longer counted"))).collect()
    }
}
