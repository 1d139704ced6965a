//! What a tool says of itself.
//!
//! The five members of [`Metadata`] are the document's, with its defaults. `effect` says how far
//! its work reaches: a *pure* tool touches nothing outside and may run again at will; a *read* tool
//! asks outside; a *write* tool changes something there, so it is written ahead and never sent
//! again blindly.

mod overridden;

pub use overridden::overrides_method;

use crate::id::BlobId;
use crate::json::schema::{BadSchema, Schema};
use overridden::methods_beside;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How much harm a tool can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Little.
    #[default]
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// How far a tool's work reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Nothing outside is touched.
    Pure,
    /// Something outside is asked.
    Read,
    /// Something outside is changed.
    Write,
}

/// Whether a tool can undo what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rollback {
    /// It can't.
    Unsupported,
    /// It can, and a second undo of the same call would do something else: a refund is paid twice.
    Once,
    /// It can, and a second undo of the same call changes nothing.
    Repeatable,
}

/// Inputs with which a writing tool only asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReadsWhen {
    /// The member of the input that tells.
    pub member: &'static str,
    /// The values with which it asks; the first one counts when the member is absent.
    pub values: &'static [&'static str],
    /// The values with which it deletes.
    pub deletes: &'static [&'static str],
}

/// What kind of act a call is. A two-part scope such as `github.write` names one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing outside is changed.
    Read,
    /// Something outside is made or changed.
    Write,
    /// Something outside is deleted.
    Delete,
}

impl Class {
    /// Its word in a scope.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// By this word among its capabilities, or at the end of one, a tool says that it deletes.
pub const DELETES: &str = "delete";

/// What policies decide by. Whoever looks at a tool's can't change it (CORE-060):
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
    /// A person must approve every call.
    pub requires_approval: bool,
    /// It can say what it would do without doing it.
    pub dry_run_supported: bool,
    /// It may be sent again with the same inputs.
    pub idempotent: bool,
    /// What an actor must be allowed to do.
    pub capabilities: Vec<String>,
    /// How much harm it can do.
    pub risk_level: Risk,
}

/// A tool as the registry lists it.
#[derive(Debug)]
pub struct Spec {
    /// Its name, as workflows write it in `fn`.
    pub name: String,
    /// Changes whenever the same input may mean something else.
    pub version: String,
    /// What it does, in a sentence.
    pub description: String,
    /// What policies decide by.
    pub metadata: Metadata,
    /// How far its work reaches at most.
    pub effect: Reach,
    /// With these inputs it only reads.
    pub reads_when: Option<ReadsWhen>,
    /// `check` can tell whether an effect happened.
    pub checkable: bool,
    /// Whether `rollback` can undo it, and may be repeated.
    pub rollback: Rollback,
    /// How long one call may take when the workflow doesn't say.
    pub timeout_ms: u64,
    /// What it takes. Always has the boolean property `dry_run`.
    pub input: Schema,
    /// What it gives.
    pub output: Schema,
}

/// A tool as it is declared, before its schemas are compiled.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What it does, in a sentence.
    pub description: &'static str,
    /// What policies decide by.
    pub metadata: Metadata,
    /// How far its work reaches at most.
    pub effect: Reach,
    /// With these inputs it only reads.
    pub reads_when: Option<ReadsWhen>,
    /// `check` can tell whether an effect happened.
    pub checkable: bool,
    /// Whether `rollback` can undo it, and may be repeated.
    pub rollback: Rollback,
    /// How long one call may take.
    pub timeout_ms: u64,
    /// Schema of the input, without `dry_run`, which every tool gets.
    pub input: Value,
    /// Schema of the output.
    pub output: Value,
}

impl Declared {
    /// Adds `dry_run` to the input and compiles both schemas.
    pub fn compile(self) -> Result<Spec, BadSchema> {
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
            input: Schema::compile(with_dry_run(self.input))?,
            output: Schema::compile(self.output)?,
        })
    }
}

/// The schema with the boolean property `dry_run`, which every tool takes.
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
pub fn is_dry(input: &Value) -> bool {
    input.get("dry_run").and_then(Value::as_bool).unwrap_or(false)
}

impl Spec {
    /// Stands in for a tool that was there when something was stored and is not set up any more. Nothing is
    /// known of it, so the worst is assumed: a call of it that is under way may have changed something.
    pub fn stand_in(name: &str) -> Result<Self, BadSchema> {
        Ok(Self {
            name: name.to_owned(),
            version: "absent".to_owned(),
            description: "It is not set up in this process.".to_owned(),
            metadata: Metadata::default(),
            effect: Reach::Write,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 0,
            input: Schema::compile(json!({}))?,
            output: Schema::compile(json!({}))?,
        })
    }

    /// Whether it can undo what it did.
    #[must_use]
    pub fn is_reversible(&self) -> bool {
        self.rollback != Rollback::Unsupported
    }

    /// How far a call with this input reaches.
    #[must_use]
    pub fn reach(&self, input: &Value) -> Reach {
        match &self.reads_when {
            Some(reads) => {
                let default = reads.values.first().copied().unwrap_or_default();
                let said = input.get(reads.member).map_or(Some(default), Value::as_str);
                let reads = |said: &str| reads.values.contains(&said);
                let beside = || methods_beside(input);
                if said.is_some_and(reads) && beside().iter().all(|said| reads(said)) {
                    Reach::Read
                } else {
                    self.effect
                }
            }
            None => self.effect,
        }
    }

