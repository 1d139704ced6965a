//! The tools and workflows that the compiler resolves names against.

use crate::flow::expr::Type;
use crate::json::schema::Schema;
use crate::tool::Spec;
use std::sync::Arc;

pub trait Catalog {
    fn tool(&self, name: &str) -> Option<Arc<Spec>>;
    /// What is known of a workflow. Without a version, of the newest one.
    fn workflow(&self, id: &str, version: Option<i64>) -> WorkflowInfo;
    /// Why a tool that exists elsewhere is not configured here, and what to do about it.
    fn unavailable_reason(&self, _name: &str) -> Option<String> {
        None
    }
    /// Whether a missing tool is replaced by a placeholder, so that workflows stored while it was configured can still
    /// be read.
    fn allows_placeholders(&self) -> bool {
        false
    }
    /// Why a placeholder replaces a tool, and what to do about it, if there is more to say than that it is not
    /// configured.
    fn absence_reason(&self, _name: &str) -> Option<String> {
        None
    }
    /// Why a call of this tool may not be made now, although the graph has it: an operator disabled it, or it is not
    /// shared with the tenant any more.
    fn refusal(&self, _tool: &Spec) -> Option<String> {
        None
    }
    /// All tool names, for suggestions.
    fn tool_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What is known of a workflow.
#[derive(Clone, Debug)]
pub enum WorkflowInfo {
    Missing,
    /// It exists, but its interface is not known.
    Exists,
    /// It exists with this interface.
    Interface {
        inputs: Option<Arc<Schema>>,
        outputs: Type,
    },
}
