//! A call that overrides its method is found in every spelling that some server reads, and ordinary bodies are not taken
//! for one.

use chimera_core::json::schema::Schema;
use chimera_core::tool::{CallClass, EffectKind, Metadata, ReadOnlyInputs, Rollback, Spec, ToolDeclaration};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use std::sync::LazyLock;

static HTTP: LazyLock<Spec> = LazyLock::new(|| {
    let declared = ToolDeclaration {
        name: "http.request",
        version: "1",
        description: "Asks somebody.",
        metadata: Metadata::default(),
        effect: EffectKind::Write,
        reads_when: Some(ReadOnlyInputs { member: "method", values: &["GET"], deletes: &["DELETE"] }),
        checkable: false,
        rollback: Rollback::Unsupported,
        timeout_ms: 1_000,
        input: json!({"type": "object"}),
        output: json!({"type": "object"}),
    };
    let compiled = declared.compile().unwrap();
    Spec { input: Schema::compile(json!({"type": "object"})).unwrap(), ..compiled }
});

const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=x";

fn class(input: &Value) -> CallClass {
    HTTP.call_class(input)
}

fn body(kind: Option<&str>, text: &str) -> Value {
    let mut input = json!({"method": "POST", "url": "https://a.example/items/7", "text": text});
    if let Some(kind) = kind {
        input["headers"] = json!({"Content-Type": kind});
    }
    input
}

fn query(name: &str, value: &str) -> [Value; 2] {
    let url = format!("https://a.example/items/7?a=1&{name}={value}");
    [
        json!({"method": "POST", "url": url}),
        json!({"method": "POST", "url": "https://a.example", "query": {name: value}}),
    ]
}

/// Names that some server reads as `_method`, or as a header's.
fn names() -> impl Strategy<Value = String> {
    let names = [
        "_method",
        ".method",
        "[method",
        " method",
        "-method",
        "_Method",
        "_METHOD[]",
        "_method[a]",
        "a[_method]",
        "a[][_method]",
        "X-HTTP-Method-Override",
        "x_http_method",
        "X-Method-Override",
        "$httpMethod",
        "_method\u{0}a",
    ];
    select(names.to_vec()).prop_map(str::to_owned)
}

fn written(text: &str, plain: &[bool], escape: impl Fn(char) -> String) -> String {
    let sign = |(at, sign): (usize, char)| match plain[at % plain.len()] && sign.is_ascii_alphanumeric() {
        true => sign.to_string(),
        false => escape(sign),
    };
    text.chars().enumerate().map(sign).collect()
}

fn percent(text: &str, plain: &[bool]) -> String {
    written(text, plain, |sign| sign.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect())
}

