//! Words that may be base64, base32 or hex.
//!
//! The start of the encoded part within a word is unknown, so each word is decoded from each of its first characters
//! on. The decoded bytes are searched as they are, and decoded further where they are text, in UTF-8 or UTF-16.

use super::decode::Budget;
use super::view::{DecodedView, ViewBuilder};
use std::ops::Range;

/// Ordinary words are shorter.
const WORD_CHARS_MAX: usize = 24;

/// Combines two bytes into a UTF-16 unit.
type Unit = fn([u8; 2]) -> u16;
/// A longer encoded word has more than letters of one case.
const ONE_CASE_CHARS_MAX: usize = 64;
/// Minimum length of decoded text that is worth decoding further.
const TEXT_BYTES_MIN: usize = 8;
/// In UTF-16 text every second byte is usually zero; with invisible characters in between, every fourth. The ratio
/// allows one in five.
const ZEROS_IN_UTF16: usize = 5;
/// Maximum `=` padding after a word.
const PADDING_MAX: usize = 6;

/// A decoded word.
pub(super) struct DecodedWord<'a> {
    pub(super) bytes: &'a [u8],
    /// Its range in the view.
    from: usize,
    end: usize,
    /// Length of its padding.
    padding: usize,
    bits: usize,
}

/// A binary-to-text encoding.
struct Encoding {
    bits: usize,
    /// Number of characters after which byte and character boundaries align again.
    period: usize,
    chars_min: usize,
    digits: [u8; 256],
}

const NO_DIGIT: u8 = u8::MAX;

const fn encoding(bits: usize, period: usize, chars_min: usize, alphabets: &[&[u8]]) -> Encoding {
    let mut digits = [NO_DIGIT; 256];
    let mut alphabet = 0;
    while alphabet < alphabets.len() {
        let mut at = 0;
        while at < alphabets[alphabet].len() {
            digits[alphabets[alphabet][at] as usize] = at as u8;
            at += 1;
        }
        alphabet += 1;
    }
    Encoding { bits, period, chars_min, digits }
}

static BASE64: Encoding = encoding(
    6,
    4,
    8,
    &[
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
    ],
);
/// Encodings whose words may be part of a base64 word, since their alphabets are subsets of it.
static WITHIN: [Encoding; 3] = [
    encoding(5, 8, 10, &[b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"]),
    encoding(5, 8, 10, &[b"abcdefghijklmnopqrstuvwxyz234567"]),
    encoding(4, 2, 12, &[b"0123456789abcdef", b"0123456789ABCDEF"]),
];

impl Encoding {
    /// Finds the words of this encoding.
    fn words(&self, bytes: &[u8], mut word: impl FnMut(Range<usize>)) {
        let mut start = 0;
        for at in 0..=bytes.len() {
            if bytes.get(at).is_none_or(|byte| self.digits[usize::from(*byte)] == NO_DIGIT) {
                if at - start >= self.chars_min {
                    word(start..at);
                }
                start = at + 1;
            }
        }
    }

    /// Decodes a word from each of its first characters on.
    fn decode(
        &self,
        view: &DecodedView,
        word: &Range<usize>,
        reader: &mut WordDecoder<'_, impl FnMut(DecodedWord<'_>)>,
    ) {
        let WordDecoder { decoded, budget, look } = reader;
        let behind = &view.bytes[word.end..];
        let padding = behind.iter().take(PADDING_MAX).take_while(|b| **b == b'=').count();
        for from in word.start..(word.start + self.period).min(word.end + 1 - self.chars_min) {
            if !budget.take((word.end - from) * self.bits / 8) {
                return;
            }
            decoded.clear();
            let (mut held, mut count) = (0_u32, 0);
            for byte in &view.bytes[from..word.end] {
                held = held << self.bits | u32::from(self.digits[usize::from(*byte)]);
                count += self.bits;
                if count >= 8 {
                    count -= 8;
                    decoded.push((held >> count & 0xff) as u8);
                }
            }
            look(DecodedWord { bytes: decoded, from, end: word.end, padding, bits: self.bits });
        }
    }
}

/// Whether this is an ordinary word: lower case, optionally capitalized. Encoded data almost always has digits or inner
/// capitals, except when it is very short.
fn is_word(word: &[u8]) -> bool {
    let small = word.strip_prefix(&[word[0].to_ascii_uppercase()]).unwrap_or(word);
    word.len() < WORD_CHARS_MAX && small.iter().all(|b| b.is_ascii_lowercase() || *b == b'-')
}

/// Decoding state.
struct WordDecoder<'a, Look> {
    decoded: Vec<u8>,
    budget: &'a Budget,
    look: Look,
}

