//! What a tool declares about itself.
//!
//! The five members of [`Metadata`] and their defaults come from the specification. `effect` says how far a tool
//! reaches: a *pure* tool touches nothing outside and may be repeated freely; a *read* tool queries an external
//! system; a *write* tool changes one, so its call is recorded before it is sent and is never resent blindly.

mod method_override;

pub use method_override::is_method_override;

use crate::id::BlobId;
use crate::json::schema::{InvalidSchema, Schema};
use method_override::override_methods;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The risk level that a tool declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    #[default]
    Low,
    Medium,
    High,
}

/// How far the effects of a tool reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// No external effects.
    Pure,
    /// Reads from an external system.
    Read,
    /// Changes an external system.
    Write,
}

/// Whether a tool can undo what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rollback {
    Unsupported,
    /// Supported, but undoing the same call twice has a second effect: a refund is paid twice.
    Once,
    /// Supported and idempotent.
    Repeatable,
}

/// Where the calls of a tool are executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// In the process that drives the run.
    #[default]
    InProcess,
    /// By workers outside, which claim the calls from a queue.
    Workers(WorkerQueue),
    /// By a sandboxed job.
    Job,
}

/// The queue of a tool that workers execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerQueue {
    pub name: String,
    /// How long a worker holds a call before it has to renew its lease.
    pub lease_seconds: u32,
}

/// Inputs for which a write tool only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReadOnlyInputs {
    /// The input member that decides.
    pub member: &'static str,
    /// Values for which the call only reads. The first one is the default if the member is absent.
    pub values: &'static [&'static str],
    /// Values for which the call deletes.
    pub deletes: &'static [&'static str],
}

/// The class of a call. A two-part scope such as `github.write` names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallClass {
    /// Changes nothing outside.
    Read,
    /// Creates or changes something outside.
    Write,
    /// Deletes something outside.
    Delete,
}

impl CallClass {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// A tool with this capability, or with one that ends in it, deletes.
pub const DELETE_CAPABILITY: &str = "delete";

/// The properties that policies decide by. They are immutable once the tool is registered (CORE-060):
///
/// ```compile_fail,E0594
/// use chimera_core::tool::Spec;
/// use std::sync::Arc;
///
/// fn loosen(spec: &Arc<Spec>) {
///     spec.metadata.requires_approval = false;
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metadata {
    /// Every call needs approval by a person.
    pub requires_approval: bool,
    /// Supports a dry run.
    pub dry_run_supported: bool,
    /// May be called again with the same inputs.
    pub idempotent: bool,
    /// Scopes that an actor needs.
    pub capabilities: Vec<String>,
    pub risk_level: Risk,
}

/// A tool as the registry lists it.
#[derive(Debug)]
pub struct Spec {
    /// The name that workflows use in `fn`.
    pub name: String,
    /// Changes whenever the same input may mean something else.
    pub version: String,
    pub description: String,
    pub metadata: Metadata,
    pub effect: EffectKind,
    pub reads_when: Option<ReadOnlyInputs>,
    /// Whether `check` can tell if a call took effect.
    pub checkable: bool,
    pub rollback: Rollback,
    /// Default timeout of one call.
    pub timeout_ms: u64,
    pub execution: Execution,
    /// Input schema. Always has the boolean property `dry_run`.
    pub input: Schema,
    pub output: Schema,
}

/// A tool declaration before its schemas are compiled.
#[derive(Clone, Debug)]
pub struct ToolDeclaration {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub metadata: Metadata,
    pub effect: EffectKind,
    pub reads_when: Option<ReadOnlyInputs>,
    /// Whether `check` can tell if a call took effect.
    pub checkable: bool,
    pub rollback: Rollback,
    pub timeout_ms: u64,
    /// Input schema without `dry_run`, which every tool gets.
    pub input: Value,
    pub output: Value,
}

impl ToolDeclaration {
    /// Adds `dry_run` to the input and compiles both schemas.
    pub fn compile(self) -> Result<Spec, InvalidSchema> {
        Ok(Spec {
            name: self.name.to_owned(),
            version: self.version.to_owned(),
            description: self.description.to_owned(),
            metadata: self.metadata,
            effect: self.effect,
            reads_when: self.reads_when,
            checkable: self.checkable,
            rollback: self.rollback,
            timeout_ms: self.timeout_ms,
            execution: Execution::InProcess,
            input: Schema::compile(with_dry_run(self.input))?,
            output: Schema::compile(self.output)?,
        })
    }
}

/// Names that no tool may have: approval requests use them for what is not a call of a tool.
pub const RESERVED_NAMES: [&str; 6] = ["graph.patch", "hitl", "judge.output", "map", "plan", "workflow"];

/// Adds the boolean property `dry_run`, which every tool accepts.
#[must_use]
pub fn with_dry_run(mut schema: Value) -> Value {
    if let Some(properties) = schema.as_object_mut().map(|s| s.entry("properties").or_insert_with(|| json!({})))
        && let Some(properties) = properties.as_object_mut()
    {
        properties.insert("dry_run".to_owned(), json!({"type": "boolean", "default": false}));
    }
    schema
}

/// Whether an input asks for a dry run.
#[must_use]
pub fn is_dry_run(input: &Value) -> bool {
    input.get("dry_run").and_then(Value::as_bool).unwrap_or(false)
}

/// Specs with one name and version describe the same tool.
impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.version) == (&other.name, &other.version)
    }
}

