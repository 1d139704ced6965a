//! How a value is spelled by those who repeat it: as it is, escaped for JSON or a URL, in base64, in hex.
//!
//! Escapes are a choice that every writer makes for every character (`%41`, `\u0041`, `\/`), so they
//! are read while comparing. Base64 has three spellings of the same bytes, by how many bytes stand
//! before them; what depends on the neighbours is left out of the comparison and masked with the rest.
//! Both are often broken into lines, and hex into pairs (`de:ad`), so they are also looked for without breaks. So is the
//! value itself, unless it is so short that ordinary words could make it up.

use super::pattern::Span;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use std::ops::Range;
use zeroize::Zeroizing;

/// Bytes that a value has at the least to be looked for across breaks.
const BROKEN_BYTES_MIN: usize = 12;

/// A value to be found.
#[derive(Clone)]
pub(super) struct Needle {
    plain: Zeroizing<Vec<u8>>,
    /// The value without what breaks a text, if that is long enough.
    bare: Option<Zeroizing<String>>,
}

/// One spelling whose characters stand for themselves.
#[derive(Clone)]
pub(super) struct Encoded {
    pub(super) text: Zeroizing<Vec<u8>>,
    /// Whether the characters before and behind hold a part of the value too.
    pub(super) shares: (bool, bool),
}

impl Needle {
    pub(super) fn of(plain: &[u8]) -> Self {
        let bare = std::str::from_utf8(plain).ok().map(|text| Zeroizing::new(text.replace(is_break, "")));
        let bare = bare.filter(|bare| bare.len() >= BROKEN_BYTES_MIN);
        Self { plain: Zeroizing::new(plain.to_vec()), bare }
    }

    /// The value in hex and in base64.
    pub(super) fn encoded(&self) -> Vec<Encoded> {
        let hex = Zeroizing::new(hex::encode(&*self.plain));
        let whole = |text: &str| Encoded { text: Zeroizing::new(text.as_bytes().to_vec()), shares: (false, false) };
        let mut encoded = vec![whole(&hex), whole(&Zeroizing::new(hex.to_uppercase()))];
        for before in 0..3 {
            let mut bytes = Zeroizing::new(vec![0; before]);
            bytes.extend_from_slice(&self.plain);
            for engine in [STANDARD, URL_SAFE] {
                let text = Zeroizing::new(engine.encode(&*bytes));
                // Characters of six bits: the first that is all the value's, and the last.
                let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
                let shares = (before > 0, !(bytes.len() * 8).is_multiple_of(6));
                encoded.push(Encoded { text: Zeroizing::new(text.as_bytes()[from..to].to_vec()), shares });
            }
        }
        encoded
    }

    /// The value without what breaks a text.
    pub(super) fn bare(&self) -> Option<&[u8]> {
        self.bare.as_ref().map(|bare| bare.as_bytes())
    }

    pub(super) fn is(&self, plain: &[u8]) -> bool {
        *self.plain == plain
    }

    /// Appends where the value stands in a text with escapes.
    pub(super) fn find_escaped(&self, text: &str, spans: &mut Vec<Span>) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match self.escaped_at(bytes, at) {
                Some(end) if text.is_char_boundary(at) && text.is_char_boundary(end) => {
                    spans.push(Span::from(at..end));
                    at = end;
                }
                _ => at += 1,
            }
        }
    }

    /// Where the value ends, if it begins here, however each of its characters is spelled.
    fn escaped_at(&self, text: &[u8], start: usize) -> Option<usize> {
        let (mut at, mut rest) = (start, &self.plain[..]);
        while !rest.is_empty() {
            let (spelled, meant) = unescaped(text.get(at..)?, rest)?;
            at += spelled;
            rest = &rest[meant..];
        }
        Some(at)
    }
}

/// Whether there may be escapes in a text.
pub(super) fn has_escapes(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'%' | b'\\' | b'+'))
}

const fn is_break(c: char) -> bool {
    c.is_ascii_whitespace() || c == ':'
}

/// A text without what breaks an encoding: white space, also as `\n` of JSON, and the colons between pairs.
pub(super) struct Joined {
    pub(super) text: String,
    /// Where each byte stood.
    places: Vec<usize>,
}