proptest! {
    #[test]
    fn a_form_or_a_query_that_names_it_deletes(
        name in names(), plain in prop::collection::vec(any::<bool>(), 1..9), twice in any::<bool>(),
        between in select(vec!["&", ";"]), before in "[a-z]{0,4}",
    ) {
        let mut name = percent(&name, &plain);
        if twice {
            name = name.replace('%', "%25");
        }
        let value = percent("DELETE", &plain);
        let text = format!("{before}=1{between}{name}={value}{between}b=2");
        for kind in [FORM, "Application/X-WWW-LineFormat-Urlencoded; charset=UTF-8"] {
            prop_assert_eq!(class(&body(Some(kind), &text)), CallClass::Delete, "{}", text);
        }
        prop_assert_eq!(class(&body(None, &text)), CallClass::Delete, "{}", text);
        for input in query(&name, &value) {
            prop_assert_eq!(class(&input), CallClass::Delete, "{}", input);
        }
        let remove_disguise = json!({"a": format!("&{name}={value}&")}).to_string();
        prop_assert_eq!(class(&body(Some(FORM), &remove_disguise)), CallClass::Delete, "{}", remove_disguise);
        let json = json!({"method": "POST", "url": "https://a.example", "headers": {"content-type": FORM}, "json": {"a": format!("&{name}={value}&")}});
        prop_assert_eq!(class(&json), CallClass::Delete, "{}", json);
    }

    #[test]
    fn a_url_with_a_control_character_could_delete(
        at in 0_usize..40, sign in select(vec!['\t', '\n', '\r', '\u{0}', '\u{7f}', '\u{85}']),
        method in select(vec!["GET", "POST"]),
    ) {
        let mut url = "https://a.example/items/7?_method=DELETE".to_owned();
        url.insert(at, sign);
        prop_assert_eq!(class(&json!({"method": method, "url": url})), CallClass::Delete, "{:?}", url);
    }

    #[test]
    fn json_that_names_it_deletes_at_any_depth_and_in_any_spelling(
        name in names(), plain in prop::collection::vec(any::<bool>(), 1..9), depth in 0_usize..300, beside in any::<bool>(),
        kind in select(vec![None, Some("application/json"), Some("application/vnd.a+json"), Some("text/plain")]),
    ) {
        let name = written(&name, &plain, |sign| format!("\\u{:04x}", u32::from(sign)));
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let member = format!("{{\"a\":1,\"{name}\":\"delete\"}}");
        let text = match beside {
            true => format!("{{\"b\":{open}{close},\"{name}\":\"DELETE\"}}"),
            false => format!("{open}{member}{close}"),
        };
        let text = text.replace("\"b\":,", "");
        prop_assert_eq!(class(&body(kind, &text)), CallClass::Delete, "{}", text);
        let again = text.replacen(&format!("\"{name}\""), &format!("\"{name}\":\"DELETE\",\"{name}\":\"GET\",\"{name}\""), 1);
        prop_assert_eq!(class(&body(kind, &again)), CallClass::Delete, "{}", again);
    }

    #[test]
    fn multipart_that_names_it_deletes_in_any_grammar(
        name in names(), quote in select(vec!["\"", "", "'"]), newline in select(vec!["\r\n", "\n"]),
        more in select(vec!["", "Content-Type: text/plain", "Content-Transfer-Encoding: 8bit", "X-A: b", " wrap_indented"]),
        param in select(vec!["", "; a=b", "; filename=\"f\"", "; filename*=utf-8''f"]), first in any::<bool>(),
        preamble in select(vec!["", "hello\r\n", "--X\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n"]),
        star in any::<bool>(),
    ) {
        let named = if star { format!("name*=utf-8''{}", percent(&name, &[false])) } else { format!("name={quote}{name}{quote}") };
        let mut head = vec![format!("Content-Disposition: form-data; {named}{param}")];
        if !more.is_empty() {
            head.insert(usize::from(!first), more.to_owned());
        }
        let head = head.join(newline);
        let text = format!("{preamble}--x{newline}{head}{newline}{newline}DELETE{newline}--x--{newline}");
        for kind in [MULTIPART, "multipart/form-data; boundary=\"x\"", "Multipart/LineFormat-Data; boundary=X; boundary=x"] {
            prop_assert_eq!(class(&body(Some(kind), &text)), CallClass::Delete, "{}", text);
        }
    }

    #[test]
    fn ordinary_bodies_write(
        key in select(vec!["method", "payment_method", "paymentMethod", "shipping-method", "methods", "a.method", "methodology"]),
        value in select(vec!["DELETE", "card", "delete me", "_method=DELETE", "the method"]), depth in 0_usize..20,
    ) {
        // A plain `method` that is nothing but DELETE counts.
        prop_assume!((key, value) != ("method", "DELETE"));
        let (mut document, mut form) = (json!({key: value, "list": [{key: value}]}), format!("{key}={}", percent(value, &[true])));
        for at in 0..depth {
            document = json!({"inner": document, "n": at});
        }
        for kind in [None, Some("application/json"), Some("application/json; charset=utf-8")] {
            prop_assert_eq!(class(&body(kind, &document.to_string())), CallClass::Write, "{}", document);
        }
        let sent = json!({"method": "POST", "url": "https://a.example/payment_method?x=_method", "json": document});
        prop_assert_eq!(class(&sent), CallClass::Write, "{}", sent);
        form.push_str("&order[0][method]=DELETE&payment[method]=card");
        prop_assert_eq!(class(&body(Some(FORM), &form)), CallClass::Write, "{}", form);
        let part = |name: &str, more: &str| format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{value}\r\n");
        let text = format!("{}{}--x--\r\n", part(key, ""), part("file", "; filename=\"method.txt\"\r\nContent-Type: text/plain"));
        prop_assert_eq!(class(&body(Some(MULTIPART), &text)), CallClass::Write, "{}", text);
    }
}

#[test]
fn a_body_that_can_not_be_read_as_what_it_says_it_is_could_delete() {
    for (kind, text) in [
        ("application/json", "{'a': 1}"),
        ("application/json", "{\"a\": 1} //"),
        ("multipart/form-data", "--x\r\n"),
        (MULTIPART, "a=1"),
        ("multipart/form-data; boundary=x", "--x\nContent-Disposition: form-data; name=\"a\"\n\n1\n--x--\n"),
        ("application/x-www-form-urlencoded; charset=utf-7", "a=1"),
        ("application/x-www-form-urlencoded; charset=utf-8; charset=utf-16", "a=1"),
        ("text/xml", "<methodCall/>"),
    ] {
        assert_eq!(class(&body(Some(kind), text)), CallClass::Delete, "{kind} {text}");
    }
    let mut packed = body(Some(FORM), "a=1");
    packed["headers"]["Content-Encoding"] = json!("gzip");
    assert_eq!(class(&packed), CallClass::Delete);
    let mut twice = body(Some(FORM), "a=1");
    twice["headers"]["content-type"] = json!("text/plain");
    assert_eq!(class(&twice), CallClass::Delete);
    for (kind, text) in
        [("application/json", "{\"a\": ${inputs.n}}"), ("text/xml", "<a>1</a>"), ("text/plain", "50 % off + more")]
    {
        assert_eq!(class(&body(Some(kind), text)), CallClass::Write, "{kind} {text}");
    }
}
