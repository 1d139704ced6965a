//! Finds what looks like a credential, in one pass over the bytes.
//!
//! Every pattern hangs on one byte (`=`, `:`, `e`, `b`, `-`, `a`, `%`, and the first ones of [`token`]), so that a line without credentials
//! costs one look at each byte and no allocation. All patterns begin and end at ASCII bytes or at
//! the ends of the text, so that a span always lies on character boundaries.

use super::{REDACTED, name, token};
use std::ops::Range;

/// Names of secrets that are also ordinary words before a colon: `unexpected token: found '}'`.
const WORDS: [&str; 6] = ["token", "secret", "secrets", "signature", "credential", "credentials"];
/// Names whose value is the whole rest of a header line.
const HEADERS: [&str; 2] = ["authorization", "cookie"];
/// What may follow `Bearer` in a sentence; shorter words always may.
const AFTER_BEARER: [&str; 6] = ["authentication", "authorization", "tokens", "scheme", "header", "credentials"];
const AFTER_BEARER_BYTES_MIN: usize = 6;
const ACRONYM_BYTES_MAX: usize = 5;
const NAME_BYTES_MAX: usize = 64;
/// No word of a language is this long.
const OPAQUE_BYTES_MIN: usize = 32;

/// A part of a text that must not be read.
pub(super) struct Span {
    /// Where it is.
    pub(super) range: Range<usize>,
    /// The quote to put around the mask, as the text spells it, where a bare value of a JSON
    /// document is masked; else the document could not be read any more.
    pub(super) quote: Range<usize>,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { range, quote: 0..0 }
    }
}

/// Appends the spans of everything that looks like a credential.
pub(super) fn find(text: &str, spans: &mut Vec<Span>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let found = match byte {
            b':' if bytes[at..].starts_with(b"://") => user_info(bytes, at).map(Span::from),
            b'=' | b':' => field(text, at),
            b'e' => jwt(bytes, at).map(Span::from),
            b'B' | b'b' => after_scheme(bytes, at).map(Span::from),
            b'-' => private_key(text, at).map(Span::from),
            b'a' | b'A' | b'%' => link_token(bytes, at).map(Span::from),
            _ => None,
        };
        match found.or_else(|| token::known(bytes, at).map(Span::from)) {
            Some(span) => {
                at = span.range.end.max(at + 1);
                spans.push(span);
            }
            None => at += 1,
        }
    }
}

/// Whether a secret's place holds only nothing, a reference, or what was masked before.
pub(super) fn is_harmless(value: &str) -> bool {
    matches!(value, "" | REDACTED | "null" | "true" | "false" | "None") || value.starts_with("secret://")
}

/// `name=value`, `name: value`, `"name":"value"`, also inside a quoted JSON string.
fn field(text: &str, at: usize) -> Option<Span> {
    let bytes = text.as_bytes();
    let name = name_before(text, at)?;
    if bytes.get(at + 1) == Some(&bytes[at]) || !name::is_secret(name) {
        return None;
    }
    let colon = bytes[at] == b':';
    let name_quote = quote_before(bytes, at);
    let arrow = usize::from(!colon && bytes.get(at + 1) == Some(&b'>'));
    let blanks = bytes[at + 1 + arrow..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let from = unwrapped(bytes, at + 1 + arrow + blanks);
    let quoting = backslashes(&bytes[from..]);
    let span = match bytes.get(from + quoting)? {
        quote @ (b'"' | b'\'' | b'`') => {
            let start = from + quoting + 1;
            start..closing_quote(bytes, start, *quote, quoting)
        }
        b'[' | b'{' => from..closing_bracket(bytes, from),
        _ if colon && name_quote.is_empty() && HEADERS.iter().any(|header| name::ends_with(name, header)) => {
            from..end_of(bytes, from, b"\r\n\"'\\")
        }
        _ => from..end_of_word(bytes, from),
    };
    let value = &text[span.clone()];
    let quoted = span.start > from + quoting || !name_quote.is_empty();
    let word = colon && blanks > 0 && !quoted && WORDS.iter().any(|word| name::ends_with(name, word));
    if is_harmless(value) || (word && !is_opaque(value.as_bytes())) {
        return None;
    }
    let quote = if span.start == from { name_quote } else { 0..0 };
    Some(Span { range: span, quote })
}

fn backslashes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| **b == b'\\').count()
}

/// Past `Some(`, `String(` and the like, where what they hold is quoted or masked; else a bracket
/// is taken as a part of the value.
fn unwrapped(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        let name = bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':')).count();
        if name == 0 || bytes.get(at + name) != Some(&b'(') {
            break;
        }
        at += name + 1;
        at += bytes[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    }
    let held = &bytes[at + backslashes(&bytes[at..])..];
    let shows = matches!(held.first(), Some(b'"' | b'\'' | b'`')) || held.starts_with(REDACTED.as_bytes());
    if shows { at } else { from }
}

