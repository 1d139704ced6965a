//! Splits Rust source into code, comments and literals, and code into tokens.
//!
//! It handles what a text search gets wrong: nested comments, escapes, raw strings, and `'a`, which may be a lifetime
//! or the start of a character literal. It does not parse the grammar.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Code,
    Comment,
    Literal,
}

/// A range of source of one kind, as byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) kind: SpanKind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A word, a single punctuation character, or a whole literal (represented as `""`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) word: String,
    pub(super) start: usize,
    pub(super) line: usize,
}

/// The word of every literal token.
pub(super) const LITERAL: &str = "\"\"";

/// The whole text as spans without gaps.
pub(super) fn spans(text: &str) -> Vec<Span> {
    let bytes = text.as_bytes();
    let (mut at, mut code_from, mut spans) = (0, 0, Vec::new());
    while at < bytes.len() {
        let Some((kind, end)) = comment_or_literal(bytes, at) else {
            at = word_end(bytes, at).max(at + 1);
            continue;
        };
        if code_from < at {
            spans.push(Span { kind: SpanKind::Code, start: code_from, end: at });
        }
        spans.push(Span { kind, start: at, end });
        (at, code_from) = (end, end);
    }
    if code_from < bytes.len() {
        spans.push(Span { kind: SpanKind::Code, start: code_from, end: bytes.len() });
    }
    spans
}

/// The tokens of the code, with one token for each literal and none for comments.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut line, mut counted) = (1, 0);
    let mut push = |start: usize, word: &str| {
        line += bytes[counted..start].iter().filter(|byte| **byte == b'\n').count();
        counted = start;
        tokens.push(Token { word: word.to_owned(), start, line });
    };
    for span in spans(text) {
        match span.kind {
            SpanKind::Comment => {}
            SpanKind::Literal => push(span.start, LITERAL),
            SpanKind::Code => {
                let mut at = span.start;
                while at < span.end {
                    let end = word_end(bytes, at).max(at + 1);
                    if !bytes[at].is_ascii_whitespace() {
                        push(at, &text[at..end]);
                    }
                    at = end;
                }
            }
        }
    }
    tokens
}

/// The content of a string literal without prefix, hashes and quotes.
pub(super) fn content(literal: &str) -> &str {
    let (first, last) = (literal.find('"'), literal.rfind('"'));
    match (first, last) {
        (Some(first), Some(last)) if first < last => &literal[first + 1..last],
        _ => "",
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The end of the word at `at`; `at` itself if there is none.
fn word_end(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|byte| is_word(**byte)).count()
}

/// The comment or literal that starts at `at`, and its end.
fn comment_or_literal(bytes: &[u8], at: usize) -> Option<(SpanKind, usize)> {
    match (bytes[at], bytes.get(at + 1)) {
        (b'/', Some(b'/')) => {
            let length = bytes[at..].iter().position(|byte| *byte == b'\n');
            Some((SpanKind::Comment, length.map_or(bytes.len(), |length| at + length)))
        }
        (b'/', Some(b'*')) => Some((SpanKind::Comment, block_comment_end(bytes, at))),
        (b'"', _) => Some((SpanKind::Literal, string_end(bytes, at))),
        (b'\'', _) => character_end(bytes, at).map(|end| (SpanKind::Literal, end)),
        (b'r' | b'b' | b'c', _) => prefixed_end(bytes, at).map(|end| (SpanKind::Literal, end)),
        _ => None,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of the string whose opening quote is at `quote`.
fn string_end(bytes: &[u8], quote: usize) -> usize {
    let mut at = quote + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a character literal; `None` if the quote starts a lifetime.
fn character_end(bytes: &[u8], quote: usize) -> Option<usize> {
    let first = *bytes.get(quote + 1)?;
    if first == b'\\' {
        let rest = bytes.get(quote + 3..)?;
        return rest.iter().position(|byte| *byte == b'\'').map(|length| quote + 4 + length);
    }
    let width = match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    (bytes.get(quote + 1 + width) == Some(&b'\'')).then_some(quote + 2 + width)
}

/// The end of a literal with a prefix: `r"…"`, `br#"…"#`, `b"…"`, `c"…"`, `b'…'`.
fn prefixed_end(bytes: &[u8], start: usize) -> Option<usize> {
    let word = word_end(bytes, start);
    match (&bytes[start..word], bytes.get(word)?) {
        (b"b" | b"c", b'"') => Some(string_end(bytes, word)),
        (b"b", b'\'') => character_end(bytes, word),
        (b"r" | b"br" | b"cr", b'"' | b'#') => {
            let hashes = bytes[word..].iter().take_while(|byte| **byte == b'#').count();
            (bytes.get(word + hashes) == Some(&b'"')).then_some(())?;
            let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let inside = word + hashes + 1;
            let length = bytes[inside..].windows(closing.len()).position(|window| window == closing);
            Some(length.map_or(bytes.len(), |length| inside + length + closing.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: SpanKind, text: &str) -> Vec<&str> {
        spans(text).iter().filter(|span| span.kind == kind).map(|span| &text[span.start..span.end]).collect()
    }

    fn words(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|token| token.word).collect()
    }

    #[test]
    fn quotes_and_slashes_inside_one_another_are_kept_apart() {
        let text = "let a = \"// no \\\" /* \"; // yes \"text\"\n/* one /* two */ \" */ b";
        assert_eq!(of(SpanKind::Literal, text), ["\"// no \\\" /* \""]);
        assert_eq!(of(SpanKind::Comment, text), ["// yes \"text\"", "/* one /* two */ \" */"]);
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let text = r####"f(r#"a " b"#, br##"x "# y"##, r"\", b"\"", r#type, cr"z")"####;
        assert_eq!(
            of(SpanKind::Literal, text),
            ["r#\"a \" b\"#", "br##\"x \"# y\"##", "r\"\\\"", "b\"\\\"\"", "cr\"z\""]
        );
    }

    #[test]
    fn characters_are_literals_and_lifetimes_are_code() {
        let text = r"fn f<'a>(x: &'a str, q: &'static u8) { ('\'', '{', 'é', b'\\', '\u{7d}') }";
        assert_eq!(of(SpanKind::Literal, text), ["'\\''", "'{'", "'é'", "b'\\\\'", "'\\u{7d}'"]);
    }

    #[test]
    fn a_word_that_ends_like_a_prefix_is_no_prefix() {
        assert_eq!(words("for\"x\" attr'y'"), ["for", LITERAL, "attr", LITERAL]);
    }

    #[test]
    fn tokens_know_their_lines_and_leave_comments_out() {
        let found = tokens("a // b\n/* c\n */ d::e(\"f\ng\") h");
        let seen: Vec<(&str, usize)> = found.iter().map(|token| (token.word.as_str(), token.line)).collect();
        assert_eq!(
            seen,
            [("a", 1), ("d", 3), (":", 3), (":", 3), ("e", 3), ("(", 3), (LITERAL, 3), (")", 4), ("h", 4)]
        );
    }

    #[test]
    fn the_content_of_a_literal_has_no_quotes() {
        assert_eq!(content("br#\"a \" b\"#"), "a \" b");
        assert_eq!(content("\"\""), "");
        assert_eq!(content("'x'"), "");
    }

    #[test]
    fn text_that_ends_too_early_ends_the_scan() {
        for text in ["\"open", "r#\"open\"", "/* open", "'\\", "b'", "r#"] {
            assert_eq!(spans(text).last().map(|span| span.end), Some(text.len()), "{text}");
        }
    }
}
