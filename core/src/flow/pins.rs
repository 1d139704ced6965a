//! The workflow versions that a run, or a patch of it, was admitted with.
//!
//! A node that starts a child workflow may omit its version. The version is then pinned at admission, for all nested
//! workflows at once, so the versions that were judged are the versions that run.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A version for each workflow that is started without an explicit one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(BTreeMap<String, i64>);

impl Pins {
    /// The pinned version of a workflow, or `None` if it is not pinned.
    #[must_use]
    pub fn get(&self, workflow: &str) -> Option<i64> {
        self.0.get(workflow).copied()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Pins a version. An existing pin stays.
    pub fn pin(&mut self, workflow: &str, version: i64) {
        self.0.entry(workflow.to_owned()).or_insert(version);
    }

    /// Adds the pins of `others` for workflows that have none here.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        for (workflow, version) in &others.0 {
            self.pin(workflow, *version);
        }
        self
    }

    /// The stored form.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.0.iter().map(|(workflow, version)| (workflow.clone(), Value::from(*version))).collect()
    }

    /// Reads the stored form. Entries that are not versions are ignored.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let pins = value.as_object().into_iter().flatten();
        Self(pins.filter_map(|(workflow, version)| Some((workflow.clone(), version.as_i64()?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_version_of_a_workflow_counts() {
        let first = Pins::from_value(&json!({"a": 1}));
        let both = first.and(&Pins::from_value(&json!({"a": 2, "b": 3})));
        assert_eq!((both.get("a"), both.get("b"), both.get("c")), (Some(1), Some(3), None));
        assert_eq!(Pins::from_value(&both.to_value()), both);
    }
}
