//! Known values are masked behind any two nested encodings.

use super::*;
use crate::limits::REDACT_DECODED_BYTES_MAX;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

type Encoder = (&'static str, fn(&str) -> String);

fn each_byte(text: &str, spell: impl Fn(u8) -> String) -> String {
    text.bytes().map(spell).collect()
}

fn each_char(text: &str, spell: impl Fn(char) -> String) -> String {
    text.chars().map(spell).collect()
}

fn between(text: &str, with: &str) -> String {
    text.chars().map(String::from).collect::<Vec<_>>().join(with)
}

fn base32(text: &str) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: String = text.bytes().map(|byte| format!("{byte:08b}")).collect();
    let fives = bits.as_bytes().chunks(5).map(|five| {
        let five = format!("{:0<5}", std::str::from_utf8(five).unwrap());
        char::from(digits[usize::from_str_radix(&five, 2).unwrap()])
    });
    let mut spelled: String = fives.collect();
    while !spelled.len().is_multiple_of(8) {
        spelled.push('=');
    }
    spelled
}

fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

/// A mail line ends in the middle of it.
fn soft_break(text: &str, with: &str) -> String {
    let middle = text.chars().count() / 2;
    let (first, second): (Vec<_>, Vec<_>) = text.chars().enumerate().partition(|(at, _)| *at < middle);
    let join = |half: Vec<(usize, char)>| half.into_iter().map(|(_, c)| c).collect::<String>();
    join(first) + with + &join(second)
}

fn full_width(text: &str) -> String {
    each_char(text, |c| match c {
        '!'..='~' => char::from_u32(u32::from(c) + 0xfee0).unwrap().to_string(),
        other => other.to_string(),
    })
}

fn bytes_with(text: &str, with: &str, spell: impl Fn(u8) -> String) -> String {
    text.bytes().map(spell).collect::<Vec<_>>().join(with)
}

/// As `hexdump -C` or, in groups, `xxd` writes it.
fn dump(text: &str, colon: &str, group: usize, bar: &str) -> String {
    let lines = text.as_bytes().chunks(16).enumerate().map(|(at, line)| {
        let groups: Vec<String> = line.chunks(group).map(hex::encode).collect();
        let shown: String = line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        format!("{:08x}{colon}  {:<48}  {bar}{shown}{bar}\n", at * 16, groups.join(" "))
    });
    lines.collect()
}

/// Ways to write the bytes of a value one by one, and character substitutions.
const SPELLERS: [Encoder; 16] = [
    ("115 107", |text| bytes_with(text, " ", |byte| byte.to_string())),
    ("115,107", |text| bytes_with(text, ",", |byte| byte.to_string())),
    ("[115, 107]", |text| format!("[{}]", bytes_with(text, ", ", |byte| byte.to_string()))),
    ("a number a line", |text| bytes_with(text, ",\n        ", |byte| byte.to_string())),
    ("0x73, 0x6b", |text| bytes_with(text, ", ", |byte| format!("0x{byte:02x}"))),
    ("0X73 0X6B", |text| bytes_with(text, " ", |byte| format!("0X{byte:02X}"))),
    ("73-6B", |text| bytes_with(text, "-", |byte| format!("{byte:02X}"))),
    ("73, 6b", |text| bytes_with(text, ", ", |byte| format!("{byte:02x}"))),
    ("hexdump", |text| dump(text, "", 1, "|")),
    ("xxd", |text| dump(text, ":", 2, "")),
    ("full width", full_width),
    ("upper case", str::to_uppercase),
    ("lower case", str::to_lowercase),
    ("full width in upper case", |text| full_width(&text.to_uppercase())),
    ("a list of letters", |text| format!("{:?}", text.chars().map(String::from).collect::<Vec<_>>())),
    ("a list of pieces", |text| {
        let pieces: Vec<String> =
            text.chars().collect::<Vec<_>>().chunks(5).map(|piece| piece.iter().collect()).collect();
        serde_json::to_string_pretty(&pieces).unwrap()
    }),
];

