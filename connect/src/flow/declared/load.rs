//! Reads a vendor's file and rejects what could only fail later.
//!
//! Everything a call relies on is checked here: placeholders name properties of the schema, placeholders in a path
//! always have values, pointers and secret names are valid. An error names the file, the key and the problem.

use super::auth::Credential;
use super::file::{Auth, Check, Entry, Exchange, File, Paging, RateLimited, Undo};
use super::mapping::{JsonPlace, Mapping};
use super::plan::{
    CursorTarget, Declaration, HeaderTemplate, Lookup, NextPageRule, Pages, RateLimitRule, RequestTemplate,
    RollbackRequest, ToolPlan, Vendor,
};
use super::template::{JsonTemplate, Placeholder, TextTemplate};
use chimera_core::access::destination::DESTINATIONS_MEMBER as DESTINATIONS;
use chimera_core::json::schema::Schema;
use chimera_core::json::{Digest32, unstorable_reason};
use chimera_core::limits::{
    DECLARED_FILE_BYTES_MAX, DECLARED_PAGES_MAX, DECLARED_TOOLS_MAX, TOOL_NAME_CHARS_MAX, TOOL_TIMEOUT_MS_MAX,
};
use chimera_core::secret::SecretName;
use chimera_core::tool::{
    DELETE_CAPABILITY, EffectKind, Execution, Metadata, RESERVED_NAMES, Rollback, Spec, with_dry_run,
};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Length of the definition digest in a tool's version.
const DEFINITION_CHARS: usize = 16;

/// Why a file was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {key}: {reason}")]
pub struct DeclareError {
    pub origin: String,
    /// The key path in the file.
    pub key: String,
    pub reason: String,
}

/// A position in the file, for errors.
pub(super) struct FilePosition<'a> {
    pub(super) origin: &'a str,
    pub(super) key: String,
}

impl<'a> FilePosition<'a> {
    pub(super) fn child(&self, name: &str) -> FilePosition<'a> {
        let key = if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) };
        FilePosition { origin: self.origin, key }
    }

    pub(super) fn error(&self, reason: impl ToString) -> DeclareError {
        DeclareError { origin: self.origin.to_owned(), key: self.key.clone(), reason: reason.to_string() }
    }

    pub(super) fn ok<T, E: ToString>(&self, result: Result<T, E>) -> Result<T, DeclareError> {
        result.map_err(|error| self.error(error.to_string()))
    }

    pub(super) fn demand(&self, holds: bool, reason: &str) -> Result<(), DeclareError> {
        if holds { Ok(()) } else { Err(self.error(reason)) }
    }
}

/// Reads a file: JSON if its first character is a brace, TOML otherwise.
pub fn load(text: &str, origin: &str) -> Result<Vec<Declaration>, DeclareError> {
    load_with_base_urls(text, origin, &BTreeMap::new())
}

/// The same, with base URLs overridden by vendor name.
pub(super) fn load_with_base_urls(
    text: &str,
    origin: &str,
    elsewhere: &BTreeMap<String, String>,
) -> Result<Vec<Declaration>, DeclareError> {
    let document = read(text, &FilePosition { origin, key: String::new() })?;
    load_document(&document, origin, elsewhere)
}

/// The declaration of a stored definition, with the version that it had when it was stored.
pub(super) fn load_definition(definition: &Value, origin: &str) -> Result<Declaration, DeclareError> {
    let at = FilePosition { origin, key: String::new() };
    let document = document_of(definition, &at)?;
    let vendor = document["vendor"].as_str().unwrap_or_default().to_owned();
    let base_url = definition["base_url"].as_str().unwrap_or_default().to_owned();
    let mut declared = load_document(&document, origin, &BTreeMap::from([(vendor, base_url)]))?;
    declared.pop().ok_or_else(|| at.child("tool").error("there is none"))
}

fn load_document(
    document: &Value,
    origin: &str,
    elsewhere: &BTreeMap<String, String>,
) -> Result<Vec<Declaration>, DeclareError> {
    let at = FilePosition { origin, key: String::new() };
    let file: File = parse(document, &at)?;
    at.child("vendor").demand(is_name(&file.vendor), "a-z, 0-9, '_' and '-', beginning with a letter")?;
    at.child("tool").demand(
        (1..=DECLARED_TOOLS_MAX).contains(&file.tools.len()),
        &format!("a file has 1 to {DECLARED_TOOLS_MAX} tools"),
    )?;
    let mut vendor = vendor(&file, &at)?;
    if let Some(url) = elsewhere.get(&vendor.name) {
        let at = FilePosition { origin, key: format!("base_url of {}", vendor.name) };
        vendor.base_url = at.ok(base_url(url))?;
    }
    let vendor = Arc::new(vendor);
    let mut names = BTreeSet::new();
    file.tools
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let at = at.child("tool").child(&entry.name);
            at.demand(names.insert(&entry.name), "duplicate tool name")?;
            let (mut spec, plan) = tool(entry, &at)?;
            let definition = definition(document, index, vendor.base_url.as_str().into());
            spec.version = definition_version(&entry.version, &definition);
            let (definition, vendor) = (Arc::new(definition), Arc::clone(&vendor));
            Ok(Declaration { spec: Arc::new(spec), vendor, plan: Arc::new(plan), definition })
        })
        .collect()
}

