//! Canonical JSON against the vectors of RFC 8785 and against itself.

use chimera_core::json::{self, CanonicalJson, Digest32, ParseError, ParseLimit, canonical, number_text, parse};
use chimera_core::ledger::checkpoint::Signer;
use chimera_core::limits::JSON_DEPTH_MAX;
use proptest::prelude::*;
use serde_json::{Value, json};

/// RFC 8785, appendix B: the bits of a double and its text.
#[test]
fn numbers_are_written_as_the_rfc_lists_them() {
    let samples: [(u64, &str); 24] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, text) in samples {
        assert_eq!(number_text(f64::from_bits(bits)), text, "{bits:x}");
    }
}

/// RFC 8785, section 3.2.2: literals, numbers and escapes of the example.
#[test]
fn the_example_of_the_rfc_comes_out_byte_for_byte() {
    let input = r#"{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
                    \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(canonical(&parse(input).unwrap()), expected);
}

/// RFC 8785, section 3.2.3: a smiley sorts before a Hebrew presentation form, because its first
/// UTF-16 unit is smaller though its code point is greater.
#[test]
fn members_are_sorted_by_utf16_code_units() {
    let input = r#"{
      "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
      "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let text = canonical(&parse(input).unwrap());
    let names = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    let places: Vec<usize> = names.iter().map(|name| text.find(name).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
}

/// 64-bit ids keep their digits; larger integers are rejected.
#[test]
fn whole_numbers_are_exact_or_refused() {
    let exact = ["9007199254740992", "9007199254740993", "-9007199254740993", "0", "-1", "18446744073709551615"];
    for text in exact.into_iter().chain(["-9223372036854775808", "100000000000000000000"]) {
        assert_eq!(canonical(&parse(text).unwrap()), text);
    }
    let beyond = ["18446744073709551616", "-9223372036854775809", "100000000000000000001", "1000000000000000000000000"];
    for text in beyond {
        assert_eq!(parse(text), Err(ParseError::IntegerTooLarge { at: 0 }), "{text}");
    }
    assert_eq!(canonical(&json!(1e21)), "1e+21");
    assert_eq!(parse("1e400"), Err(ParseError::NumberTooLarge { at: 0 }));
}

/// An integral double equals that integer and no other.
#[test]
fn a_double_shares_its_text_with_the_whole_number_that_it_is() {
    assert_eq!(canonical(&json!(1e17)), canonical(&json!(100_000_000_000_000_000_u64)));
    assert_eq!(canonical(&json!(9_223_372_036_854_775_808.0)), canonical(&json!(1_u64 << 63)));
    assert_ne!(canonical(&json!(9_223_372_036_854_775_808.0)), canonical(&json!(9_223_372_036_854_776_000_u64)));
}

#[test]
fn what_lenient_readers_swallow_is_refused() {
    let refused: [(&[u8], ParseError); 14] = [
        (br#"{"a":1,"a":1}"#, ParseError::DuplicateMember { at: 10 }),
        (br#"{"a":1,"\u0061":2}"#, ParseError::DuplicateMember { at: 15 }),
        (br#"[{"b":{"x":1,"x":2}}]"#, ParseError::DuplicateMember { at: 16 }),
        (br#""\ud800""#, ParseError::Unicode { at: 3 }),
        (br#""\ud800\u0041""#, ParseError::Unicode { at: 3 }),
        (br#""\udc00""#, ParseError::Unicode { at: 3 }),
        (b"\"\xed\xa0\x80\"", ParseError::Unicode { at: 1 }),
        (b"\"\xff\"", ParseError::Unicode { at: 1 }),
        (b"1 2", ParseError::Trailing { at: 2 }),
        (b"{}\0", ParseError::Trailing { at: 2 }),
        (b"[1,]", ParseError::Syntax { at: 3 }),
        (b"01", ParseError::Trailing { at: 1 }),
        (b"\"\x01\"", ParseError::Syntax { at: 1 }),
        (b"\xef\xbb\xbf{}", ParseError::Syntax { at: 0 }),
    ];
    for (bytes, error) in refused {
        assert_eq!(parse(bytes), Err(error), "{}", String::from_utf8_lossy(bytes));
    }
    for text in ["", "nul", "+1", ".5", "1.", "1e", "-", "'a'", "{a:1}", "[1 2]", "\"a", "\"\\x\"", "NaN", "{\"a\"}"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn nesting_is_bounded_where_documents_enter() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deepest = parse(nested(JSON_DEPTH_MAX)).unwrap();
    assert_eq!(canonical(&deepest), nested(JSON_DEPTH_MAX));
    assert_eq!(
        parse(nested(JSON_DEPTH_MAX + 1)),
        Err(ParseError::LimitExceeded { at: JSON_DEPTH_MAX, what: ParseLimit::Depth })
    );
    assert_eq!(canonical(&json!([deepest])), nested(JSON_DEPTH_MAX + 1), "what is made of parts has a text");
    let too_deep = CanonicalJson::new(json!({"a/b": [1, deepest]})).unwrap_err();
    assert_eq!(too_deep.pointer, format!("/a~1b/1{}", "/0".repeat(JSON_DEPTH_MAX - 2)));
    let kept = CanonicalJson::new(deepest).unwrap();
    assert_eq!(kept.digest(), Digest32::of(kept.value()));
    assert!(parse("[".repeat(1_000_000)).is_err());
}

/// Any document.
pub(crate) fn document() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i32>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1.9e19..1.9e19).prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |n| serde_json::Number::from_f64(n).map(Value::Number)),
        (-1e9..1e9).prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let name = prop_oneof![any::<String>(), "[\u{e000}-\u{ffff}\u{10000}-\u{10010}a]{0,3}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(name, inner, 0..6).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// The same document in another spelling: reversed members, spaces, every character escaped.
fn respelled(value: &Value) -> String {
    let escaped = |text: &str| text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect::<String>();
    match value {
        Value::String(text) => format!(" \"{}\"", escaped(text)),
        Value::Array(items) => format!("[{} ]", items.iter().map(respelled).collect::<Vec<_>>().join(" ,")),
        Value::Object(members) => {
            let members =
                members.iter().rev().map(|(name, value)| format!("\"{}\" :{}", escaped(name), respelled(value)));
            format!("{{\n{}}}\t", members.collect::<Vec<_>>().join(","))
        }
        other => canonical(other),
    }
}

/// INTENT-016
#[test]
fn a_signature_over_canonical_json_holds_for_every_spelling_and_no_other_value() {
    let envelope = json!({
        "intent": "logs.tail", "args": {"service": "api", "lines": 50, "ratio": 0.5, "follow": false},
        "constraints": {"ttl_sec": 120, "capabilities": ["logs:read"]}, "actor": null,
    });
    let signer = Signer::from_seed(&[3; 32]);
    let signature = signer.sign(canonical(&envelope).as_bytes());
    let verifies = |text: &str| signer.public_key().verifies(canonical(&parse(text).unwrap()).as_bytes(), &signature);
    let pretty = serde_json::to_string_pretty(&envelope).unwrap();
    assert!(verifies(&pretty) && verifies(&respelled(&envelope)));
    let changes = [("tail", "tael"), ("50", "51"), ("0.5", "0.25"), ("false", "true"), ("null", "0"), ("ttl", "TTL")];
    for (from, to) in changes {
        assert!(!verifies(&pretty.replacen(from, to, 1)), "{from} became {to}");
    }
}

proptest! {
    #[test]
    fn reading_canonical_text_and_writing_it_again_changes_nothing(value in document()) {
        let text = canonical(&value);
        prop_assert_eq!(canonical(&parse(&text).unwrap()), text);
    }

    #[test]
    fn spelling_and_order_of_members_do_not_matter(value in document()) {
        prop_assert_eq!(canonical(&parse(respelled(&value)).unwrap()), canonical(&value));
    }

    /// What was approved is what runs: a different number has a different digest.
    #[test]
    fn different_whole_numbers_have_different_digests(one in any::<u64>(), other in any::<u64>(), near in 1_u64..4) {
        for other in [other, one.wrapping_add(near)] {
            prop_assert_eq!(Digest32::of(&json!({"id": one})) == Digest32::of(&json!({"id": other})), one == other);
        }
    }

    /// Two numbers share a text only if they are equal.
    #[test]
    fn a_text_belongs_to_one_number(whole in any::<u64>(), fraction in -1.9e19..1.9e19) {
        #[allow(clippy::cast_precision_loss)]
        for (whole, fraction) in [(whole, fraction), (whole, whole as f64)] {
            #[allow(clippy::cast_possible_truncation)]
            let same = fraction.fract() == 0.0 && fraction as i128 == i128::from(whole);
            prop_assert_eq!(canonical(&json!(whole)) == canonical(&json!(fraction)), same, "{} {}", whole, fraction);
        }
    }

    #[test]
    fn a_written_number_reads_back_as_the_same_double(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        if value.is_finite() {
            prop_assert_eq!(number_text(value).parse::<f64>().unwrap(), value);
        }
    }

    #[test]
    fn no_input_brings_the_reader_down(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[\\[\\]{}\",:0-9eu\\\\.+-]{0,24}") {
        let _ = parse(bytes);
        let _ = parse(text);
    }
}

/// Values are counted in the text without parsing it, however it is spelled.
#[test]
fn values_are_counted_in_a_text_as_in_its_document() {
    for text in [
        "1",
        " null ",
        "[]",
        "[ ]",
        "{}",
        "[{}, [] ,{}]",
        r#"{"a":[1,2,{"b":null}],"c":"[,{\\"}"#,
        r#"{"a\",[":"x\\","b":[[[]]]}"#,
        r#"[1,"a,b",{"k":{"k":[true]}}]"#,
    ] {
        let document: Value = serde_json::from_str(text).unwrap();
        for values in 0..12 {
            let told = json::text_has_more_values_than(text.as_bytes(), values);
            assert_eq!(told, json::has_more_values_than(&document, values), "{values} values of {text}");
        }
    }
}

/// The estimate covers what a map really allocates: a node of eleven places, even for one member.
#[test]
fn objects_with_one_member_count_for_the_node_that_they_allocate() {
    let nested = (0..40).fold(json!(1), |inside, _| json!({"a": inside}));
    let node = 11 * (size_of::<String>() + size_of::<Value>());
    assert!(json::memory_size(&nested) >= 40 * node);
    let text = nested.to_string();
    assert!(json::weight_of_text(text.as_bytes()) >= 40 * node);
    assert!(json::weight_of_text(br#"["{", "a{b"]"#) < node, "a brace in a text opens nothing");
}
