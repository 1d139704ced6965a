//! The allowlist of intents: type → schema, needed capability, dispatch.
//!
//! Eight intents are built in. A file defines another one, without code: the schema of its arguments, the capability
//! that it needs, and the workflow or tool that it starts with its arguments as input.

use super::capability::RequiredCapability;
use super::schemas;
use crate::access::scope::is_capability;
use crate::json::schema::{InvalidSchema, Schema};
use crate::limits::INTENT_TYPE_CHARS_MAX;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

crate::words::words! {
    /// The intents that Chimera dispatches itself.
    BuiltInIntent {
        WorkflowStart = "workflow.start",
        RunReplay = "run.replay",
        HitlApprove = "hitl.approve",
        GraphPatch = "graph.patch",
        LogsStream = "logs.stream",
        ArtifactGet = "artifact.get",
        CacheInvalidate = "cache.invalidate",
        KbSearch = "kb.search",
    }
}

impl BuiltInIntent {
    const fn schema(self) -> &'static str {
        match self {
            Self::WorkflowStart => include_str!("schemas/workflow.start.json"),
            Self::RunReplay => include_str!("schemas/run.replay.json"),
            Self::HitlApprove => include_str!("schemas/hitl.approve.json"),
            Self::GraphPatch => include_str!("schemas/graph.patch.json"),
            Self::LogsStream => include_str!("schemas/logs.stream.json"),
            Self::ArtifactGet => include_str!("schemas/artifact.get.json"),
            Self::CacheInvalidate => include_str!("schemas/cache.invalidate.json"),
            Self::KbSearch => include_str!("schemas/kb.search.json"),
        }
    }

    fn requires(self) -> RequiredCapability {
        match self {
            Self::WorkflowStart => RequiredCapability::of("runs:start").on("workflow", "/workflow_id"),
            Self::RunReplay => RequiredCapability::of("runs:replay").on("run", "/run_id"),
            Self::HitlApprove => RequiredCapability::of("approvals:decide").on("run", "/run_id"),
            Self::GraphPatch => RequiredCapability::of("runs:patch").on("run", "/run_id"),
            Self::LogsStream => RequiredCapability::of("logs:read").on("run", "/run_id"),
            Self::ArtifactGet => RequiredCapability::of("artifacts:read").on("artifact", "/artifact"),
            Self::CacheInvalidate => RequiredCapability::of("cache:invalidate").on("workflow", "/workflow_id"),
            Self::KbSearch => RequiredCapability::of("kb:search"),
        }
    }
}

/// What an accepted intent starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dispatch {
    BuiltIn(BuiltInIntent),
    /// A run of this workflow, with the arguments as inputs.
    Workflow(String),
    /// A call of this tool, with the arguments as input.
    Tool(String),
}

/// An intent that the Router accepts.
#[derive(Debug)]
pub struct IntentDefinition {
    pub name: String,
    pub schema: Schema,
    pub requires: RequiredCapability,
    pub dispatch: Dispatch,
}

/// Why a file defines no intent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDefinition {
    #[error("not a definition of an intent: {0}")]
    Malformed(String),
    #[error("`{0}` is not a type: use names of lower-case letters, digits and `_`, with a dot between them")]
    Type(String),
    #[error("the intent {0} is built in")]
    BuiltIn(String),
    #[error("the intent {0} is already defined")]
    Duplicate(String),
    #[error("`{0}` is not a capability such as `leads:enrich`")]
    Capability(String),
    #[error("name either a workflow or a tool")]
    Dispatch,
    #[error(transparent)]
    Schema(#[from] InvalidSchema),
    #[error("its example does not match its schema")]
    Example,
}

/// The file of an intent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefinitionFile {
    r#type: String,
    schema: Value,
    capability: String,
    resource: Option<ResourceFile>,
    dispatch: DispatchFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceFile {
    kind: String,
    argument: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DispatchFile {
    workflow: Option<String>,
    tool: Option<String>,
}

impl IntentDefinition {
    fn built_in(intent: BuiltInIntent) -> Result<Self, InvalidSchema> {
        Ok(Self {
            name: intent.as_str().to_owned(),
            schema: schemas::compile(intent.schema())?,
            requires: intent.requires(),
            dispatch: Dispatch::BuiltIn(intent),
        })
    }

    /// Reads the definition of an intent that is not built in.
    pub fn read(document: Value) -> Result<Self, InvalidDefinition> {
        let file =
            DefinitionFile::deserialize(document).map_err(|error| InvalidDefinition::Malformed(error.to_string()))?;
        if !is_type(&file.r#type) {
            return Err(InvalidDefinition::Type(file.r#type.chars().take(INTENT_TYPE_CHARS_MAX).collect()));
        }
        if BuiltInIntent::parse(&file.r#type).is_some() {
            return Err(InvalidDefinition::BuiltIn(file.r#type));
        }
        let mut requires = RequiredCapability::of(&file.capability);
        if let Some(resource) = &file.resource {
            requires = requires.on(&resource.kind, &format!("/{}", resource.argument));
        }
        if !is_capability(&requires.for_args(&Value::Null)) || file.capability.contains(['*', '@']) {
            return Err(InvalidDefinition::Capability(file.capability));
        }
        let dispatch = match (file.dispatch.workflow, file.dispatch.tool) {
            (Some(workflow), None) => Dispatch::Workflow(workflow),
            (None, Some(tool)) => Dispatch::Tool(tool),
            _ => return Err(InvalidDefinition::Dispatch),
        };
        let schema = Schema::compile(with_id(&file.r#type, file.schema))?;
        if schema.document()["type"] != "object" {
            return Err(InvalidSchema { reason: "the arguments must be of the type object".to_owned() }.into());
        }
        let examples = schema.document()["examples"].as_array();
        if examples.into_iter().flatten().any(|example| schema.check(example).is_err()) {
            return Err(InvalidDefinition::Example);
        }
        Ok(Self { name: file.r#type, schema, requires, dispatch })
    }

    /// The first example of its arguments, if it has one.
    #[must_use]
    pub fn example(&self) -> Option<&Value> {
        self.schema.document().pointer("/examples/0")
    }

    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.schema.document()["title"].as_str()
    }
}

fn is_type(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    name.len() <= INTENT_TYPE_CHARS_MAX && name.contains('.') && name.split('.').all(is_part)
}

/// The schema with the `$id` under which it is published, unless it has its own.
fn with_id(name: &str, mut schema: Value) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.entry("$id").or_insert_with(|| json!(format!("https://aob.dev/schemas/intents/{name}.json")));
    }
    schema
}

/// Every intent that the Router accepts, by type.
#[derive(Clone, Debug)]
pub struct IntentCatalog(BTreeMap<String, Arc<IntentDefinition>>);

impl IntentCatalog {
    /// The built-in intents.
    pub fn built_in() -> Result<Self, InvalidSchema> {
        let each = |intent: &BuiltInIntent| {
            IntentDefinition::built_in(*intent).map(|definition| (definition.name.clone(), Arc::new(definition)))
        };
        BuiltInIntent::ALL.iter().map(each).collect::<Result<_, _>>().map(Self)
    }

    /// The same with another intent.
    pub fn with(mut self, definition: IntentDefinition) -> Result<Self, InvalidDefinition> {
        let name = definition.name.clone();
        match self.0.insert(name.clone(), Arc::new(definition)) {
            Some(_) => Err(InvalidDefinition::Duplicate(name)),
            None => Ok(self),
        }
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<IntentDefinition>> {
        self.0.get(name)
    }

    /// All of them, in the order of their types.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<IntentDefinition>> {
        self.0.values()
    }
}
