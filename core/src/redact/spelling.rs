//! How a value is spelled by those who repeat it: as it is, escaped for JSON or a URL, in base64, in hex.
//!
//! Escapes are a choice that every writer makes for every character (`%41`, `\u0041`, `\/`), so they
//! are read while comparing. Base64 has three spellings of the same bytes, by how many bytes stand
//! before them; what depends on the neighbours is left out of the comparison and masked with the rest.
//! Both are often broken into lines, and hex into pairs (`de:ad`), so they are also looked for without breaks. So is the
//! value itself, unless it is so short that ordinary words could make it up.

use super::pattern::Span;
use super::source::Source;
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
    pub(super) fn find_escaped(&self, text: &str, backslashes: &Backslashes, spans: &mut Vec<Span>) {
        let source = Source::of(text);
        let mut at = 0;
        while at < text.len() {
            match self.escaped_at(source, backslashes, at) {
                Some(end) if text.is_char_boundary(at) && text.is_char_boundary(end) => {
                    spans.push(Span::from(at..end));
                    at = end;
                }
                _ => at += 1,
            }
        }
    }

    /// Where the value ends, if it begins here, however each of its characters is spelled.
    fn escaped_at(&self, source: Source<'_>, backslashes: &Backslashes, start: usize) -> Option<usize> {
        let (mut at, mut rest) = (start, &self.plain[..]);
        while !rest.is_empty() {
            let (end, meant) = unescaped(source, backslashes, at, rest)?;
            at = end;
            rest = &rest[meant..];
        }
        Some(at)
    }
}

/// Where backslashes stand in a text, one after the other. A value may begin at each of them, so each needs to know
/// where they end.
pub(super) struct Backslashes(Vec<Range<usize>>);

impl Backslashes {
    pub(super) fn of(text: &str) -> Self {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (at, _) in text.bytes().enumerate().filter(|(_, byte)| *byte == b'\\') {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end += 1,
                None => runs.push(at..at + 1),
            }
        }
        Self(runs)
    }

    /// Where those end that stand from a place on, if any do.
    fn end(&self, from: usize) -> usize {
        let run = self.0.get(self.0.partition_point(|run| run.end <= from));
        run.filter(|run| run.start <= from).map_or(from, |run| run.end)
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

/// Where what stands for bytes of the value ends, and for how many of them, if the text goes on like the value.
fn unescaped(source: Source<'_>, backslashes: &Backslashes, at: usize, value: &[u8]) -> Option<(usize, usize)> {
    let (first, wanted) = (source.byte(at)?, *value.first()?);
    if first == b'%' {
        // A `%` may itself be escaped, any number of times: `%252F`.
        let mut digits = at + 1;
        while wanted != b'%' && source.has(digits, b"25") && source.len() > digits + 3 {
            digits += 2;
        }
        let byte =
            source.byte(digits).zip(source.byte(digits + 1)).and_then(|(high, low)| hex::decode([high, low]).ok());
        if byte.is_some_and(|byte| byte[0] == wanted) {
            return Some((digits + 2, 1));
        }
    }
    if first == b'\\'
        && let Some(found) = after_backslashes(source, backslashes, at, value)
    {
        return Some(found);
    }
    if first == wanted || (first == b'+' && wanted == b' ') {
        return Some((at + 1, 1));
    }
    None
}

/// `\u0041`, `\n`, `\/` and the like, behind any number of backslashes.
fn after_backslashes(source: Source<'_>, backslashes: &Backslashes, at: usize, value: &[u8]) -> Option<(usize, usize)> {
    let kind_at = backslashes.end(at);
    let kind = source.byte(kind_at);
    if kind == Some(b'u')
        && let Some((end, meant)) = code_point(source, kind_at, |at| backslashes.end(at))
    {
        let mut buffer = [0; 4];
        let meant = meant.encode_utf8(&mut buffer).as_bytes();
        if value.starts_with(meant) {
            return Some((end, meant.len()));
        }
    }
    // Backslashes of the value, each spelled as one or several.
    let own = value.iter().take_while(|b| **b == b'\\').count();
    if own > 0 {
        return (kind_at - at >= own).then_some((kind_at, own));
    }
    let meant = match kind? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'f' => 0x0c,
        other => other,
    };
    (value[0] == meant && !meant.is_ascii_alphanumeric()).then_some((kind_at + 1, 1))
}

/// The character of `uXXXX`, or of two of them with backslashes between, and where it ends.
pub(super) fn code_point(
    source: Source<'_>,
    at: usize,
    backslashes_end: impl Fn(usize) -> usize,
) -> Option<(usize, char)> {
    let first = unit(source, at)?;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Some((at + 5, c));
    }
    let next = backslashes_end(at + 5);
    let second = (source.byte(next) == Some(b'u')).then(|| unit(source, next)).flatten()?;
    let c = char::decode_utf16([first, second]).next()?.ok()?;
    Some((next + 5, c))
}

/// The number of `uXXXX`.
fn unit(source: Source<'_>, at: usize) -> Option<u16> {
    let digits = source.sure_bytes(at + 1..at + 5)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The range with the characters that hold a part of the value beside others, and the padding.
pub(super) fn widened(text: &[u8], range: Range<usize>, (before, behind): (bool, bool)) -> Range<usize> {
    let digit = |at: usize| text.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || b"+/-_".contains(b));
    let start = range.start - usize::from(before && range.start > 0 && digit(range.start - 1));
    let mut end = range.end + usize::from(behind && digit(range.end));
    end += text[end..].iter().take(2).take_while(|b| **b == b'=' && (behind || before)).count();
    start..end
}
