//! Binary operators on JSON values.

use crate::limits::EXPRESSION_LIST_MAX;
use crate::term::Operator;
use serde_json::{Number, Value};
use std::cmp::Ordering;

/// The JSON Schema name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A signed or unsigned 64-bit integer, or an error if the number fits neither.
pub(crate) fn integer_value(number: Option<i128>) -> Result<Value, String> {
    let value = number.and_then(|number| {
        i64::try_from(number).map(Value::from).or_else(|_| u64::try_from(number).map(Value::from)).ok()
    });
    value.ok_or_else(|| "integer overflow: the result does not fit 64 bits".to_owned())
}

/// The number, if it is stored as an integer.
pub(crate) fn as_integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// A finite double, or an error.
pub(crate) fn double_value(number: f64) -> Result<Value, String> {
    Number::from_f64(number).map(Value::Number).ok_or_else(|| "the result is not a number".to_owned())
}

pub(crate) fn operate(operator: Operator, one: &Value, other: &Value) -> Result<Value, String> {
    match operator {
        Operator::Equal => Ok(Value::Bool(equal(one, other))),
        Operator::NotEqual => Ok(Value::Bool(!equal(one, other))),
        Operator::In => contains(one, other).map(Value::Bool),
        Operator::Less => compare(operator, one, other).map(|order| Value::Bool(order == Some(Ordering::Less))),
        Operator::LessOrEqual => {
            compare(operator, one, other).map(|order| Value::Bool(order.is_some_and(Ordering::is_le)))
        }
        Operator::Greater => compare(operator, one, other).map(|order| Value::Bool(order == Some(Ordering::Greater))),
        Operator::GreaterOrEqual => {
            compare(operator, one, other).map(|order| Value::Bool(order.is_some_and(Ordering::is_ge)))
        }
        Operator::Add => match (one, other) {
            (Value::String(one), Value::String(other)) => Ok(Value::String(format!("{one}{other}"))),
            (Value::Array(one), Value::Array(other)) if one.len() + other.len() > EXPRESSION_LIST_MAX => {
                Err(format!("the list has more than {EXPRESSION_LIST_MAX} items"))
            }
            (Value::Array(one), Value::Array(other)) => Ok(Value::Array(one.iter().chain(other).cloned().collect())),
            _ => arithmetic(operator, one, other),
        },
        _ => arithmetic(operator, one, other),
    }
}

fn operand_error(operator: Operator, one: &Value, other: &Value) -> String {
    format!("cannot apply {} to {} and {}", operator.sign(), type_name(one), type_name(other))
}

fn arithmetic(operator: Operator, one: &Value, other: &Value) -> Result<Value, String> {
    let (Value::Number(left), Value::Number(right)) = (one, other) else {
        return Err(operand_error(operator, one, other));
    };
    if let (Some(left), Some(right)) = (as_integer(left), as_integer(right)) {
        return match operator {
            Operator::Divide | Operator::Modulo if right == 0 => Err("division by zero".to_owned()),
            Operator::Add => integer_value(left.checked_add(right)),
            Operator::Subtract => integer_value(left.checked_sub(right)),
            Operator::Multiply => integer_value(left.checked_mul(right)),
            Operator::Divide => integer_value(left.checked_div(right)),
            _ => integer_value(left.checked_rem(right)),
        };
    }
    let (Some(left), Some(right)) = (left.as_f64(), right.as_f64()) else {
        return Err(operand_error(operator, one, other));
    };
    match operator {
        Operator::Add => double_value(left + right),
        Operator::Subtract => double_value(left - right),
        Operator::Multiply => double_value(left * right),
        Operator::Divide if right == 0.0 => Err("division by zero".to_owned()),
        Operator::Divide => double_value(left / right),
        _ => Err(operand_error(operator, one, other)),
    }
}

fn compare(operator: Operator, one: &Value, other: &Value) -> Result<Option<Ordering>, String> {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => Ok(order(one, other)),
        (Value::String(one), Value::String(other)) => Ok(Some(one.cmp(other))),
        (Value::Bool(one), Value::Bool(other)) => Ok(Some(one.cmp(other))),
        _ => Err(operand_error(operator, one, other)),
    }
}

fn order(one: &Number, other: &Number) -> Option<Ordering> {
    match (as_integer(one), as_integer(other)) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(one), None) => Some(compare_with_fraction(one, other.as_f64()?)),
        (None, Some(other)) => Some(compare_with_fraction(other, one.as_f64()?).reverse()),
        (None, None) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Compares an integer with a finite double without losing digits.
fn compare_with_fraction(whole: i128, fraction: f64) -> Ordering {
    // The cast saturates.
    #[allow(clippy::cast_possible_truncation)]
    let cut = fraction.trunc() as i128;
    whole.cmp(&cut).then_with(|| 0.0.partial_cmp(&fraction.fract()).unwrap_or(Ordering::Equal))
}

/// CEL equality: `1` equals `1.0`, and values of different types are never equal.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => order(one, other) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| equal(value, other)))
        }
        _ => one == other,
    }
}

fn contains(one: &Value, other: &Value) -> Result<bool, String> {
    match other {
        Value::Array(items) => Ok(items.iter().any(|item| equal(one, item))),
        Value::Object(members) => Ok(one.as_str().is_some_and(|name| members.contains_key(name))),
        _ => Err(operand_error(Operator::In, one, other)),
    }
}
