//! Searches for known values behind nested encodings.
//!
//! A value may have been encoded, and the result encoded again: base64 of hex, letters separated by tags, a URL in
//! quoted-printable mail. A text is therefore decoded by every decoder, the results are decoded again, and each
//! result is searched for the values. Depth and bytes are bounded. A text without anything to decode costs one look
//! per byte, plus its long words.

use super::index::ValueIndex;
use super::pattern::MaskSpan;
use super::scanned_text::ScannedText;
use super::spelling::code_point;
use super::view::{Decoded, DecodedView};
use super::{encoded_word, numbers};
use crate::limits::{
    REDACT_DECODED_BYTES_MAX, REDACT_DECODED_BYTES_MIN, REDACT_DECODED_RATIO_MAX, REDACT_DEPTH_MAX,
    REDACT_REVERSED_BYTES_MAX, REDACT_SEPARATE_BYTES_MAX,
};
use crate::text::is_invisible;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// Maximum blanks between the fragments of a list.
const BLANKS_MAX: usize = 64;
/// Maximum length of a tag.
const TAG_BYTES_MAX: usize = 256;
/// Maximum length of an HTML entity name.
const ENTITY_BYTES_MAX: usize = 10;
/// Minimum length of a part to count as a line of something longer.
const LINE_BYTES_MIN: usize = 16;
/// Minimum bytes and, unless they are lines, minimum parts of a joined text.
const JOINED_BYTES_MIN: usize = 8;
const JOINED_PARTS_MIN: usize = 3;

/// HTML entities that are not letters.
const ENTITIES: [(&str, char); 40] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", '\u{a0}'),
    ("shy", '\u{ad}'),
    ("ensp", '\u{2002}'),
    ("emsp", '\u{2003}'),
    ("thinsp", '\u{2009}'),
    ("zwnj", '\u{200c}'),
    ("zwj", '\u{200d}'),
    ("Tab", '\t'),
    ("NewLine", '\n'),
    ("excl", '!'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("hyphen", '-'),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("commat", '@'),
    ("lsqb", '['),
    ("bsol", '\\'),
    ("rsqb", ']'),
    ("Hat", '^'),
    ("lowbar", '_'),
    ("grave", '`'),
    ("lcub", '{'),
    ("verbar", '|'),
    ("rcub", '}'),
];

/// Decodes at the start of a slice: bytes consumed, and the result.
type Decoder = fn(&[u8]) -> Option<(usize, Decoded)>;

/// The decoders. Each handles one encoding, since what another would decode may belong to the value itself.
const DECODERS: [Decoder; 8] =
    [decode_invisible, percent, backslash, entity, quoted_printable, soft_break, full_width, decode_list_separator];

/// Bit set of the decoders that may match at a byte, in their order.
static READ_BY: [u8; 256] = {
    let mut read_by = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        read_by[byte] = match byte as u8 {
            b'\t' | b'\n' | b'\r' => 0,
            0xef => 1 | 1 << 6,
            b'<' | 0..=0x1f | 0x7f..=0xff => 1,
            b'"' | b'\'' => 1 << 7,
            b'%' => 1 << 1,
            b'\\' => 1 << 2,
            b'&' => 1 << 3,
            b'=' => 1 << 4 | 1 << 5,
            _ => 0,
        };
        byte += 1;
    }
    read_by
};

/// Remaining bytes that may be decoded.
pub(super) struct Budget(Cell<usize>);

/// The budget of one document.
impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(REDACT_DECODED_BYTES_MAX))
    }
}

impl Budget {
    /// The share of one text.
    fn share_for(&self, text: &str) -> Self {
        let fair = text.len().saturating_mul(REDACT_DECODED_RATIO_MAX).max(REDACT_DECODED_BYTES_MIN);
        Self(Cell::new(fair.min(self.left())))
    }

    pub(super) fn left(&self) -> usize {
        self.0.get()
    }

