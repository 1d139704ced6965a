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
