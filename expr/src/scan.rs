//! Finds the `${…}` in a text.
//!
//! An expression ends at its closing brace: braces inside quotes and those of maps are skipped.
//! `$${` is a literal `${`. Comments are refused, because a brace in one could end the expression
//! where the author does not expect it.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(String),
    Expression(&'a str),
}

pub(crate) fn scan(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let before = &rest[..at];
        if let Some(before) = before.strip_suffix('$') {
            plain.push_str(before);
            plain.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        plain.push_str(before);
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        let inner = &rest[at + 2..];
        let end = closing(inner)?;
        pieces.push(Piece::Expression(inner[..end].trim()));
        rest = &inner[end + 1..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// The offset of the closing brace of the expression.
fn closing(text: &str) -> Result<usize, String> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => at = quoted(text, at)?,
            b'{' => depth += 1,
            b'}' if depth == 0 => return Ok(at),
            b'}' => depth -= 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                return Err("comments are not allowed in expressions".to_owned());
            }
            _ => {}
        }
        at += 1;
    }
    Err("unclosed ${ (write $${ for a literal ${)".to_owned())
}

/// The offset of the last byte of the literal whose opening quote is at `open`.
fn quoted(text: &str, open: usize) -> Result<usize, String> {
    let bytes = text.as_bytes();
    let word = text[..open].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
    let raw = matches!(word.to_ascii_lowercase().as_str(), "r" | "br" | "rb");
    let quote = bytes[open];
    let long = bytes[open..].starts_with(&[quote; 3]);
    let mut at = open + if long { 3 } else { 1 };
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\\' && !raw {
            at += 2;
            continue;
        }
        if !long && *byte == quote {
            return Ok(at);
        }
        if long && bytes[at..].starts_with(&[quote; 3]) {
            return Ok(at + 2);
        }
        at += 1;
    }
    Err("unterminated string in an expression".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece<'static> {
        Piece::Text(text.to_owned())
    }

    #[test]
    fn text_and_expressions_are_told_apart() {
        assert_eq!(scan("a ${b} c"), Ok(vec![text("a "), Piece::Expression("b"), text(" c")]));
        assert_eq!(scan("${ {'a': '}'}.a }"), Ok(vec![Piece::Expression("{'a': '}'}.a")]));
        assert_eq!(scan(r#"${"\"}" + r'\'}x"#), Ok(vec![Piece::Expression(r#""\"}" + r'\'"#), text("x")]));
        assert_eq!(scan("${'''it's }'''}"), Ok(vec![Piece::Expression("'''it's }'''")]));
        assert_eq!(scan("cost: $5, $${x} ${y}"), Ok(vec![text("cost: $5, ${x} "), Piece::Expression("y")]));
        assert_eq!(scan("${é}"), Ok(vec![Piece::Expression("é")]));
        assert_eq!(scan(""), Ok(vec![]));
    }

    #[test]
    fn what_never_ends_is_refused() {
        assert!(scan("${a").is_err());
        assert!(scan("${'a}").is_err());
        assert!(scan(r"${'\").is_err());
        assert!(scan("${a // }\n}").is_err());
    }
}
