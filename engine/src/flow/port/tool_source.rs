//! Where declared tools come from.

use super::Tool;
use async_trait::async_trait;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tools that an operator declares outside of the program, which may change while it runs.
///
/// **Whole.** What is declared in one file is read as a whole. If it can't be used, the file's last usable content stays,
/// and the problem is reported with every answer until the file is repaired or removed.
/// **Same.** As long as a tool's definition does not change, `read` returns the same `Arc`.
/// **Distinct.** No two tools of one answer that a tenant could see have the same name.
/// **Versions.** The version of a tool contains a digest of its definition: two definitions never share a version.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// Reads what is declared now. What changed since the last answer counts once it stays the same for two answers, so
    /// that nothing is read while it is being written; or `at_once`. An error changes nothing.
    async fn read(&self, at_once: bool) -> Result<Declarations, String>;

    /// The tool of a stored definition, with the version that it had. The error says what is wrong with the document.
    fn restore(&self, document: &Value) -> Result<Arc<dyn Tool>, String>;
}

/// What a source declares.
#[derive(Clone, Default)]
pub struct Declarations {
    pub tools: Vec<DeclaredTool>,
    pub problems: Vec<DeclarationProblem>,
    /// Names of tools that must not be called, declared or not, each with the reason.
    pub disabled: BTreeMap<String, String>,
}

/// A declared tool.
#[derive(Clone)]
pub struct DeclaredTool {
    /// The slug of the tenant whose tool it is; `None` for the tools of the default tenant.
    pub tenant: Option<String>,
    /// The file that declares it, relative to the folder of all files.
    pub file: Arc<str>,
    pub tool: Arc<dyn Tool>,
    /// Its definition. It contains names of secrets and no secret.
    pub document: Arc<Value>,
}

/// A file that can't be used as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeclarationProblem {
    pub file: String,
    pub reason: String,
    /// Whether the tools that it declared before are still in use.
    pub is_in_use: bool,
}
