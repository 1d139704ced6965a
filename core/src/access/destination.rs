//! The recipients of a call to a tool that sends messages.
//!
//! A tool declares its recipient members with [`DESTINATIONS_MEMBER`] in its input schema. Without a declaration, `to`, `cc`,
//! `bcc` and `url` are recipients, and any other member counts as one too: an attacker would pick the name that nobody
//! thought of. Members for text, such as `body`, are exempt unless the whole text is an address.

use crate::access::tenant::is_domain;
use crate::text::is_invisible;
use crate::tool::Spec;
use serde_json::Value;

/// A capability with this suffix declares that the tool sends messages.
pub const SEND_SUFFIX: &str = ".send";

/// The member of an input schema that lists the recipient properties.
pub const DESTINATIONS_MEMBER: &str = "x-destinations";

/// The recipient members of a tool that declares none.
const DEFAULT_MEMBERS: [&str; 4] = ["to", "cc", "bcc", "url"];

/// The members for text.
const TEXT_MEMBERS: [&str; 17] = [
    "subject",
    "title",
    "text",
    "body",
    "message",
    "content",
    "html",
    "markdown",
    "summary",
    "description",
    "note",
    "notes",
    "comment",
    "caption",
    "preview",
    "footer",
    "greeting",
];

/// The minimum number of digits of a phone number.
const PHONE_DIGITS_MIN: usize = 7;

/// The recipients of a call with this input, or `None` for a tool that sends no messages. An unknown recipient is
/// an empty string.
#[must_use]
pub fn destinations<'a>(spec: &Spec, input: &'a Value) -> Option<Vec<&'a str>> {
    if !spec.metadata.capabilities.iter().any(|name| name.to_ascii_lowercase().ends_with(SEND_SUFFIX)) {
        return None;
    }
    let schema = spec.input.document();
    let declared = schema[DESTINATIONS_MEMBER].as_array();
    let named = |name: &str| match declared {
        Some(listed) => listed.iter().any(|listed| listed == name),
        None => DEFAULT_MEMBERS.contains(&name),
    };
    let members = || input.as_object().into_iter().flatten();
    let mut texts = Vec::new();
    members().filter(|(name, _)| named(name)).for_each(|(_, value)| collect_texts(value, &mut texts));
    texts.extend(members().map(|(name, _)| name.as_str()).filter(|name| is_address(name)));
    if texts.is_empty() {
        texts.push("");
    }
    if declared.is_none() {
        for (name, value) in members().filter(|(name, _)| !named(name) && *name != "dry_run") {
            collect_undeclared(name, value, &schema["properties"][name.as_str()], &mut texts);
        }
    }
    Some(texts)
}

/// Adds the possible recipients in a member that is not a known recipient member.
fn collect_undeclared<'a>(name: &str, value: &'a Value, schema: &Value, texts: &mut Vec<&'a str>) {
    // The tool's own schema lists every possible value.
    if schema.get("enum").is_some() || schema.get("const").is_some() {
        return;
    }
    let mut found = Vec::new();
    collect_texts(value, &mut found);
    // An object is not text, whatever its member is called.
    if TEXT_MEMBERS.contains(&name) && !holds_object(value) {
        found.retain(|text| is_address(text));
    }
    texts.extend(found);
}

/// Collects the strings within a value. A number becomes an empty string; null and booleans are ignored.
fn collect_texts<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::String(text) => into.push(text),
        Value::Number(_) => into.push(""),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, into)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            into.extend(Some(name.as_str()).filter(|name| is_address(name)));
            collect_texts(member, into);
        }),
    }
}

fn holds_object(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().any(holds_object),
        _ => false,
    }
}

/// Whether a text consists only of mail addresses, URLs, hosts, handles or a phone number.
fn is_address(text: &str) -> bool {
    // Programs ignore invisible characters, and some treat a backslash as a slash.
    let text = text.replace(|char: char| is_invisible(char) && !char.is_whitespace(), "").replace('\\', "/");
    let text = text.trim();
    let ends_in_one = text.ends_with('>') && text.contains('@');
    let mut words =
        text.split(|char: char| char.is_whitespace() || ",;".contains(char)).filter(|word| !word.is_empty());
    let leads_somewhere = |word: &str| {
        let host = word.trim_start_matches('/').split(['/', ':', '?', '#']).next().unwrap_or_default();
        let host = host.strip_suffix('.').unwrap_or(host);
        word.contains('@') || word.contains(":/") || is_host(host)
    };
    ends_in_one || is_phone(text) || words.next().is_some_and(leads_somewhere) && words.all(leads_somewhere)
}

