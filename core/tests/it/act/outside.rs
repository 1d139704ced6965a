//! Destinations outside a tenant's domains are never taken for internal ones: if any common parser finds a foreign
//! host, the destination is external.

use chimera_core::access::TenantSettings;
use proptest::prelude::*;
use url::Url;

const OURS: &str = "corp.example";

/// Fragments that destinations are built from.
const PIECES: &[&str] = &[
    "https://",
    "HTTP://",
    "https:",
    "//",
    "mailto:",
    "blob:",
    OURS,
    OURS,
    OURS,
    "Corp.Example",
    "evil.test",
    "evil.test",
    ".",
    "..",
    "@",
    "\\",
    "/",
    "?",
    "#",
    ":",
    ":8080",
    ":80@",
    "%2e",
    "%40",
    "%00",
    "ann",
    "ann@",
    "Ann <",
    ">",
    "<",
    ",",
    ";",
    "\"",
    "(",
    ")",
    "[",
    "]",
    "!",
    "&",
    "|",
    "^",
    " ",
    "\t",
    "\n",
    "\r",
    "\0",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{ad}",
    "\u{200b}",
    "\u{200d}",
    "\u{2024}",
    "\u{2028}",
    "\u{202e}",
    "\u{3002}",
    "\u{3000}",
    "\u{3164}",
    "\u{fe0f}",
    "\u{feff}",
    "\u{ff0e}",
    "\u{ff20}",
    "\u{ff0f}",
    "ä",
    "xn--4ca",
];

fn tenant() -> TenantSettings {
    TenantSettings { domains: vec![OURS.to_owned()], ..TenantSettings::default() }
}

fn is_ours(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == OURS || host.strip_suffix(OURS).is_some_and(|above| above.ends_with('.'))
}

/// The text before the first of these characters.
fn before<'a>(text: &'a str, signs: &[char]) -> &'a str {
    text.split(signs).next().unwrap_or_default()
}

/// The text after the last occurrence of a character.
fn behind(text: &str, sign: char) -> &str {
    text.rsplit(sign).next().unwrap_or_default()
}

/// The hosts that different parsers find in a text.
fn readings(text: &str) -> Vec<String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let without_port = |authority: &str| before(authority, &[':', '>']).to_owned();
    let mut found = vec![
        // As in RFC 3986, and with a backslash as a slash.
        without_port(behind(before(rest, &['/', '?', '#']), '@')),
        without_port(behind(before(rest, &['/', '?', '#', '\\']), '@')),
        // By the last `@`, wherever it is.
        without_port(before(behind(rest, '@'), &['/', '?', '#', '\\'])),
        without_port(before(behind(rest, '@'), &['/', '?', '#'])),
    ];
    let schemed = if text.contains("://") { text.to_owned() } else { format!("https://{}", behind(text, '@')) };
    let parsed = Url::parse(&schemed).ok();
    found.push(parsed.and_then(|url| url.host_str().map(without_port)).unwrap_or_default());
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_host_that_any_reading_finds_elsewhere_is_an_outsiders(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 1..6),
        form in 0..4_usize,
    ) {
        let odd = pieces.concat();
        let text = match form {
            0 => odd,
            1 => format!("https://{OURS}{odd}"),
            2 => format!("ann@{OURS}{odd}"),
            _ => format!("https://{odd}{OURS}/"),
        };
        let strange = readings(&text).into_iter().find(|host| !is_ours(host));
        if let Some(host) = strange {
            prop_assert!(tenant().is_outside(&text), "{text:?} is read as {host:?}");
        }
    }
}

#[test]
fn plain_spellings_are_read_alike_and_stay_inside() {
    for text in ["corp.example", "https://a.corp.example:8080/b?c#d", "https://corp.example./", "ann@corp.example"] {
        assert!(readings(text).iter().all(|host| is_ours(host)), "{text}: {:?}", readings(text));
        assert!(!tenant().is_outside(text), "{text}");
    }
}

#[test]
fn hidden_signs_and_second_readings_make_an_outsider() {
    for text in [
        "https://corp.example\\@evil.example/",
        "https://corp.example\\.evil.example/",
        "ann@corp.example\u{2028}",
        "https://corp.example..",
    ] {
        assert!(tenant().is_outside(text), "{text:?}");
    }
}
