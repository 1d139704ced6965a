//! Whether a field name says that its value is a secret.
//!
//! The word may be anywhere in the name: `DB_PASSWORD`, `xApiKey2`, `token_value`. The value stays readable if the
//! last word says that it is about the secret: `token_limit`, `passwordPolicy`, `secret_name`. Plurals count too,
//! except of things that are counted: `max_tokens` is a number.

/// Words for secrets, in lower case without separators.
pub(super) const SECRETS: [&str; 18] = [
    "authorization",
    "cookie",
    "apikey",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "token",
    "secret",
    "secretid",
    "sessionid",
    "signature",
    "credential",
    "hmac",
    "privatekey",
    "accesskey",
    "signingkey",
    "encryptionkey",
];
/// Their first letters, one bit each from `a` on, as a fast filter.
const FIRST: u32 = {
    let (mut letters, mut at) = (0, 0);
    while at < SECRETS.len() {
        letters |= 1 << (SECRETS[at].as_bytes()[0] - b'a');
        at += 1;
    }
    letters
};
/// Words whose plural is a quantity or a public list.
const COUNTED: [&str; 3] = ["token", "signature", "authorization"];
/// Last words, in the singular, of names that are about a secret; also file extensions.
const HARMLESS_SUFFIXES: &str = " age algorithm at audience budget byte consent count dir enabled endpoint error expire expiry file \
    folder format id in index issuer js json kind left length limit max md min missing mode ms name path policy \
    present provider py rate ref required rs scheme scope second size source state status toml total ttl type uri url \
    usage used version ";

/// Whether a field of this name holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    // The working directory of a shell.
    if matches!(name, "PWD" | "OLDPWD") {
        return false;
    }
    let name = name.as_bytes();
    let begins =
        |at: &usize| name[*at].is_ascii_alphabetic() && FIRST & 1 << (name[*at].to_ascii_lowercase() - b'a') != 0;
    (0..name.len()).filter(begins).any(|at| SECRETS.iter().any(|secret| has_secret_at(name, at, secret)))
}

/// Whether the name ends with `suffix`, ignoring separators and case.
pub(super) fn ends_with(name: &str, suffix: &str) -> bool {
    let mut letters = name.bytes().rev().filter(|b| !is_separator(*b)).map(|b| b.to_ascii_lowercase());
    suffix.bytes().rev().all(|wanted| letters.next() == Some(wanted))
}

/// Whether `secret` is at `at` as a complete word, and the rest of the name does not make it harmless.
fn has_secret_at(name: &[u8], at: usize, secret: &str) -> bool {
    let mut end = at;
    for wanted in secret.bytes() {
        while end > at && name.get(end).is_some_and(|b| is_separator(*b)) {
            end += 1;
        }
        if !name.get(end).is_some_and(|b| b.eq_ignore_ascii_case(&wanted)) {
            return false;
        }
        end += 1;
    }
    if matches!(name.get(end), Some(b's' | b'S')) && !COUNTED.contains(&secret) {
        end += 1;
    }
    end == name.len() || (begins_word(name, end) && !is_harmless_suffix(last_word(&name[end..])))
}

const fn is_separator(byte: u8) -> bool {
    matches!(byte, b'-' | b'_' | b'.')
}

/// Whether a new word begins here.
fn begins_word(name: &[u8], at: usize) -> bool {
    !name[at].is_ascii_alphabetic() || (name[at].is_ascii_uppercase() && name[at - 1].is_ascii_lowercase())
}

fn last_word(name: &[u8]) -> &[u8] {
    let start = (1..name.len()).rev().find(|at| is_separator(name[at - 1]) || begins_word(name, *at));
    &name[start.unwrap_or(0)..]
}

fn is_harmless_suffix(word: &[u8]) -> bool {
    let is = |word: &[u8]| {
        HARMLESS_SUFFIXES.split(' ').any(|about| !about.is_empty() && word.eq_ignore_ascii_case(about.as_bytes()))
    };
    is(word) || matches!(word, [singular @ .., b's' | b'S'] if is(singular))
}
