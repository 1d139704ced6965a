//! The expression scope of a draft: outputs are known, unknown or absent.

use crate::error::{Code, ErrorBody};
use crate::flow::air::{Graph, Join};
use crate::flow::expr::{Lookup, Preview, Scope, WorkMeter};
use crate::flow::judgement::no_feedback;
use crate::flow::run::drafting::draft::Draft;
use crate::flow::run::{RunHead, RunPlace};
use crate::json::unstorable_reason;
use crate::limits;
use serde_json::{Value, json};

/// Whether a node would be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reachability {
    Yes,
    /// It depends on values that are not known yet.
    Maybe,
    No,
}

/// The draft, as the expressions of one place see it.
pub(crate) struct DraftScope<'a> {
    head: &'a RunHead,
    graph: &'a Graph,
    draft: &'a Draft,
    id: String,
    item: Option<(&'a Value, usize)>,
    meter: &'a WorkMeter,
}

impl<'a> DraftScope<'a> {
    pub(crate) fn new(
        head: &'a RunHead,
        graph: &'a Graph,
        draft: &'a Draft,
        at: Option<RunPlace>,
        meter: &'a WorkMeter,
    ) -> Self {
        let item = at.and_then(|at| {
            let index = usize::try_from(at.item?).ok()?;
            Some((draft.lists.get(&at.node)?.get(index)?, index))
        });
        Self { head, graph, draft, id: head.id.to_string(), item, meter }
    }

    /// Whether a node would be reached, judging by its incoming edges.
    pub(crate) fn reached(&self, node: usize) -> Result<Reachability, ErrorBody> {
        let incoming = &self.graph.nodes[node].incoming;
        if incoming.is_empty() {
            return Ok(Reachability::Yes);
        }
        let mut best = Reachability::No;
        for edge in incoming {
            let edge = &self.graph.edges[*edge];
            let source = self.draft.reached[edge.from];
            let came = match (source, &edge.condition) {
                (Reachability::No, _) => Reachability::No,
                (source, None) => source,
                (source, Some(condition)) => match condition.preview(self).map_err(|error| unusable(&error))? {
                    Preview::Exact(Value::Bool(false)) => Reachability::No,
                    Preview::Exact(_) => source,
                    Preview::Deferred { .. } => Reachability::Maybe,
                },
            };
            best = match (best, came) {
                (Reachability::Yes, _) | (_, Reachability::Yes) => Reachability::Yes,
                (Reachability::Maybe, _) | (_, Reachability::Maybe) => Reachability::Maybe,
                _ => Reachability::No,
            };
        }
        let _ = Join::All;
        Ok(best)
    }

    /// The inputs of a node, as far as known.
    pub(crate) fn inputs_of(&self, node: usize) -> Result<Preview, ErrorBody> {
        match &self.graph.nodes[node].inputs {
            None => Ok(Preview::Exact(json!({}))),
            Some(template) => template.preview(self).map_err(|error| unusable(&error)),
        }
    }

    /// The list of a map node, if it is known.
    pub(crate) fn list_of(&self, node: usize) -> Result<Option<Vec<Value>>, ErrorBody> {
        let Some(template) = &self.graph.nodes[node].over else { return Ok(None) };
        match template.preview(self).map_err(|error| unusable(&error))? {
            Preview::Deferred { .. } => Ok(None),
            Preview::Exact(Value::Array(list)) if list.len() <= limits::MAP_ITEMS_MAX => Ok(Some(list)),
            Preview::Exact(_) => {
                let message = format!("a map needs a list of at most {} items", limits::MAP_ITEMS_MAX);
                Err(ErrorBody::new(Code::ValidationFailed, message))
            }
        }
    }
}

fn unusable(error: &dyn std::fmt::Display) -> ErrorBody {
    ErrorBody::new(Code::ValidationFailed, format!("an expression can't be evaluated: {error}"))
}

impl Scope for DraftScope<'_> {
    fn run_id(&self) -> &str {
        &self.id
    }

    fn inputs(&self) -> &Value {
        &self.head.inputs
    }

    fn outputs(&self, node: &str) -> Lookup<'_> {
        let Some(at) = self.graph.position(node) else { return Lookup::Absent };
        match (self.draft.outputs.get(&at), self.draft.reached.get(at)) {
            (Some(output), _) => Lookup::Known(output),
            (None, Some(Reachability::Yes | Reachability::Maybe)) => Lookup::Unknown,
            _ => Lookup::Absent,
        }
    }

    fn judge(&self) -> Option<&Value> {
        Some(no_feedback())
    }

    fn item(&self) -> Option<(&Value, usize)> {
        self.item
    }

    fn meter(&self) -> &WorkMeter {
        self.meter
    }

    fn refusal(&self, value: &Value) -> Option<String> {
        unstorable_reason(value)
    }
}