impl Spec {
    /// A placeholder for a tool that existed when something was stored and is not available any more. It assumes the
    /// worst: a call in flight may have changed something. Its description is why it is not available.
    pub fn placeholder(name: &str, why: Option<String>) -> Result<Self, InvalidSchema> {
        let plain = || format!("the tool {name} is not configured in this process");
        Ok(Self {
            name: name.to_owned(),
            version: "absent".to_owned(),
            description: why.unwrap_or_else(plain),
            metadata: Metadata::default(),
            effect: EffectKind::Write,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 0,
            execution: Execution::InProcess,
            input: Schema::compile(json!({}))?,
            output: Schema::compile(json!({}))?,
        })
    }

    #[must_use]
    pub fn is_reversible(&self) -> bool {
        self.rollback != Rollback::Unsupported
    }

    /// The reach of a call with this input.
    #[must_use]
    pub fn effect_of(&self, input: &Value) -> EffectKind {
        match &self.reads_when {
            Some(reads) => {
                let default = reads.values.first().copied().unwrap_or_default();
                let said = input.get(reads.member).map_or(Some(default), Value::as_str);
                let reads = |said: &str| reads.values.contains(&said);
                let beside = || override_methods(input);
                if said.is_some_and(reads) && beside().iter().all(|said| reads(said)) {
                    EffectKind::Read
                } else {
                    self.effect
                }
            }
            None => self.effect,
        }
    }

    /// Whether a call may turn out to only read, given what is known of the input.
    #[must_use]
    pub fn may_only_read(&self, input: &Value) -> bool {
        let said = self.reads_when.as_ref().and_then(|reads| input.get(reads.member));
        let open = said.is_some_and(|said| said.as_str().is_none_or(|said| said.contains("${")));
        open || self.effect_of(input) != EffectKind::Write
    }

    /// The worst class that the tool declares.
    #[must_use]
    pub fn worst_class(&self) -> CallClass {
        match self.effect {
            EffectKind::Pure | EffectKind::Read => CallClass::Read,
            EffectKind::Write if self.has_capability(DELETE_CAPABILITY) => CallClass::Delete,
            EffectKind::Write => CallClass::Write,
        }
    }

