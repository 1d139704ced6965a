//! Finds e-mail addresses, phone numbers and personal identification numbers.
//!
//! A phone number has a plus and ten to fifteen digits, or the North American form with an area code, or is the value
//! of a member with a matching name. Numbers must stand alone: a part of a UUID, a date or a version does not count.

use super::factor_set::FactorSet;
use super::text::{WordRun, is_joined_after, is_joined_before, is_word};
use super::{Factor, bank, national};

/// Digits of an international phone number.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 10..=15;
/// Digits of a phone number in a member with a matching name.
const NAMED_PHONE_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;
/// Maximum bytes of the local part and of the domain of an e-mail address.
const LOCAL_BYTES_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 253;
/// Bytes before an address that are searched for the start of a URL.
const URL_BYTES_MAX: usize = 128;
/// Maximum digits and groups of a number.
const DIGITS_MAX: usize = 20;
const GROUPS_MAX: usize = 8;

/// Digits in groups with one common separator.
#[derive(Default)]
pub(super) struct GroupedNumber {
    digits: [u8; DIGITS_MAX],
    length: usize,
    groups: [usize; GROUPS_MAX],
    count: usize,
    /// The separator; none for a single group.
    sign: u8,
}

impl GroupedNumber {
    pub(super) fn digits(&self) -> &[u8] {
        &self.digits[..self.length]
    }

    /// Whether the digits are grouped like this, or not grouped.
    pub(super) fn is_grouped(&self, groups: &[usize], signs: &[u8]) -> bool {
        self.count == 1 || self.is_split(groups, signs)
    }

    /// Whether the digits are grouped exactly like this.
    pub(super) fn is_split(&self, groups: &[usize], signs: &[u8]) -> bool {
        self.groups[..self.count] == *groups && signs.contains(&self.sign)
    }

    /// Adds a group. Returns false when there is no room.
    fn push(&mut self, group: &[u8]) -> bool {
        if self.length + group.len() > DIGITS_MAX || self.count == GROUPS_MAX {
            return false;
        }
        for byte in group {
            self.digits[self.length] = byte - b'0';
            self.length += 1;
        }
        self.groups[self.count] = group.len();
        self.count += 1;
        true
    }
}

/// Checks the number that begins with this run of digits; returns the position after it.
pub(super) fn scan_number(bytes: &[u8], first: WordRun, found: &mut FactorSet) -> usize {
    let mut number = GroupedNumber::default();
    let mut fits = number.push(&bytes[first.start..first.end]);
    let mut end = first.end;
    while let Some(sign) = bytes.get(end).copied().filter(|byte| matches!(byte, b' ' | b'-' | b'.')) {
        let run = WordRun::at(bytes, end + 1);
        if run.len() == 0 || run.digits < run.len() || (number.count > 1 && sign != number.sign) {
            break;
        }
        number.sign = sign;
        fits = fits && number.push(&bytes[run.start..run.end]);
        end = run.end;
    }
    if !fits || is_joined_before(bytes, first.start) {
        return end;
    }
    if national::has_spanish_check_letter(bytes, &number, end) {
        found.add(Factor::NationalId);
    }
    if is_joined_after(bytes, end) {
        return end;
    }
    if bank::is_card(&number) {
        found.add(Factor::Card);
    } else if national::is_numeric_id(&number) {
        found.add(Factor::NationalId);
    } else if is_north_american(&number) {
        found.add(Factor::Phone);
    }
    end
}

/// `555-234-5678`, `1-555-234-5678`
fn is_north_american(number: &GroupedNumber) -> bool {
    let signs = b"-.";
    let digits = number.digits();
    let national = if number.is_split(&[3, 3, 4], signs) {
        digits
    } else if number.is_split(&[1, 3, 3, 4], signs) && digits[0] == 1 {
        &digits[1..]
    } else {
        return false;
    };
    national[0] >= 2 && national[3] >= 2
}

