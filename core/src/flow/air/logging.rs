//! What a workflow asks the execution log for.

use super::problem::{ProblemCode, Problems};
use super::read::Members;
use crate::limits::EXECUTION_TYPE_CHARS_MAX;
use crate::words::words;
use serde_json::{Map, Value};

words! {
    /// The kind of agent that a run works as.
    AgentType {
        Planner = "planner",
        Worker = "worker",
        Governor = "governor",
    }
}

/// The record that every call of a run leaves in `agent_executions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionLogging {
    pub agent_type: AgentType,
    pub execution_type: String,
}

const EXECUTION_TYPE: &str = "task_execution";

/// The member `log_executions`.
pub(super) fn read_logging(members: &mut Members, out: &mut Problems) -> Option<ExecutionLogging> {
    let mut inner = members.inner("log_executions", out)?;
    let agent_type = match inner.optional_text("agent_type", out) {
        None => AgentType::Worker,
        Some(word) => AgentType::parse(&word).unwrap_or_else(|| {
            let reason = "agent_type must be \"planner\", \"worker\" or \"governor\"";
            out.add(ProblemCode::InvalidValue, inner.path("agent_type"), reason);
            AgentType::Worker
        }),
    };
    let execution_type = inner.optional_text("execution_type", out).unwrap_or_else(|| EXECUTION_TYPE.to_owned());
    if execution_type.is_empty() || execution_type.chars().count() > EXECUTION_TYPE_CHARS_MAX {
        let reason = format!("execution_type has from 1 to {EXECUTION_TYPE_CHARS_MAX} characters");
        out.add(ProblemCode::InvalidValue, inner.path("execution_type"), reason);
    }
    inner.finish(out);
    Some(ExecutionLogging { agent_type, execution_type })
}

impl ExecutionLogging {
    /// The document, without defaults.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        if self.agent_type != AgentType::Worker {
            out.insert("agent_type".to_owned(), self.agent_type.as_str().into());
        }
        if self.execution_type != EXECUTION_TYPE {
            out.insert("execution_type".to_owned(), self.execution_type.as_str().into());
        }
        Value::Object(out)
    }

    /// What a parent run gave its child.
    pub(crate) fn from_stored(value: &Value) -> Option<Self> {
        let mut out = Problems::default();
        let stored = Value::Object(Map::from_iter([("log_executions".to_owned(), value.clone())]));
        read_logging(&mut Members::of(stored, "", &mut out), &mut out)
    }
}