    /// Whether a call with this input may only read, as far as the input is known.
    #[must_use]
    pub fn may_read(&self, input: &Value) -> bool {
        let said = self.reads_when.as_ref().and_then(|reads| input.get(reads.member));
        let open = said.is_some_and(|said| said.as_str().is_none_or(|said| said.contains("${")));
        open || self.reach(input) != Reach::Write
    }

    /// What kind of act the tool is declared for, at the most.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.effect {
            Reach::Pure | Reach::Read => Class::Read,
            Reach::Write if self.declares(DELETES) => Class::Delete,
            Reach::Write => Class::Write,
        }
    }

    /// Whether one of its capabilities is this word or ends with it.
    fn declares(&self, act: &str) -> bool {
        self.metadata
            .capabilities
            .iter()
            .any(|name| name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case(act)))
    }

    /// What kind of act a call with this input is. What is not known yet is taken for the worst.
    #[must_use]
    pub fn class_of(&self, input: &Value) -> Class {
        if self.reach(input) != Reach::Write {
            return Class::Read;
        }
        match &self.reads_when {
            Some(when) if !when.deletes.is_empty() => {
                let default = when.values.first().copied().unwrap_or_default();
                let said = input.get(when.member).map_or(default, |said| said.as_str().unwrap_or_default());
                let open = said.is_empty() || said.contains("${");
                let deletes = |said: &str| when.deletes.contains(&said);
                let beside = methods_beside(input).iter().any(|said| said.is_empty() || deletes(said));
                if open || beside || deletes(said) { Class::Delete } else { self.class() }
            }
            _ => self.class(),
        }
    }

    /// The blobs that an output names, where the tool declares that it names one.
    #[must_use]
    pub fn artifacts(&self, output: &Value) -> Vec<BlobId> {
        self.addresses().filter_map(|name| output.get(name)?.as_str()?.parse().ok()).collect()
    }

    /// Whether outputs name blobs at all.
    #[must_use]
    pub fn names_artifacts(&self) -> bool {
        self.addresses().next().is_some()
    }

    /// The members of an output that are addresses of blobs.
    fn addresses(&self) -> impl Iterator<Item = &String> {
        let declared = self.output.document()["properties"].as_object();
        let is_address = |schema: &Value| schema["pattern"].as_str() == Some(BlobId::PATTERN);
        declared.into_iter().flatten().filter(move |(_, schema)| is_address(schema)).map(|(name, _)| name)
    }

    /// The answer of a dry run for a tool that has none of its own.
    #[must_use]
    pub fn mock(&self, input: &Value) -> Value {
        json!({
            "status": "dry_run",
            "simulated_output": {"placeholder": "mock_data"},
            "warning": format!("Tool {} does not support dry-run; this is a mock response", self.name),
            "would_execute": format!("{} with {input}", self.name),
        })
    }

    /// The answer of a dry run by the tool itself.
    #[must_use]
    pub fn simulated(output: Value, would_execute: impl Into<String>) -> Value {
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
        assert!(spec.artifacts(&Spec::simulated(json!({"kept": address}), "keep it")).is_empty());
    }

    #[test]
    fn a_call_is_of_the_class_that_its_input_says_or_of_the_worst() {
        let when = ReadsWhen { member: "method", values: &["GET"], deletes: &["DELETE"] };
        let http = Spec { effect: Reach::Write, reads_when: Some(when), ..declared().compile().unwrap() };
        for (input, class) in [
            (json!({}), Class::Read),
            (json!({"method": "GET"}), Class::Read),
            (json!({"method": "POST"}), Class::Write),
            (json!({"method": "DELETE"}), Class::Delete),
            (json!({"method": "${inputs.method}"}), Class::Delete),
        ] {
            assert_eq!(http.class_of(&input), class, "{input}");
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
            post("json", json!({"_method": "${inputs.how}"})),
            post("json", json!({"a": [{"_METHOD": "DELETE"}]})),
            post("text", json!("a=1&_method=DELETE")),
            post("text", json!("--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--x--")),
            post("text", json!("{\"\\u005fmethod\": \"DELETE\"}")),
            json!({"method": "GET", "url": "https://a.example/x?_method=delete"}),
        ] {
            assert_eq!(http.class_of(&input), Class::Delete, "{input}");
        }
        for (input, class) in [
            (post("json", json!({"_method": "PUT", "note": "DELETE"})), Class::Write),
            (post("text", json!("the method is DELETE")), Class::Write),
            (json!({"url": "https://a.example/x?_method=PATCH"}), Class::Write),
            (json!({"url": "https://a.example/x?_method=get"}), Class::Read),
            (json!({"url": "https://a.example/payment_methods?x=DELETE"}), Class::Read),
            (json!({"url": "https://a.example/payment_method=DELETE"}), Class::Read),
        ] {
            assert_eq!(http.class_of(&input), class, "{input}");
        }
        let mut gone = Spec { effect: Reach::Write, ..declared().compile().unwrap() };
        assert_eq!(gone.class_of(&json!({})), Class::Write);
        for word in [DELETES, "desk.tickets.DELETE"] {
            gone.metadata.capabilities = vec!["x.y".to_owned(), word.to_owned()];
            assert_eq!(gone.class_of(&json!({})), Class::Delete, "{word}");
        }
    }

    fn declared() -> Declared {
        let any = || json!({"type": "object"});
        Declared {
            name: "keep",
            version: "1",
            description: "Keeps something.",
            metadata: Metadata::default(),
            effect: Reach::Pure,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 1_000,
            input: any(),
            output: any(),
        }
    }
}
