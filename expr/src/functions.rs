//! The built-in functions: a fixed table. All are pure, and their work is bounded by the size of their arguments.

use crate::canonical::canonical;
use crate::eval::Budget;
use crate::limits::EXPRESSION_LIST_MAX;
use crate::operators::{as_integer, double_value, integer_value, type_name};
use crate::suggest::did_you_mean;
use crate::types::Type;
use serde_json::Value;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    LowerAscii,
    UpperAscii,
    Trim,
    Split,
    Join,
    Replace,
    Substring,
    ToText,
    ToInt,
    ToDouble,
    ToBool,
    Dyn,
}

/// How a function may be called: `global` as `f(x)`, `method` as `x.f()`.
struct FunctionRow {
    name: &'static str,
    call: Function,
    global: bool,
    method: bool,
    least: usize,
    most: usize,
}

const fn method(name: &'static str, call: Function, least: usize, most: usize) -> FunctionRow {
    FunctionRow { name, call, global: false, method: true, least, most }
}

const fn global(name: &'static str, call: Function) -> FunctionRow {
    FunctionRow { name, call, global: true, method: false, least: 1, most: 1 }
}

/// Argument counts include the receiver of a method.
const TABLE: &[FunctionRow] = &[
    FunctionRow { name: "size", call: Function::Size, global: true, method: true, least: 1, most: 1 },
    method("contains", Function::Contains, 2, 2),
    method("startsWith", Function::StartsWith, 2, 2),
    method("endsWith", Function::EndsWith, 2, 2),
    method("lowerAscii", Function::LowerAscii, 1, 1),
    method("upperAscii", Function::UpperAscii, 1, 1),
    method("trim", Function::Trim, 1, 1),
    method("split", Function::Split, 2, 2),
    method("join", Function::Join, 1, 2),
    method("replace", Function::Replace, 3, 3),
    method("substring", Function::Substring, 2, 3),
    global("string", Function::ToText),
    global("int", Function::ToInt),
    global("double", Function::ToDouble),
    global("bool", Function::ToBool),
    global("dyn", Function::Dyn),
];

impl Function {
    /// Looks up a function that may be called in this form.
    pub(crate) fn find(name: &str, as_method: bool) -> Result<Self, String> {
        let row = TABLE.iter().find(|row| row.name == name);
        match row {
            Some(row) if if as_method { row.method } else { row.global } => Ok(row.call),
            Some(row) if as_method => Err(format!("{name} is called as {name}(x), not on a value", name = row.name)),
            Some(row) => Err(format!("{name} is called on a value: x.{name}(…)", name = row.name)),
            None => Err(format!("unknown function {name}{}", did_you_mean(name, TABLE.iter().map(|row| row.name)))),
        }
    }

    fn row(self) -> &'static FunctionRow {
        // Every variant has a row; a test says so.
        TABLE.iter().find(|row| row.call == self).unwrap_or(&TABLE[0])
    }

    /// Checks the number of arguments, including the receiver.
    pub(crate) fn check_arity(self, count: usize) -> Result<(), String> {
        let row = self.row();
        let good = (row.least..=row.most).contains(&count);
        good.then_some(()).ok_or_else(|| format!("{} can't take {count} arguments", row.name))
    }

    /// The result type, or why the argument types don't fit.
    pub(crate) fn infer(self, types: &[Type]) -> Result<Type, String> {
        let text = |at: usize| match types.get(at) {
            None | Some(Type::Text | Type::Any) => Ok(()),
            Some(other) => Err(format!("{} takes a string, not {other}", self.row().name)),
        };
        let number = |at: usize| match types.get(at) {
            None | Some(Type::Int | Type::Any) => Ok(()),
            Some(other) => Err(format!("{} takes an integer, not {other}", self.row().name)),
        };
        let refused = |of: &Type| Err(format!("{} can't take {of}", self.row().name));
        let first = types.first().unwrap_or(&Type::Any);
        match self {
            Self::Size => match first {
                Type::Text | Type::List(_) | Type::Object(_) | Type::Any => Ok(Type::Int),
                other => refused(other),
            },
            Self::Contains | Self::StartsWith | Self::EndsWith => text(0).and(text(1)).map(|()| Type::Bool),
            Self::LowerAscii | Self::UpperAscii | Self::Trim => text(0).map(|()| Type::Text),
            Self::Split => text(0).and(text(1)).map(|()| Type::List(Arc::new(Type::Text))),
            Self::Join => match first {
                Type::Any => text(1).map(|()| Type::Text),
                Type::List(item) if matches!(**item, Type::Text | Type::Any) => text(1).map(|()| Type::Text),
                other => Err(format!("join takes a list of strings, not {other}")),
            },
            Self::Replace => text(0).and(text(1)).and(text(2)).map(|()| Type::Text),
            Self::Substring => text(0).and(number(1)).and(number(2)).map(|()| Type::Text),
            Self::ToText => match first {
                Type::Null | Type::List(_) | Type::Object(_) => refused(first),
                _ => Ok(Type::Text),
            },
            Self::ToInt | Self::ToDouble => match first {
                Type::Text | Type::Int | Type::Number | Type::Any => {
                    Ok(if self == Self::ToInt { Type::Int } else { Type::Number })
                }
                other => refused(other),
            },
            Self::ToBool => match first {
                Type::Text | Type::Bool | Type::Any => Ok(Type::Bool),
                other => refused(other),
            },
            Self::Dyn => Ok(Type::Any),
        }
    }

    pub(crate) fn apply(self, arguments: &[&Value], budget: &Budget<'_>) -> Result<Value, String> {
        let text = |at: usize| match arguments.get(at) {
            Some(Value::String(text)) => Ok(text.as_str()),
            other => {
                Err(format!("{} takes a string, not {}", self.row().name, other.map_or("nothing", |v| type_name(v))))
            }
        };
        // Every function may read its texts to the end.
        for argument in arguments {
            budget.spend_bytes(argument.as_str().map_or(0, str::len))?;
        }
        let Some(first) = arguments.first() else {
            return Err("not enough arguments".to_owned());
        };
        match self {
            Self::Size => size(first),
            Self::Contains => Ok(Value::Bool(text(0)?.contains(text(1)?))),
            Self::StartsWith => Ok(Value::Bool(text(0)?.starts_with(text(1)?))),
            Self::EndsWith => Ok(Value::Bool(text(0)?.ends_with(text(1)?))),
            Self::LowerAscii => Ok(Value::String(text(0)?.to_ascii_lowercase())),
            Self::UpperAscii => Ok(Value::String(text(0)?.to_ascii_uppercase())),
            Self::Trim => Ok(Value::String(text(0)?.trim().to_owned())),
            Self::Split => split(text(0)?, text(1)?),
            Self::Join => join(first, if arguments.len() > 1 { text(1)? } else { "" }, budget),
            Self::Replace => replace(text(0)?, text(1)?, text(2)?, budget),
            Self::Substring => substring(text(0)?, arguments.get(1).copied(), arguments.get(2).copied()),
            Self::ToText => to_text(first),
            Self::ToInt => to_int(first),
            Self::ToDouble => to_double(first),
            Self::ToBool => to_bool(first),
            Self::Dyn => {
                budget.spend_value(first)?;
                Ok((*first).clone())
            }
        }
    }
}