fn is_host(text: &str) -> bool {
    let host = text.to_ascii_lowercase();
    let ending = host.rsplit_once('.').map(|(_, ending)| ending);
    is_domain(&host) && ending.is_some_and(|ending| ending.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Whether a text is an international phone number. Without the `+` it could be any number.
fn is_phone(text: &str) -> bool {
    let number = text.strip_prefix("tel:").unwrap_or(text);
    let Some(number) = number.strip_prefix('+') else { return number.len() < text.len() };
    let digits = number.chars().filter(char::is_ascii_digit).count();
    digits >= PHONE_DIGITS_MIN && number.chars().all(|char| char.is_ascii_digit() || " -()./".contains(char))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::TenantSettings;
    use crate::json::schema::Schema;
    use serde_json::json;

    fn sender(input: Value) -> Spec {
        let mut spec = Spec { input: Schema::compile(input).unwrap(), ..Spec::placeholder("chat", None).unwrap() };
        spec.metadata.capabilities = vec!["desk.send".to_owned()];
        spec
    }

    fn is_outside(spec: &Spec, input: &Value) -> bool {
        let acme = TenantSettings { domains: vec!["acme.example".to_owned()], ..TenantSettings::default() };
        acme.messages_outsiders(spec, input)
    }

    #[test]
    fn a_message_goes_to_everybody_whom_its_input_names() {
        let mut mail = sender(json!({"type": "object"}));
        let input = json!({"to": ["a@x", "b@x"], "cc": "c@x", "bcc": ["d@x"], "subject": "of e@x"});
        assert_eq!(destinations(&mail, &input), Some(vec!["d@x", "c@x", "a@x", "b@x"]));
        assert_eq!(destinations(&mail, &json!({"url": "https://x/"})), Some(vec!["https://x/"]));
        assert_eq!(destinations(&mail, &json!({"to": {"who": 1}})), Some(vec![""]), "not known");
        assert_eq!(destinations(&mail, &json!({})), Some(vec![""]));
        mail.metadata.capabilities = vec!["desk.read".to_owned()];
        assert_eq!(destinations(&mail, &json!({"to": "ann@acme.example"})), None, "it says nothing of messages");
    }

    #[test]
    fn an_outsider_in_any_member_is_an_outsider() {
        let chat = sender(json!({"type": "object", "properties": {"style": {"enum": ["plain", "rich"]}}}));
        let inside =
            json!({"to": "ann@acme.example", "text": "hi, write to y@evil.example", "style": "rich", "copy": true});
        assert!(!is_outside(&chat, &inside));
        for (member, value) in [
            ("recipient", json!("y@evil.example")),
            ("To", json!("y@evil.example")),
            ("phone", json!("015112345678")),
            ("destination", json!("@stranger")),
            ("destination", json!({"id": "U123"})),
            ("destination", json!(12345)),
            ("copy", json!({"deep": [{"addr": "evil.example"}]})),
            ("channel", json!("C0123")),
            ("text", json!("y@evil.example")),
            ("text", json!("Eve <y@evil.example>")),
            ("body", json!(["https://evil.example/hook"])),
            ("title", json!("evil.example")),
            ("note", json!("+49 151 12345678")),
            ("to", json!({"email": "y@evil.example"})),
            ("to", json!({"y@evil.example": true, "n": "a@acme.example"})),
            ("y@evil.example", json!(true)),
            ("text", json!("y@evil.example, z@evil.example")),
            ("body", json!("evil.example/hook")),
            ("title", json!("evil.example:8080")),
            ("title", json!("evil\u{200b}.example")),
            ("body", json!("//evil.example/hook")),
            ("body", json!("https:\\\\evil.example")),
            ("body", json!("evil.example?x")),
            ("body", json!("evil.example\u{2060}")),
            ("to", json!("https://acme.example\\@evil.example/")),
            ("url", json!("https://acme.example..")),
            ("cc", json!("ann@acme.example\u{2028}")),
            ("message", json!({"to": "0151123456"})),
            ("content", json!([{"recipient": "U123"}])),
        ] {
            let mut input = inside.clone();
            input[member] = value;
            assert!(is_outside(&chat, &input), "{input}");
        }
    }

    #[test]
    fn words_are_no_address() {
        let chat = sender(json!({"type": "object"}));
        for words in ["", "Hello.", "2024-01-15", "see https://evil.example", "a@b is a mail", "+1", "1.5", "Ann & Bob"]
        {
            let input = json!({"to": "ann@acme.example", "text": words, "recipient": "bob@acme.example"});
            assert!(!is_outside(&chat, &input), "{words}");
        }
    }

    #[test]
    fn a_tool_that_lists_its_destinations_has_no_others() {
        let hook = sender(json!({"type": "object", "x-destinations": ["where"]}));
        assert!(!is_outside(&hook, &json!({"where": "https://acme.example/h", "data": {"mail": "y@evil.example"}})));
        assert!(is_outside(&hook, &json!({"where": "https://evil.example/h"})));
        assert!(is_outside(&hook, &json!({"to": "ann@acme.example"})), "it does not say where");
    }
}
