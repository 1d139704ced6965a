//! A single-pass scanner for words, numbers and symbols in a text.
//!
//! Every kind of finding is triggered by one byte or by a run of letters and digits, so that a text without findings
//! costs one pass and no allocation. Non-ASCII bytes count as letters.

use super::factor_set::FactorSet;
use super::{Factor, bank, destructive, national, personal};

/// What a member name says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueHint {
    None,
    /// A phone number.
    Phone,
    /// A social security number, which may then omit its dashes.
    SocialSecurity,
    /// The text itself is a member name.
    Name,
}

impl ValueHint {
    /// Derives the hint from a member name.
    pub(super) fn of(name: &str) -> Self {
        const PHONES: [&str; 8] = ["phone", "mobile", "tel", "fax", "cell", "msisdn", "telefono", "telephone"];
        const SOCIAL_SECURITY: [&str; 3] = ["ssn", "social_security_number", "socialsecuritynumber"];
        let is = |word: &str, known: &[&str]| known.iter().any(|known| word.eq_ignore_ascii_case(known));
        let is_phone = |word: &str| is(word, &PHONES) || word.ends_with("Phone");
        if name.split(['_', '-', '.']).any(is_phone) || is(name, &["phonenumber"]) {
            Self::Phone
        } else if is(name, &SOCIAL_SECURITY) {
            Self::SocialSecurity
        } else {
            Self::None
        }
    }
}

/// Signs that a text is encoded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EncodingMarks {
    /// `%44`.
    pub(super) percent: bool,
    /// `\u0044`, `\x44` or `\n`.
    pub(super) escape: bool,
    /// A run of letters and digits long enough to be base64 or hex.
    pub(super) opaque: bool,
}

/// A run of letters and digits.
#[derive(Clone, Copy)]
pub(super) struct WordRun {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Number of digits in it.
    pub(super) digits: usize,
}

impl WordRun {
    pub(super) fn at(bytes: &[u8], start: usize) -> Self {
        let (mut end, mut digits) = (start, 0);
        while let Some(byte) = bytes.get(end).filter(|byte| is_word(**byte)) {
            if *byte >= 0x80 && blank_len(&bytes[end..]) > 0 {
                break;
            }
            digits += usize::from(byte.is_ascii_digit());
            end += 1;
        }
        Self { start, end, digits }
    }

    pub(super) const fn len(self) -> usize {
        self.end - self.start
    }
}

/// Whether a byte belongs to a word.
pub(super) const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Length of the non-ASCII blank at the start of a text, or zero.
pub(super) fn blank_len(bytes: &[u8]) -> usize {
    match bytes {
        [0xc2, 0xa0 | 0x85, ..] => 2,
        [0xe2, 0x80, 0x80..=0x8f | 0xa8..=0xaf, ..] | [0xe2, 0x81, 0x9f..=0xa0, ..] => 3,
        [0xe3, 0x80, 0x80, ..] | [0xef, 0xbb, 0xbf, ..] => 3,
        _ => 0,
    }
}

/// The position after `/*!50000`, the start of a MySQL comment that is executed from this version on.
pub(super) fn skip_version(bytes: &[u8], at: usize) -> usize {
    at + 3 + bytes[at + 3..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Scans the text once.
pub(super) fn scan(text: &str, hint: ValueHint, found: &mut FactorSet) -> EncodingMarks {
    let bytes = text.as_bytes();
    let mut marks = EncodingMarks::default();
    let mut words = destructive::WordScanner::new(bytes, hint == ValueHint::Name);
    let mut at = 0;
    let mut run_bytes = 0;
    while let Some(byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'0'..=b'9' => at = scan_digit_run(bytes, at, found),
            0x80.. if blank_len(&bytes[at..]) > 0 => at += blank_len(&bytes[at..]),
            byte if is_word(*byte) => {
                let run = WordRun::at(bytes, at);
                words.scan_word(run, found);
                if run.digits > 0 {
                    at = scan_letter_run(bytes, run, found);
                } else {
                    at = run.end;
                }
            }
            b'@' => at = personal::scan_email(bytes, at, found),
            b'+' => at = personal::scan_international_phone(bytes, at, found),
            b'(' => at = personal::scan_parenthesized_phone(bytes, at, found),
            b'%' => {
                marks.percent = true;
                at += 1;
            }
            b'\\' => {
                marks.escape |= matches!(bytes.get(at + 1), Some(b'u' | b'x' | b'n' | b'r' | b't'));
                at += 1;
            }
            // The content of such a comment is executed; the number is a version.
            b'/' if bytes[at..].starts_with(b"/*!") => at = skip_version(bytes, at),
            b'>' => {
                words.scan_redirect(at, found);
                at += 1;
            }
            _ => at += 1,
        }
        let goes_on = at - start > 3 || is_word(*byte) || matches!(byte, b'+' | b'/' | b'-' | b'=');
        run_bytes = if goes_on { run_bytes + at - start } else { 0 };
        marks.opaque |= run_bytes >= super::decode::RUN_BYTES_MIN;
    }
    match hint {
        ValueHint::Phone if personal::is_phone_by_name(bytes) => found.add(Factor::Phone),
        ValueHint::SocialSecurity if national::is_american_by_name(bytes) => found.add(Factor::NationalId),
        _ => {}
    }
    marks
}

/// Handles a run that begins with a digit; returns the position after it.
fn scan_digit_run(bytes: &[u8], at: usize, found: &mut FactorSet) -> usize {
    let run = WordRun::at(bytes, at);
    if run.digits < run.len() {
        if national::is_alphanumeric_id(&bytes[run.start..run.end]) && !is_joined(bytes, run) {
            found.add(Factor::NationalId);
        }
        return run.end;
    }
    personal::scan_number(bytes, run, found)
}

/// Handles a run that begins with a letter and contains digits; returns the position after it.
fn scan_letter_run(bytes: &[u8], run: WordRun, found: &mut FactorSet) -> usize {
    if is_joined(bytes, run) {
        return run.end;
    }
    if let Some(end) = bank::iban_end(bytes, run) {
        found.add(Factor::Iban);
        return end;
    }
    if national::is_alphanumeric_id(&bytes[run.start..run.end]) {
        found.add(Factor::NationalId);
    }
    run.end
}

/// Whether a run is part of something longer: a UUID, a version, a file name.
pub(super) fn is_joined(bytes: &[u8], run: WordRun) -> bool {
    is_joined_before(bytes, run.start) || is_joined_after(bytes, run.end)
}

/// Whether the text before `start` is connected to the run that begins there.
pub(super) fn is_joined_before(bytes: &[u8], start: usize) -> bool {
    start >= 2 && matches!(bytes[start - 1], b'-' | b'.' | b'_') && is_word(bytes[start - 2])
}

/// Whether the text at `end` is connected to the run that ends there.
pub(super) fn is_joined_after(bytes: &[u8], end: usize) -> bool {
    let next = bytes.get(end).copied();
    next.is_some_and(is_word)
        || (matches!(next, Some(b'-' | b'.')) && bytes.get(end + 1).is_some_and(|byte| is_word(*byte)))
}