    /// Takes `bytes` from the budget. Returns false if there are not enough.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let left = self.left().checked_sub(bytes);
        left.is_some_and(|left| {
            self.0.set(left);
            true
        })
    }
}

/// The state of a search.
pub(super) struct Search<'a> {
    text: &'a str,
    plain: &'a ValueIndex,
    /// Values without line breaks and separators.
    bare: &'a ValueIndex,
    spans: &'a mut Vec<MaskSpan>,
    budget: &'a Budget,
    waiting: VecDeque<DecodedView>,
    /// Digests of searched views: decoders in another order produce the same bytes.
    seen: BTreeSet<u64>,
}

/// Appends the spans of all values in a text, however they are encoded.
pub(super) fn find(text: &str, (plain, bare): (&ValueIndex, &ValueIndex), budget: &Budget, spans: &mut Vec<MaskSpan>) {
    let own = budget.share_for(text);
    let given = own.left();
    let (waiting, seen) = (VecDeque::new(), BTreeSet::new());
    let mut search = Search { text, plain, bare, spans, budget: &own, waiting, seen };
    let whole = DecodedView::of(text);
    // Plain words and punctuation need no reversal, since the values are indexed in both directions.
    if search.search_view(&whole) && text.len() <= REDACT_REVERSED_BYTES_MAX {
        search.enqueue(DecodedView::reversed(text));
    }
    while let Some(view) = search.waiting.pop_front() {
        search.search_view(&view);
    }
    budget.take(given - own.left());
}

impl Search<'_> {
    /// Searches a view and queues everything that can be decoded from it. Returns false if there is nothing to decode.
    fn search_view(&mut self, view: &DecodedView) -> bool {
        let index = if view.joined { self.bare } else { self.plain };
        index.for_each_match(&view.bytes, |range, _| self.spans.push(view.span(&range, self.text)));
        if view.depth >= REDACT_DEPTH_MAX || self.budget.left() == 0 {
            return false;
        }
        let read_by = view.bytes.iter().fold(0, |all, byte| all | READ_BY[usize::from(*byte)]);
        let mut any = read_by != 0;
        if self.text.len() > REDACT_SEPARATE_BYTES_MAX {
            let all = |rest: &[u8]| DECODERS.iter().find_map(|decoder| decoder(rest));
            if any && self.budget.left() >= view.bytes.len() {
                let read = view.rewritten(|byte| READ_BY[usize::from(byte)] != 0, all);
                read.into_iter().for_each(|read| self.enqueue(read));
            }
        } else {
            for (at, decoder) in DECODERS.iter().enumerate().filter(|(at, _)| read_by & 1 << at != 0) {
                let read = view.rewritten(|byte| READ_BY[usize::from(byte)] & 1 << at != 0, decoder);
                read.into_iter().for_each(|read| self.enqueue(read));
            }
        }
        for_each_broken_run(view, |parts| {
            any = true;
            if self.budget.left() >= parts.iter().map(Range::len).sum() {
                self.enqueue(view.joined(parts));
            }
        });
        numbers::decode_numbers(view, |numbers| {
            any = true;
            self.enqueue(numbers);
        });
        let budget = self.budget;
        encoded_word::decode_words(view, budget, |block| {
            any = true;
            self.search_word(view, &block);
        });
        any
    }

    fn search_word(&mut self, view: &DecodedView, block: &encoded_word::DecodedWord<'_>) {
        let found = |range, _: &_| self.spans.push(view.span(&block.source_range(&range), self.text));
        self.plain.for_each_match(block.bytes, found);
        if view.depth + 1 < REDACT_DEPTH_MAX {
            block.for_each_text(view, |text| self.enqueue(text));
        }
    }

    /// Queues a view, within the budget.
    fn enqueue(&mut self, view: DecodedView) {
        let mut digest = DefaultHasher::new();
        (view.joined, &view.bytes).hash(&mut digest);
        if !self.seen.contains(&digest.finish()) && self.budget.take(view.bytes.len()) {
            self.seen.insert(digest.finish());
            self.waiting.push_back(view);
        }
    }
}