/// Everything that a file says about a tool, and the vendor's base URL.
pub(super) fn definition(document: &Value, index: usize, base_url: Value) -> Value {
    let mut shared = document.clone();
    let tool = shared.as_object_mut().and_then(|file| file.remove("tool")).unwrap_or_default();
    json!({"shared": shared, "tool": tool.get(index), "base_url": base_url})
}

/// The document that a definition was made of, with its tool as the only one.
pub(super) fn document_of(definition: &Value, at: &FilePosition<'_>) -> Result<Value, DeclareError> {
    let shared = definition["shared"].as_object().cloned();
    let mut document = shared.ok_or_else(|| at.child("shared").error("not an object"))?;
    document.insert("tool".to_owned(), json!([definition["tool"]]));
    Ok(Value::Object(document))
}

/// The version of a tool: what the file calls it, and a digest of its definition. So whatever depends on the version
/// (approvals, plans, records) notices a changed file even if its `version` was not changed.
pub(super) fn definition_version(version: &str, definition: &Value) -> String {
    let digest: String = Digest32::of(definition).to_string().chars().take(DEFINITION_CHARS).collect();
    format!("{version}+{digest}")
}

pub(super) fn read(text: &str, at: &FilePosition<'_>) -> Result<Value, DeclareError> {
    let whole = at.child("file");
    whole.demand(text.len() <= DECLARED_FILE_BYTES_MAX, &format!("more than {DECLARED_FILE_BYTES_MAX} bytes"))?;
    let document = if text.trim_start().starts_with('{') {
        whole.ok(serde_json::from_str(text))?
    } else {
        whole.ok(toml::from_str(text).map_err(|error: toml::de::Error| toml_reason(text, &error)))?
    };
    // Definitions are stored: what no store can hold would fail later, and for all files together.
    unstorable_reason(&document).map_or(Ok(document), |reason| Err(whole.error(reason)))
}

pub(super) fn parse<T: DeserializeOwned>(document: &Value, at: &FilePosition<'_>) -> Result<T, DeclareError> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let key = error.path().to_string();
        let at = at.child(if key == "." { "file" } else { &key });
        at.error(error.inner())
    })
}

/// Where a TOML file is wrong, and why, without the line itself: it may be long, or not a tool's at all.
fn toml_reason(text: &str, error: &toml::de::Error) -> String {
    let reason = error.message().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return reason };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {line}, column {column}: {reason}")
}

fn is_name(text: &str) -> bool {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    text.bytes().next().is_some_and(|b| b.is_ascii_lowercase()) && text.bytes().all(inside)
}

fn vendor(file: &File, at: &FilePosition<'_>) -> Result<Vendor, DeclareError> {
    let place = at.child("base_url");
    let base_url = place.ok(base_url(&file.base_url))?;
    let rates = file.rate_limited.iter().map(|rule| rate(rule, &at.child("rate_limited")));
    Ok(Vendor {
        name: file.vendor.clone(),
        base_url,
        headers: headers(&file.headers, &at.child("headers"), &PlaceholderScope::default())?,
        credential: file.auth.as_ref().map(|auth| credential(auth, &at.child("auth"))).transpose()?,
        error_message: optional_place(file.error_message.as_ref(), &at.child("error_message"))?,
        rate_limited: rates.collect::<Result<_, _>>()?,
    })
}

/// A vendor's base URL: http or https, without query and fragment.
fn base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if plain { Ok(url) } else { Err("expected http or https, without credentials, query and fragment".into()) }
}

fn optional_place(value: Option<&Value>, at: &FilePosition<'_>) -> Result<Option<JsonPlace>, DeclareError> {
    value.map(|value| at.ok(JsonPlace::parse(value))).transpose()
}

fn secret(text: &str, at: &FilePosition<'_>) -> Result<SecretName, DeclareError> {
    at.child("secret").ok(text.parse())
}

