//! What an envelope is, and what is none.

use super::given::{changed, example, pointers, read, read_text, signed};
use chimera_core::limits::{ENVELOPE_BYTES_MAX, ENVELOPE_TTL_SECONDS_MAX};
use serde_json::{Value, json};

/// INTENT-009, INTENT-010, INTENT-011, INTENT-012
#[test]
fn an_envelope_has_the_members_of_the_specification() {
    let envelope = read(&signed(example())).unwrap();
    assert_eq!(envelope.intent_type, "logs.stream");
    assert_eq!(**envelope.args.value(), json!({"run_id": "7f3e", "filter": "errors", "node_id": "triage"}));
    assert_eq!((envelope.user_id.as_str(), envelope.tenant.as_str()), ("u_123", "acme"));
    assert_eq!(envelope.roles.as_deref(), Some(&["dev".to_owned()][..]));
    assert_eq!((envelope.ttl_micros, envelope.idempotency_key.as_str()), (120_000_000, "sha256(run_id|args)"));
    assert_eq!(envelope.capabilities.as_deref(), Some(&["logs:read".to_owned()][..]));
    assert_eq!(envelope.trace_id.as_deref(), Some("abcd-1234"));
    assert!(envelope.sig.starts_with("ed25519:"));
}

/// INTENT-048, INTENT-050, INTENT-051, INTENT-052
#[test]
fn what_is_required_is_required_and_nothing_else_is() {
    for required in [
        "/version",
        "/intent",
        "/actor",
        "/constraints",
        "/sig",
        "/actor/user_id",
        "/actor/tenant",
        "/constraints/ttl_sec",
        "/constraints/idempotency_key",
        "/intent/type",
        "/intent/args",
    ] {
        let parent = required.rsplit_once('/').unwrap().0;
        assert_eq!(pointers(read(&changed(required, None))), [parent], "{required}");
    }
    for optional in ["/trace_id", "/actor/roles", "/constraints/capabilities"] {
        assert!(read(&changed(optional, None)).is_ok(), "{optional}");
    }
    let open = read(&changed("/purpose", Some(json!("a member that the schema does not name")))).unwrap();
    assert!(std::str::from_utf8(open.signed()).unwrap().contains("purpose"), "it is part of what is signed");
}

/// INTENT-049, INTENT-050, INTENT-051, INTENT-052, INTENT-065
#[test]
fn a_member_of_another_type_is_refused_with_its_place() {
    for (pointer, wrong) in [
        ("/version", json!(1)),
        ("/intent", json!("logs.stream")),
        ("/actor", json!([])),
        ("/constraints", json!(null)),
        ("/trace_id", json!(7)),
        ("/sig", json!({})),
        ("/issued_at", json!(0)),
        ("/kid", json!(1)),
        ("/actor/user_id", json!(1)),
        ("/actor/tenant", json!(1)),
        ("/actor/roles", json!("dev")),
        ("/constraints/ttl_sec", json!("120")),
        ("/constraints/idempotency_key", json!(1)),
        ("/constraints/capabilities", json!("logs:read")),
        ("/intent/type", json!(1)),
        ("/intent/args", json!([])),
    ] {
        let found = read(&changed(pointer, Some(wrong))).unwrap_err();
        assert_eq!(found[0].pointer, pointer);
        assert!(!found[0].message.is_empty());
    }
    assert_eq!(pointers(read(&changed("/actor/roles", Some(json!(["dev", 1]))))), ["/actor/roles/1"]);
}