/// Removes invisible characters, non-ASCII blanks and tags.
fn decode_invisible(rest: &[u8]) -> Option<(usize, Decoded)> {
    match *rest.first()? {
        b'<' => {
            let begins = rest.get(1).is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'/' | b'!'));
            let end = rest.iter().take(TAG_BYTES_MAX).position(|b| *b == b'>').filter(|_| begins)?;
            Some((end + 1, Decoded::default()))
        }
        b'\t' | b'\n' | b'\r' => None,
        0..=0x1f | 0x7f..=0xff => {
            let hides = |c: &char| is_invisible(*c) || c.is_whitespace();
            char_at(rest).filter(hides).map(|c| (c.len_utf8(), Decoded::default()))
        }
        _ => None,
    }
}

/// Full-width letters.
fn full_width(rest: &[u8]) -> Option<(usize, Decoded)> {
    let c = char_at(rest).filter(|c| ('\u{ff01}'..='\u{ff5e}').contains(c))?;
    Some((c.len_utf8(), char::from_u32(u32::from(c) - 0xfee0)?.into()))
}

/// Removes the separator between list fragments: `", "`.
fn decode_list_separator(rest: &[u8]) -> Option<(usize, Decoded)> {
    let quote = *rest.first().filter(|b| matches!(b, b'"' | b'\''))?;
    let blanks = |at: usize| rest[at..].iter().take(BLANKS_MAX).take_while(|b| b.is_ascii_whitespace()).count();
    let comma = 1 + blanks(1);
    let next = comma + 1 + blanks((comma + 1).min(rest.len()));
    (rest.get(comma) == Some(&b',') && rest.get(next) == Some(&quote)).then(|| (next + 1, Decoded::default()))
}

fn char_at(rest: &[u8]) -> Option<char> {
    let rest = &rest[..rest.len().min(4)];
    let valid = match std::str::from_utf8(rest) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).ok()?,
    };
    valid.chars().next()
}

/// `%41`.
fn percent(rest: &[u8]) -> Option<(usize, Decoded)> {
    let [b'%', high, low, ..] = rest else { return None };
    Some((3, hex_byte(&[*high, *low])?.into()))
}

/// `=41` of quoted-printable.
fn quoted_printable(rest: &[u8]) -> Option<(usize, Decoded)> {
    let [b'=', high, low, ..] = rest else { return None };
    Some((3, hex_byte(&[*high, *low])?.into()))
}

/// A soft line break of quoted-printable.
fn soft_break(rest: &[u8]) -> Option<(usize, Decoded)> {
    match rest {
        [b'=', b'\n', ..] => Some((2, Decoded::default())),
        [b'=', b'\r', b'\n', ..] => Some((3, Decoded::default())),
        _ => None,
    }
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    hex::decode(digits).ok()?.first().copied()
}

/// `\x41`, `\u0041`, `\101`, `\n` and the like.
fn backslash(rest: &[u8]) -> Option<(usize, Decoded)> {
    let [b'\\', kind, more @ ..] = rest else { return None };
    let simple = |c: char| Some((2, Decoded::from(c)));
    match *kind {
        b'u' | b'x' if more.first() == Some(&b'{') => braced(more),
        b'u' => {
            let source = ScannedText::of(rest);
            code_point(source, 1, |at| source.run(at, |b| b == b'\\')).map(|(spelled, c)| (spelled, c.into()))
        }
        b'x' => Some((4, hex_byte(more.get(..2)?)?.into())),
        b'0'..=b'7' => {
            let digits = rest[1..].iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let code = std::str::from_utf8(&rest[1..=digits]).ok()?;
            Some((1 + digits, u8::from_str_radix(code, 8).ok()?.into()))
        }
        b'n' => simple('\n'),
        b'r' => simple('\r'),
        b't' => simple('\t'),
        mark @ (b'/' | b'"' | b'\'' | b'`' | b'\\') => simple(char::from(mark)),
        _ => None,
    }
}