fn size(value: &Value) -> Result<Value, String> {
    let count = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        other => return Err(format!("size can't take {}", type_name(other))),
    };
    integer_value(i128::try_from(count).ok())
}

fn split(text: &str, by: &str) -> Result<Value, String> {
    let parts: Vec<Value> = if by.is_empty() {
        text.chars().take(EXPRESSION_LIST_MAX + 1).map(|letter| Value::String(letter.to_string())).collect()
    } else {
        text.split(by).take(EXPRESSION_LIST_MAX + 1).map(|part| Value::String(part.to_owned())).collect()
    };
    if parts.len() > EXPRESSION_LIST_MAX {
        return Err(format!("split gives more than {EXPRESSION_LIST_MAX} parts"));
    }
    Ok(Value::Array(parts))
}

fn join(list: &Value, by: &str, budget: &Budget<'_>) -> Result<Value, String> {
    let Value::Array(items) = list else {
        return Err(format!("join takes a list of strings, not {}", type_name(list)));
    };
    let mut out = String::new();
    for (at, item) in items.iter().enumerate() {
        let Value::String(text) = item else {
            return Err(format!("join takes a list of strings, but the list contains {}", type_name(item)));
        };
        budget.spend_bytes(text.len() + by.len())?;
        if at > 0 {
            out.push_str(by);
        }
        out.push_str(text);
    }
    Ok(Value::String(out))
}

fn replace(text: &str, from: &str, to: &str, budget: &Budget<'_>) -> Result<Value, String> {
    // The result may be far longer than the text: every match becomes `to`.
    let matches = text.matches(from).count();
    budget.spend_bytes(matches.saturating_mul(to.len()))?;
    Ok(Value::String(text.replace(from, to)))
}

fn substring(text: &str, from: Option<&Value>, to: Option<&Value>) -> Result<Value, String> {
    let place = |value: &Value| {
        let place = value.as_i64().and_then(|place| usize::try_from(place).ok());
        place.ok_or_else(|| "substring takes non-negative positions".to_owned())
    };
    let count = text.chars().count();
    let from = from.map(place).transpose()?.unwrap_or(0);
    let to = to.map(place).transpose()?.unwrap_or(count);
    if from > to || to > count {
        return Err(format!("substring from {from} to {to} is outside a string of {count} characters"));
    }
    Ok(Value::String(text.chars().skip(from).take(to - from).collect()))
}

fn to_text(value: &Value) -> Result<Value, String> {
    match value {
        Value::String(_) => Ok(value.clone()),
        Value::Bool(_) | Value::Number(_) => to_plain_text(value).map(Value::String),
        other => Err(format!("string can't take {}", type_name(other))),
    }
}

/// A value inside text: strings as they are, everything else as canonical JSON.
pub(crate) fn to_plain_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Ok(canonical(other)),
    }
}

fn to_int(value: &Value) -> Result<Value, String> {
    match value {
        Value::Number(number) => match (as_integer(number), number.as_f64()) {
            // The cast saturates at the ends of i128, which `whole` refuses.
            #[allow(clippy::cast_possible_truncation)]
            (None, Some(number)) => integer_value(Some(number.trunc() as i128)),
            (number, _) => integer_value(number),
        },
        Value::String(text) => {
            let number: i128 = text.parse().map_err(|_| "the string is not an integer".to_owned())?;
            integer_value(Some(number))
        }
        other => Err(format!("int can't take {}", type_name(other))),
    }
}

fn to_double(value: &Value) -> Result<Value, String> {
    match value {
        Value::Number(number) => double_value(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => double_value(text.parse().map_err(|_| "the string is not a number".to_owned())?),
        other => Err(format!("double can't take {}", type_name(other))),
    }
}

fn to_bool(value: &Value) -> Result<Value, String> {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match text.as_str() {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Value::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Value::Bool(false)),
            _ => Err("the string is neither true nor false".to_owned()),
        },
        other => Err(format!("bool can't take {}", type_name(other))),
    }
}
