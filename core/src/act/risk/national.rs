//! National identification numbers that can be told from other numbers.
//!
//! With check digits: Spain's DNI and NIE, France's NIR, Germany's Steuer-ID, Italy's codice fiscale. By their strict
//! format: the SSN of the United States (`123-45-6789` within the assigned ranges) and Britain's National Insurance
//! number. Numbers with a weak check and no distinct format, such as the Dutch BSN, are not detected: every tenth
//! order number would match.

use super::personal::GroupedNumber;
use super::text::is_word;

/// Spain's check letters, by the number's remainder.
const SPANISH_CHECK_LETTERS: &[u8; 23] = b"TRWAGMYFPDXBNJZSQVHLCKE";

/// Whether a run of letters and digits is an identification number.
pub(super) fn is_alphanumeric_id(run: &[u8]) -> bool {
    match run.len() {
        9 => is_spanish(run) || is_british(run),
        15 => is_corsican(run),
        16 => is_italian(run),
        _ => false,
    }
}

/// Whether a number is an identification number.
pub(super) fn is_numeric_id(number: &GroupedNumber) -> bool {
    let digits = number.digits();
    match digits.len() {
        9 => number.is_split(&[3, 2, 4], b"-") && is_american(digits),
        11 => number.is_grouped(&[2, 3, 3, 3], b" ") && is_german(digits),
        15 => {
            let grouped = number.is_grouped(&[1, 2, 2, 2, 3, 3, 2], b" ") || number.is_split(&[13, 2], b" -");
            grouped && is_french(digits)
        }
        _ => false,
    }
}

/// Whether a number of eight digits is followed by a dash and Spain's check letter: `12345678-Z`.
pub(super) fn has_spanish_check_letter(bytes: &[u8], number: &GroupedNumber, end: usize) -> bool {
    let alone = bytes.get(end + 2).is_none_or(|byte| !is_word(*byte));
    let letter = bytes.get(end + 1).filter(|_| bytes.get(end) == Some(&b'-') && alone);
    number.digits().len() == 8
        && number.is_grouped(&[8], b"")
        && letter.is_some_and(|letter| is_spanish_check_letter(value(number.digits()), *letter))
}

fn value(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(*digit))
}

/// Parses ASCII digits.
fn read(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

fn is_spanish_check_letter(number: u64, letter: u8) -> bool {
    usize::try_from(number % 23).is_ok_and(|at| SPANISH_CHECK_LETTERS[at] == letter.to_ascii_uppercase())
}

/// DNI: eight digits and a letter. NIE: X, Y or Z in place of the first digit.
fn is_spanish(run: &[u8]) -> bool {
    let lead = match run[0].to_ascii_uppercase() {
        first @ b'X'..=b'Z' => read(&run[1..8]).map(|rest| u64::from(first - b'X') * 10_000_000 + rest),
        _ => read(&run[..8]),
    };
    lead.is_some_and(|number| is_spanish_check_letter(number, run[8]))
}

/// Two assigned letters, six digits, and A to D.
fn is_british(run: &[u8]) -> bool {
    let (first, second) = (run[0].to_ascii_uppercase(), run[1].to_ascii_uppercase());
    let given = first.is_ascii_uppercase()
        && second.is_ascii_uppercase()
        && !b"DFIQUV".contains(&first)
        && !b"DFIOQUV".contains(&second)
        && ![b"BG", b"GB", b"NK", b"KN", b"TN", b"NT", b"ZZ"].contains(&&[first, second]);
    given && read(&run[2..8]).is_some() && matches!(run[8].to_ascii_uppercase(), b'A'..=b'D')
}

/// Whether the value of a member with a matching name is a social security number.
pub(super) fn is_american_by_name(text: &[u8]) -> bool {
    let mut digits = [0_u8; 9];
    text.len() == digits.len() && text.iter().all(u8::is_ascii_digit) && {
        digits.iter_mut().zip(text).for_each(|(digit, byte)| *digit = byte - b'0');
        is_american(&digits)
    }
}

/// The assigned ranges, without two numbers that were published in advertisements.
fn is_american(digits: &[u8]) -> bool {
    let (area, group, serial) = (value(&digits[..3]), value(&digits[3..5]), value(&digits[5..]));
    let known = matches!((area, group, serial), (78, 5, 1120) | (219, 9, 9999));
    !matches!(area, 0 | 666 | 900..) && group != 0 && serial != 0 && !known
}

/// Sex, year, month, place, and a modulo-97 key.
fn is_french(digits: &[u8]) -> bool {
    let month = value(&digits[3..5]);
    let plausible = matches!(digits[0], 1..=4 | 7 | 8) && matches!(month, 1..=12 | 20..=42 | 50..=99);
    plausible && 97 - value(&digits[..13]) % 97 == value(&digits[13..])
}

/// The same for those born on Corsica: `2A` counts as 19, `2B` as 18.
fn is_corsican(run: &[u8]) -> bool {
    let place: &[u8] = match &run[5..7].to_ascii_uppercase()[..] {
        b"2A" => b"19",
        b"2B" => b"18",
        _ => return false,
    };
    let mut digits = [0_u8; 15];
    for (at, byte) in run[..5].iter().chain(place).chain(&run[7..]).enumerate() {
        if !byte.is_ascii_digit() {
            return false;
        }
        digits[at] = byte - b'0';
    }
    is_french(&digits)
}

/// Eleven digits: of the first ten exactly one occurs two or three times; the last is a check digit.
fn is_german(digits: &[u8]) -> bool {
    let mut counts = [0_u8; 10];
    digits[..10].iter().for_each(|digit| counts[usize::from(*digit)] += 1);
    let repeated = counts.iter().filter(|count| **count > 1).count();
    if digits[0] == 0 || repeated != 1 || counts.iter().any(|count| *count > 3) {
        return false;
    }
    let product = digits[..10].iter().fold(10_u32, |product, digit| {
        let sum = (product + u32::from(*digit)) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    (11 - product) % 10 == u32::from(digits[10])
}

/// Six letters, year, month, day, place and a check letter; letters may stand for digits.
fn is_italian(run: &[u8]) -> bool {
    const PLACES: [usize; 7] = [6, 7, 9, 10, 12, 13, 14];
    const ODD: [u8; 26] =
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23];
    let mut sum = 0_u32;
    for (at, byte) in run.iter().map(u8::to_ascii_uppercase).enumerate() {
        let may_be_digit = PLACES.contains(&at);
        let value = match byte {
            b'0'..=b'9' if may_be_digit => byte - b'0',
            b'L'..=b'N' | b'P'..=b'V' if may_be_digit => byte - b'A',
            b'A'..=b'Z' if !may_be_digit => byte - b'A',
            _ => return false,
        };
        if at < 15 {
            sum += u32::from(if at % 2 == 0 { ODD[usize::from(value)] } else { value });
        } else {
            return sum % 26 == u32::from(value) && b"ABCDEHLMPRST".contains(&run[8].to_ascii_uppercase());
        }
    }
    false
}
