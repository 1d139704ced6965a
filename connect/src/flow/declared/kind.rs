//! Files that declare tools, and stored definitions of such tools, of either kind: HTTP or workers.

use super::load::{FilePosition, document_of, read};
use super::worker::{self, worker_tools};
use super::{DeclareError, HttpTool, tool, tools};
use crate::flow::toolbox::ToolDependencies;
use chimera_engine::flow::port::Tool;
use serde_json::Value;
use std::sync::Arc;

/// A tool of a file, ready to be called.
#[derive(Clone)]
pub struct FileTool {
    pub tool: Arc<dyn Tool>,
    /// Everything that makes up its version. It contains names of secrets and no secret.
    pub definition: Arc<Value>,
}

enum FileKind {
    Http,
    Workers,
}

impl FileKind {
    fn of(document: &Value, at: &FilePosition<'_>) -> Result<Self, DeclareError> {
        match document.get("kind") {
            None => Ok(Self::Http),
            Some(kind) if kind == worker::KIND => Ok(Self::Workers),
            Some(kind) => {
                Err(at.child("kind").error(format!("{kind} is not known; give \"worker\", or leave it out for HTTP")))
            }
        }
    }
}

impl From<HttpTool> for FileTool {
    fn from(tool: HttpTool) -> Self {
        Self { definition: Arc::clone(tool.definition()), tool: Arc::new(tool) }
    }
}

/// The tools of a file of either kind. The toolbox may override the base URL of an HTTP vendor.
pub fn file_tools(text: &str, origin: &str, toolbox: &ToolDependencies) -> Result<Vec<FileTool>, DeclareError> {
    let at = FilePosition { origin, key: String::new() };
    let document = read(text, &at)?;
    match FileKind::of(&document, &at)? {
        FileKind::Http => Ok(tools(text, origin, toolbox)?.into_iter().map(FileTool::from).collect()),
        FileKind::Workers => worker_tools(&document, &at),
    }
}

/// The tool of a stored definition, with the version that it had when it was stored.
pub fn restore(definition: &Value, toolbox: &ToolDependencies) -> Result<Arc<dyn Tool>, DeclareError> {
    let at = FilePosition { origin: "a stored definition", key: String::new() };
    let document = document_of(definition, &at)?;
    match FileKind::of(&document, &at)? {
        FileKind::Http => Ok(Arc::new(tool::restore(definition, toolbox)?)),
        FileKind::Workers => {
            let restored = worker_tools(&document, &at)?.pop();
            restored.map(|restored| restored.tool).ok_or_else(|| at.child("tool").error("there is none"))
        }
    }
}
