//! `GET /approvals/{token}`: the approval page that a mailed link opens.
//!
//! The token is the credential. Opening the page changes nothing, because mail scanners open links
//! before people do; only the form decides.

use crate::edge::Edge;
use crate::page::{self, escape};
use crate::problem::ApiError;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use chimera_core::error::Code;
use chimera_core::flow::review::{self, Change, Review};
use chimera_core::limits::NOTES_BYTES_MAX;
use chimera_core::text::{escape_invisible, render_lines};
use chimera_engine::flow::{self, Flow, LinkView};

/// Shows the approval page of a link.
#[utoipa::path(
    get,
    path = "/approvals/{token}",
    tag = "link",
    params(("token" = String, Path, description = "Token of the approval link")),
    responses(
        (status = 200, body = String, content_type = "text/html", description = "What would run, and a form to decide"),
        (status = 403, body = String, content_type = "text/html", description = "The person is not allowed to decide any more"),
        (status = 404, body = String, content_type = "text/html", description = "Unknown link"),
        (status = 409, body = String, content_type = "text/html", description = "The request was decided elsewhere, or changed"),
        (status = 410, body = String, content_type = "text/html", description = "The link was used or has expired"),
        (status = 503, body = String, content_type = "text/html", description = "The store can't be read now"),
    )
)]
pub(crate) async fn open(State(edge): State<Edge>, token: Result<Path<String>, PathRejection>) -> Response {
    let token = token_or_empty(token);
    let opened = match flow(&edge) {
        Ok(flow) => flow::open_link(flow, &token).await.map_err(ApiError::from),
        Err(error) => Err(error),
    };
    match opened {
        Ok(opened) => {
            let title = review::title(&opened.review);
            page::private_page(StatusCode::OK, &title, &*edge.random, |page| render_review(page, &opened))
        }
        Err(error) => page::refused(error, &*edge.random),
    }
}

/// The token in the path; empty, and so unknown, if it can't be decoded.
pub(crate) fn token_or_empty(token: Result<Path<String>, PathRejection>) -> String {
    token.map(|Path(token)| token).unwrap_or_default()
}

pub(crate) fn flow(edge: &Edge) -> Result<&Flow, ApiError> {
    edge.flow.as_ref().ok_or_else(|| ApiError::new(Code::NotFound, "workflows are not configured on this server"))
}

fn render_review(page: &mut String, opened: &LinkView) {
    let review = &opened.review;
    page.push_str(&format!("<h1>{}</h1>", escape(&review::title(review))));
    if !review.refusals.is_empty() {
        page.push_str("<div class=\"stop\"><strong>This can't be approved.</strong> The dry run was refused:<ul>");
        review.refusals.iter().for_each(|why| page.push_str(&format!("<li>{}</li>", escape_visible(why))));
        page.push_str("</ul>Reject it, or change the step's input to repeat the dry run.</div>");
    }
    if let Some(question) = &review.question {
        let prompt = question.prompt.as_deref().unwrap_or("(no prompt, only data)");
        let prompt: Vec<String> = prompt.lines().map(escape_visible).collect();
        page.push_str(&format!("<blockquote>{}</blockquote>", prompt.join("<br>")));
        block(page, "Context", &render_lines(&question.shown));
    }
    changes(page, review);
    calls(page, review);
    if let Some(patch) = &review.patch {
        block(page, "Proposed change", &render_lines(patch));
    }
    page.push_str("<h2>Request details</h2><table>");
    for (label, value) in review::facts(review) {
        page.push_str(&format!("<tr><th>{label}</th><td>{}</td></tr>", escape_visible(&value)));
    }
    page.push_str("</table>");
    risk(page, review);
    form(page, opened);
}

/// Escaped text in which invisible characters are made visible.
fn escape_visible(text: &str) -> String {
    escape(&escape_invisible(text))
}