/// The quote, with the backslashes before it, that ends the name before `at`.
fn quote_before(bytes: &[u8], at: usize) -> Range<usize> {
    let end = at - bytes[..at].iter().rev().take_while(|b| matches!(b, b' ' | b'\t')).count();
    if end == 0 || !matches!(bytes[end - 1], b'"' | b'\'') {
        return end..end;
    }
    let escapes = bytes[..end - 1].iter().rev().take_while(|b| **b == b'\\').count();
    end - 1 - escapes..end
}

/// The field name that ends right before `at`, without its closing quote.
fn name_before(text: &str, at: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    let end = quote_before(bytes, at).start;
    let len = bytes[..end]
        .iter()
        .rev()
        .take(NAME_BYTES_MAX)
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        .count();
    (len > 0).then(|| &text[end - len..end])
}

/// Where the text quoted behind `depth` backslashes ends: at a quote that is not escaped deeper.
fn closing_quote(bytes: &[u8], start: usize, quote: u8, depth: usize) -> usize {
    let mut escapes = 0;
    for (offset, byte) in bytes[start..].iter().enumerate() {
        match byte {
            b'\\' => escapes += 1,
            b if *b == quote => {
                if (depth == 0 && escapes % 2 == 0) || (depth > 0 && escapes <= depth) {
                    return start + offset - if depth > 0 { escapes } else { 0 };
                }
                escapes = 0;
            }
            _ => escapes = 0,
        }
    }
    bytes.len()
}

/// Just past the bracket that closes the one at `start`; brackets within strings don't count.
fn closing_bracket(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 1 => return at + 1,
            b']' | b'}' => depth -= 1,
            b'"' if at > 0 && bytes[at - 1] != b'\\' => at = closing_quote(bytes, at + 1, b'"', 0),
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn end_of(bytes: &[u8], from: usize, ends: &[u8]) -> usize {
    from + bytes[from..].iter().take_while(|b| !ends.contains(b)).count()
}

/// The end of an unquoted value; an authentication scheme takes its parameter along, and a bracket
/// that the value opened is closed by it.
fn end_of_word(bytes: &[u8], from: usize) -> usize {
    const ENDS: &[u8] = b" \t\r\n&;,\"'`\\)}]>";
    let mut end = end_of(bytes, from, ENDS);
    let schemes: [&[u8]; 4] = [b"bearer", b"basic", b"token", b"digest"];
    let is_scheme = schemes.iter().any(|scheme| bytes[from..end].eq_ignore_ascii_case(scheme));
    if is_scheme && bytes.get(end) == Some(&b' ') {
        end = end_of(bytes, end + 1, ENDS);
    }
    for (opened, closes) in [(b'[', b']'), (b'(', b')')] {
        let open = bytes[from..end].iter().filter(|b| **b == opened).count();
        end += bytes[end..].iter().take(open).take_while(|b| **b == closes).count();
    }
    end
}

/// Whether a word looks drawn at random rather than written: digits, or long with both cases.
fn is_opaque(word: &[u8]) -> bool {
    let digit = word.iter().any(u8::is_ascii_digit);
    let both_cases = word.iter().any(u8::is_ascii_lowercase) && word.iter().any(u8::is_ascii_uppercase);
    (word.len() >= 8 && digit) || (word.len() >= 16 && both_cases) || word.len() >= OPAQUE_BYTES_MIN
}

pub(super) fn begins_word(bytes: &[u8], at: usize) -> bool {
    at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// What follows `/approvals/`: whoever has it may decide. The path may be spelled with escapes.
fn link_token(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let spelled = |at: usize| match bytes.get(at..)? {
        [b'%', rest @ ..] => {
            // A `%` may itself be escaped: `%252F`.
            let escapes = rest.chunks(2).take_while(|pair| *pair == b"25").count() * 2;
            let byte = hex::decode(rest.get(escapes..escapes + 2)?).ok()?;
            Some((byte[0], 3 + escapes))
        }
        [byte, ..] => Some((*byte, 1)),
        [] => None,
    };
    let mut end = at;
    for wanted in b"approvals" {
        let (byte, len) = spelled(end)?;
        if !byte.eq_ignore_ascii_case(wanted) {
            return None;
        }
        end += len;
    }
    let name = end;
    while let Some((b'/' | b'\\', len)) = spelled(end) {
        end += len;
    }
    let start = end;
    let value = start..end_of(bytes, start, b" \t\r\n?#&\"'`<>,;)}]\\");
    // The route is written with a placeholder.
    (start > name && is_opaque(&bytes[value.clone()])).then_some(value)
}

/// The parameter of `Bearer …` or `Basic …`.
fn after_scheme(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let schemes: [&[u8]; 2] = [b"bearer ", b"basic "];
    let scheme = schemes.iter().find(|s| bytes.get(at..at + s.len()).is_some_and(|w| w.eq_ignore_ascii_case(s)))?;
    let start = at + scheme.len();
    let token = |b: &&u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
    let end = start + bytes[start..].iter().take_while(token).count();
    let value = &bytes[start..end];
    let unpadded = value.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
    // `realm="x"` and `realm=x` are parameters of a challenge.
    let challenge = value[..unpadded].contains(&b'=') || (unpadded < value.len() && bytes.get(end) == Some(&b'"'));
    let capital = bytes[at..].starts_with(b"Bearer ");
    (unpadded > 0 && begins_word(bytes, at) && !challenge && !is_prose(value, capital)).then_some(start..end)
}

/// Whether what follows a scheme is written language: words, joined or not, and acronyms.
fn is_prose(value: &[u8], after_bearer: bool) -> bool {
    let lower = |word: &[u8]| word.iter().all(u8::is_ascii_lowercase);
    let plain = value.split(|b| b"-./".contains(b)).all(|word| match word {
        [] => true,
        [first, rest @ ..] => {
            let acronym = word.len() <= ACRONYM_BYTES_MAX && word.iter().all(u8::is_ascii_uppercase);
            acronym || (first.is_ascii_alphabetic() && lower(rest))
        }
    });
    let expected = || {
        let word = value.strip_suffix(b".").unwrap_or(value);
        word.len() < AFTER_BEARER_BYTES_MIN || AFTER_BEARER.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()))
    };
    plain && value.len() < OPAQUE_BYTES_MIN && (!after_bearer || expected())
}

