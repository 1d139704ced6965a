//! String literals, with CEL's quotes, prefixes and escapes.

/// The string literal at the start of `source` and its length in bytes, or `None` if there is none.
pub(crate) fn text(source: &str) -> Result<Option<(String, usize)>, String> {
    let prefix = source.bytes().take_while(|byte| b"rRbB".contains(byte)).take(2).count();
    let Some(quote) = source[prefix..].chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        return Ok(None);
    };
    let letters = source[..prefix].to_ascii_lowercase();
    if letters.contains('b') {
        return Err("bytes literals are not supported: JSON has strings only".to_owned());
    }
    if letters == "rr" {
        return Ok(None);
    }
    let raw = letters == "r";
    let body = &source[prefix..];
    let long: String = quote.to_string().repeat(3);
    let close = if body.starts_with(&long) { long.as_str() } else { &long[..1] };
    let mut out = String::new();
    let mut at = close.len();
    loop {
        let rest = &body[at..];
        if rest.starts_with(close) {
            return Ok(Some((out, prefix + at + close.len())));
        }
        match rest.chars().next() {
            None => return Err("unterminated string".to_owned()),
            Some('\n' | '\r') if close.len() == 1 => {
                return Err("a string must end on its line (use triple quotes for several lines)".to_owned());
            }
            Some('\\') if !raw => {
                let (letter, length) = escape(&rest[1..])?;
                if letter == '\0' {
                    return Err("a string can't contain U+0000, which can't be stored".to_owned());
                }
                out.push(letter);
                at += 1 + length;
            }
            Some(letter) => {
                out.push(letter);
                at += letter.len_utf8();
            }
        }
    }
}

/// The character of an escape sequence and its length in bytes after the backslash.
fn escape(rest: &str) -> Result<(char, usize), String> {
    let unknown = || "unknown escape sequence in a string".to_owned();
    let coded = |from: usize, count: usize, radix: u32| {
        let digits = rest.get(from..from + count).filter(|digits| digits.chars().all(|digit| digit.is_digit(radix)));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok()).ok_or_else(unknown)?;
        Ok((char::from_u32(code).ok_or_else(unknown)?, from + count))
    };
    let plain = match rest.chars().next().ok_or_else(unknown)? {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        same @ ('\\' | '?' | '"' | '\'' | '`') => same,
        'x' | 'X' => return coded(1, 2, 16),
        'u' => return coded(1, 4, 16),
        'U' => return coded(1, 8, 16),
        '0'..='3' => return coded(0, 3, 8),
        _ => return Err(unknown()),
    };
    Ok((plain, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_has_no_character_that_no_store_can_hold() {
        for nul in ["'\\u0000'", "'a\\x00b'", "'\\000'", "'\\U00000000'"] {
            assert!(text(nul).is_err_and(|why| why.contains("U+0000")), "{nul}");
        }
        assert_eq!(text("r'\\u0000'"), Ok(Some(("\\u0000".to_owned(), 9))), "six letters");
        assert_eq!(text("'\\u0001'"), Ok(Some(("\u{1}".to_owned(), 8))));
    }
}
