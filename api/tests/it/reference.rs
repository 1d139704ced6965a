//! Documentation against code: the OpenAPI document and the error pages.

use crate::support::{client, edge, served};
use chimera_api::{document, error_index, error_page, route_table};
use chimera_core::error::{Code, ErrorBody, ProblemDetails};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Compares a generated file; the right text is left beside the build for copying.
fn assert_generated(file: &str, expected: &str) {
    let found = std::fs::read_to_string(docs().join(file)).unwrap_or_default();
    if found != expected {
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file.replace('/', "-"));
        std::fs::write(&copy, expected).unwrap();
        panic!("docs/{file} is out of date; the right text is in {}", copy.display());
    }
}

#[tokio::test]
async fn every_route_is_documented_with_its_methods_and_every_documented_path_is_routed() {
    let server = served(edge()).await;
    let document = serde_json::to_value(document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let documented = document["paths"].as_object().unwrap();
    assert_eq!(
        documented.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        route_table().iter().map(|route| route.path).collect()
    );
    let served_document: Value = client().get(server.url("/openapi.json")).send().await.unwrap().json().await.unwrap();
    assert_eq!(served_document, document);
    for (path, operations) in documented {
        let address = server.url(&path.replace("{code}", "NOT_FOUND"));
        let refused = client().request("BREW".parse().unwrap(), address).send().await.unwrap();
        assert_eq!(refused.status(), 405, "{path}");
        let allowed: BTreeSet<String> = refused.headers()["allow"]
            .to_str()
            .unwrap()
            .split(',')
            .map(str::to_lowercase)
            .filter(|m| m != "head")
            .collect();
        assert_eq!(allowed, operations.as_object().unwrap().keys().cloned().collect(), "{path}");
    }
}

/// Parameters in the path are declared as path parameters, and no others: client generators rely on it.
#[test]
fn every_parameter_is_declared_where_it_stands() {
    let document = serde_json::to_value(document()).unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let template = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let template: BTreeSet<&str> = template.collect();
        for (method, operation) in operations.as_object().unwrap() {
            let declared: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().collect();
            let places = ["path", "query", "header"];
            assert!(
                declared.iter().all(|p| places.iter().any(|place| p["in"] == *place)),
                "{method} {path}: {declared:?}"
            );
            let in_path = declared.iter().filter(|p| p["in"] == "path");
            assert!(in_path.clone().all(|p| p["required"] == true), "{method} {path}: {declared:?}");
            let in_path: BTreeSet<&str> = in_path.filter_map(|p| p["name"].as_str()).collect();
            assert_eq!(in_path, template, "{method} {path}");
        }
    }
}

/// A generated client has one function for each operation, named after its id.
#[test]
fn no_two_operations_have_the_same_id() {
    let document = serde_json::to_value(document()).unwrap();
    let mut seen = BTreeSet::new();
    for (place, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        assert!(!id.is_empty() && seen.insert(id.to_owned()), "{place}: the operation id `{id}` is used already");
    }
    assert_eq!(seen.len(), route_table().len());
}

/// Every operation of the document, with its method and path.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, operations)| {
        operations.as_object().unwrap().iter().map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

/// The bodies of an operation, with what they are: its request and its answers, problems left out.
fn bodies(operation: &Value) -> Vec<(String, &Value)> {
    let mut bodies = Vec::new();
    if operation["requestBody"]["content"].is_object() {
        bodies.push(("request".to_owned(), &operation["requestBody"]));
    }
    let answers = operation["responses"].as_object().unwrap().iter().filter(|(status, _)| status.starts_with('2'));
    bodies.extend(
        answers.filter(|(_, answer)| answer["content"].is_object()).map(|(status, answer)| (status.clone(), answer)),
    );
    bodies
}

#[test]
fn every_operation_has_an_example_of_each_body_that_fits_its_schema() {
    let document = serde_json::to_value(document()).unwrap();
    for (place, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let mut shown = parameters.filter(|parameter| parameter["schema"]["examples"].is_array()).count();
        for (name, body) in bodies(operation) {
            for (kind, content) in body["content"].as_object().unwrap() {
                let example = content.get("example").unwrap_or_else(|| panic!("{place}: {name} has no example"));
                shown += 1;
                if kind.ends_with("json") {
                    let problems = mismatches(&document, &content["schema"], example, &name);
                    assert!(problems.is_empty(), "{place}: {problems:#?}");
                }
            }
        }
        assert!(shown > 0, "{place} has no example");
    }
}

/// Where a value differs from its schema: types, enums, missing and unknown members.
fn mismatches(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#')).expect(reference);
        return mismatches(document, target, value, at);
    }
    let all = |schemas: &Value| -> Vec<Vec<String>> {
        schemas.as_array().unwrap().iter().map(|part| mismatches(document, part, value, at)).collect()
    };
    if schema["oneOf"].is_array() {
        let fits = all(&schema["oneOf"]).iter().filter(|problems| problems.is_empty()).count();
        return if fits == 1 { Vec::new() } else { vec![format!("{at}: {fits} alternatives fit {value}")] };
    }
    if schema["allOf"].is_array() {
        return all(&schema["allOf"]).concat();
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let named = |word: &Value| word == kind || (word == "number" && kind == "integer");
    let types = &schema["type"];
    if !types.is_null() && !named(types) && !types.as_array().is_some_and(|types| types.iter().any(named)) {
        return vec![format!("{at}: {value} is not of type {types}")];
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return vec![format!("{at}: {value} is none of {}", schema["enum"])];
    }
    let items = value.as_array().into_iter().flatten().enumerate().filter(|_| schema["items"].is_object());
    let mut found: Vec<String> = items
        .flat_map(|(index, item)| mismatches(document, &schema["items"], item, &format!("{at}/{index}")))
        .collect();
    if let (Some(members), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        found.extend(required.filter(|name| !members.contains_key(*name)).map(|name| format!("{at} lacks {name}")));
        for (name, member) in members {
            if let Some(schema) = properties.get(name) {
                found.extend(mismatches(document, schema, member, &format!("{at}/{name}")));
            }
        }
    }
    found
}