    /// Whether a capability equals this word or ends with it.
    fn has_capability(&self, act: &str) -> bool {
        self.metadata
            .capabilities
            .iter()
            .any(|name| name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case(act)))
    }

    /// The class of a call with this input. Unknown parts count as the worst case.
    #[must_use]
    pub fn call_class(&self, input: &Value) -> CallClass {
        if self.effect_of(input) != EffectKind::Write {
            return CallClass::Read;
        }
        match &self.reads_when {
            Some(when) if !when.deletes.is_empty() => {
                let default = when.values.first().copied().unwrap_or_default();
                let said = input.get(when.member).map_or(default, |said| said.as_str().unwrap_or_default());
                let open = said.is_empty() || said.contains("${");
                let deletes = |said: &str| when.deletes.contains(&said);
                let beside = override_methods(input).iter().any(|said| said.is_empty() || deletes(said));
                if open || beside || deletes(said) { CallClass::Delete } else { self.worst_class() }
            }
            _ => self.worst_class(),
        }
    }

    /// The blobs that an output refers to, in members that the tool declares as addresses.
    #[must_use]
    pub fn artifacts(&self, output: &Value) -> Vec<BlobId> {
        self.artifact_members().filter_map(|name| output.get(name)?.as_str()?.parse().ok()).collect()
    }

    /// Whether outputs can refer to blobs.
    #[must_use]
    pub fn has_artifacts(&self) -> bool {
        self.artifact_members().next().is_some()
    }

    /// The output members that hold blob addresses.
    fn artifact_members(&self) -> impl Iterator<Item = &String> {
        let declared = self.output.document()["properties"].as_object();
        let is_address = |schema: &Value| schema["pattern"].as_str() == Some(BlobId::PATTERN);
        declared.into_iter().flatten().filter(move |(_, schema)| is_address(schema)).map(|(name, _)| name)
    }

    /// A mock dry-run response for a tool that does not support dry runs.
    #[must_use]
    pub fn mock_response(&self, input: &Value) -> Value {
        json!({
            "status": "dry_run",
            "simulated_output": {"placeholder": "mock_data"},
            "warning": format!("Tool {} does not support dry-run; this is a mock response", self.name),
            "would_execute": format!("{} with {input}", self.name),
        })
    }

    /// The dry-run response of a tool that supports it.
    #[must_use]
    pub fn dry_run_response(output: Value, would_execute: impl Into<String>) -> Value {
        json!({
            "status": "dry_run",
            "simulated_output": output,
            "warning": "This is a simulated response; no real action taken",
            "would_execute": would_execute.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Digest32;

    /// CORE-058, CORE-059
    #[test]
    fn metadata_has_the_documents_members_defaults_and_risks() {
        let plain = json!({"requires_approval": false, "dry_run_supported": false, "idempotent": false,
            "capabilities": [], "risk_level": "low"});
        assert_eq!(serde_json::to_value(Metadata::default()).unwrap(), plain);
        assert_eq!(serde_json::from_value::<Metadata>(json!({})).unwrap(), Metadata::default());
        for (word, risk) in [("low", Risk::Low), ("medium", Risk::Medium), ("high", Risk::High)] {
            let said: Metadata = serde_json::from_value(json!({"risk_level": word})).unwrap();
            assert_eq!((said.risk_level, serde_json::to_value(risk).unwrap()), (risk, json!(word)));
        }
        for wrong in [json!({"risk_level": "none"}), json!({"risk_level": "High"}), json!({"risks": "low"})] {
            assert!(serde_json::from_value::<Metadata>(wrong).is_err());
        }
    }

    #[test]
    fn an_output_names_blobs_where_the_tool_says_so_and_nowhere_else() {
        let address = BlobId::new(Digest32([7; 32])).to_string();
        let output = json!({"properties": {
            "kept": {"type": "string", "pattern": BlobId::PATTERN}, "said": {"type": "string"},
            "before": {"type": ["string", "null"], "pattern": BlobId::PATTERN},
        }});
        let spec = Spec { output: Schema::compile(output).unwrap(), ..declared().compile().unwrap() };
        let found = spec.artifacts(&json!({"kept": address, "said": address, "before": null}));
        assert_eq!(found.iter().map(BlobId::to_string).collect::<Vec<_>>().concat(), address);
        assert!(spec.artifacts(&Spec::dry_run_response(json!({"kept": address}), "keep it")).is_empty());
    }

    #[test]
    fn a_call_is_of_the_class_that_its_input_says_or_of_the_worst() {
        let when = ReadOnlyInputs { member: "method", values: &["GET"], deletes: &["DELETE"] };
        let http = Spec { effect: EffectKind::Write, reads_when: Some(when), ..declared().compile().unwrap() };
        for (input, class) in [
            (json!({}), CallClass::Read),
            (json!({"method": "GET"}), CallClass::Read),
            (json!({"method": "POST"}), CallClass::Write),
            (json!({"method": "DELETE"}), CallClass::Delete),
            (json!({"method": "${inputs.method}"}), CallClass::Delete),
        ] {
            assert_eq!(http.call_class(&input), class, "{input}");
        }
        let post = |member: &str, value: Value| json!({"method": "POST", "url": "https://a.example/x", member: value});
        for input in [
            post("headers", json!({"X-HTTP-Method-Override": "DELETE"})),
            post("headers", json!({"x_http_method": "delete"})),
            post("url", json!("https://a.example/x?a=1&_method=DELETE")),
            post("url", json!("https://a.example/x?%5Fmetho%64=d%45lete")),
            post("query", json!({"_method": "DELETE"})),
            post("query", json!({"_method[]": ["DELETE"]})),
            post("json", json!({"_method": "delete"})),
            post("json", json!({"method": "DELETE"})),
            post("json", json!({"requests": [{"method": "DELETE", "url": "/x"}]})),
            post("url", json!("https://a.example/x?method=delete")),
            post("query", json!({"httpMethod": "delete"})),
            post("query", json!({"http_method": "DELETE"})),
            post("headers", json!({"HTTP-Method-Override": "DELETE"})),
            post("json", json!({"_method": "${inputs.how}"})),
            post("json", json!({"a": [{"_METHOD": "DELETE"}]})),
            post("text", json!("a=1&_method=DELETE")),
            post("text", json!("--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--x--")),
            post("text", json!("{\"\\u005fmethod\": \"DELETE\"}")),
            json!({"method": "GET", "url": "https://a.example/x?_method=delete"}),
        ] {
            assert_eq!(http.call_class(&input), CallClass::Delete, "{input}");
        }
        for (input, class) in [
            (post("json", json!({"_method": "PUT", "note": "DELETE"})), CallClass::Write),
            (post("text", json!("nothing of the kind")), CallClass::Write),
            (post("json", json!({"method": "card", "delete": true})), CallClass::Write),
            (post("json", json!({"method": {"kind": "card"}})), CallClass::Write),
            (json!({"url": "https://a.example/x?_method=PATCH"}), CallClass::Write),
            (json!({"url": "https://a.example/x?_method=get"}), CallClass::Read),
            (json!({"url": "https://a.example/payment_methods?x=DELETE"}), CallClass::Read),
            (json!({"url": "https://a.example/payment_method=DELETE"}), CallClass::Read),
        ] {
            assert_eq!(http.call_class(&input), class, "{input}");
        }
        let mut gone = Spec { effect: EffectKind::Write, ..declared().compile().unwrap() };
        assert_eq!(gone.call_class(&json!({})), CallClass::Write);
        for word in [DELETE_CAPABILITY, "desk.tickets.DELETE"] {
            gone.metadata.capabilities = vec!["x.y".to_owned(), word.to_owned()];
            assert_eq!(gone.call_class(&json!({})), CallClass::Delete, "{word}");
        }
    }

    fn declared() -> ToolDeclaration {
        let any = || json!({"type": "object"});
        ToolDeclaration {
            name: "keep",
            version: "1",
            description: "Keeps something.",
            metadata: Metadata::default(),
            effect: EffectKind::Pure,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 1_000,
            input: any(),
            output: any(),
        }
    }
}
