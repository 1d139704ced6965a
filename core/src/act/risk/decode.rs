//! Decoders for text that is escaped or encoded.
//!
//! Each function returns the decoded text, or none if there is none; bytes that are not text do not count. Both
//! base64 alphabets are supported, with and without padding or line breaks, and also UTF-16.

/// Minimum bytes of a run that could be base64 or hex; `REVMRVRF` is the shortest relevant one.
pub(super) const RUN_BYTES_MIN: usize = 8;
/// Minimum bytes of a base64 line before a line break.
const LINE_BYTES_MIN: usize = 60;

/// Percent-decodes: `%44` becomes `D`.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut changed = false;
    while let Some(byte) = bytes.get(at) {
        let meant = (*byte == b'%').then(|| hex_pair(bytes, at + 1)).flatten();
        changed |= meant.is_some();
        at += if meant.is_some() { 3 } else { 1 };
        out.push(meant.unwrap_or(*byte));
    }
    if changed { Some(String::from_utf8_lossy(&out).into_owned()) } else { None }
}

/// Removes invisible characters and converts full-width letters to ASCII.
pub(super) fn remove_disguise(text: &str) -> Option<String> {
    let plain = |letter: char| match letter {
        '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => None,
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(letter) - 0xfee0),
        letter => Some(letter),
    };
    let meant: String = text.chars().filter_map(plain).collect();
    (meant != text).then_some(meant)
}

/// Decodes `\u0044` and `\x44` to `D`, and line break and tab escapes.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let meant = decode_escape(escape);
        let (letter, taken) = meant.unwrap_or(('\\', 0));
        changed |= meant.is_some();
        out.push(letter);
        rest = &escape[taken..];
    }
    out.push_str(rest);
    changed.then_some(out)
}

/// The character of an escape, and how many bytes it takes after the backslash.
fn decode_escape(escape: &str) -> Option<(char, usize)> {
    let digits = match escape.as_bytes().first()? {
        b'n' | b'r' => return Some(('\n', 1)),
        b't' => return Some(('\t', 1)),
        b'u' => escape.get(1..5)?,
        b'x' => escape.get(1..3)?,
        _ => return None,
    };
    let letter = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?;
    Some((letter, 1 + digits.len()))
}

/// The runs of a text that could be base64 or hex.
pub(super) fn encoded_runs(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            while bytes.get(at).is_some_and(|byte| sextet(*byte).is_none()) {
                at += 1;
            }
            let start = at;
            at = run_end(bytes, at);
            if at == start {
                return None;
            }
            if at - start >= RUN_BYTES_MIN {
                return text.get(start..at);
            }
        }
    })
}

/// The end of a run, including the line breaks of long base64.
fn run_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut line) = (start, start);
    loop {
        while bytes.get(at).is_some_and(|byte| sextet(*byte).is_some()) {
            at += 1;
        }
        let breaks = bytes[at..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let goes_on = bytes.get(at + breaks).is_some_and(|byte| sextet(*byte).is_some());
        if breaks == 0 || at - line < LINE_BYTES_MIN || !goes_on {
            return at;
        }
        at += breaks;
        line = at;
    }
}

/// Decodes base64 to text. Most runs are ordinary words and are rejected before anything is allocated.
pub(super) fn base64(run: &str) -> Option<String> {
    let (mut empty, mut kept, mut following) = (0, 0, 0_u32);
    for byte in base64_bytes(run) {
        match byte {
            0 if following == 0 => empty += 1,
            byte if is_control(byte) || (following > 0) != (byte & 0xc0 == 0x80) => return None,
            _ => {
                following = if following > 0 { following - 1 } else { byte.leading_ones().saturating_sub(1) };
                kept += 1;
            }
        }
    }
    // In UTF-16 every other byte is zero; an isolated zero byte is not text.
    if kept == 0 || (empty > 0 && empty * 2 < kept) {
        return None;
    }
    String::from_utf8(base64_bytes(run).filter(|byte| *byte != 0).collect()).ok()
}

/// The bytes of a base64 run; an incomplete last byte is dropped.
fn base64_bytes(run: &str) -> impl Iterator<Item = u8> {
    let mut sextets = run.bytes().filter_map(sextet);
    let (mut bits, mut held) = (0_u32, 0_u32);
    std::iter::from_fn(move || {
        while held < 8 {
            (bits, held) = ((bits << 6) | u32::from(sextets.next()?), held + 6);
        }
        held -= 8;
        let byte = (bits >> held).to_le_bytes()[0];
        bits &= (1 << held) - 1;
        Some(byte)
    })
}

/// Decodes hex to text. Decimal digits alone are a number.
pub(super) fn hex(run: &str) -> Option<String> {
    let digits = run.strip_prefix("0x").or_else(|| run.strip_prefix("0X")).unwrap_or(run).as_bytes();
    if digits.len() % 2 == 1 || digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut out = Vec::new();
    for at in (0..digits.len()).step_by(2) {
        out.push(hex_pair(digits, at).filter(|byte| !is_control(*byte))?);
    }
    String::from_utf8(out).ok()
}

/// Two hexadecimal digits.
fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    u8::try_from(digit(at)? * 16 + digit(at + 1)?).ok()
}

const fn is_control(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r') || byte == 0x7f
}

/// The value of a base64 digit in either alphabet.
const fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}
