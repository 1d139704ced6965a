//! Finds the definition of a declared tool that a run began with: in memory, or in the store.

use super::registry::{Callable, ToolOrigin, not_configured};
use super::{Flow, FlowPorts, ToolRegistry};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::port::Tool;
use crate::port::Records;
use crate::rows;
use chimera_core::error::Code;
use chimera_core::flow::air::Graph;
use chimera_core::flow::call::ToolError;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::tables::{StepBrief, ToolDefinitionRow, tool_definitions};
use chimera_core::record::{Scope, StoredRow};
use chimera_core::tool::Spec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A definition in exactly this version; `None` if neither this process nor the store has it.
pub(super) async fn find(
    records: &dyn Records,
    registry: &ToolRegistry,
    tenant: &str,
    (name, version): (&str, &str),
) -> Result<Option<(Arc<dyn Tool>, ToolOrigin)>, EngineError> {
    if let Some(found) = registry.exact(tenant, name, version) {
        return Ok(Some(found));
    }
    for key in registry.keys(tenant, name, version) {
        let select = ToolDefinitionRow::select(Scope::Tenant(key.owner.clone()));
        let select = select.with(tool_definitions::name, name).with(tool_definitions::version, version);
        let Some(row) = rows::find::<ToolDefinitionRow>(records, select).await? else { continue };
        match registry.restore(&row.document.value()?) {
            Ok(tool) if (tool.spec().name.as_str(), tool.spec().version.as_str()) == (name, version) => {
                let origin = registry.origin_of(&key);
                registry.superseded().keep(key, Arc::clone(&tool));
                return Ok(Some((tool, origin)));
            }
            // Never called: it would not be what the version says.
            Ok(tool) => tracing::error!(
                tool = name,
                version,
                found = tool.spec().version,
                "a stored tool definition was changed"
            ),
            Err(error) => tracing::error!(tool = name, version, error, "a stored tool definition can't be used"),
        }
    }
    Ok(None)
}

/// The tool of a step, in the definition that the step began with; the current one if that is unknown.
pub(super) async fn tool_of_step(
    flow: &Flow,
    permit: &Permit,
    step: &StepBrief,
) -> Result<Option<Arc<Spec>>, EngineError> {
    let Some(name) = step.tool.as_deref() else { return Ok(None) };
    find_or_current(flow, permit.tenant(), name, step.tool_version.as_deref()).await
}

/// A tool in this version, or else in the current one.
pub(super) async fn find_or_current(
    flow: &Flow,
    tenant: &str,
    name: &str,
    version: Option<&str>,
) -> Result<Option<Arc<Spec>>, EngineError> {
    let FlowPorts { records, registry, .. } = &flow.inner.parts;
    if let Some(version) = version
        && let Some((tool, _)) = find(&**records, registry, tenant, (name, version)).await?
    {
        return Ok(Some(Arc::clone(tool.spec())));
    }
    Ok(registry.get(tenant, name).map(|tool| Arc::clone(tool.spec())))
}

/// The tool of a call, in exactly the definition that the call is for.
pub(super) async fn tool_for_call(parts: &FlowPorts, tenant: &str, spec: &Spec) -> Result<Arc<dyn Tool>, ToolError> {
    let registry = &parts.registry;
    let unavailable = |message: String| ToolError::not_sent(Code::ToolUnavailable, message);
    match registry.callable(tenant, spec) {
        Callable::Tool(tool) => Ok(tool),
        Callable::Refused(why) => Err(unavailable(why)),
        Callable::Stored => match find(&*parts.records, registry, tenant, (&spec.name, &spec.version)).await {
            Ok(Some((tool, origin))) if registry.may_use(tenant, origin, tool.spec()) => Ok(tool),
            Ok(Some(_)) => Err(unavailable(not_configured(&spec.name))),
            Ok(None) => Err(unavailable(not_found(registry, tenant, &spec.name, &spec.version))),
            Err(error) => {
                tracing::warn!(tool = spec.name, error = %error, "a tool definition could not be read");
                Err(unavailable(format!(
                    "the definition {} of tool {} could not be read from the store",
                    spec.version, spec.name
                )))
            }
        },
    }
}

/// The specs of pinned tools: exactly those versions, or why there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct PinnedSpecs(BTreeMap<String, Result<Arc<Spec>, String>>);

impl PinnedSpecs {
    pub(super) const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// The specs of the tools that `pins` name. Built-in tools are not pinned.
    pub(super) async fn of(
        records: &dyn Records,
        registry: &ToolRegistry,
        tenant: &str,
        pins: &Pins,
    ) -> Result<Self, EngineError> {
        let mut specs = BTreeMap::new();
        for (name, version) in pins.tools() {
            if registry.snapshot().is_built_in(name) {
                continue;
            }
            let found = match find(records, registry, tenant, (name, version)).await? {
                Some((tool, origin)) if registry.may_use(tenant, origin, tool.spec()) => Ok(Arc::clone(tool.spec())),
                Some(_) => Err(format!("the tool {name} is not shared with the tenant any more")),
                None => Err(not_found(registry, tenant, name, version)),
            };
            specs.insert(name.clone(), found);
        }
        Ok(Self(specs))
    }

    /// The pinned tools that a graph already has.
    pub(super) fn of_graph(pins: &Pins, graph: &Graph) -> Self {
        if pins.tools().is_empty() {
            return Self::none();
        }
        let tools = graph.nodes.iter().filter(|node| !node.is_tool_absent).filter_map(|node| node.tool.as_ref());
        let pinned = tools.filter(|tool| pins.tool(&tool.name) == Some(&tool.version));
        Self(pinned.map(|tool| (tool.name.clone(), Ok(Arc::clone(tool)))).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Result<Arc<Spec>, String>> {
        self.0.get(name)
    }

    /// Whether new runs of a tenant use the same definitions.
    pub(super) fn are_current(&self, registry: &ToolRegistry, tenant: &str) -> bool {
        let is_current = |(name, pinned): (&String, &Result<Arc<Spec>, String>)| {
            let current = registry.current_version(tenant, name);
            pinned.as_ref().is_ok_and(|pinned| current.as_deref() == Some(&pinned.version))
        };
        self.0.iter().all(is_current)
    }

    /// Whether a graph has exactly these definitions.
    pub(super) fn fit(&self, graph: &Graph) -> bool {
        self.0.is_empty()
            || graph.nodes.iter().all(|node| {
                match node.tool.as_ref().and_then(|tool| Some((tool, self.get(&tool.name)?))) {
                    Some((tool, Ok(pinned))) => !node.is_tool_absent && tool.version == pinned.version,
                    Some((_, Err(_))) => node.is_tool_absent,
                    None => true,
                }
            })
    }
}

/// Says that a definition that a run began with is gone.
fn not_found(registry: &ToolRegistry, tenant: &str, name: &str, version: &str) -> String {
    let now = match registry.current_version(tenant, name) {
        Some(current) => format!("the current one is {current}"),
        None => "the tool is not configured any more".to_owned(),
    };
    format!(
        "the definition {version} of tool {name}, with which this run began, is neither configured nor stored, and {now}"
    )
}
