//! A run's values, as a scope for rendering tests.

use chimera_expr::limits::EXPRESSION_WORK_MAX;
use chimera_expr::{Lookup, Preview, RenderError, Scope, Template, WorkMeter};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Default)]
pub(crate) struct Run {
    pub(crate) inputs: Value,
    pub(crate) outputs: BTreeMap<String, Option<Value>>,
    pub(crate) item: Option<(Value, usize)>,
}

impl Run {
    pub(crate) fn of(inputs: Value) -> Self {
        Self { inputs, ..Self::default() }
    }

    pub(crate) fn node(mut self, id: &str, outputs: Value) -> Self {
        self.outputs.insert(id.to_owned(), Some(outputs));
        self
    }

    pub(crate) fn unknown(mut self, id: &str) -> Self {
        self.outputs.insert(id.to_owned(), None);
        self
    }

    pub(crate) fn render(&self, template: Value) -> Result<Value, RenderError> {
        Template::compile(&template).unwrap().render(self)
    }

    pub(crate) fn preview(&self, template: Value) -> Preview {
        Template::compile(&template).unwrap().preview(self).unwrap()
    }
}

static METER: WorkMeter = WorkMeter::lenient(EXPRESSION_WORK_MAX);

impl Scope for Run {
    fn run_id(&self) -> &str {
        "7f3a"
    }

    fn inputs(&self) -> &Value {
        &self.inputs
    }

    fn outputs(&self, node: &str) -> Lookup<'_> {
        match self.outputs.get(node) {
            Some(Some(value)) => Lookup::Known(value),
            Some(None) => Lookup::Unknown,
            None => Lookup::Absent,
        }
    }

    fn item(&self) -> Option<(&Value, usize)> {
        self.item.as_ref().map(|(item, index)| (item, *index))
    }

    fn meter(&self) -> &WorkMeter {
        &METER
    }
}
