//! The tools of this process, by name. A tenant uses those that are shared with it, and its own.
//!
//! Built-in tools never change. Declared tools do: a reload replaces the whole [`ToolSet`] at once, so whoever takes a
//! snapshot sees one consistent set. Definitions that were replaced stay callable for the runs that began with them.

use super::superseded_tools::{DefinitionKey, SupersededTools};
use crate::access::port::{OneTenant, Tenancy};
use crate::flow::port::{DeclarationProblem, Declarations, DeclaredTool, Tool, ToolSource};
use arc_swap::{ArcSwap, Guard};
use chimera_core::tool::Spec;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All tools that workflows may use.
pub struct ToolRegistry {
    current: ArcSwap<ToolSet>,
    tenancy: Arc<dyn Tenancy>,
    pub(super) declared: Option<DeclaredBy>,
    superseded: Mutex<SupersededTools>,
    /// One reload at a time.
    pub(super) reloading: tokio::sync::Mutex<()>,
}

/// Where declared tools come from.
pub(super) struct DeclaredBy {
    pub(super) source: Arc<dyn ToolSource>,
    /// The default tenant, who owns the tools that belong to no other.
    pub(super) home: String,
}

/// The tools at one moment.
#[derive(Clone, Default)]
pub struct ToolSet {
    /// Grows with every change.
    pub(super) generation: u64,
    fixed: BTreeMap<String, Arc<dyn Tool>>,
    /// By owner and name.
    pub(super) declared: BTreeMap<String, BTreeMap<String, DeclaredTool>>,
    absent: BTreeMap<String, String>,
    disabled: BTreeMap<String, String>,
    pub(super) problems: Vec<DeclarationProblem>,
    /// Whether the store has every declared definition.
    pub(super) is_recorded: bool,
}

impl Default for ToolRegistry {
    /// No tools and a single tenant.
    fn default() -> Self {
        Self {
            current: ArcSwap::default(),
            tenancy: Arc::new(OneTenant),
            declared: None,
            superseded: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
        }
    }
}

/// A tool name that is already registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duplicate tool name {name}")]
pub struct DuplicateTool {
    pub name: String,
}

/// Where a tool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// It is part of the program.
    BuiltIn,
    /// The operator declared it in a file.
    Declared,
    /// The operator declared it for this tenant alone.
    Tenant,
}

impl ToolOrigin {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built_in",
            Self::Declared => "declared",
            Self::Tenant => "tenant",
        }
    }
}

/// A definition that can be called now, or why not.
pub(super) enum Callable {
    Tool(Arc<dyn Tool>),
    /// It was replaced or removed, and is not in memory.
    Stored,
    /// Nobody may call it.
    Refused(String),
}

impl ToolSet {
    /// The tool that a tenant's workflows mean by this name, whether or not it is shared with the tenant.
    fn find(&self, home: Option<&str>, tenant: &str, name: &str) -> Option<(&Arc<dyn Tool>, ToolOrigin)> {
        if let Some(tool) = self.fixed.get(name) {
            return Some((tool, ToolOrigin::BuiltIn));
        }
        let of = |owner: &str| Some(&self.declared.get(owner)?.get(name)?.tool);
        if let Some(tool) = home.and_then(of) {
            return Some((tool, ToolOrigin::Declared));
        }
        of(tenant).map(|tool| (tool, ToolOrigin::Tenant))
    }

    fn names<'a>(&'a self, home: Option<&'a str>, tenant: &'a str) -> impl Iterator<Item = &'a String> {
        let own = (Some(tenant) != home).then(|| self.declared.get(tenant)).flatten();
        let declared = home.and_then(|home| self.declared.get(home)).into_iter().chain(own);
        self.fixed.keys().chain(declared.flat_map(BTreeMap::keys))
    }

    /// Whether a name belongs to a tool that is part of the program. The definition of such a tool never changes.
    pub(super) fn is_built_in(&self, name: &str) -> bool {
        self.fixed.contains_key(name)
    }

    /// Why an operator forbids to call a tool.
    pub(super) fn why_disabled(&self, name: &str) -> Option<&str> {
        self.disabled.get(name).map(String::as_str)
    }

    /// The tools that an operator forbids to call.
    pub(super) fn disabled(&self) -> impl Iterator<Item = &str> {
        self.disabled.keys().map(String::as_str)
    }

    fn refusal_if_disabled(&self, name: &str) -> Option<String> {
        Some(format!("tool {name}: {}", disabled(self.why_disabled(name)?)))
    }
}

