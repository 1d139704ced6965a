//! `GET /approvals/{token}`: the page behind the link in a mail, which shows what would run and asks.
//!
//! The token is the credential. Looking changes nothing, because programs that guard a mailbox open
//! links before people do; only the form decides.

use crate::edge::Edge;
use crate::page::{self, escape};
use crate::problem::ApiError;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use chimera_core::error::Code;
use chimera_core::limits::NOTES_BYTES_MAX;
use chimera_core::text::visible;
use chimera_engine::flow::{Flow, Opened};
use serde_json::Value;

/// Shows what a link asks to decide about.
#[utoipa::path(
    get,
    path = "/approvals/{token}",
    tag = "link",
    params(("token" = String, Path, description = "What the link in the mail ends with")),
    responses(
        (status = 200, body = String, content_type = "text/html", description = "What would run, and a form to decide"),
        (status = 403, body = String, content_type = "text/html", description = "The person may not decide any more"),
        (status = 404, body = String, content_type = "text/html", description = "There is no such link"),
        (status = 409, body = String, content_type = "text/html", description = "It was decided otherwise, or changed"),
        (status = 410, body = String, content_type = "text/html", description = "The link was used or has expired"),
        (status = 503, body = String, content_type = "text/html", description = "The store can't be read now"),
    )
)]
pub(crate) async fn open(State(edge): State<Edge>, token: Result<Path<String>, PathRejection>) -> Response {
    let token = named(token);
    let opened = match flow(&edge) {
        Ok(flow) => flow.open_link(&token).await.map_err(ApiError::from),
        Err(error) => Err(error),
    };
    match opened {
        Ok(opened) => {
            let title = format!("{} waits for your decision", text(&opened.run["workflow_id"]));
            page::private(StatusCode::OK, &title, &*edge.random, |page| show(page, &opened))
        }
        Err(error) => page::refused(error, &*edge.random),
    }
}

/// The token of a path; one that can't be read is nobody's.
pub(super) fn named(token: Result<Path<String>, PathRejection>) -> String {
    token.map(|Path(token)| token).unwrap_or_default()
}

/// The room behind the link.
pub(super) fn flow(edge: &Edge) -> Result<&Flow, ApiError> {
    edge.flow.as_ref().ok_or_else(|| ApiError::new(Code::NotFound, "no workflows run here"))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "unknown".to_owned(),
        other => other.to_string(),
    }
}

fn show(page: &mut String, opened: &Opened) {
    let (run, approval) = (&opened.run, &opened.approval);
    let action = &approval["action"];
    let workflow = escape(&text(&run["workflow_id"]));
    page.push_str(&format!("<h1>May this run?</h1><p>A run of <code>{workflow}</code> waits for your decision.</p>"));
    page.push_str("<table>");
    let rows = [
        ("What", kind(&text(&approval["action_type"]))),
        ("Step", approval["node_id"].as_str().map(str::to_owned).unwrap_or_default()),
        ("Why you are asked", action["reason"].as_str().unwrap_or_default().to_owned()),
        ("Asked for by", text(&approval["requested_by"])),
        ("Level", text(&run["autonomy_level"])),
        ("Risk", risk(run)),
        ("Open until", text(&approval["expires_at"])),
        ("Run", text(&run["run_id"])),
        ("Digest", text(&approval["digest"])),
    ];
    for (label, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        page.push_str(&format!("<tr><th>{label}</th><td>{}</td></tr>", escape(value)));
    }
    page.push_str("</table>");
    match approval["action_type"].as_str() {
        Some("plan") => steps(page, &action["plan"]["steps"]),
        Some("graph.patch") => exact(page, "The change", &action["patch"]),
        Some("hitl") => exact(page, "The question", &action["input"]),
        _ => exact(page, "The exact input", &action["input"]),
    }
    form(page, opened);
}

fn kind(action: &str) -> String {
    match action {
        "plan" => "The whole plan of the run".to_owned(),
        "graph.patch" => "A change of the plan".to_owned(),
        "hitl" => "A person decides here".to_owned(),
        "workflow" => "Another run inside this one".to_owned(),
        tool => format!("A call of the tool {tool}"),
    }
}

fn risk(run: &Value) -> String {
    run["risk"]["score"].as_u64().map(|score| score.to_string()).unwrap_or_default()
}

fn exact(page: &mut String, title: &str, value: &Value) {
    page.push_str(&format!("<h2>{title}</h2><pre>{}</pre>", escape(&exactly(value))));
}

/// A document as JSON, in which no character hides and none turns others around.
fn exactly(value: &Value) -> String {
    visible(&format!("{value:#}")).into_owned()
}

fn steps(page: &mut String, steps: &Value) {
    page.push_str("<h2>What would run, in this order</h2><ol>");
    for step in steps.as_array().into_iter().flatten() {
        let word = |name: &str| step[name].as_str().map(escape);
        let what = word("tool").or_else(|| word("would_execute")).or_else(|| word("type")).or_else(|| word("status"));
        let node = word("node").unwrap_or_default();
        page.push_str(&format!("<li><code>{node}</code>: {}", what.unwrap_or_default()));
        if let Some(item) = step["item"].as_u64() {
            page.push_str(&format!(", item {item}"));
        }
        if !step["deferred"].is_null() {
            page.push_str(" (its input depends on results that are not known yet)");
        }
        if !step["input"].is_null() {
            page.push_str(&format!("<pre>{}</pre>", escape(&exactly(&step["input"]))));
        }
        page.push_str("</li>");
    }
    page.push_str("</ol>");
}

fn form(page: &mut String, opened: &Opened) {
    let digest = escape(&text(&opened.approval["digest"]));
    let person = escape(&opened.person);
    page.push_str(&format!(
        "<h2>Your decision</h2><p>You decide as <code>{person}</code>, about exactly what is shown here, and once.</p>\
         <form method=\"post\" autocomplete=\"off\"><input type=\"hidden\" name=\"digest\" value=\"{digest}\">\
         <label for=\"reason\">Reason, if you want to give one</label>\
         <textarea id=\"reason\" name=\"reason\" rows=\"3\" maxlength=\"{}\"></textarea>\
         <button name=\"decision\" value=\"approve\">Approve</button>\
         <button name=\"decision\" value=\"reject\">Reject</button></form>",
        NOTES_BYTES_MAX / 4
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_run_is_shown_with_every_character_that_it_has() {
        let value = serde_json::json!({"to": "a\u{202e}moc.live\u{200b}", "ü": 1});
        let shown = exactly(&value);
        assert!(shown.contains("a\\u202emoc.live\\u200b") && shown.contains('ü'), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value, "it is still the same document");
    }
}
