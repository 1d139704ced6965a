//! The tools of this process, by name. A tenant has those that are shared with it.

use crate::access::port::{OneTenant, Tenancy};
use crate::flow::port::Tool;
use chimera_core::tool::Spec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every tool that workflows may name.
#[derive(Clone)]
pub struct Registry {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    absent: BTreeMap<String, String>,
    tenancy: Arc<dyn Tenancy>,
}

impl Default for Registry {
    /// No tools, and nobody to keep apart.
    fn default() -> Self {
        Self { tools: BTreeMap::new(), absent: BTreeMap::new(), tenancy: Arc::new(OneTenant) }
    }
}

/// Two tools have one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are two tools with the name {name}")]
pub struct Twice {
    /// The name.
    pub name: String,
}

impl Registry {
    /// The same tools, shared as `tenancy` says.
    #[must_use]
    pub fn shared_by(self, tenancy: Arc<dyn Tenancy>) -> Self {
        Self { tenancy, ..self }
    }

    /// Adds a tool; a name can be given once.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), Twice> {
        let name = tool.spec().name.clone();
        match self.tools.insert(name.clone(), tool) {
            None => Ok(()),
            Some(_) => Err(Twice { name }),
        }
    }

    /// Says why a tool that others have is not here, and what to do about it.
    pub fn lack(&mut self, name: &str, why: &str) {
        self.absent.insert(name.to_owned(), why.to_owned());
    }

    /// Why a tool that others have is not here. How the process is set up is the default tenant's business.
    #[must_use]
    pub fn why_absent(&self, tenant: &str, name: &str) -> Option<&str> {
        self.absent.get(name).filter(|_| self.tenancy.guest(tenant).is_none()).map(String::as_str)
    }

    /// Whether a tenant is another one than that which the process was set up for.
    #[must_use]
    pub(super) fn is_guest(&self, tenant: &str) -> bool {
        self.tenancy.guest(tenant).is_some()
    }

    /// Whether there are several tenants.
    #[must_use]
    pub(super) fn is_shared(&self) -> bool {
        self.tenancy.is_shared()
    }

    /// The tool with this name, if the tenant may use it. One that is not shared is not there.
    #[must_use]
    pub fn tool_of(&self, tenant: &str, name: &str) -> Option<&Arc<dyn Tool>> {
        let tool = self.get(name)?;
        self.tenancy.guest(tenant).is_none_or(|guest| guest.uses_tool(tool.spec())).then_some(tool)
    }

    /// What every tool that a tenant may use says of itself, by name.
    pub fn specs_of(&self, tenant: &str) -> impl Iterator<Item = &Arc<Spec>> {
        let guest = self.tenancy.guest(tenant);
        self.specs().filter(move |spec| guest.as_ref().is_none_or(|guest| guest.uses_tool(spec)))
    }

    /// The tool with this name, whoever may use it: for what is known of calls that were let in.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// What every tool says of itself, by name.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<Spec>> {
        self.tools.values().map(|tool| tool.spec())
    }
}