/// Three dotted parts of base64url of which the first is the beginning of a JSON object.
fn jwt(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    const PART_BYTES_MIN: usize = 10;
    if !bytes[at..].starts_with(b"eyJ") || !begins_word(bytes, at) {
        return None;
    }
    let part = |from: usize| {
        let url_safe = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        from + bytes.get(from..).unwrap_or_default().iter().take_while(url_safe).count()
    };
    let header = part(at);
    let claims = part(header + 1);
    let dotted = bytes.get(header) == Some(&b'.') && bytes.get(claims) == Some(&b'.');
    let long = header - at >= PART_BYTES_MIN && claims.saturating_sub(header + 1) >= PART_BYTES_MIN;
    (dotted && long).then(|| at..part(claims + 1))
}

/// The user info of `scheme://user:password@host`.
fn user_info(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + 3;
    let word = end_of(bytes, start, b" \t\r\n\"'<>`");
    let authority = end_of(bytes, start, b"/?# \t\r\n\"'<>`");
    let last_at = |end: usize| bytes[start..end].iter().rposition(|b| *b == b'@').map(|offset| start + offset);
    let end = last_at(authority).or_else(|| {
        // A slash within the password: what follows the colon is no port number.
        let colon = bytes[start..authority].iter().position(|b| *b == b':')?;
        let port = &bytes[start + colon + 1..authority];
        let broken = !port.iter().all(u8::is_ascii_digit) && bytes.get(start) != Some(&b'[');
        if broken { last_at(word) } else { None }
    })?;
    (end > start && &bytes[start..end] != REDACTED.as_bytes()).then_some(start..end)
}

/// What a URL carries that is secret, as it is spelled there: its password, and the values of
/// parameters that are named like secrets. A password may hold every mark that elsewhere ends one,
/// so its longest reading counts too.
pub(super) fn secrets_of_url(url: &str) -> impl Iterator<Item = &str> {
    let info = url.find("://").and_then(|at| user_info(url.as_bytes(), at));
    let password = info.and_then(|info| url[info].split_once(':')).map(|(_, password)| password);
    let longest = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')?.0.split_once(':'));
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let passwords = password.into_iter().chain(longest.map(|(_, password)| password));
    passwords.chain(pairs.filter(|(name, _)| name::is_secret(name)).map(|(_, value)| value))
}

/// A private key in PEM armour, to its end or, cut off, to the end of the text or string.
fn private_key(text: &str, at: usize) -> Option<Range<usize>> {
    const BEGIN: &str = "-----BEGIN ";
    let rest = text.get(at..)?.strip_prefix(BEGIN)?;
    let label = rest.split("-----").next()?;
    if !label.ends_with("PRIVATE KEY") || label.len() > NAME_BYTES_MAX {
        return None;
    }
    let end_mark = format!("-----END {label}-----");
    let whole = text[at..].find(&end_mark).map(|offset| at + offset + end_mark.len());
    let end = whole.unwrap_or_else(|| end_of(text.as_bytes(), at, b"\""));
    Some(at..end)
}