/// `{1f4a9}`, after two characters.
fn braced(more: &[u8]) -> Option<(usize, Decoded)> {
    let inside = more.strip_prefix(b"{")?;
    let digits = inside.iter().take(8).position(|b| *b == b'}')?;
    let code = u32::from_str_radix(std::str::from_utf8(&inside[..digits]).ok()?, 16).ok()?;
    Some((digits + 4, char::from_u32(code)?.into()))
}

/// HTML entities: decimal, hexadecimal or named.
fn entity(rest: &[u8]) -> Option<(usize, Decoded)> {
    let body = rest.strip_prefix(b"&")?;
    let body = &body[..body.len().min(ENTITY_BYTES_MAX + 1)];
    if let Some(number) = body.strip_prefix(b"#") {
        let (prefix, number, radix) = match number {
            [b'x' | b'X', hex @ ..] => (3, hex, 16),
            decimal => (2, decimal, 10),
        };
        let digits = number.iter().take_while(|b| char::from(**b).is_digit(radix)).count();
        let code = u32::from_str_radix(std::str::from_utf8(&number[..digits]).ok()?, radix).ok()?;
        // Browsers accept it without the semicolon too.
        let end = usize::from(number.get(digits) == Some(&b';'));
        return Some((prefix + digits + end, char::from_u32(code)?.into()));
    }
    let end = body.iter().position(|b| *b == b';')?;
    let (_, c) = ENTITIES.iter().find(|(name, _)| name.as_bytes() == &body[..end])?;
    Some((end + 2, (*c).into()))
}

/// Finds sequences of parts that something longer was broken into: lines, or letters, pairs or groups of equal length.
/// Words of a sentence rarely have equal lengths, so they stay apart. The parts around a sequence may contain its first
/// and last fragment next to other text.
fn for_each_broken_run(view: &DecodedView, mut each: impl FnMut(&[Range<usize>])) {
    let bytes = &view.bytes;
    let is_break = |b: &u8| b.is_ascii_whitespace() || *b == b':';
    let (mut before, mut parts): (Range<usize>, Vec<Range<usize>>) = (0..0, Vec::new());
    let mut at = 0;
    loop {
        let broken = at;
        at += bytes[at..].iter().take_while(|b| is_break(b)).count();
        let ends_line = bytes[broken..at].iter().any(|b| matches!(b, b'\n' | b'\r'));
        let part = at..at + bytes[at..].iter().take_while(|b| !is_break(b)).count();
        at = part.end;
        let goes_on = parts.last().is_some_and(|last| {
            let same = last.len() == part.len() || (last.len() <= 2 && part.len() <= 2);
            (ends_line && last.len() >= LINE_BYTES_MIN) || same
        });
        if goes_on && !part.is_empty() {
            parts.push(part);
            continue;
        }
        let next = match parts.last() {
            Some(last) if is_broken(&parts) => {
                let tail = part.start..part.end.min(part.start + last.len());
                let lead = before.start.max(before.end.saturating_sub(parts[0].len()))..before.end;
                let last = last.clone();
                parts.insert(0, lead);
                parts.push(tail);
                each(&parts);
                last
            }
            Some(last) => last.clone(),
            None => 0..0,
        };
        if part.is_empty() {
            return;
        }
        before = next;
        parts.clear();
        parts.push(part);
    }
}

/// Whether parts look like fragments of something longer.
fn is_broken(parts: &[Range<usize>]) -> bool {
    let lines = parts.len() > 1 && parts[0].len() >= LINE_BYTES_MIN;
    (lines || parts.len() >= JOINED_PARTS_MIN) && parts.iter().map(Range::len).sum::<usize>() >= JOINED_BYTES_MIN
}
