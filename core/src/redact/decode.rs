//! Looks for values behind encodings of encodings.
//!
//! Whoever repeats a value may have put it into another form, and that into yet another: base64 of hex, letters with tags
//! between them, a URL within quoted-printable mail. So a text is read in every way that a set of decoders knows, what
//! comes out is read again, and in each reading the values are looked for as they are. Depth and bytes are bounded, and
//! what has nothing in it that a decoder could read costs little: a look at each byte, and the long words.

use super::index::Index;
use super::pattern::Span;
use super::source::Source;
use super::spelling::code_point;
use super::view::{Meant, View};
use super::{block, numbers};
use crate::limits::{
    REDACT_APART_BYTES_MAX, REDACT_DECODED_BYTES_MAX, REDACT_DECODED_BYTES_MIN, REDACT_DECODED_RATIO_MAX,
    REDACT_DEPTH_MAX, REDACT_REVERSED_BYTES_MAX,
};
use crate::text::is_shapeless;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// Between the pieces of a list stand so many blanks at the most.
const BLANKS_MAX: usize = 64;
/// A tag is no longer than this.
const TAG_BYTES_MAX: usize = 256;
/// A name of a character is no longer than this.
const ENTITY_BYTES_MAX: usize = 10;
/// Parts of this length are lines of something longer.
const LINE_BYTES_MIN: usize = 16;
/// What is put together of several parts has so many bytes and, unless they are lines, parts at the least.
const JOINED_BYTES_MIN: usize = 8;
const JOINED_PARTS_MIN: usize = 3;

/// Names of characters that are no letters.
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

/// What a decoder reads at the begin of a rest: how many bytes stand for what.
type Decoder = fn(&[u8]) -> Option<(usize, Meant)>;

/// The decoders of what stands for something else. Each reads one way to spell, since what another would read may be the
/// value's own.
const DECODERS: [Decoder; 8] = [stripped, percent, backslash, entity, quoted_printable, soft_break, full_width, listed];

/// For each byte the decoders that may read something at it, one bit each, in their order.
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

/// Bytes that may still be decoded.
pub(super) struct Budget(Cell<usize>);

/// What one document may take.
impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(REDACT_DECODED_BYTES_MAX))
    }
}

impl Budget {
    /// What a text may take of it.
    fn of_text(&self, text: &str) -> Self {
        let fair = text.len().saturating_mul(REDACT_DECODED_RATIO_MAX).max(REDACT_DECODED_BYTES_MIN);
        Self(Cell::new(fair.min(self.left())))
    }

    pub(super) fn left(&self) -> usize {
        self.0.get()
    }

    /// Whether so many bytes are left; then they are taken.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let left = self.left().checked_sub(bytes);
        left.is_some_and(|left| {
            self.0.set(left);
            true
        })
    }
}

/// What is looked for, and how much may be decoded for it.
pub(super) struct Search<'a> {
    text: &'a str,
    plain: &'a Index,
    /// The values without what breaks a text.
    bare: &'a Index,
    spans: &'a mut Vec<Span>,
    budget: &'a Budget,
    waiting: VecDeque<View>,
    /// Digests of what was looked into: the same comes out of decoders in another order.
    seen: BTreeSet<u64>,
}

/// Appends where the values stand in a text, whatever they are encoded with.
pub(super) fn find(text: &str, (plain, bare): (&Index, &Index), budget: &Budget, spans: &mut Vec<Span>) {
    let own = budget.of_text(text);
    let given = own.left();
    let (waiting, seen) = (VecDeque::new(), BTreeSet::new());
    let mut search = Search { text, plain, bare, spans, budget: &own, waiting, seen };
    let whole = View::of(text);
    // What is only words and marks is the same backwards, and the values are looked for in both ways.
    if search.look_into(&whole) && text.len() <= REDACT_REVERSED_BYTES_MAX {
        search.wait_for(View::reversed(text));
    }
    while let Some(view) = search.waiting.pop_front() {
        search.look_into(&view);
    }
    budget.take(given - own.left());
}

