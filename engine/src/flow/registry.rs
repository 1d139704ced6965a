//! The tools of this process, by name. A tenant uses those that are shared with it.

use crate::access::port::{OneTenant, Tenancy};
use crate::flow::port::Tool;
use chimera_core::tool::Spec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All tools that workflows may use.
#[derive(Clone)]
pub struct ToolRegistry {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    absent: BTreeMap<String, String>,
    tenancy: Arc<dyn Tenancy>,
}

impl Default for ToolRegistry {
    /// No tools and a single tenant.
    fn default() -> Self {
        Self { tools: BTreeMap::new(), absent: BTreeMap::new(), tenancy: Arc::new(OneTenant) }
    }
}

/// A tool name that is already registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duplicate tool name {name}")]
pub struct DuplicateTool {
    pub name: String,
}

impl ToolRegistry {
    /// The same tools, shared according to `tenancy`.
    #[must_use]
    pub fn shared_by(self, tenancy: Arc<dyn Tenancy>) -> Self {
        Self { tenancy, ..self }
    }

    /// Adds a tool. Names are unique.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), DuplicateTool> {
        let name = tool.spec().name.clone();
        match self.tools.insert(name.clone(), tool) {
            None => Ok(()),
            Some(_) => Err(DuplicateTool { name }),
        }
    }

    /// Records why a known tool is not available here, and what to do about it.
    pub fn add_absent(&mut self, name: &str, why: &str) {
        self.absent.insert(name.to_owned(), why.to_owned());
    }

    /// Why a known tool is not available here. Only the default tenant learns how the process is set up.
    #[must_use]
    pub fn why_absent(&self, tenant: &str, name: &str) -> Option<&str> {
        self.absent.get(name).filter(|_| self.tenancy.guest(tenant).is_none()).map(String::as_str)
    }

    /// Whether this is not the default tenant.
    #[must_use]
    pub(super) fn is_guest(&self, tenant: &str) -> bool {
        self.tenancy.guest(tenant).is_some()
    }

    #[must_use]
    pub(super) fn is_shared(&self) -> bool {
        self.tenancy.is_shared()
    }

    /// The tool with this name, if it is shared with the tenant.
    #[must_use]
    pub fn tool_of(&self, tenant: &str, name: &str) -> Option<&Arc<dyn Tool>> {
        let tool = self.get(name)?;
        self.tenancy.guest(tenant).is_none_or(|guest| guest.may_use_tool(tool.spec())).then_some(tool)
    }

    /// The specs of all tools that a tenant may use, by name.
    pub fn specs_of(&self, tenant: &str) -> impl Iterator<Item = &Arc<Spec>> {
        let guest = self.tenancy.guest(tenant);
        self.specs().filter(move |spec| guest.as_ref().is_none_or(|guest| guest.may_use_tool(spec)))
    }

    /// The tool with this name, regardless of tenant: for calls that were already authorized.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// The specs of all tools, by name.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<Spec>> {
        self.tools.values().map(|tool| tool.spec())
    }
}