fn credential(auth: &Auth, at: &FilePosition<'_>) -> Result<Credential, DeclareError> {
    Ok(match auth {
        Auth::Bearer { secret: name } => Credential::Bearer(secret(name, at)?),
        Auth::Basic { username, secret: name } => {
            at.child("username").demand(!username.contains(':'), "a user name must not contain a colon")?;
            Credential::Basic { username: username.clone(), secret: secret(name, at)? }
        }
        Auth::Header { name, secret: of, prefix } => {
            let name = at.child("name").ok(HeaderName::from_bytes(name.as_bytes()))?;
            Credential::Header { name, prefix: prefix.clone(), secret: secret(of, at)? }
        }
        Auth::Oauth2 { secret: name, token_url, scope } => {
            at.child("token_url").ok(base_url(&token_url.replace("{tenant}", "tenant")))?;
            Credential::Oauth2 { secret: secret(name, at)?, token_url: token_url.clone(), scope: scope.clone() }
        }
    })
}

fn rate(rule: &RateLimited, at: &FilePosition<'_>) -> Result<RateLimitRule, DeclareError> {
    at.demand(rule.header.is_some() || rule.at.is_some(), "give `header`, `at`, or both")?;
    at.demand(rule.at.is_some() != rule.values.is_empty(), "`at` and `values` must be given together")?;
    let place = optional_place(rule.at.as_ref(), &at.child("at"))?;
    Ok(RateLimitRule {
        status: rule.status,
        header: rule.header.clone().map(|name| (name, rule.value.clone())),
        at: place.map(|place| (place, rule.values.clone())),
        reset_header: rule.reset_header.clone(),
    })
}

/// The schemas that placeholders may refer to.
#[derive(Default, Clone, Copy)]
struct PlaceholderScope<'a> {
    input: Option<&'a Value>,
    output: Option<&'a Value>,
}

impl PlaceholderScope<'_> {
    fn check(&self, hole: &Placeholder, at: &FilePosition<'_>) -> Result<(), DeclareError> {
        let schema = match hole.root.as_str() {
            "input" => self.input,
            "output" => self.output,
            "item" => return Err(at.error("{item} is only allowed inside $item")),
            _ => return Ok(()),
        };
        let shown = format!("{}.{}", hole.root, hole.path.join("."));
        let Some(schema) = schema else { return Err(at.error(format!("{{{shown}}} has no value here"))) };
        let known = hole.path.first().is_some_and(|name| schema["properties"].get(name).is_some());
        at.demand(known, &format!("{{{shown}}} is not a property of the {} schema", hole.root))
    }

    /// Whether an input always has this value.
    fn is_certain(&self, hole: &Placeholder) -> bool {
        let schema = match hole.root.as_str() {
            "input" => self.input,
            "output" => self.output,
            "run_started_at" => return false,
            _ => return true,
        };
        let (Some(schema), [name]) = (schema, hole.path.as_slice()) else { return false };
        let required = schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name));
        required || schema["properties"][name].get("default").is_some()
    }
}

fn headers(
    headers: &BTreeMap<String, String>,
    at: &FilePosition<'_>,
    scope: &PlaceholderScope<'_>,
) -> Result<Vec<(HeaderName, HeaderTemplate)>, DeclareError> {
    headers
        .iter()
        .map(|(name, value)| {
            let at = at.child(name);
            let name = at.ok(HeaderName::from_bytes(name.as_bytes()))?;
            let ours = ["host", "content-length", "transfer-encoding", "connection", "idempotency-key", "traceparent"];
            at.demand(!ours.contains(&name.as_str()), "this header is set by Chimera itself")?;
            if value.starts_with("secret://") {
                return Ok((name, HeaderTemplate::Secret(at.ok(value.parse())?)));
            }
            let text = at.ok(TextTemplate::parse(value))?;
            text.holes().try_for_each(|hole| scope.check(hole, &at))?;
            if text.holes().next().is_some() {
                return Ok((name, HeaderTemplate::Filled(text)));
            }
            Ok((name, HeaderTemplate::Fixed(at.ok(HeaderValue::from_str(value))?)))
        })
        .collect()
}

fn tree(value: &Value, at: &FilePosition<'_>, scope: &PlaceholderScope<'_>) -> Result<JsonTemplate, DeclareError> {
    let tree = at.ok(JsonTemplate::parse(value))?;
    tree.holes().iter().try_for_each(|hole| scope.check(hole, at))?;
    Ok(tree)
}

