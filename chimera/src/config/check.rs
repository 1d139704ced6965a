//! Validates a raw value from any layer.
//!
//! A value means the same in every layer: as a native TOML value in the file, or as text in the file, the
//! environment or a flag. Surrounding white space is ignored, because variables and secrets that are
//! filled from files often end with a line break.

use super::listen::{self, ListenAddress};
use super::setting::{PairValue, SettingKind};
use chimera_core::access::address::Network;
use chimera_core::ledger::checkpoint::PublicKey;

/// A value as written in a layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RawValue {
    /// Text, which can encode a value of any kind.
    Text(String),
    /// An integer from the file, in decimal digits.
    Number(String),
    Boolean(bool),
    /// An array from the file; `None` for an element that is not a string.
    List(Vec<Option<String>>),
    /// Any other TOML value, by its type name.
    Other(&'static str),
}

/// A validated value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckedValue {
    /// Text, paths, addresses, choices.
    Text(String),
    Number(u64),
    Boolean(bool),
    List(Vec<String>),
}

/// Returns the validated value, or a description of what was expected.
pub(crate) fn check(kind: SettingKind, raw: &RawValue) -> Result<CheckedValue, String> {
    match kind {
        SettingKind::Number { min, max, unit } => number(raw)
            .filter(|number| (min..=max).contains(number))
            .map(CheckedValue::Number)
            .ok_or_else(|| format!("a whole number of {unit} from {min} to {max}")),
        SettingKind::Boolean => boolean(raw).map(CheckedValue::Boolean).ok_or_else(|| "`true` or `false`".to_owned()),
        SettingKind::Hosts => list(raw, "a list of `host` or `host:port`", is_host),
        SettingKind::Networks => {
            list(raw, "a list of IP addresses, or ranges such as `10.0.0.0/8`", |text| text.parse::<Network>().is_ok())
        }
        SettingKind::PublicKeys => {
            list(raw, "a list of Ed25519 public keys, 64 hex digits each", |text| PublicKey::from_hex(text).is_some())
        }
        SettingKind::LogFilter => {
            text(raw, "a level such as `info`, or a list such as `info,chimera_storage=debug`", |text| {
                !text.is_empty() && crate::telemetry::filter(text).is_ok()
            })
        }
        SettingKind::Text => text(raw, "a text", |text| !text.is_empty() && !text.contains(char::is_control)),
        SettingKind::Token => text(raw, "a token of plain characters", |text| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
        }),
        SettingKind::Pairs(PairValue::Address) => list(raw, "a list of `name=URL`", |text| {
            pair(text).is_some_and(|(_, url)| url.starts_with("http://") || url.starts_with("https://"))
        }),
        SettingKind::Pairs(PairValue::Count) => list(raw, "a list of `name=number`", |text| {
            pair(text).is_some_and(|(_, count)| count.parse::<usize>().is_ok_and(|count| count > 0))
        }),
        SettingKind::Path => text(raw, "a path", |text| !text.is_empty()),
        SettingKind::Listen => text(raw, listen::EXPECTED, |text| text.parse::<ListenAddress>().is_ok()),
        SettingKind::SecretName => text(raw, "the name of a secret such as `secret://ledger`", |text| {
            text.strip_prefix("secret://").is_some_and(|name| !name.is_empty())
        }),
        SettingKind::Choice(words) => choice(raw, words),
        SettingKind::Url(schemes) => {
            let expected = format!("a URL that begins with {}", alternatives(&with_slashes(schemes)));
            text(raw, &expected, |text| {
                text.split_once("://").is_some_and(|(scheme, rest)| schemes.contains(&scheme) && !rest.is_empty())
            })
        }
    }
}

fn text(raw: &RawValue, expected: &str, valid: impl Fn(&str) -> bool) -> Result<CheckedValue, String> {
    match raw {
        RawValue::Text(text) if valid(text.trim()) => Ok(CheckedValue::Text(text.trim().to_owned())),
        _ => Err(expected.to_owned()),
    }
}

/// Matches a choice case-insensitively; returns it as the table spells it.
fn choice(raw: &RawValue, words: &[&str]) -> Result<CheckedValue, String> {
    let RawValue::Text(text) = raw else { return Err(format!("one of {}", alternatives(words))) };
    let meant = words.iter().find(|word| word.eq_ignore_ascii_case(text.trim()));
    meant.map(|word| CheckedValue::Text((*word).to_owned())).ok_or_else(|| format!("one of {}", alternatives(words)))
}

fn number(raw: &RawValue) -> Option<u64> {
    match raw {
        // Digit groups are allowed, as in TOML: `86_400`.
        RawValue::Text(text) => {
            let text = text.trim();
            let grouped = text.split('_').all(|group| !group.is_empty());
            grouped.then(|| text.replace('_', "").parse().ok()).flatten()
        }
        RawValue::Number(text) => text.parse().ok(),
        _ => None,
    }
}

fn boolean(raw: &RawValue) -> Option<bool> {
    match raw {
        RawValue::Boolean(value) => Some(*value),
        RawValue::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn list(raw: &RawValue, expected: &str, valid: impl Fn(&str) -> bool) -> Result<CheckedValue, String> {
    let words =
        |text: &str| text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect();
    let items: Option<Vec<String>> = match raw {
        RawValue::Text(text) => Some(words(text)),
        RawValue::List(items) => items.iter().map(|item| item.as_deref().map(|item| item.trim().to_owned())).collect(),
        _ => None,
    };
    let items = items.filter(|items| items.iter().all(|item| valid(item)));
    items.map(CheckedValue::List).ok_or_else(|| expected.to_owned())
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let letters = |c: u8| c.is_ascii_alphanumeric() || b"-._*[]:".contains(&c);
    !host.is_empty() && host.bytes().all(letters) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Splits `name=value`; neither part may be empty.
pub(crate) fn pair(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
}

fn with_slashes(schemes: &[&str]) -> Vec<String> {
    schemes.iter().map(|scheme| format!("{scheme}://")).collect()
}

fn alternatives<T: AsRef<str>>(words: &[T]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{}`", word.as_ref())).collect();
    quoted.join(", ")
}

/// Describes a raw value for an error message, without showing values that may be secret.
pub(crate) fn describe(kind: SettingKind, raw: &RawValue) -> String {
    let is_public = matches!(
        kind,
        SettingKind::Choice(_)
            | SettingKind::Number { .. }
            | SettingKind::Boolean
            | SettingKind::Listen
            | SettingKind::LogFilter
    );
    match raw {
        RawValue::Text(text) if is_public => format!("\"{text}\""),
        RawValue::Text(text) if text.trim().is_empty() => "an empty text".to_owned(),
        RawValue::Text(_) => "another text".to_owned(),
        RawValue::Number(text) if is_public => text.clone(),
        // An unquoted key that consists of digits only parses as a number, and is still a secret.
        RawValue::Number(_) => "a number".to_owned(),
        RawValue::Boolean(value) => value.to_string(),
        RawValue::List(_) => "another list".to_owned(),
        RawValue::Other(name) => format!("a {name}"),
    }
}
