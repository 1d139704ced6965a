//! The tools of this process, by name.

use crate::port::Tool;
use chimera_core::flow::tool::Spec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every tool that workflows may name.
#[derive(Default, Clone)]
pub struct Registry {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    absent: BTreeMap<String, String>,
}

/// Two tools have one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are two tools with the name {name}")]
pub struct Twice {
    /// The name.
    pub name: String,
}

impl Registry {
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

    /// Why a tool that others have is not here.
    #[must_use]
    pub fn why_absent(&self, name: &str) -> Option<&str> {
        self.absent.get(name).map(String::as_str)
    }

    /// The tool with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// What every tool says of itself, by name.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<Spec>> {
        self.tools.values().map(|tool| tool.spec())
    }
}
