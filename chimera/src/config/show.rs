//! `config print`: every setting, its value and its origin, with secrets masked.

use super::check::CheckedValue;
use super::setting::{PairValue, SETTINGS, Setting, SettingKind};
use super::{LoadedConfig, SettingValue};
use serde_json::json;
use std::fmt::Write;

pub(crate) fn show(loaded: &LoadedConfig, as_json: bool, origins: bool) -> String {
    if as_json { json_text(loaded, origins) } else { toml_text(loaded, origins) }
}

fn json_text(loaded: &LoadedConfig, origins: bool) -> String {
    let mut settings = serde_json::Map::new();
    for setting in SETTINGS {
        let found = loaded.values.get(setting.key);
        let value = found.map_or(serde_json::Value::Null, |value| json_value(setting, value));
        let origin = found.map_or("default".to_owned(), |value| value.origin.to_string());
        let shown = if origins { json!({"value": value, "origin": origin}) } else { value };
        settings.insert(setting.key.to_owned(), shown);
    }
    serde_json::Value::Object(settings).to_string() + "\n"
}

fn json_value(setting: &Setting, value: &SettingValue) -> serde_json::Value {
    match &value.typed {
        CheckedValue::Text(text) => masked(setting, text).into(),
        CheckedValue::Number(number) => (*number).into(),
        CheckedValue::Boolean(value) => (*value).into(),
        CheckedValue::List(items) => items.iter().map(|item| masked_item(setting, item)).collect(),
    }
}

/// TOML requires grouped settings after the top-level ones; the table is in that order.
fn toml_text(loaded: &LoadedConfig, origins: bool) -> String {
    let mut text = String::new();
    let mut group = "";
    for setting in SETTINGS {
        let (inside, name) = setting.key.split_once('.').unwrap_or(("", setting.key));
        if inside != group {
            group = inside;
            let _ = writeln!(text, "\n[{group}]");
        }
        let line = match loaded.values.get(setting.key) {
            Some(value) => format!("{name} = {}", json_value(setting, value)),
            None => format!("# {name} is not set: {}", setting.doc),
        };
        let origin = loaded.values.get(setting.key).filter(|_| origins).map(|value| format!("  # {}", value.origin));
        let _ = writeln!(text, "{line}{}", origin.unwrap_or_default());
    }
    text
}

fn masked(setting: &Setting, text: &str) -> String {
    match setting.kind {
        SettingKind::Url(_) => masked_url(text),
        SettingKind::Token => "***".to_owned(),
        _ => text.to_owned(),
    }
}

/// An item of a list; of `name=URL` the URL is masked.
fn masked_item(setting: &Setting, item: &str) -> String {
    match (setting.kind, item.split_once('=')) {
        (SettingKind::Pairs(PairValue::Address), Some((name, url))) => format!("{name}={}", masked_url(url)),
        _ => item.to_owned(),
    }
}

/// Query parameters that are never secret.
const PLAIN: &[&str] = &["endpoint", "region", "style", "sslmode"];

fn masked_pair(pair: &str) -> String {
    let name = pair.split('=').next().unwrap_or_default();
    if PLAIN.contains(&name) { pair.to_owned() } else { format!("{name}=***") }
}

/// Masks the password in a URL, and query values not known to be harmless. A password can contain any
/// delimiter, so the last `@` ends it.
pub(crate) fn masked_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let Some((user, place)) = rest.rsplit_once('@') else {
        return format!("{scheme}://{}", masked_query(rest));
    };
    let name = user.split_once(':').map(|(name, _)| name).filter(|name| !name.contains(['/', '?', '#', '@']));
    let shown = name.map_or("***".to_owned(), |name| format!("{name}:***"));
    // After a question mark the `@` may be part of a query parameter, so everything after it is hidden.
    if user.contains('?') {
        format!("{scheme}://{shown}")
    } else {
        format!("{scheme}://{shown}@{}", masked_query(place))
    }
}

fn masked_query(rest: &str) -> String {
    let Some((address, query)) = rest.split_once('?') else { return rest.to_owned() };
    let pairs: Vec<String> = query.split('&').map(masked_pair).collect();
    format!("{address}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_where_it_leads_and_hides_what_it_carries() {
        for (url, shown) in [
            ("postgres://chimera:hunter2@db:5432/main", "postgres://chimera:***@db:5432/main"),
            ("redis://:hunter2@cache", "redis://:***@cache"),
            ("https://hunter2@otel/v1?key=hunter2&a=b", "https://***@otel/v1?key=***&a=***"),
            ("postgres://a:p@ss:hunter2@db/x", "postgres://a:***@db/x"),
            ("s3://bucket?endpoint=http://h:9000&key=hunter2", "s3://bucket?endpoint=http://h:9000&key=***"),
            ("secret://db", "secret://db"),
            ("postgres://sl:Zk9/hunter2+Q=@127.0.0.1:17654/sl", "postgres://sl:***@127.0.0.1:17654/sl"),
            ("redis://:12/hunter2@h", "redis://:***@h"),
            ("redis://:Zk9?hunter2@h", "redis://:***"),
            ("postgres://u:a@b/hunter2#c@h/x?password=hunter2", "postgres://u:***@h/x?password=***"),
            ("postgres://u:p@h/x?password=a@b/hunter2", "postgres://u:***"),
            ("s3://bucket?key=hunter2&endpoint=http://u:hunter2@h", "s3://***"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }

    #[test]
    fn the_urls_of_a_list_are_masked_like_any_other() {
        let setting = SETTINGS.iter().find(|setting| setting.key == "flow.base_urls").unwrap();
        let shown = masked_item(setting, "github=https://u:hunter2@h/api?key=hunter2");
        assert_eq!(shown, "github=https://u:***@h/api?key=***");
        assert_eq!(masked_item(setting, "github=https://h/api"), "github=https://h/api");
    }

    #[test]
    fn grouped_settings_stand_last_and_together() {
        let groups: Vec<&str> = SETTINGS.iter().map(|s| s.key.split_once('.').map_or("", |(group, _)| group)).collect();
        let mut seen: Vec<&str> = Vec::new();
        for group in groups {
            if seen.last() != Some(&group) {
                assert!(!seen.contains(&group), "{group} is split");
                seen.push(group);
            }
        }
        assert_eq!(seen.first(), Some(&""));
    }
}