fn step(
    exchange: &Exchange,
    at: &FilePosition<'_>,
    scope: &PlaceholderScope<'_>,
) -> Result<RequestTemplate, DeclareError> {
    let method = exchange.method.as_str();
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"].contains(&method);
    at.child("method").demand(known, "GET, HEAD, POST, PUT, PATCH or DELETE")?;
    let place = at.child("path");
    let paths = match &exchange.path {
        Value::Array(paths) => paths.iter().collect(),
        single => vec![single],
    };
    let paths = paths.into_iter().map(|path| {
        let text = path.as_str().filter(|path| path.starts_with('/') && !path.contains(['?', '#']));
        let text = text.ok_or_else(|| place.error("a path must begin with / and must not contain ? or #"))?;
        let text = place.ok(TextTemplate::parse(text))?;
        text.holes().try_for_each(|hole| scope.check(hole, &place))?;
        Ok(text)
    });
    let paths: Vec<TextTemplate> = paths.collect::<Result<_, _>>()?;
    let Some(last) = paths.last() else { return Err(place.error("at least one path is required")) };
    if let Some(hole) = last.holes().find(|hole| !scope.is_certain(hole)) {
        let name = format!("{}.{}", hole.root, hole.path.join("."));
        return Err(place.error(format!("{{{name}}} may be missing: make it required or give it a default")));
    }
    let query = exchange
        .query
        .iter()
        .map(|(name, value)| Ok((name.clone(), tree(value, &at.child("query").child(name), scope)?)));
    let bodyless = ["GET", "HEAD"].contains(&method) && exchange.body.is_some();
    at.child("body").demand(!bodyless, "GET and HEAD can't have a body")?;
    Ok(RequestTemplate {
        method: at.child("method").ok(Method::from_bytes(method.as_bytes()))?,
        paths,
        query: query.collect::<Result<_, _>>()?,
        headers: headers(&exchange.headers, &at.child("headers"), scope)?,
        body: exchange.body.as_ref().map(|body| tree(body, &at.child("body"), scope)).transpose()?,
    })
}

fn pages(paging: &Paging, at: &FilePosition<'_>, scope: &PlaceholderScope<'_>) -> Result<Pages, DeclareError> {
    let (items, pages_max, limit, next) = match paging {
        Paging::Link { items, pages_max, limit } => (items, *pages_max, limit, NextPageRule::Link),
        Paging::Cursor { items, pages_max, limit, next, more, query, body } => {
            let into = match (query, body) {
                (Some(name), None) => CursorTarget::Query(name.clone()),
                (None, Some(name)) => CursorTarget::Body(name.clone()),
                _ => return Err(at.error("name either the query parameter or the body member that takes the cursor")),
            };
            let cursor = at.child("next").ok(JsonPlace::parse(next))?;
            let more = optional_place(more.as_ref(), &at.child("more"))?;
            (items, *pages_max, limit, NextPageRule::Cursor { at: cursor, more, into })
        }
    };
    let bounded = (1..=DECLARED_PAGES_MAX).contains(&pages_max);
    at.child("pages_max").demand(bounded, &format!("1 to {DECLARED_PAGES_MAX}"))?;
    if let Some(limit) = limit {
        let known = scope.input.is_some_and(|schema| schema["properties"].get(limit).is_some());
        at.child("limit").demand(known, "not a property of the input schema")?;
    }
    at.child("items").demand(items.is_string(), "one pointer to a list")?;
    Ok(Pages { items: at.child("items").ok(JsonPlace::parse(items))?, pages_max, limit: limit.clone(), next })
}

fn lookup(check: &Check, at: &FilePosition<'_>, scope: &PlaceholderScope<'_>) -> Result<Lookup, DeclareError> {
    let contains = at.child("contains").ok(TextTemplate::parse(&check.contains))?;
    let names_effect = contains.holes().any(|hole| ["idempotency_key", "effect_id"].contains(&hole.root.as_str()));
    at.child("contains")
        .demand(names_effect, "must contain {idempotency_key} or {effect_id}: only these identify the call")?;
    Ok(Lookup {
        request: step(&check.request, &at.child("request"), scope)?,
        items: at.child("items").ok(JsonPlace::parse(&check.items))?,
        at: at.child("at").ok(JsonPlace::parse(&check.at))?,
        contains,
        never_after_ms: check.never_after_ms,
    })
}

/// Whether the compensating call may be repeated. HTTP guarantees it for `DELETE` and `PUT`; for other methods only
/// the file can say so.
fn rollback(undo: &Undo) -> Rollback {
    let by_method = ["DELETE", "PUT"].contains(&undo.request.method.as_str());
    if undo.repeatable.unwrap_or(by_method) { Rollback::Repeatable } else { Rollback::Once }
}

