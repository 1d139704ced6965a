//! The differences from what the previous request about the same thing showed.

use super::PlannedCall;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One difference. An added call has no `before`, a removed one no `after`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The call and the member of its input: `upload[3]/key`.
    pub place: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

pub(super) fn diff(before: &[PlannedCall], after: &[PlannedCall]) -> Vec<Change> {
    let by_place = |calls: &[PlannedCall]| -> BTreeMap<String, Value> {
        let shown = |call: &PlannedCall| {
            let mut shown = serde_json::Map::new();
            shown.insert("does".to_owned(), call.what.clone().into());
            if let Some(input) = &call.input {
                shown.insert("input".to_owned(), input.clone());
            }
            if !call.alike.is_empty() {
                shown.insert("alike".to_owned(), call.alike.clone().into());
            }
            (call.place.clone(), Value::Object(shown))
        };
        calls.iter().map(shown).collect()
    };
    let (before, after) = (by_place(before), by_place(after));
    let mut changes = Vec::new();
    for (place, old) in &before {
        diff_values(place, Some(old), after.get(place), &mut changes);
    }
    for (place, new) in after.iter().filter(|(place, _)| !before.contains_key(*place)) {
        diff_values(place, None, Some(new), &mut changes);
    }
    changes
}

fn diff_values(place: &str, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    if let (Some(Value::Object(old)), Some(Value::Object(new))) = (before, after) {
        for (name, value) in old {
            diff_values(&format!("{place}/{name}"), Some(value), new.get(name), changes);
        }
        for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            diff_values(&format!("{place}/{name}"), None, Some(value), changes);
        }
        return;
    }
    changes.push(Change { place: place.to_owned(), before: before.cloned(), after: after.cloned() });
}
