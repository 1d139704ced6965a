//! Payment card and bank account numbers, recognized by length and check digits.

use super::personal::GroupedNumber;
use super::text::{WordRun, is_joined_after};

/// IBAN countries and lengths.
const IBAN_LENGTHS: &str = "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29\
    ES24FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21\
    LY25MC27MD24ME22MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27\
    SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20YE30";
const IBAN_CHARS_MAX: usize = 34;

/// Whether a number is a payment card number: known issuer, length, and check digit.
pub(super) fn is_card(number: &GroupedNumber) -> bool {
    let digits = number.digits();
    let signs = b" -";
    let grouped = match digits.len() {
        16 => number.is_grouped(&[4, 4, 4, 4], signs),
        15 => number.is_grouped(&[4, 6, 5], signs),
        14 => number.is_grouped(&[4, 6, 4], signs),
        19 => number.is_grouped(&[4, 4, 4, 4, 3], signs),
        _ => false,
    };
    grouped && is_issued(digits) && is_luhn(digits)
}

/// Whether an issuer uses this prefix and length.
fn is_issued(digits: &[u8]) -> bool {
    let first = digits[..4].iter().fold(0_u32, |sum, digit| sum * 10 + u32::from(*digit));
    match digits.len() {
        14 => matches!(first, 3000..=3059 | 3600..=3699 | 3800..=3999),
        15 => matches!(first, 3400..=3499 | 3700..=3799),
        16 => matches!(
            first,
            4000..=4999 | 5100..=5599 | 2221..=2720 | 6011 | 6440..=6599 | 3528..=3589 | 6200..=6299 | 5018 | 5020 | 5038
                | 5893 | 6304 | 6759 | 6761..=6763
        ),
        _ => matches!(first, 4000..=4999 | 6011 | 6440..=6599 | 6200..=6299),
    }
}

/// The Luhn check.
fn is_luhn(digits: &[u8]) -> bool {
    let doubled = |(index, digit): (usize, &u8)| {
        let value = u32::from(*digit) << (index % 2);
        value / 10 + value % 10
    };
    let sum: u32 = digits.iter().rev().enumerate().map(doubled).sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != digits[0])
}

/// The end of the IBAN that begins with this run, in one piece or in groups of four.
pub(super) fn iban_end(bytes: &[u8], run: WordRun) -> Option<usize> {
    let head = bytes.get(run.start..run.start + 4)?;
    if !head[..2].iter().all(u8::is_ascii_alphabetic) || !head[2..].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = iban_length(head)?;
    let mut chars = [0_u8; IBAN_CHARS_MAX];
    let (mut at, mut taken) = (run.start, 0);
    while taken < length {
        let byte = *bytes.get(at)?;
        if byte.is_ascii_alphanumeric() {
            chars[taken] = byte.to_ascii_uppercase();
            taken += 1;
        } else if !(byte == b' ' && taken.is_multiple_of(4)) {
            return None;
        }
        at += 1;
    }
    if is_joined_after(bytes, at) || iban_checksum(&chars[..length]) != 1 { None } else { Some(at) }
}

/// The IBAN length of a country.
fn iban_length(head: &[u8]) -> Option<usize> {
    let country = [head[0].to_ascii_uppercase(), head[1].to_ascii_uppercase()];
    let row = IBAN_LENGTHS.as_bytes().chunks(4).find(|row| row.starts_with(&country))?;
    Some(usize::from(row[2] - b'0') * 10 + usize::from(row[3] - b'0'))
}

/// The IBAN checksum: the number with its head moved to the end, modulo 97.
fn iban_checksum(chars: &[u8]) -> u32 {
    chars[4..].iter().chain(&chars[..4]).fold(0, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte - b'A') + 10) % 97,
    })
}