/// INTENT-065
#[test]
fn what_the_schema_leaves_open_has_limits_too() {
    let long = "x".repeat(300);
    for (pointer, wrong) in [
        ("/version", json!("2.0")),
        ("/version", json!("")),
        ("/intent/type", json!(long)),
        ("/actor/user_id", json!(long)),
        ("/actor/tenant", json!(long)),
        ("/trace_id", json!(long)),
        ("/kid", json!(long)),
        ("/constraints/ttl_sec", json!(ENVELOPE_TTL_SECONDS_MAX + 1)),
        ("/constraints/idempotency_key", json!("")),
        ("/constraints/idempotency_key", json!(long)),
        ("/issued_at", json!("yesterday")),
        ("/actor/roles", json!(vec!["a"; 100])),
    ] {
        assert_eq!(pointers(read(&changed(pointer, Some(wrong)))), [pointer]);
    }
    let capabilities = changed("/constraints/capabilities", Some(json!(["logs:read", "*", "runs.start"])));
    assert_eq!(pointers(read(&capabilities)), ["/constraints/capabilities/1", "/constraints/capabilities/2"]);
    let mut several = changed("/version", Some(json!("2.0")));
    several["kid"] = json!(long);
    assert_eq!(pointers(read(&several)), ["/version", "/kid"], "every finding is reported");
    assert_eq!(pointers(read_text(&" ".repeat(ENVELOPE_BYTES_MAX + 1))), [""]);
}

/// INTENT-016, INTENT-065
#[test]
fn what_readers_of_json_read_differently_is_refused_with_its_place() {
    let text = signed(example()).to_string();
    assert!(read_text(&text).is_ok());
    let twice = text.replacen("\"ttl_sec\":120", "\"ttl_sec\":120,\"ttl_sec\":86400", 1);
    assert_eq!(pointers(read_text(&twice)), ["/constraints/ttl_sec"]);
    let spelled = text.replacen("\"ttl_sec\":120", "\"ttl_sec\":120,\"ttl\\u005fsec\":86400", 1);
    assert_eq!(pointers(read_text(&spelled)), ["/constraints/ttl_sec"], "the same name in another spelling");
    for number in [
        "9007199254740992",
        "-9007199254740992",
        "9007199254740993",
        "18446744073709551615",
        "1e16",
        "1e300",
        "123456789012345678901234567890",
        "0.1000000000000000055511151231257827",
    ] {
        let with = text.replacen("\"args\":{", &format!("\"args\":{{\"n\":[1,{number}],"), 1);
        assert_eq!(pointers(read_text(&with)), ["/intent/args/n/1"], "{number}");
    }
    for number in ["9007199254740991", "-9007199254740991", "0.1", "1.5e3", "-0"] {
        let with = text.replacen("\"args\":{", &format!("\"args\":{{\"n\":{number},"), 1);
        assert!(read_text(&with).is_ok(), "{number}");
    }
    for letters in ["\\ud800", "\\udc00\\ud800", "a\\u0000b"] {
        let with = text.replacen("\"errors\"", &format!("\"{letters}\""), 1);
        assert_eq!(read_text(&with).unwrap_err().len(), 1, "{letters}");
    }
    assert_eq!(pointers(read_text(&text.replacen("errors", "a\\u0000b", 1))), ["/intent/args/filter"]);
    let deep = text.replacen("\"errors\"", &format!("{}{}", "[".repeat(100), "]".repeat(100)), 1);
    assert!(read_text(&deep).unwrap_err()[0].message.contains("nested too deeply"));
    for broken in ["", "{", "[]", "null", "{}{}", "\u{feff}{}", "{'a':1}", "{\"a\":NaN}"] {
        assert!(read_text(broken).is_err(), "{broken}");
    }
    assert!(chimera_core::intent::EnvelopeReader::new().unwrap().read(b"{\"a\":\"\xff\"}").is_err());
}

/// INTENT-047
#[test]
fn the_published_schema_is_that_of_the_specification() {
    let schema: Value = serde_json::from_str(chimera_core::intent::schemas::ENVELOPE).unwrap();
    assert_eq!(schema["$id"], "https://aob.dev/schemas/envelope.json");
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["version", "intent", "actor", "constraints", "sig"]));
    assert_eq!(schema["properties"]["intent"], json!({"$ref": "#/definitions/intent"}));
    assert_eq!(schema["properties"]["constraints"]["required"], json!(["ttl_sec", "idempotency_key"]));
    assert_eq!(schema["properties"]["actor"]["required"], json!(["user_id", "tenant"]));
    assert_eq!(schema["definitions"]["intent"]["required"], json!(["type", "args"]));
    assert!(schema.get("additionalProperties").is_none(), "the schema is open");
}