impl ToolRegistry {
    /// The same tools, shared according to `tenancy`.
    #[must_use]
    pub fn shared_by(self, tenancy: Arc<dyn Tenancy>) -> Self {
        Self { tenancy, ..self }
    }

    /// The same tools and those of a source, which belong to the tenant `home` unless they name another.
    #[must_use]
    pub fn declared_by(self, source: Arc<dyn ToolSource>, home: &str) -> Self {
        Self { declared: Some(DeclaredBy { source, home: home.to_owned() }), ..self }
    }

    /// Adds a tool that is part of the program. Names are unique.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), DuplicateTool> {
        let name = tool.spec().name.clone();
        let mut set = self.set();
        if set.fixed.insert(name.clone(), tool).is_some() {
            return Err(DuplicateTool { name });
        }
        self.current.store(Arc::new(set));
        Ok(())
    }

    /// Records why a known tool is not available here, and what to do about it.
    pub fn add_absent(&mut self, name: &str, why: &str) {
        let mut set = self.set();
        set.absent.insert(name.to_owned(), why.to_owned());
        self.current.store(Arc::new(set));
    }

    fn set(&self) -> ToolSet {
        (**self.current.load()).clone()
    }

    fn home(&self) -> Option<&str> {
        self.declared.as_ref().map(|declared| declared.home.as_str())
    }

    /// The tools at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Guard<Arc<ToolSet>> {
        self.current.load()
    }

    pub(super) fn superseded(&self) -> MutexGuard<'_, SupersededTools> {
        self.superseded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a known tool is not available here. Only the default tenant learns how the process is set up.
    #[must_use]
    pub fn why_absent(&self, tenant: &str, name: &str) -> Option<String> {
        let set = self.snapshot();
        if let Some(reason) = set.disabled.get(name) {
            return Some(disabled(reason));
        }
        set.absent.get(name).filter(|_| self.tenancy.guest(tenant).is_none()).cloned()
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

    /// The current tool with this name, if the tenant may use it.
    #[must_use]
    pub fn tool_of(&self, tenant: &str, name: &str) -> Option<Arc<dyn Tool>> {
        self.tool_in(&self.snapshot(), tenant, name).map(|(tool, _)| Arc::clone(tool))
    }

    /// The same in a snapshot, with where the tool comes from.
    pub(super) fn tool_in<'a>(
        &self,
        set: &'a ToolSet,
        tenant: &str,
        name: &str,
    ) -> Option<(&'a Arc<dyn Tool>, ToolOrigin)> {
        let (tool, origin) = set.find(self.home(), tenant, name)?;
        let may_use = self.may_use(tenant, origin, tool.spec()) && !set.disabled.contains_key(name);
        may_use.then_some((tool, origin))
    }

    /// The spec of a tool in a snapshot: of one that the tenant may use or, without a tenant, of any.
    pub(super) fn spec_in(&self, set: &ToolSet, tenant: Option<&str>, name: &str) -> Option<Arc<Spec>> {
        let found = match tenant {
            Some(tenant) => self.tool_in(set, tenant, name),
            None => set.find(self.home(), self.home().unwrap_or_default(), name),
        };
        found.map(|(tool, _)| Arc::clone(tool.spec()))
    }

    /// All tools that a tenant may use at this moment, by name, with where they come from.
    #[must_use]
    pub fn tools_of(&self, tenant: &str) -> Vec<(Arc<Spec>, ToolOrigin)> {
        let set = self.snapshot();
        let names = set.names(self.home(), tenant);
        let found = names.filter_map(|name| self.tool_in(&set, tenant, name));
        let mut found: Vec<_> = found.map(|(tool, origin)| (Arc::clone(tool.spec()), origin)).collect();
        found.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        found
    }

    /// The specs of all tools that a tenant may use, by name.
    #[must_use]
    pub fn specs_of(&self, tenant: &str) -> Vec<Arc<Spec>> {
        self.tools_of(tenant).into_iter().map(|(spec, _)| spec).collect()
    }

    /// The current tool with this name, whether or not it is shared with the tenant: for calls that were already
    /// authorized.
    #[must_use]
    pub fn get(&self, tenant: &str, name: &str) -> Option<Arc<dyn Tool>> {
        self.snapshot().find(self.home(), tenant, name).map(|(tool, _)| Arc::clone(tool))
    }

    /// The specs of the default tenant's tools, by name.
    #[must_use]
    pub fn specs(&self) -> Vec<Arc<Spec>> {
        let set = self.snapshot();
        let declared = self.home().and_then(|home| set.declared.get(home)).into_iter().flat_map(BTreeMap::values);
        let fixed = set.fixed.values().map(|tool| Arc::clone(tool.spec()));
        let mut specs: Vec<_> = fixed.chain(declared.map(|declared| Arc::clone(declared.tool.spec()))).collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        specs
    }

    /// A definition, in exactly this version, if it is in memory. A built-in tool has one version.
    pub(super) fn exact(&self, tenant: &str, name: &str, version: &str) -> Option<(Arc<dyn Tool>, ToolOrigin)> {
        let set = self.snapshot();
        match set.find(self.home(), tenant, name) {
            Some((tool, origin)) if origin == ToolOrigin::BuiltIn || tool.spec().version == version => {
                Some((Arc::clone(tool), origin))
            }
            _ => self.keys(tenant, name, version).find_map(|key| {
                let tool = self.superseded().get(&key)?;
                Some((tool, self.origin_of(&key)))
            }),
        }
    }

    /// The version that new runs of a tenant use, if there is one.
    pub(super) fn current_version(&self, tenant: &str, name: &str) -> Option<String> {
        Some(self.tool_of(tenant, name)?.spec().version.clone())
    }

    /// Under which a definition may be kept: as the tenant's own or as the default tenant's.
    pub(super) fn keys(&self, tenant: &str, name: &str, version: &str) -> impl Iterator<Item = DefinitionKey> {
        let key =
            |owner: &str| DefinitionKey { owner: owner.to_owned(), name: name.to_owned(), version: version.to_owned() };
        let home = self.home().filter(|home| *home != tenant).map(key);
        self.home().map(|_| key(tenant)).into_iter().chain(home)
    }

    /// What a call of this definition reaches. The definition of a call is fixed; whether the tenant may use the tool is
    /// decided now.
    pub(super) fn callable(&self, tenant: &str, spec: &Spec) -> Callable {
        let set = self.snapshot();
        if let Some(why) = set.refusal_if_disabled(&spec.name) {
            return Callable::Refused(why);
        }
        match self.exact(tenant, &spec.name, &spec.version) {
            Some((tool, origin)) if self.may_use(tenant, origin, tool.spec()) => Callable::Tool(tool),
            None if self.declared.is_some() => Callable::Stored,
            _ => Callable::Refused(not_configured(&spec.name)),
        }
    }

    /// Why a tenant may not call a definition at the moment of a snapshot, for calls that reach no tool of this process.
    pub(super) fn refusal(&self, set: &ToolSet, tenant: &str, spec: &Spec) -> Option<String> {
        let is_shared = || {
            let found = set.find(self.home(), tenant, &spec.name);
            found.is_none_or(|(_, origin)| self.may_use(tenant, origin, spec))
        };
        set.refusal_if_disabled(&spec.name).or_else(|| (!is_shared()).then(|| not_configured(&spec.name)))
    }

    /// Where a stored definition comes from.
    pub(super) fn origin_of(&self, key: &DefinitionKey) -> ToolOrigin {
        if self.home() == Some(key.owner.as_str()) { ToolOrigin::Declared } else { ToolOrigin::Tenant }
    }

    /// Whether a tenant may use a tool that was found for it.
    pub(super) fn may_use(&self, tenant: &str, origin: ToolOrigin, spec: &Spec) -> bool {
        origin == ToolOrigin::Tenant || self.tenancy.guest(tenant).is_none_or(|guest| guest.may_use_tool(spec))
    }

    /// The set with other declared tools. `None` if nothing changes.
    pub(super) fn with_declarations(&self, declarations: Declarations) -> Option<ToolSet> {
        let (set, home) = (self.set(), self.home()?);
        let Declarations { tools, mut problems, disabled } = declarations;
        let mut declared: BTreeMap<String, BTreeMap<String, DeclaredTool>> = BTreeMap::new();
        for tool in tools {
            let name = tool.tool.spec().name.clone();
            let owner = match &tool.tenant {
                None => Some(home.to_owned()),
                Some(slug) => self.tenancy.id_of_slug(slug),
            };
            let Some(owner) = owner else {
                let reason = format!("there is no tenant {}", tool.tenant.as_deref().unwrap_or_default());
                problems.push(DeclarationProblem { file: tool.file.to_string(), reason, is_in_use: false });
                continue;
            };
            if set.fixed.contains_key(&name) {
                let reason = format!("{name} is the name of a built-in tool");
                problems.push(DeclarationProblem { file: tool.file.to_string(), reason, is_in_use: false });
                continue;
            }
            declared.entry(owner).or_default().insert(name, tool);
        }
        problems.sort();
        problems.dedup();
        let same = versions(&declared) == versions(&set.declared);
        if same && disabled == set.disabled && problems == set.problems {
            return None;
        }
        let generation = set.generation + u64::from(!same || disabled != set.disabled);
        let is_recorded = set.is_recorded && same;
        Some(ToolSet { generation, declared, disabled, problems, is_recorded, ..set })
    }

    /// Makes a set the current one. What it no longer has stays callable for the runs that began with it.
    pub(super) fn install(&self, set: ToolSet) {
        let before = self.current.swap(Arc::new(set));
        let set = self.snapshot();
        let mut superseded = self.superseded();
        for (owner, tools) in &before.declared {
            for (name, declared) in tools {
                let version = &declared.tool.spec().version;
                let now = set.declared.get(owner).and_then(|tools| tools.get(name));
                if now.is_none_or(|now| now.tool.spec().version != *version) {
                    let key = DefinitionKey { owner: owner.clone(), name: name.clone(), version: version.clone() };
                    superseded.keep(key, Arc::clone(&declared.tool));
                }
            }
        }
    }

    /// Uses what a source declares from now on, before anything is recorded: for a process that has just started, and
    /// for one that calls no tool.
    pub fn set_declarations(&self, declarations: Declarations) {
        if let Some(set) = self.with_declarations(declarations) {
            self.install(set);
        }
    }

    /// The tool of a stored definition.
    pub(super) fn restore(&self, document: &Value) -> Result<Arc<dyn Tool>, String> {
        match &self.declared {
            Some(declared) => declared.source.restore(document),
            None => Err("no tools are declared in this process".to_owned()),
        }
    }

    /// The files that can't be used as they are.
    #[must_use]
    pub fn problems(&self) -> Vec<DeclarationProblem> {
        self.snapshot().problems.clone()
    }
}

/// The versions of declared tools by owner and name.
fn versions(declared: &BTreeMap<String, BTreeMap<String, DeclaredTool>>) -> Vec<(&str, &str, &str)> {
    let all = declared.iter().flat_map(|(owner, tools)| tools.iter().map(move |(name, tool)| (owner, name, tool)));
    all.map(|(owner, name, tool)| (owner.as_str(), name.as_str(), tool.tool.spec().version.as_str())).collect()
}

pub(super) fn not_configured(name: &str) -> String {
    format!("tool {name} is not configured on this node")
}

/// Says that an operator forbids to call a tool.
pub(super) fn disabled(reason: &str) -> String {
    format!("an operator disabled it: {reason}")
}