/// `lines` must be free of invisible characters.
fn block(page: &mut String, title: &str, lines: &[String]) {
    page.push_str(&format!("<h2>{title}</h2>{}", document(lines)));
}

/// Lines that stay behind their indent, and behind the mark of a text with several lines, where they wrap.
fn document(lines: &[String]) -> String {
    let row = |line: &String| {
        let words = line.trim_start_matches(' ');
        let words = words.strip_prefix("| ").unwrap_or(words);
        let (margin, words) = line.split_at(line.len() - words.len());
        format!("<div class=\"line\"><span>{margin}</span><span>{}</span></div>", escape(words))
    };
    format!("<pre>{}</pre>", lines.iter().map(row).collect::<String>())
}

fn changes(page: &mut String, review: &Review) {
    if !review.changes.is_empty() {
        let lines: Vec<String> = review.changes.iter().flat_map(Change::lines).collect();
        block(page, "Changed since it was last shown", &lines);
    }
}

fn calls(page: &mut String, review: &Review) {
    if review.calls.is_empty() {
        return;
    }
    page.push_str(&format!("<h2>{}</h2><ol>", escape(review::calls_title(review).trim_end_matches(':'))));
    for call in &review.calls {
        page.push_str(&format!("<li><strong>{}</strong>", escape(&review::headline(call))));
        for remark in review::remarks(call) {
            let class = if call.refused.is_some() { " class=\"stop\"" } else { "" };
            page.push_str(&format!("<div{class}>{}</div>", escape(&remark)));
        }
        if let Some(input) = &call.input {
            page.push_str(&document(&render_lines(input)));
        }
        page.push_str("</li>");
    }
    page.push_str("</ol>");
}

fn risk(page: &mut String, review: &Review) {
    let Some(risk) = review.risk.as_ref().filter(|risk| !risk.reasons.is_empty()) else { return };
    page.push_str(&format!("<h2>Why the risk is {} ({} points)</h2><ul>", escape(&risk.band), risk.score));
    for reason in &risk.reasons {
        let times = if reason.places.len() > 1 { format!(" ×{}", reason.places.len()) } else { String::new() };
        page.push_str(&format!("<li>{}{times} (+{})</li>", escape_visible(&reason.meaning), reason.points));
    }
    page.push_str("</ul>");
}

fn form(page: &mut String, opened: &LinkView) {
    // Without a digest no decision is accepted: the server compares it.
    let digest = opened.review.digest.as_deref().map_or_else(String::new, escape);
    let person = escape_visible(&opened.person);
    let approve = if opened.review.refusals.is_empty() {
        "<button class=\"primary\" name=\"decision\" value=\"approve\">Approve</button>"
    } else {
        ""
    };
    page.push_str(&format!(
        "<h2>Your decision</h2><p>You decide as <code>{person}</code>, about exactly what is shown here. \
         The link works once.</p>\
         <form method=\"post\" autocomplete=\"off\"><input type=\"hidden\" name=\"digest\" value=\"{digest}\">\
         <label for=\"reason\">Reason (optional)</label>\
         <textarea id=\"reason\" name=\"reason\" rows=\"3\" maxlength=\"{}\"></textarea>{approve}\
         <button class=\"plain\" name=\"decision\" value=\"reject\">Reject</button></form>",
        NOTES_BYTES_MAX / 4
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_words_of_a_value_stand_right_of_its_margin() {
        let gap = " ".repeat(400);
        let input = json!({ "to": { "note": format!("a\n  b{gap}key: <5>") } });
        let row =
            |margin: &str, words: &str| format!("<div class=\"line\"><span>{margin}</span><span>{words}</span></div>");
        let rows =
            [row("", "to:"), row("  ", "note:"), row("    | ", "a"), row("    | ", "  b\\u0020(×400)key: &lt;5&gt;")];
        assert_eq!(document(&render_lines(&input)), format!("<pre>{}</pre>", rows.concat()));
    }
}