impl Search<'_> {
    /// Looks into a view, and later into all that its decoders make of it; false: there is nothing for them to read.
    fn look_into(&mut self, view: &View) -> bool {
        let index = if view.joined { self.bare } else { self.plain };
        index.each_in(&view.bytes, |range, _| self.spans.push(view.span(&range, self.text)));
        if view.depth >= REDACT_DEPTH_MAX || self.budget.left() == 0 {
            return false;
        }
        let read_by = view.bytes.iter().fold(0, |all, byte| all | READ_BY[usize::from(*byte)]);
        let mut any = read_by != 0;
        if self.text.len() > REDACT_APART_BYTES_MAX {
            let all = |rest: &[u8]| DECODERS.iter().find_map(|decoder| decoder(rest));
            if any && self.budget.left() >= view.bytes.len() {
                let read = view.rewritten(|byte| READ_BY[usize::from(byte)] != 0, all);
                read.into_iter().for_each(|read| self.wait_for(read));
            }
        } else {
            for (at, decoder) in DECODERS.iter().enumerate().filter(|(at, _)| read_by & 1 << at != 0) {
                let read = view.rewritten(|byte| READ_BY[usize::from(byte)] & 1 << at != 0, decoder);
                read.into_iter().for_each(|read| self.wait_for(read));
            }
        }
        joined(view, |parts| {
            any = true;
            if self.budget.left() >= parts.iter().map(Range::len).sum() {
                self.wait_for(view.joined(parts));
            }
        });
        numbers::each(view, |numbers| {
            any = true;
            self.wait_for(numbers);
        });
        let budget = self.budget;
        block::each(view, budget, |block| {
            any = true;
            self.look_into_block(view, &block);
        });
        any
    }

    fn look_into_block(&mut self, view: &View, block: &block::Block<'_>) {
        let found = |range, _: &_| self.spans.push(view.span(&block.spelled(&range), self.text));
        self.plain.each_in(block.bytes, found);
        if view.depth + 1 < REDACT_DEPTH_MAX {
            block.texts(view, |text| self.wait_for(text));
        }
    }

    /// Looks into a view later, as long as there is not too much of it.
    fn wait_for(&mut self, view: View) {
        let mut digest = DefaultHasher::new();
        (view.joined, &view.bytes).hash(&mut digest);
        if !self.seen.contains(&digest.finish()) && self.budget.take(view.bytes.len()) {
            self.seen.insert(digest.finish());
            self.waiting.push_back(view);
        }
    }
}

/// What can't be seen, blanks that are no ASCII, and tags stand for nothing.
fn stripped(rest: &[u8]) -> Option<(usize, Meant)> {
    match *rest.first()? {
        b'<' => {
            let begins = rest.get(1).is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'/' | b'!'));
            let end = rest.iter().take(TAG_BYTES_MAX).position(|b| *b == b'>').filter(|_| begins)?;
            Some((end + 1, Meant::default()))
        }
        b'\t' | b'\n' | b'\r' => None,
        0..=0x1f | 0x7f..=0xff => {
            let hides = |c: &char| is_shapeless(*c) || c.is_whitespace();
            char_at(rest).filter(hides).map(|c| (c.len_utf8(), Meant::default()))
        }
        _ => None,
    }
}

/// Letters as wide as those of Chinese.
fn full_width(rest: &[u8]) -> Option<(usize, Meant)> {
    let c = char_at(rest).filter(|c| ('\u{ff01}'..='\u{ff5e}').contains(c))?;
    Some((c.len_utf8(), char::from_u32(u32::from(c) - 0xfee0)?.into()))
}

