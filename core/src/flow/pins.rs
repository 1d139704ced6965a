//! The versions of workflows that somebody looked at before a run, or a patch of it, was let in.
//!
//! A node that starts a workflow need not name its version. Which one that was is fixed when it is decided what the
//! run may do, for all workflows within each other at once: what was looked at is what runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A version for each workflow that is started without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(BTreeMap<String, i64>);

impl Pins {
    /// The version of a workflow; none: nobody looked at it.
    #[must_use]
    pub fn get(&self, workflow: &str) -> Option<i64> {
        self.0.get(workflow).copied()
    }

    /// Whether nobody looked at any workflow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fixes a version, unless there is one.
    pub fn pin(&mut self, workflow: &str, version: i64) {
        self.0.entry(workflow.to_owned()).or_insert(version);
    }

    /// These, and others for workflows that have none here.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        for (workflow, version) in &others.0 {
            self.pin(workflow, *version);
        }
        self
    }

    /// As it is stored.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.0.iter().map(|(workflow, version)| (workflow.clone(), Value::from(*version))).collect()
    }

    /// Reads them back; what is no version of anything is left out.
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