impl Joined {
    /// None if there is no break.
    pub(super) fn of(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let breaks = |b: &u8| b.is_ascii_whitespace() || matches!(b, b':' | b'\\');
        if !bytes.iter().any(breaks) {
            return None;
        }
        let mut joined = Self { text: String::with_capacity(text.len()), places: Vec::with_capacity(text.len()) };
        let mut skip = 0;
        for (at, c) in text.char_indices() {
            if at < skip {
                continue;
            }
            if c == '\\' && matches!(bytes.get(at + 1), Some(b'n' | b'r' | b't')) {
                skip = at + 2;
            } else if !is_break(c) {
                joined.text.push(c);
                joined.places.extend(at..at + c.len_utf8());
            }
        }
        Some(joined)
    }

    pub(super) fn place(&self, range: Range<usize>) -> Option<Range<usize>> {
        let last = range.end.checked_sub(1)?;
        Some(*self.places.get(range.start)?..self.places.get(last)? + 1)
    }
}

/// How many bytes of the text stand for how many of the value, if the text goes on like the value.
fn unescaped(text: &[u8], value: &[u8]) -> Option<(usize, usize)> {
    let (first, wanted) = (*text.first()?, *value.first()?);
    if first == b'%' {
        // A `%` may itself be escaped, any number of times: `%252F`.
        let mut at = 1;
        while text.get(at..at + 2).is_some_and(|pair| pair == b"25") && text.len() > at + 3 && wanted != b'%' {
            at += 2;
        }
        let byte = text.get(at..at + 2).and_then(|pair| hex::decode(pair).ok());
        if byte.is_some_and(|byte| byte[0] == wanted) {
            return Some((at + 2, 1));
        }
    }
    if first == b'\\'
        && let Some(found) = after_backslashes(text, value)
    {
        return Some(found);
    }
    if first == wanted || (first == b'+' && wanted == b' ') {
        return Some((1, 1));
    }
    None
}

/// `\u0041`, `\n`, `\/` and the like, behind any number of backslashes.
fn after_backslashes(text: &[u8], value: &[u8]) -> Option<(usize, usize)> {
    let slashes = text.iter().take_while(|b| **b == b'\\').count();
    if text.get(slashes) == Some(&b'u')
        && let Some((spelled, meant)) = code_point(text, slashes)
    {
        let mut buffer = [0; 4];
        let meant = meant.encode_utf8(&mut buffer).as_bytes();
        if value.starts_with(meant) {
            return Some((spelled, meant.len()));
        }
    }
    // Backslashes of the value, each spelled as one or several.
    let own = value.iter().take_while(|b| **b == b'\\').count();
    if own > 0 {
        return (slashes >= own).then_some((slashes, own));
    }
    let kind = *text.get(slashes)?;
    let meant = match kind {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'f' => 0x0c,
        other => other,
    };
    (value[0] == meant && !meant.is_ascii_alphanumeric()).then_some((slashes + 1, 1))
}

/// The character of `\uXXXX`, or of two of them, and the bytes that spell it.
pub(super) fn code_point(text: &[u8], slashes: usize) -> Option<(usize, char)> {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(text.get(at..at + 4)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(slashes + 1)?;
    let after = slashes + 5;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Some((after, c));
    }
    let between = text.get(after..)?.iter().take_while(|b| **b == b'\\').count();
    let second = (text.get(after + between) == Some(&b'u')).then(|| unit(after + between + 1)).flatten()?;
    let c = char::decode_utf16([first, second]).next()?.ok()?;
    Some((after + between + 5, c))
}

/// The range with the characters that hold a part of the value beside others, and the padding.
pub(super) fn widened(text: &[u8], range: Range<usize>, (before, behind): (bool, bool)) -> Range<usize> {
    let digit = |at: usize| text.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || b"+/-_".contains(b));
    let start = range.start - usize::from(before && range.start > 0 && digit(range.start - 1));
    let mut end = range.end + usize::from(behind && digit(range.end));
    end += text[end..].iter().take(2).take_while(|b| **b == b'=' && (behind || before)).count();
    start..end
}
