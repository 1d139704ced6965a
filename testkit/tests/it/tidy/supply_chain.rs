//! External crates: allowed licences, no banned crates, one source.
//!
//! `deny.toml` is the only list. cargo-deny reads it too and checks more (advisories, duplicates), but these tests work
//! without it.

use super::finding::{Finding, assert_none};
use super::tree;
use std::collections::BTreeSet;
use toml::Table;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn texts(table: &Table, section: &str, key: &str) -> BTreeSet<String> {
    let list = table.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
    let text = |value: &toml::Value| value.as_str().or_else(|| value.get("crate")?.as_str()).map(str::to_owned);
    list.into_iter().flatten().filter_map(text).collect()
}

/// Whether a licence expression (SPDX) is satisfied by the allowed licences.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at, allowed) && at == words.len()
}

/// Terms joined by OR, which binds less than AND.
fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut good = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= all(words, at, allowed);
    }
    good
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut good = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(words, at, allowed);
    }
    good
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word == "(" {
        let good = any(words, at, allowed);
        *at += 1;
        return good;
    }
    if words.get(*at) == Some(&"WITH") {
        let name = format!("{word} WITH {}", words.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
        return allowed.contains(&name);
    }
    allowed.contains(word)
}

fn licences(packages: &[serde_json::Value], allowed: &BTreeSet<String>) -> Vec<Finding> {
    let wrong = packages.iter().filter(|package| {
        let licence = package["license"].as_str().unwrap_or_default();
        !satisfied(licence, allowed)
    });
    wrong
        .map(|package| {
            let what =
                format!("{} has the licence {}, which deny.toml does not allow", package["name"], package["license"]);
            Finding::new("Cargo.lock", 1, what)
        })
        .collect()
}

fn locked(lock: &Table, banned: &BTreeSet<String>) -> Vec<Finding> {
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let text = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    packages
        .filter_map(|package| {
            let name = text(package, "name")?;
            let foreign = text(package, "source").filter(|source| source != CRATES_IO);
            let what = match (banned.contains(&name), foreign) {
                (true, _) => format!("{name} is banned by deny.toml: `cargo tree -i {name}` shows what depends on it"),
                (false, Some(source)) => format!("{name} comes from {source}: use crates.io"),
                (false, None) => return None,
            };
            Some(Finding::new("Cargo.lock", 1, what))
        })
        .collect()
}

/// Crates in the lock file, ours included. A new dependency is worth its build time, or it is not added; lower the
/// number when one goes.
const CRATES_MAX: usize = 459;

fn too_many(lock: &Table) -> Option<Finding> {
    let count = lock.get("package").and_then(toml::Value::as_array).map_or(0, Vec::len);
    let what =
        format!("{count} crates instead of at most {CRATES_MAX}: use what is there, or raise the number and say why");
    (count > CRATES_MAX).then(|| Finding::new("Cargo.lock", 1, what))
}

#[test]
fn the_lock_file_does_not_grow_unseen() {
    let lock = std::fs::read_to_string(tree::root().join("Cargo.lock")).expect("Cargo.lock");
    assert_none(&too_many(&lock.parse().expect("Cargo.lock is TOML")).into_iter().collect::<Vec<_>>());
    let large = "[[package]]\nname = \"a\"\n".repeat(CRATES_MAX + 1);
    assert!(too_many(&large.parse().unwrap()).is_some());
}

#[test]
fn every_licence_fits() {
    let deny: Table = tree::text("deny.toml").parse().expect("deny.toml is TOML");
    let packages = tree::metadata()["packages"].as_array().expect("cargo metadata lists packages");
    assert!(packages.len() > 50, "cargo metadata lists too few packages to mean anything");
    assert_none(&licences(packages, &texts(&deny, "licenses", "allow")));
}

#[test]
fn nothing_banned_is_locked_and_all_comes_from_one_source() {
    let deny: Table = tree::text("deny.toml").parse().expect("deny.toml is TOML");
    let banned = texts(&deny, "bans", "deny");
    assert!(banned.contains("openssl-sys") && banned.contains("aws-lc-rs"));
    let lock = std::fs::read_to_string(tree::root().join("Cargo.lock")).expect("Cargo.lock");
    assert_none(&locked(&lock.parse().expect("Cargo.lock is TOML"), &banned));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn licence_expressions_are_read_by_their_operators() {
        let allowed = set(&["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]);
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "GPL-3.0 AND ISC OR MIT",
            "Apache-2.0 WITH LLVM-exception OR ISC",
        ] {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT OR ISC) AND ISC", "MIT MIT"] {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_licence_that_does_not_fit_is_found() {
        let packages = [json!({"name": "a", "license": "MIT"}), json!({"name": "b", "license": null})];
        assert_eq!(licences(&packages, &set(&["MIT"])).len(), 1);
    }

    #[test]
    fn a_banned_crate_and_a_foreign_source_are_found() {
        let lock = format!(
            "[[package]]\nname = \"a\"\nsource = \"{CRATES_IO}\"\n[[package]]\nname = \"openssl\"\nsource = \"{CRATES_IO}\"\n[[package]]\nname = \"b\"\nsource = \"git+https://example.org/b\"\n[[package]]\nname = \"ours\"\n"
        );
        let found = locked(&lock.parse().unwrap(), &set(&["openssl"]));
        assert_eq!(found.len(), 2);
        assert!(found[0].what.contains("banned") && found[1].what.contains("comes from"));
    }

    #[test]
    fn the_lists_of_deny_are_read_in_both_spellings() {
        let deny: Table = "[bans]\ndeny = [\"a\", { crate = \"b\", reason = \"c\" }]".parse().unwrap();
        assert_eq!(texts(&deny, "bans", "deny"), set(&["a", "b"]));
    }
}