/// Checks an international number after a plus; returns the position after it.
pub(super) fn scan_international_phone(bytes: &[u8], at: usize, found: &mut FactorSet) -> usize {
    let tied = at > 0 && (is_word(bytes[at - 1]) || matches!(bytes[at - 1], b'.' | b')'));
    if tied || !matches!(bytes.get(at + 1), Some(b'1'..=b'9')) {
        return at + 1;
    }
    let (mut end, mut digits, mut signs) = (at + 1, 0, 0);
    let mut last = end;
    while let Some(byte) = bytes.get(end) {
        match byte {
            b'0'..=b'9' => {
                (digits, signs) = (digits + 1, 0);
                last = end + 1;
            }
            b' ' | b'-' | b'.' | b'(' | b')' | b'/' if signs < 2 => signs += 1,
            _ => break,
        }
        end += 1;
    }
    if PHONE_DIGITS.contains(&digits) && !is_joined_after(bytes, last) {
        found.add(Factor::Phone);
    }
    last
}

/// `(555) 234-5678`; returns the position after the parenthesis.
pub(super) fn scan_parenthesized_phone(bytes: &[u8], at: usize, found: &mut FactorSet) -> usize {
    let group = |from: usize, length: usize| {
        let run = WordRun::at(bytes, from);
        run.len() == length && run.digits == length && (length == 4 || bytes[from] >= b'2')
    };
    let second = at + 5 + usize::from(bytes.get(at + 5) == Some(&b' '));
    let signed = matches!(bytes.get(second + 3), Some(b'-' | b'.' | b' '));
    if group(at + 1, 3) && bytes.get(at + 4) == Some(&b')') && group(second, 3) && signed && group(second + 4, 4) {
        found.add(Factor::Phone);
    }
    at + 1
}

/// Whether the value of a member with a matching name is a phone number.
pub(super) fn is_phone_by_name(bytes: &[u8]) -> bool {
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let signs = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b' ' | b'-' | b'.' | b'(' | b')' | b'/' | b'+');
    NAMED_PHONE_DIGITS.contains(&digits) && bytes.iter().all(signs)
}

/// Checks the e-mail address around an `@`; returns the position after it.
pub(super) fn scan_email(bytes: &[u8], at: usize, found: &mut FactorSet) -> usize {
    let in_local = |byte: &&u8| is_word(**byte) || b".%+-'!#$&*=?^`{|}~".contains(*byte);
    let local = bytes[..at].iter().rev().take(LOCAL_BYTES_MAX + 1).take_while(in_local).count();
    let in_domain = |byte: &&u8| is_word(**byte) || matches!(**byte, b'.' | b'-');
    let domain = bytes[at + 1..].iter().take(DOMAIN_BYTES_MAX + 1).take_while(in_domain).count();
    let end = at + 1 + domain;
    let before = &bytes[..at - local];
    // `https://user:word@host` and `git@host:path` are locations, not addresses.
    let near = &before[before.len().saturating_sub(URL_BYTES_MAX)..];
    let in_url = near.ends_with(b"://") || (near.ends_with(b":") && near.windows(3).any(|part| part == b"://"));
    let is_place = bytes.get(end) == Some(&b':') && bytes.get(end + 1).is_some_and(|byte| is_word(*byte));
    let has_name = bytes[at - local..at].iter().any(|byte| is_word(*byte));
    let fits = (1..=LOCAL_BYTES_MAX).contains(&local) && domain <= DOMAIN_BYTES_MAX && has_name;
    if fits && !in_url && !is_place && is_domain(&bytes[at + 1..end]) {
        found.add(Factor::Email);
    }
    at + 1
}

/// Whether it is a host name with a top-level domain; `2x.png` is an image size.
fn is_domain(domain: &[u8]) -> bool {
    let domain = domain.trim_ascii_end();
    let domain = domain.strip_suffix(b".").unwrap_or(domain);
    let mut labels = domain.split(|byte| *byte == b'.');
    let last = labels.next_back().unwrap_or_default();
    let first = labels.clone().next().unwrap_or_default();
    let is_size = first.len() == 2 && first[0].is_ascii_digit() && first[1] == b'x';
    let is_top = last.len() >= 2
        && (last.iter().all(|byte| byte.is_ascii_alphabetic() || *byte >= 0x80) || last.starts_with(b"xn--"));
    let mut labels = labels.peekable();
    is_top && !is_size && labels.peek().is_some() && labels.all(|label| !label.is_empty())
}