/// Decodes every word of a view that may be encoded, within the budget.
pub(super) fn decode_words(view: &DecodedView, budget: &Budget, look: impl FnMut(DecodedWord<'_>)) {
    let mut reader = WordDecoder { decoded: Vec::new(), budget, look };
    BASE64.words(&view.bytes, |word| {
        let bytes = &view.bytes[word.clone()];
        if is_word(bytes) {
            return;
        }
        // A digest or a UUID: other encodings use further letters.
        let is_hex = bytes.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
        let letters = bytes.iter().filter(|b| b.is_ascii_alphabetic() || **b == b'-').count();
        let capitals = bytes.iter().filter(|b| b.is_ascii_uppercase()).count();
        let one_case = letters == bytes.len() && (capitals == 0 || capitals == letters);
        let is_word = one_case && bytes.len() >= WORD_CHARS_MAX;
        if !is_hex && !is_word {
            BASE64.decode(view, &word, &mut reader);
        }
        let [base32, lower, hex] = &WITHIN;
        let letters_alone = one_case && bytes.len() > ONE_CASE_CHARS_MAX;
        for encoding in [base32, lower, hex].into_iter().skip(if is_hex || letters_alone { 2 } else { 0 }) {
            encoding.words(bytes, |part| {
                let part = word.start + part.start..word.start + part.end;
                encoding.decode(view, &part, &mut reader);
            });
        }
    });
}

impl DecodedWord<'_> {
    /// The bytes of the view that encode a range of the decoded ones, including partially.
    pub(super) fn source_range(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.from + range.start * 8 / self.bits;
        let end = self.from + (range.end * 8).div_ceil(self.bits);
        start..if end == self.end { end + self.padding } else { end }
    }

    /// Emits the parts of it that are text.
    pub(super) fn for_each_text(&self, view: &DecodedView, mut each: impl FnMut(DecodedView)) {
        for_each_text_range(self.bytes, |part| {
            let mut made = ViewBuilder::with_capacity(part.len());
            for at in part {
                made.push(&self.bytes[at..=at], view.place(&self.source_range(&(at..at + 1))));
            }
            each(made.view(view.depth + 1));
        });
        if self.bytes.len() < TEXT_BYTES_MIN {
            return;
        }
        // In UTF-16 the zeros are all in even or all in odd positions.
        let units: [(usize, Unit); 2] = [(0, u16::from_be_bytes), (1, u16::from_le_bytes)];
        for (first, unit) in units {
            let zeros = self.bytes[first..].iter().step_by(2).filter(|b| **b == 0).count();
            if zeros * ZEROS_IN_UTF16 >= self.bytes.len() {
                let other = units[1 - first].1;
                each(self.decode_utf16(view, 0, unit));
                each(self.decode_utf16(view, 1, other));
            }
        }
    }

    fn decode_utf16(&self, view: &DecodedView, from: usize, unit: fn([u8; 2]) -> u16) -> DecodedView {
        let units = self.bytes[from..].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let mut made = ViewBuilder::with_capacity(self.bytes.len());
        let mut at = from;
        for c in char::decode_utf16(units) {
            let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
            let end = at + c.len_utf16() * 2;
            made.push(c.encode_utf8(&mut [0; 4]).as_bytes(), view.place(&self.source_range(&(at..end))));
            at = end;
        }
        made.view(view.depth + 1)
    }
}

/// Finds ranges of text that are long enough to be worth decoding: printable ASCII and multi-byte UTF-8.
fn for_each_text_range(bytes: &[u8], mut each: impl FnMut(Range<usize>)) {
    // Start of the text, and remaining bytes of the current character.
    let (mut start, mut more) = (0, 0);
    for at in 0..=bytes.len() {
        let byte = bytes.get(at).copied().unwrap_or_default();
        if more > 0 && matches!(byte, 0x80..=0xbf) {
            more -= 1;
            continue;
        }
        let begins = match byte {
            b' '..=b'~' | b'\t' | b'\r' | b'\n' => Some(0),
            0xc2..=0xdf => Some(1),
            0xe0..=0xef => Some(2),
            0xf0..=0xf4 => Some(3),
            _ => None,
        };
        if more > 0 || begins.is_none() {
            if at - start >= TEXT_BYTES_MIN {
                each(start..at);
            }
            start = at + usize::from(begins.is_none());
        }
        more = begins.unwrap_or_default();
    }
}