const ENCODERS: [Encoder; 32] = [
    ("as it is", str::to_owned),
    ("backwards", |text| text.chars().rev().collect()),
    ("no-break spaces", |text| between(text, "\u{a0}")),
    ("narrow spaces", |text| between(text, "\u{202f}")),
    ("zero width", |text| between(text, "\u{200b}")),
    ("joiners", |text| between(text, "\u{2060}")),
    ("soft hyphens", |text| between(text, "\u{ad}")),
    ("<br>", |text| between(text, "<br>")),
    ("tags", |text| each_char(text, |c| format!("<span class=\"x\">{c}</span>"))),
    ("comments", |text| between(text, "<!-- -->")),
    ("=XX", |text| each_byte(text, |byte| format!("={byte:02X}"))),
    ("a soft line break", |text| soft_break(text, "=\r\n")),
    ("a soft line break of Unix", |text| soft_break(text, "=\n")),
    ("&#65;", |text| each_char(text, |c| format!("&#{};", u32::from(c)))),
    ("&#x41;", |text| each_char(text, |c| format!("&#x{:x};", u32::from(c)))),
    ("&amp;", |text| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")),
    ("%41", |text| each_byte(text, |byte| format!("%{byte:02X}"))),
    ("\\x41", |text| each_byte(text, |byte| format!("\\x{byte:02x}"))),
    ("\\u0041", |text| text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()),
    ("\\u{41}", |text| each_char(text, |c| format!("\\u{{{:x}}}", u32::from(c)))),
    ("\\101", |text| each_byte(text, |byte| format!("\\{byte:03o}"))),
    ("JSON", |text| serde_json::to_string(text).unwrap()),
    ("hex", |text| hex::encode(text)),
    ("hex in pairs", |text| each_byte(text, |byte| format!("{byte:02x} "))),
    ("base64", |text| STANDARD.encode(text)),
    ("base64 of URLs", |text| URL_SAFE_NO_PAD.encode(text)),
    ("base64 in lines", |text| {
        STANDARD
            .encode(text)
            .as_bytes()
            .chunks(20)
            .map(|line| std::str::from_utf8(line).unwrap().to_owned() + "\r\n")
            .collect()
    }),
    ("base64 twice", |text| STANDARD.encode(STANDARD.encode(text))),
    ("base32", base32),
    ("UTF-16 in hex", |text| hex::encode(utf16(text, u16::to_le_bytes))),
    ("UTF-16BE in hex", |text| hex::encode(utf16(text, u16::to_be_bytes))),
    ("UTF-16 in base64", |text| STANDARD.encode(utf16(text, u16::to_le_bytes))),
];

const AROUND: [(&str, &str); 3] = [("before ", " behind"), ("{\"out\": \"", "\"}"), ("before\n", "\nbehind")];

/// What is wrong with a text in which an encoded value should be masked, if anything.
fn wrong(value: &str, spelled: &str, (before, behind): (&str, &str)) -> Option<String> {
    let redactor = Redactor::new([&Secret::new(value)]);
    let masked = redactor.mask_values(&format!("{before}{spelled}{behind}")).into_owned();
    let around = masked.starts_with(before) && masked.ends_with(behind);
    // Encoders add something before and after the value: tags, quotes, a line break.
    let left = masked.len().saturating_sub(before.len() + REDACTED.len() + behind.len());
    (!masked.contains(REDACTED) || !around || left > spelled.len() / 2).then_some(masked)
}

#[test]
fn a_known_value_is_masked_in_every_encoding_of_every_encoding() {
    let mut shown = Vec::new();
    for value in ["Sup3r-S3cret-Vend0r-Passw0rd-91x", "p4ss==w0rd+/&<é>\"quoted\"x"] {
        for (at, (inner, encode)) in ENCODERS.iter().enumerate() {
            let once = encode(value);
            for (then, (outer, encode)) in ENCODERS.iter().enumerate() {
                let around = AROUND[(at + then) % AROUND.len()];
                shown
                    .extend(wrong(value, &encode(&once), around).map(|masked| format!("{outer} of {inner}: {masked}")));
            }
        }
    }
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

#[test]
fn a_known_value_is_masked_however_its_bytes_are_written() {
    let long = "Nobody could explain why the 12 measurements differ (by about 2 % = 20 ‰), \\o/ & so on.\n".repeat(60);
    let mut shown = Vec::new();
    for value in ["Sup3r-S3cret-Vend0r-Passw0rd-91x", "sk-a8Xy2", "p4ss&w0rd+of/é-x9"] {
        for (name, spell) in SPELLERS {
            for around in
                AROUND.into_iter().filter(|_| !name.contains("list")).chain([("{\"out\": ", "}"), (&*long, "\n")])
            {
                shown.extend(wrong(value, &spell(value), around).map(|masked| format!("{name}: {masked}")));
            }
        }
    }
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

#[test]
fn numbers_and_words_that_are_no_value_stay() {
    let redactor = Redactor::new([&Secret::new("Sup3r-S3cret-Vend0r")]);
    for text in [
        "1, 2, 3, 115, 107, 45, 83, 117, 112, 51",
        "00000000  73 6b 2d 61 62 63 64 65  66 67 68 69 6a 6b 6c 6d  |sk-abcdefghijklm|",
        "[\"Sup3r\", \"Vend0r\"]",
        "Ｎｏ　ｓｅｃｒｅｔ",
        "10.0.0.1 - - [12/Nov/2026:10:00:00 +0000] 200 512 0x1f 17 18 19 20 21 22",
    ] {
        assert_eq!(redactor.mask_values(text), text);
    }
}

/// Number of bytes decoded from a text.
fn decoded(redactor: &Redactor, text: &str, budget: &Budget) -> usize {
    let before = budget.left();
    let _ = redactor.mask_values_within(text, budget);
    before - budget.left()
}

#[test]
fn of_a_long_plain_text_little_is_decoded() {
    let redactor = Redactor::new([&Secret::new("Sup3r-S3cret-Vend0r-Passw0rd-91x")]);
    for line in ["plain words of a sentence, as people write them. ", "abcdefgh\n", "wxyz ", "a b c ", "ABCDEFGH\r\n"] {
        let text = line.repeat(300_000 / line.len());
        let took = decoded(&redactor, &text, &Budget::default());
        assert!(took <= 2 * text.len(), "{line:?}: {took} of {}", text.len());
    }
}

#[test]
fn all_texts_of_a_document_share_what_may_be_decoded() {
    let redactor = Redactor::new([&Secret::new("Sup3r-S3cret-Vend0r-Passw0rd-91x")]);
    let budget = Budget::default();
    assert_eq!(budget.left(), REDACT_DECODED_BYTES_MAX);
    assert!(budget.take(REDACT_DECODED_BYTES_MAX - 100_000));
    let text = "aGVsbG8gd29ybGQ\n".repeat(2_000);
    let took: Vec<usize> = (0..3).map(|_| decoded(&redactor, &text, &budget)).collect();
    assert!(took[0] > 90_000 && took.iter().sum::<usize>() <= 100_000, "{took:?}");
    assert!(
        redactor.mask_values_within("Sup3r-S3cret-Vend0r-Passw0rd-91x", &budget).contains(REDACTED),
        "as it is, always"
    );
}

/// In a long text all decoders run together.
#[test]
fn a_known_value_is_masked_in_a_long_text_too() {
    let words = "Nobody could explain why the measurements differ (by about 2 % = 20 ‰), \\o/ & so on.\n".repeat(60);
    let (value, mut shown) = ("Sup3r-S3cret-Vend0r-Passw0rd-91x", Vec::new());
    // Each after one other; all pairs would take too long.
    for ((inner, encode), (outer, again)) in ENCODERS.iter().zip(ENCODERS.iter().cycle().skip(7)) {
        for spelled in [encode(value), again(&encode(value))] {
            shown.extend(wrong(value, &spelled, (&words, " behind")).map(|_| format!("{inner}, {outer} of {inner}")));
        }
    }
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_known_value_is_masked_behind_any_two_encodings(
        // A character at an end may combine with its neighbours: `=` before a line break is a soft line break.
        value in "[a-zA-Z0-9][!-9;-~]{11,39}[a-zA-Z0-9]",
        inner in 0..ENCODERS.len(),
        outer in 0..ENCODERS.len(),
        around in 0..AROUND.len(),
    ) {
        prop_assume!(!pattern::is_harmless(&value));
        let ((inner, encode), (outer, again)) = (ENCODERS[inner], ENCODERS[outer]);
        prop_assert_eq!(wrong(&value, &again(&encode(&value)), AROUND[around]), None, "{} of {}", outer, inner);
    }

    /// Any text is processed to its end.
    #[test]
    fn any_text_is_decoded_without_panic(
        parts in prop::collection::vec(prop::sample::select(vec![
            "%", "%4", "%41", "\\", "\\u", "\\ud83d", "\\udca5", "\\u{", "\\u{41}", "\\x4", "\\777", "&", "&#", "&#x", "&#x41", "&amp;",
            "=", "=4", "=\r", "=\n", "<", "<b", ">", "é", "💥", "\u{200b}", "\u{a0}", ":", " ", "\n", "QUJDREVGR0g=", "4142434445464748",
            "IFBEGRCFIZDUQ===", "a", "s", "secret-value",
        ]), 0..40)
    ) {
        let text = parts.concat();
        let masked = Redactor::new([&Secret::new("secret-value")]).mask_values(&text).into_owned();
        prop_assert!(!masked.contains("secret-value"));
    }
}
