//! HTML pages for people: one stylesheet, no scripts, no external resources.
//!
//! A page may show untrusted text, so everything is escaped. The headers forbid scripts, external
//! resources, framing, forms to other servers and referrers.

use crate::problem::{ApiError, RenderedError};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use chimera_core::text::escape_invisible_only;
use chimera_engine::port::Random;

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
code,pre{font-family:ui-monospace,monospace}td,th{padding:.3rem .8rem .3rem 0;text-align:left;vertical-align:top}\
th{white-space:nowrap}td{overflow-wrap:anywhere}\
pre{background:#f3f3f3;padding:.8rem;white-space:pre-wrap;overflow-wrap:anywhere}\
.line{display:flex}.line>:first-child{flex:none;white-space:pre}\
.line>:last-child{min-width:0;padding-left:2ch;text-indent:-2ch}\
textarea{box-sizing:border-box;width:100%;font:inherit;color:inherit;background:inherit;border:1px solid #888}\
button{font:inherit;padding:.5rem 1.5rem;margin:.8rem .8rem 0 0;cursor:pointer;border-radius:.3rem}\
.primary{color:#fff;background:#1558b0;border:1px solid #1558b0;font-weight:600}\
.plain{color:inherit;background:transparent;border:1px solid #888}\
.stop{border-left:.3rem solid #b3261e;padding:.4rem .8rem;margin:.6rem 0}\
blockquote{font-size:1.2rem;border-left:.3rem solid #1558b0;margin:1rem 0;padding:.2rem 1rem}li{margin:.6rem 0}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}a{color:#8bf}pre{background:#242424}}";

const REFERRER_POLICY: HeaderName = HeaderName::from_static("referrer-policy");
const CSP: HeaderName = header::CONTENT_SECURITY_POLICY;
const FRAMES: HeaderName = header::X_FRAME_OPTIONS;
const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");

/// The start of a page. The nonce allows its own stylesheet only.
pub(crate) fn head(title: &str, nonce: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\
         <style nonce=\"{nonce}\">{STYLE}</style></head><body>",
        escape(title)
    )
}

/// Escapes text for HTML content and quoted attributes, and removes invisible characters.
pub(crate) fn escape(text: &str) -> String {
    let escaped = escape_invisible_only(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;").replace('\'', "&#39;")
}

/// A page that is not cached, framed or indexed.
pub(crate) fn private_page(
    status: StatusCode,
    title: &str,
    random: &dyn Random,
    content: impl FnOnce(&mut String),
) -> Response {
    let nonce = random.opaque_id();
    let mut page = head(title, &nonce);
    content(&mut page);
    page.push_str("</body></html>");
    let mut response = (status, Html(page)).into_response();
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CSP, policy);
    }
    let fixed = [(REFERRER_POLICY, "no-referrer"), (header::CACHE_CONTROL, "no-store"), (FRAMES, "DENY")];
    for (name, value) in fixed.into_iter().chain([(ROBOTS, "noindex")]) {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// An error page, with the status and code that a problem document would have.
pub(crate) fn refused(error: ApiError, random: &dyn Random) -> Response {
    let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = private_page(status, error.code.title(), random, |page| {
        let (title, message) = (escape(error.code.title()), escape(&sentence(&error.body.message)));
        page.push_str(&format!("<h1>{title}</h1><p>{message}</p><p><code>{}</code></p>", error.code));
    });
    if let Some(seconds) = error.body.retry_after_seconds {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(RenderedError(error));
    response
}

/// Adds a capital letter and a full stop.
fn sentence(message: &str) -> String {
    let mut rest = message.chars();
    let first = rest.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", rest.as_str())
}