/// JSON that belongs to a caller or a tool, or depends on a code or type beside it. Everything else has members.
const FREE_FORM: [&str; 2] = ["AnyJson", "JsonObject"];

#[test]
fn every_answer_has_a_schema_and_every_object_has_members() {
    let document = serde_json::to_value(document()).unwrap();
    for (place, operation) in operations(&document) {
        for (name, body) in bodies(operation) {
            for (kind, content) in body["content"].as_object().unwrap() {
                assert!(content["schema"].is_object(), "{place}: {name} as {kind} has no schema");
                untyped(&content["schema"], &format!("{place}: {name}"));
            }
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        if !FREE_FORM.contains(&name.as_str()) {
            untyped(schema, name);
        }
    }
}

/// Fails for a schema that says nothing: without a type, or an object without members.
fn untyped(schema: &Value, at: &str) {
    if schema["$ref"].is_string() || schema["enum"].is_array() {
        return;
    }
    for group in ["oneOf", "allOf", "anyOf"] {
        if let Some(parts) = schema[group].as_array() {
            return parts.iter().for_each(|part| untyped(part, at));
        }
    }
    assert!(!schema["type"].is_null(), "{at} has no type: {schema}");
    let is = |word: &str| {
        schema["type"] == word || schema["type"].as_array().is_some_and(|types| types.contains(&word.into()))
    };
    if is("array") {
        untyped(&schema["items"], &format!("{at}[]"));
    }
    if is("object") {
        let properties = schema["properties"].as_object();
        let properties = properties.unwrap_or_else(|| panic!("{at} is an object without members: {schema}"));
        properties.iter().for_each(|(name, member)| untyped(member, &format!("{at}/{name}")));
    }
}

/// Without it the document is not valid OpenAPI.
#[test]
fn every_documented_response_says_what_it_is() {
    let document = serde_json::to_value(document()).unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(!responses.is_empty(), "{method} {path}");
            for (status, response) in responses {
                let words = response["description"].as_str().unwrap_or_default();
                assert!(!words.is_empty(), "{method} {path}: {status} is not described");
            }
        }
    }
}

#[test]
fn the_documented_problem_has_the_members_of_the_real_one() {
    let document = serde_json::to_value(document()).unwrap();
    let members = |schema: &str| -> BTreeSet<String> {
        document
            .pointer(&format!("/components/schemas/{schema}/properties"))
            .unwrap()
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let problem = ProblemDetails::new(Code::Internal, ErrorBody::new(Code::Internal, "m").retry_after(1), "/x", "t");
    let real = serde_json::to_value(problem).unwrap();
    let keys = |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(members("ProblemDocument"), keys(&real));
    assert_eq!(members("ErrorDocument"), keys(&real["error"]));
}

/// SWARM-125
#[test]
fn the_table_of_codes_the_pages_and_the_index_agree() {
    assert_generated("reference/errors.md", &error_index());
    let files: BTreeSet<String> = std::fs::read_dir(docs().join("errors"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, Code::ALL.iter().map(|code| format!("{code}.md")).collect());
    for code in Code::ALL {
        let page = error_page(*code);
        let retryable = if code.retryable() { "yes" } else { "no" };
        let head = format!(
            "# {code}\n\n{}.\n\n| error_type | retryable | HTTP status |\n|---|---|---|\n| `{}` | {retryable} | {} |\n",
            code.title(),
            code.error_type().as_str(),
            code.status()
        );
        assert!(page.starts_with(&head), "the head of docs/errors/{code}.md should be:\n{head}");
        for part in ["\n## What happened\n", "\n## Why\n", "\n## What to do\n"] {
            assert!(page.contains(part), "docs/errors/{code}.md lacks {part}");
        }
    }
    for named in ["VALIDATION_FAILED", "TOOL_UNAVAILABLE", "POLICY_VIOLATION", "OCC_CONFLICT"] {
        assert!(Code::parse(named).is_some(), "{named}");
    }
}

#[tokio::test]
async fn the_type_of_a_problem_leads_to_its_page() {
    let server = served(edge()).await;
    let body: Value = client().get(server.url("/missing")).send().await.unwrap().json().await.unwrap();
    let page = client().get(server.url(body["type"].as_str().unwrap())).send().await.unwrap();
    assert_eq!(page.headers()["content-type"], "text/markdown; charset=utf-8");
    assert_eq!(page.text().await.unwrap(), error_page(Code::NotFound));
    let unknown = client().get(server.url("/docs/errors/NO_SUCH_CODE")).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
}
