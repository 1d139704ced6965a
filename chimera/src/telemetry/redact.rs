//! Keeps secrets out of everything that is written down.
//!
//! Two rules. A field whose name says that it holds a secret is masked whole. Every text, from
//! messages to nested errors, is searched for `name=value` and `name: value` with such a name, for
//! `Bearer …`, and for the user part of URLs. Further scrubbers can be added; they see every text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What stands where a secret stood.
pub(crate) const MASK: &str = "[redacted]";

/// Takes secrets out of a text.
pub(crate) type Scrub = Arc<dyn for<'a> Fn(&'a str) -> Cow<'a, str> + Send + Sync>;

/// Names that mean a secret, in lower case, wherever they stand in a field's name.
const NAMES: &[&str] = &[
    "authorization",
    "token",
    "secret",
    "password",
    "passwd",
    "api_key",
    "apikey",
    "api-key",
    "cookie",
    "hmac",
    "signature",
    "credential",
    "private_key",
    "access_key",
    "session_id",
];

/// Applies every rule.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    more: Vec<Scrub>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("more", &self.more.len()).finish()
    }
}

impl Redactor {
    /// The built-in rules and these.
    pub(crate) fn with(more: Vec<Scrub>) -> Self {
        Self { more }
    }

    /// Whether a field of this name is masked whole.
    pub(crate) fn hides(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        NAMES.iter().any(|secret| name.contains(secret))
    }

    /// The text without secrets.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = scrub(text);
        for more in &self.more {
            let next = match more(&clean) {
                Cow::Borrowed(same) if same.len() == clean.len() => None,
                changed => Some(changed.into_owned()),
            };
            clean = next.map_or(clean, Cow::Owned);
        }
        clean
    }
}

fn scrub(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for name in NAMES {
        spans.extend(lower.match_indices(name).filter_map(|(at, _)| value_behind(&lower, at + name.len())));
    }
    for scheme in ["bearer ", "basic "] {
        spans.extend(lower.match_indices(scheme).map(|(at, _)| word(&lower, at + scheme.len())));
    }
    spans.extend(lower.match_indices("://").filter_map(|(at, _)| user_part(&lower, at + 3)));
    spans.retain(|(from, to)| from < to);
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    spans.sort_unstable();
    let mut clean = String::with_capacity(text.len());
    let mut at = 0;
    for (from, to) in spans {
        if from >= at {
            clean.push_str(&text[at..from]);
            clean.push_str(MASK);
        }
        at = at.max(to);
    }
    clean.push_str(&text[at..]);
    Cow::Owned(clean)
}

/// The value behind a name and `=` or `:`, in quotes or not, bare or inside `Some(…)` and the like.
fn value_behind(text: &str, end_of_name: usize) -> Option<(usize, usize)> {
    let rest = text[end_of_name..].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c));
    let rest = rest.trim_start_matches(['"', '\'', '\\', '`']).trim_start();
    let mut rest = rest.strip_prefix(['=', ':'])?.trim_start();
    while let Some((_, inner)) =
        rest.split_once('(').filter(|(word, _)| word.bytes().all(|c| c.is_ascii_alphanumeric()))
    {
        rest = inner;
    }
    let rest = rest.trim_start_matches('\\');
    let from = text.len() - rest.len();
    if let Some(quote) = rest.chars().next().filter(|c| "\"'`".contains(*c)) {
        return Some((from + 1, closing(text, from + 1, quote)));
    }
    let scheme = ["bearer ", "basic "].iter().find(|scheme| rest.starts_with(**scheme));
    Some(word(text, from + scheme.map_or(0, |scheme| scheme.len())))
}

/// Where a quoted value ends: at the next quote that is escaped exactly if the opening one was.
fn closing(text: &str, from: usize, quote: char) -> usize {
    let escaped = |at: usize| text[..at].ends_with('\\');
    let opened = escaped(from - 1);
    let ends = text[from..].match_indices(quote).map(|(at, _)| from + at).find(|at| escaped(*at) == opened);
    ends.map_or(text.len(), |at| at - usize::from(opened))
}

fn word(text: &str, from: usize) -> (usize, usize) {
    let ends = |c: char| c.is_whitespace() || "\"'`,;&})]>\\".contains(c);
    (from, text[from..].find(ends).map_or(text.len(), |length| from + length))
}

fn user_part(text: &str, from: usize) -> Option<(usize, usize)> {
    let ends = |c: char| c.is_whitespace() || "/?#\"'`<>".contains(c);
    let authority = &text[from..text[from..].find(ends).map_or(text.len(), |length| from + length)];
    authority.rfind('@').map(|at| (from, from + at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_texts_are_masked_and_the_rest_stays() {
        for (text, clean) in [
            ("login with password=hunter2 failed", "login with password=[redacted] failed"),
            ("Authorization: Bearer hunter2, next", "Authorization: Bearer [redacted], next"),
            (r#"{"api_key":"hunter2","a":1}"#, r#"{"api_key":"[redacted]","a":1}"#),
            ("connect postgres://bob:hunter2@db/x", "connect postgres://[redacted]@db/x"),
            ("x_api_key_v1 : 'hunter2 hunter2' ok", "x_api_key_v1 : '[redacted]' ok"),
            (r#"Config { token: \"hunter2\" }"#, r#"Config { token: \"[redacted]\" }"#),
            ("a?token=hunter2&b=1", "a?token=[redacted]&b=1"),
            (r#"password: Some(String("a\"hunter2")), x"#, r#"password: Some(String("[redacted]")), x"#),
        ] {
            assert_eq!(Redactor::default().text(text), clean);
        }
    }

    #[test]
    fn harmless_texts_stay_as_they_are() {
        for text in ["", "the token was refused", "http://host/path", "größe: 3 €", "no secret here"] {
            assert!(matches!(Redactor::default().text(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn further_scrubbers_see_every_text() {
        let more: Scrub = Arc::new(|text| Cow::Owned(text.replace("4111", "****")));
        assert_eq!(Redactor::with(vec![more]).text("card 4111 password=x"), "card **** password=[redacted]");
    }
}
