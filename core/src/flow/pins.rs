//! The versions of workflows and declared tools that a run, or a patch of it, was admitted with.
//!
//! A node that starts a child workflow may omit its version. The version is then pinned at admission, for all nested
//! workflows at once, so the versions that were evaluated are the versions that run. Tools that files declare can change
//! while a run goes on, so their versions are pinned too, those of nested workflows included.

use serde_json::Value;
use std::collections::BTreeMap;

/// A version for each workflow that is started without an explicit one, and for each declared tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    workflows: BTreeMap<String, i64>,
    tools: BTreeMap<String, String>,
}

impl Pins {
    /// The pinned version of a workflow, or `None` if it is not pinned.
    #[must_use]
    pub fn get(&self, workflow: &str) -> Option<i64> {
        self.workflows.get(workflow).copied()
    }

    /// The pinned version of a tool, or `None` if it is not pinned.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&str> {
        self.tools.get(name).map(String::as_str)
    }

    /// The pinned tools, by name.
    #[must_use]
    pub const fn tools(&self) -> &BTreeMap<String, String> {
        &self.tools
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workflows.is_empty() && self.tools.is_empty()
    }

    /// Pins a version. An existing pin stays.
    pub fn pin(&mut self, workflow: &str, version: i64) {
        self.workflows.entry(workflow.to_owned()).or_insert(version);
    }

    /// Pins the version of a tool. An existing pin stays.
    pub fn pin_tool(&mut self, name: &str, version: &str) {
        self.tools.entry(name.to_owned()).or_insert_with(|| version.to_owned());
    }

    /// Adds the pins of `others` for workflows and tools that have none here.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        for (workflow, version) in &others.workflows {
            self.pin(workflow, *version);
        }
        self.and_tools(&others.tools)
    }

    /// Adds versions of tools that have none here.
    #[must_use]
    pub fn and_tools(mut self, others: &BTreeMap<String, String>) -> Self {
        for (tool, version) in others {
            self.pin_tool(tool, version);
        }
        self
    }

    /// The stored form of the workflows.
    #[must_use]
    pub fn workflows_value(&self) -> Option<Value> {
        let pins = || self.workflows.iter().map(|(workflow, version)| (workflow.clone(), Value::from(*version)));
        (!self.workflows.is_empty()).then(|| pins().collect())
    }

    /// The stored form of the tools.
    #[must_use]
    pub fn tools_value(&self) -> Option<Value> {
        let pins = || self.tools.iter().map(|(tool, version)| (tool.clone(), Value::from(version.as_str())));
        (!self.tools.is_empty()).then(|| pins().collect())
    }

    /// Reads the stored forms. Entries that are not versions are ignored.
    #[must_use]
    pub fn from_values(workflows: Option<&Value>, tools: Option<&Value>) -> Self {
        let members = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        Self {
            workflows: members(workflows).into_iter().filter_map(|(name, pin)| Some((name, pin.as_i64()?))).collect(),
            tools: read_tools(tools),
        }
    }
}

/// Reads the stored form of tool versions. Entries that are not versions are ignored.
pub(super) fn read_tools(value: Option<&Value>) -> BTreeMap<String, String> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(tool, version)| Some((tool.clone(), version.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pins(workflows: Value, tools: Value) -> Pins {
        Pins::from_values(Some(&workflows), Some(&tools))
    }

    #[test]
    fn the_first_version_of_a_workflow_counts() {
        let both = pins(json!({"a": 1}), json!({})).and(&pins(json!({"a": 2, "b": 3}), json!({})));
        assert_eq!((both.get("a"), both.get("b"), both.get("c")), (Some(1), Some(3), None));
        assert_eq!(Pins::from_values(both.workflows_value().as_ref(), both.tools_value().as_ref()), both);
    }

    #[test]
    fn the_first_version_of_a_tool_counts() {
        let both = pins(json!({"a": 1}), json!({"a": "1+x"})).and(&pins(json!({}), json!({"a": "1+y", "b": "2+z"})));
        assert_eq!((both.tool("a"), both.tool("b"), both.tool("c")), (Some("1+x"), Some("2+z"), None));
        assert_eq!(Pins::from_values(both.workflows_value().as_ref(), both.tools_value().as_ref()), both);
    }
}