/// Destinations must be properties of the input schema.
pub(super) fn destinations(input: &Value, at: &FilePosition<'_>) -> Result<(), DeclareError> {
    let Some(listed) = input.get(DESTINATIONS) else { return Ok(()) };
    let taken = |name: &Value| name.as_str().is_some_and(|name| input["properties"].get(name).is_some());
    let known = listed.as_array().is_some_and(|listed| !listed.is_empty() && listed.iter().all(taken));
    at.child(DESTINATIONS).demand(known, "a list of properties of the input")
}

/// Checks what every declared tool has.
pub(super) fn check_entry(
    name: &str,
    effect: EffectKind,
    metadata: &Metadata,
    input: &Value,
    at: &FilePosition<'_>,
) -> Result<(), DeclareError> {
    let named = name.split('.').all(is_name) && name.len() <= TOOL_NAME_CHARS_MAX;
    at.child("name").demand(named, "words of a-z, 0-9, '_' and '-' with dots between")?;
    let is_free = !RESERVED_NAMES.contains(&name);
    at.child("name").demand(is_free, "this name is reserved: approvals use it for something else than a tool")?;
    at.child("effect").demand(effect != EffectKind::Pure, "a tool that calls somebody is read or write")?;
    at.child("input").demand(input["type"] == "object", "the schema of an object")?;
    let capable = !metadata.capabilities.is_empty();
    at.child("metadata.capabilities").demand(capable, "name at least one")?;
    let lower = metadata.capabilities.iter().all(|capability| capability.split('.').all(is_name));
    at.child("metadata.capabilities").demand(lower, "words of a-z, 0-9, '_' and '-' with dots between")
}

fn tool(entry: &Entry, at: &FilePosition<'_>) -> Result<(Spec, ToolPlan), DeclareError> {
    check_entry(&entry.name, entry.effect, &entry.metadata, &entry.input, at)?;
    let timed = (1..=TOOL_TIMEOUT_MS_MAX).contains(&entry.timeout_ms);
    at.child("timeout_ms").demand(timed, &format!("1 to {TOOL_TIMEOUT_MS_MAX}"))?;
    let writes = entry.effect == EffectKind::Write;
    at.child("rollback").demand(writes || entry.rollback.is_none(), "a read has nothing to undo")?;
    at.child("check").demand(writes || entry.check.is_none(), "a read has no effect to check for")?;
    let dry = entry.metadata.dry_run_supported == entry.dry_run.is_some();
    at.child("dry_run").demand(dry, "given if, and only if, metadata.dry_run_supported is true")?;
    destinations(&entry.input, &at.child("input"))?;
    let mut metadata = entry.metadata.clone();
    if writes && entry.request.method == "DELETE" && !metadata.capabilities.iter().any(|word| word == DELETE_CAPABILITY)
    {
        metadata.capabilities.push(DELETE_CAPABILITY.to_owned());
    }
    let spec = Spec {
        name: entry.name.clone(),
        version: entry.version.clone(),
        description: entry.description.clone(),
        metadata,
        effect: entry.effect,
        reads_when: None,
        checkable: entry.check.is_some(),
        rollback: entry.rollback.as_ref().map_or(Rollback::Unsupported, rollback),
        timeout_ms: entry.timeout_ms,
        execution: Execution::InProcess,
        input: at.child("input").ok(Schema::compile(with_dry_run(entry.input.clone())))?,
        output: at.child("output").ok(Schema::compile(entry.output.clone()))?,
    };
    let scope = PlaceholderScope { input: Some(&entry.input), output: None };
    let both = PlaceholderScope { output: Some(&entry.output), ..scope };
    let undo = entry.rollback.as_ref().map(|undo| {
        let request = step(&undo.request, &at.child("rollback.request"), &both)?;
        Ok(RollbackRequest { request, gone: undo.gone.clone() })
    });
    let dry_run = entry.dry_run.as_ref().unwrap_or(&Value::Null);
    let plan = ToolPlan {
        request: step(&entry.request, &at.child("request"), &scope)?,
        response: at.child("response").ok(Mapping::parse(&entry.response))?,
        paging: entry.paging.as_ref().map(|paging| pages(paging, &at.child("paging"), &scope)).transpose()?,
        rollback: undo.transpose()?,
        check: entry.check.as_ref().map(|check| lookup(check, &at.child("check"), &scope)).transpose()?,
        dry_run: tree(dry_run, &at.child("dry_run"), &scope)?,
    };
    Ok((spec, plan))
}
