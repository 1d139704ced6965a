//! What a compiler must be told: which tools and which workflows there are.

use crate::flow::expr::Type;
use crate::json::schema::Schema;
use crate::tool::Spec;
use std::sync::Arc;

/// Tools and workflows by name.
pub trait Catalog {
    /// The tool of this name.
    fn tool(&self, name: &str) -> Option<Arc<Spec>>;
    /// What is known of a workflow; the newest version if none is named.
    fn workflow(&self, id: &str, version: Option<i64>) -> Known;
    /// Why a tool that others have is not here, and what to do about it.
    fn why_absent(&self, _name: &str) -> Option<String> {
        None
    }
    /// Whether a tool that is not here is stood in for: what was stored while it was here can be read then.
    fn stands_in(&self) -> bool {
        false
    }
    /// Names of tools, to guess what a mistyped one was meant to be.
    fn tool_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What is known of a workflow.
#[derive(Clone, Debug)]
pub enum Known {
    /// There is none.
    Missing,
    /// There is one, but not more is known.
    Exists,
    /// There is one.
    Shape {
        /// Schema of its inputs, if it has one.
        inputs: Option<Arc<Schema>>,
        /// Type of its outputs.
        outputs: Type,
    },
}
