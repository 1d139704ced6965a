//! `GET /docs`: the API reference for people.
//!
//! One page rendered from the OpenAPI document, without external resources.

use crate::edge::Edge;
use crate::page::{escape, head};
use axum::extract::State;
use axum::response::Html;
use serde_json::Value;
use std::fmt::Write;
use std::sync::LazyLock;

/// Lists every endpoint and error code on an HTML page.
#[utoipa::path(get, path = "/docs", tag = "ops", responses((status = 200, body = String, content_type = "text/html", description = "The HTML page")))]
pub(crate) async fn docs(State(edge): State<Edge>) -> Html<String> {
    // Public, so it is rendered once.
    static BODY: LazyLock<String> =
        LazyLock::new(|| render(&serde_json::to_value(crate::routes::document()).unwrap_or_default()));
    Html(head("Chimera API", &edge.random.opaque_id()) + &BODY)
}

fn render(document: &Value) -> String {
    let mut page = String::new();
    let text = |at: &str| escape(document.pointer(at).and_then(Value::as_str).unwrap_or_default());
    let _ = write!(
        page,
        "<h1>{} <small>{}</small></h1><p>{}</p>",
        text("/info/title"),
        text("/info/version"),
        text("/info/description")
    );
    page.push_str("<p>For machines: <a href=\"/openapi.json\"><code>/openapi.json</code></a></p><table>");
    page.push_str("<tr><th>Method</th><th>Path</th><th>Description</th><th>Responses</th></tr>");
    for (path, methods) in members(&document["paths"]) {
        for (method, operation) in members(methods) {
            let answers: Vec<String> = members(&operation["responses"]).map(|(status, _)| escape(status)).collect();
            let _ = write!(
                page,
                "<tr><td><code>{}</code></td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escape(&method.to_uppercase()),
                escape(path),
                escape(operation["summary"].as_str().unwrap_or_default()),
                answers.join(", "),
            );
        }
    }
    page.push_str("</table><h2>Errors</h2><table><tr><th>Code</th><th>Status</th><th>Meaning</th></tr>");
    for code in chimera_core::error::Code::ALL {
        let _ = write!(
            page,
            "<tr><td><a href=\"{}\"><code>{code}</code></a></td><td>{}</td><td>{}</td></tr>",
            code.page(),
            code.status(),
            escape(code.title())
        );
    }
    page.push_str("</table></body></html>");
    page
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_escapes_what_it_shows() {
        let document = serde_json::json!({"info": {"title": "<b>"}, "paths": {"/x": {"get": {"summary": "a & b"}}}});
        let page = render(&document);
        assert!(page.contains("&lt;b&gt;") && page.contains("a &amp; b"));
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"));
    }
}
