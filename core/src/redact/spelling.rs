//! The spellings of a known value: as is, escaped for JSON or a URL, in base64, in hex.
//!
//! Every writer may escape every character differently (`%41`, `\u0041`, `\/`), so escapes are decoded while
//! comparing. Base64 has three spellings of the same bytes, depending on their offset; characters that depend on
//! neighbouring bytes are not compared, but masked with the rest. Both are often broken into lines, and hex into
//! pairs (`de:ad`), so they are also searched without breaks. So is the value itself, unless it is so short that
//! ordinary words could form it.

use super::pattern::MaskSpan;
use super::scanned_text::ScannedText;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use std::ops::Range;
use zeroize::Zeroizing;

/// Minimum length of a value that is searched across breaks.
const BROKEN_BYTES_MIN: usize = 12;

/// A known value.
#[derive(Clone)]
pub(super) struct KnownSecret {
    plain: Zeroizing<Vec<u8>>,
    /// The value without breaks, if it is long enough.
    bare: Option<Zeroizing<String>>,
}

/// An encoded form of a value that is compared literally.
#[derive(Clone)]
pub(super) struct EncodedForm {
    pub(super) text: Zeroizing<Vec<u8>>,
    /// Whether the adjacent characters before and after encode part of the value too.
    pub(super) shares: (bool, bool),
}

impl KnownSecret {
    pub(super) fn of(plain: &[u8]) -> Self {
        let bare = std::str::from_utf8(plain).ok().map(|text| Zeroizing::new(text.replace(is_break, "")));
        let bare = bare.filter(|bare| bare.len() >= BROKEN_BYTES_MIN);
        Self { plain: Zeroizing::new(plain.to_vec()), bare }
    }

    /// The value in hex and base64.
    pub(super) fn encoded(&self) -> Vec<EncodedForm> {
        let hex = Zeroizing::new(hex::encode(&*self.plain));
        let whole = |text: &str| EncodedForm { text: Zeroizing::new(text.as_bytes().to_vec()), shares: (false, false) };
        let mut encoded = vec![whole(&hex), whole(&Zeroizing::new(hex.to_uppercase()))];
        for before in 0..3 {
            let mut bytes = Zeroizing::new(vec![0; before]);
            bytes.extend_from_slice(&self.plain);
            for engine in [STANDARD, URL_SAFE] {
                let text = Zeroizing::new(engine.encode(&*bytes));
                // The first and last six-bit characters that belong entirely to the value.
                let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
                let shares = (before > 0, !(bytes.len() * 8).is_multiple_of(6));
                encoded.push(EncodedForm { text: Zeroizing::new(text.as_bytes()[from..to].to_vec()), shares });
            }
        }
        encoded
    }

    pub(super) fn bare(&self) -> Option<&[u8]> {
        self.bare.as_ref().map(|bare| bare.as_bytes())
    }

    pub(super) fn is(&self, plain: &[u8]) -> bool {
        *self.plain == plain
    }

    /// Appends the spans of the value in a text with escapes.
    pub(super) fn find_escaped(&self, text: &str, backslashes: &Backslashes, spans: &mut Vec<MaskSpan>) {
        let source = ScannedText::of(text);
        let mut at = 0;
        while at < text.len() {
            match self.escaped_at(source, backslashes, at) {
                Some(end) if text.is_char_boundary(at) && text.is_char_boundary(end) => {
                    spans.push(MaskSpan::from(at..end));
                    at = end;
                }
                _ => at += 1,
            }
        }
    }

    /// The end of the value if it begins at `start`, however each of its characters is escaped.
    fn escaped_at(&self, source: ScannedText<'_>, backslashes: &Backslashes, start: usize) -> Option<usize> {
        let (mut at, mut rest) = (start, &self.plain[..]);
        while !rest.is_empty() {
            let (end, meant) = unescaped(source, backslashes, at, rest)?;
            at = end;
            rest = &rest[meant..];
        }
        Some(at)
    }
}

/// Runs of backslashes in a text. A value may begin at each backslash, so each needs to know where its run ends.
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

    /// The end of the run that contains `from`, or `from` itself.
    fn end(&self, from: usize) -> usize {
        let run = self.0.get(self.0.partition_point(|run| run.end <= from));
        run.filter(|run| run.start <= from).map_or(from, |run| run.end)
    }
}

/// Whether a text may contain escapes.
pub(super) fn has_escapes(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'%' | b'\\' | b'+'))
}

const fn is_break(c: char) -> bool {
    c.is_ascii_whitespace() || c == ':'
}

/// A text without breaks: white space, `\n` escapes of JSON, and the colons between hex pairs.
pub(super) struct UnbrokenText {
    pub(super) text: String,
    /// Original position of each byte.
    places: Vec<usize>,
}

impl UnbrokenText {
    /// None if the text has no breaks.
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

/// If the text continues with the value: the end of the (escaped) character, and how many bytes of the value it stands
/// for.
fn unescaped(source: ScannedText<'_>, backslashes: &Backslashes, at: usize, value: &[u8]) -> Option<(usize, usize)> {
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

/// `\u0041`, `\n`, `\/` and the like, after any number of backslashes.
fn after_backslashes(
    source: ScannedText<'_>,
    backslashes: &Backslashes,
    at: usize,
    value: &[u8],
) -> Option<(usize, usize)> {
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
    // Backslashes of the value itself, each written as one or more.
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

/// The character of `uXXXX`, or of a surrogate pair with backslashes in between, and where it ends.
pub(super) fn code_point(
    source: ScannedText<'_>,
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
fn unit(source: ScannedText<'_>, at: usize) -> Option<u16> {
    let digits = source.get_bytes(at + 1..at + 5)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Extends a range by the characters that partly encode the value, and by padding.
pub(super) fn widen(text: &[u8], range: Range<usize>, (before, behind): (bool, bool)) -> Range<usize> {
    let digit = |at: usize| text.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || b"+/-_".contains(b));
    let start = range.start - usize::from(before && range.start > 0 && digit(range.start - 1));
    let mut end = range.end + usize::from(behind && digit(range.end));
    end += text[end..].iter().take(2).take_while(|b| **b == b'=' && (behind || before)).count();
    start..end
}
