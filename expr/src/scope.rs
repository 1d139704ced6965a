//! What an expression can read of a run.

use crate::meter::WorkMeter;
use serde_json::Value;

/// What is known of a node's outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup<'a> {
    Known(&'a Value),
    /// Not available yet: the node is mocked in a preview.
    Unknown,
    /// The node has not run or was skipped. Reads as null.
    Absent,
}

/// A step, as the checks of its judge see it.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The resolved input.
    pub input: &'a Value,
    /// The output, if the step has run.
    pub output: Option<&'a Value>,
}

/// The variables of an expression, looked up on demand.
///
/// Outputs may omit `success` and `error`: absent, they read as `true` and
/// null. A failed node's outputs are `{"success": false, "error": {…}}`.
pub trait Scope {
    /// Empty while the id is not known yet.
    fn run_id(&self) -> &str;
    fn inputs(&self) -> &Value;
    fn outputs(&self, node: &str) -> Lookup<'_>;
    /// The item and its index inside a map. `None` while the map's list is not known yet.
    fn item(&self) -> Option<(&Value, usize)>;
    /// What a judge decides on. `None` outside the checks of a judge.
    fn judged(&self) -> Option<Judged<'_>> {
        None
    }
    /// What earlier judgements of the step say. `None` for a step without a judge.
    fn judge(&self) -> Option<&Value> {
        None
    }
    /// The meter that evaluation work is charged to.
    fn meter(&self) -> &WorkMeter;
    /// Why a rendered value is refused, or `None` if it is accepted.
    fn refusal(&self, _value: &Value) -> Option<String> {
        None
    }
    /// Whether the inputs are themselves a preview. `{"$deferred": …}` in them then marks an unknown value,
    /// and everything that depends on it is unknown too.
    fn has_deferred_inputs(&self) -> bool {
        false
    }
}

/// An empty scope, for constant expressions.
pub(crate) struct EmptyScope(pub(crate) WorkMeter);

impl Scope for EmptyScope {
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
