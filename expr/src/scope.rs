//! What an expression can see of a run.

use crate::meter::WorkMeter;
use serde_json::Value;

/// What is known of a node's outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup<'a> {
    /// These.
    Known(&'a Value),
    /// There will be some, but they are not known yet: they lie behind a mock.
    Unknown,
    /// There are none: the node has not run or was skipped. Reads as null.
    Absent,
}

/// The variables of an expression, looked up when it asks for them.
///
/// Outputs need not carry `success` and `error`: where they are absent, they read as `true` and
/// null. A failed node's outputs are `{"success": false, "error": {…}}`.
pub trait Scope {
    /// The run's id; empty while it is not known yet.
    fn run_id(&self) -> &str;
    /// The run's inputs.
    fn inputs(&self) -> &Value;
    /// The outputs of a node.
    fn outputs(&self, node: &str) -> Lookup<'_>;
    /// The item and its index, inside a map; nothing while the map's list is not known yet.
    fn item(&self) -> Option<(&Value, usize)>;
    /// What the work of the expression is charged to.
    fn meter(&self) -> &WorkMeter;
    /// Why a rendered value can't be kept; nothing if it can.
    fn refusal(&self, _value: &Value) -> Option<String> {
        None
    }
    /// Whether the inputs were previewed themselves, so that `{"$deferred": …}` in them stands for what is
    /// not known yet. Whatever depends on that is not known either.
    fn has_deferred_inputs(&self) -> bool {
        false
    }
}

/// A scope without anything, for expressions that need nothing.
pub(crate) struct Nothing(pub(crate) WorkMeter);

impl Scope for Nothing {
    fn run_id(&self) -> &str {
        ""
    }

    fn inputs(&self) -> &Value {
        &Value::Null
    }

    fn outputs(&self, _: &str) -> Lookup<'_> {
        Lookup::Absent
    }

    fn item(&self) -> Option<(&Value, usize)> {
        None
    }

    fn meter(&self) -> &WorkMeter {
        &self.0
    }
}