/// What stands between the pieces of a list: `", "`.
fn listed(rest: &[u8]) -> Option<(usize, Meant)> {
    let quote = *rest.first().filter(|b| matches!(b, b'"' | b'\''))?;
    let blanks = |at: usize| rest[at..].iter().take(BLANKS_MAX).take_while(|b| b.is_ascii_whitespace()).count();
    let comma = 1 + blanks(1);
    let next = comma + 1 + blanks((comma + 1).min(rest.len()));
    (rest.get(comma) == Some(&b',') && rest.get(next) == Some(&quote)).then(|| (next + 1, Meant::default()))
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
fn percent(rest: &[u8]) -> Option<(usize, Meant)> {
    let [b'%', high, low, ..] = rest else { return None };
    Some((3, hex_byte(&[*high, *low])?.into()))
}

/// `=41` of quoted-printable.
fn quoted_printable(rest: &[u8]) -> Option<(usize, Meant)> {
    let [b'=', high, low, ..] = rest else { return None };
    Some((3, hex_byte(&[*high, *low])?.into()))
}

/// The end of a line of quoted-printable that is none.
fn soft_break(rest: &[u8]) -> Option<(usize, Meant)> {
    match rest {
        [b'=', b'\n', ..] => Some((2, Meant::default())),
        [b'=', b'\r', b'\n', ..] => Some((3, Meant::default())),
        _ => None,
    }
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    hex::decode(digits).ok()?.first().copied()
}

/// `\x41`, `\u0041`, `\101`, `\n` and the like.
fn backslash(rest: &[u8]) -> Option<(usize, Meant)> {
    let [b'\\', kind, more @ ..] = rest else { return None };
    let simple = |c: char| Some((2, Meant::from(c)));
    match *kind {
        b'u' | b'x' if more.first() == Some(&b'{') => braced(more),
        b'u' => {
            let source = Source::of(rest);
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

/// `{1f4a9}`, behind two characters.
fn braced(more: &[u8]) -> Option<(usize, Meant)> {
    let inside = more.strip_prefix(b"{")?;
    let digits = inside.iter().take(8).position(|b| *b == b'}')?;
    let code = u32::from_str_radix(std::str::from_utf8(&inside[..digits]).ok()?, 16).ok()?;
    Some((digits + 4, char::from_u32(code)?.into()))
}

/// Characters of HTML by their number, decimal or hexadecimal, or by their name.
fn entity(rest: &[u8]) -> Option<(usize, Meant)> {
    let body = rest.strip_prefix(b"&")?;
    let body = &body[..body.len().min(ENTITY_BYTES_MAX + 1)];
    if let Some(number) = body.strip_prefix(b"#") {
        let (prefix, number, radix) = match number {
            [b'x' | b'X', hex @ ..] => (3, hex, 16),
            decimal => (2, decimal, 10),
        };
        let digits = number.iter().take_while(|b| char::from(**b).is_digit(radix)).count();
        let code = u32::from_str_radix(std::str::from_utf8(&number[..digits]).ok()?, radix).ok()?;
        // Browsers read it without its end too.
        let end = usize::from(number.get(digits) == Some(&b';'));
        return Some((prefix + digits + end, char::from_u32(code)?.into()));
    }
    let end = body.iter().position(|b| *b == b';')?;
    let (_, c) = ENTITIES.iter().find(|(name, _)| name.as_bytes() == &body[..end])?;
    Some((end + 2, (*c).into()))
}

/// Parts between which something stands that was put there to break a text: lines of something longer, and letters,
/// pairs or groups of one length. Words of a sentence are seldom of one length, so they stay apart. The parts around
/// them may hold the first and the last of them beside something else.
fn joined(view: &View, mut each: impl FnMut(&[Range<usize>])) {
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

/// Whether parts are one after the other because something was broken.
fn is_broken(parts: &[Range<usize>]) -> bool {
    let lines = parts.len() > 1 && parts[0].len() >= LINE_BYTES_MIN;
    (lines || parts.len() >= JOINED_PARTS_MIN) && parts.iter().map(Range::len).sum::<usize>() >= JOINED_BYTES_MIN
}
