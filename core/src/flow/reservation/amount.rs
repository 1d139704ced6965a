//! Amounts of money and the like, as whole millionths.
//!
//! A sum of binary fractions drifts, so a limit on a sum is exact only in whole units. What can't be read exactly is
//! refused and never counted as something near it.

use serde_json::Value;

/// Decimal places of an amount.
const PLACES: usize = 6;
/// Millionths of one.
const UNIT: i64 = 1_000_000;

/// Why a value is no amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error("is missing")]
    Missing,
    #[error("is not a number")]
    NotANumber,
    #[error("is negative")]
    Negative,
    #[error("has more than {PLACES} decimal places")]
    TooPrecise,
    #[error("is too large")]
    TooLarge,
}

/// Reads a JSON number, or a string with a decimal number, as millionths.
pub fn parse_amount(value: Option<&Value>) -> Result<i64, AmountError> {
    match value {
        None | Some(Value::Null) => Err(AmountError::Missing),
        // A number prints as the shortest decimal that reads back as it.
        Some(Value::Number(number)) => parse(&number.to_string()),
        Some(Value::String(text)) => parse(text),
        Some(_) => Err(AmountError::NotANumber),
    }
}

fn parse(text: &str) -> Result<i64, AmountError> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| AmountError::NotANumber)?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_point = digits.contains('.');
    if whole.is_empty() || (has_point && fraction.is_empty()) || !are_digits(whole) || !are_digits(fraction) {
        return Err(AmountError::NotANumber);
    }
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    if is_negative {
        return Err(AmountError::Negative);
    }
    // How many places the last significant digit stands behind the point.
    let zeros = all.len() - all.trim_end_matches('0').len();
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX).saturating_sub(i64::try_from(zeros).unwrap_or(0));
    let shift = i64::try_from(PLACES).unwrap_or(0) - places.saturating_sub(i64::from(exponent));
    let shift = u32::try_from(shift).map_err(|_| AmountError::TooPrecise)?;
    let scale = 10_i64.checked_pow(shift).ok_or(AmountError::TooLarge)?;
    let number: i64 = significant.parse().map_err(|_| AmountError::TooLarge)?;
    number.checked_mul(scale).ok_or(AmountError::TooLarge)
}

/// Millionths as a decimal number.
#[must_use]
pub fn format_amount(millionths: i64) -> String {
    let (whole, rest) = (millionths / UNIT, millionths % UNIT);
    let text = format!("{whole}.{:06}", rest.abs());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_amount_is_read_exactly_or_not_at_all() {
        let read = |value: Value| parse_amount(Some(&value));
        for (value, millionths) in [
            (json!(0), 0),
            (json!(12), 12_000_000),
            (json!(0.1), 100_000),
            (json!("12.50"), 12_500_000),
            (json!("1e3"), 1_000_000_000),
            (json!(1.5e-3), 1_500),
            (json!("0.000001"), 1),
            (json!("0.0000010"), 1),
            (json!("-0"), 0),
            (json!(9_000_000_000_000_i64), 9_000_000_000_000_000_000),
        ] {
            assert_eq!(read(value.clone()), Ok(millionths), "{value}");
        }
        for (value, error) in [
            (json!(null), AmountError::Missing),
            (json!(true), AmountError::NotANumber),
            (json!(""), AmountError::NotANumber),
            (json!("1,5"), AmountError::NotANumber),
            (json!("1."), AmountError::NotANumber),
            (json!("ten"), AmountError::NotANumber),
            (json!("0x10"), AmountError::NotANumber),
            (json!([1]), AmountError::NotANumber),
            (json!(-1), AmountError::Negative),
            (json!("0.0000001"), AmountError::TooPrecise),
            (json!(1e300), AmountError::TooLarge),
            (json!("1e99999999999"), AmountError::NotANumber),
            (json!(u64::MAX), AmountError::TooLarge),
        ] {
            assert_eq!(read(value.clone()), Err(error), "{value}");
        }
        assert_eq!(parse_amount(None), Err(AmountError::Missing));
    }

    #[test]
    fn an_amount_is_shown_as_it_was_written() {
        for (millionths, shown) in [(0, "0"), (12_500_000, "12.5"), (1, "0.000001"), (1_000_000_000, "1000")] {
            assert_eq!(format_amount(millionths), shown);
        }
    }
}
