//! Generates the reference of limits from their source files and the reference of settings.
//!
//! `UPDATE_DOCS=1 ./test tidy::limits` rewrites the page.

use super::{FILES, Limit, all, codes, path, value};
use crate::tidy::tree;
use std::fmt::Write;

const PAGE: &str = "docs/reference/limits.md";
const SETTINGS: &str = "docs/reference/config.md";

const HEAD: &str = "# Limits

Every queue, page, payload, retry and wait has a limit. This page is made from [core/src/limits](../../core/src/limits.rs) \
                    and the [reference of settings](config.md), and a test compares it with both.

A limit with a setting can be changed. The others are the same in every installation; the name is the one that you \
                    find in the code.

## Settings

| setting | default | from, to | what it bounds |
|---|---:|---:|---|
";

/// The rows of the reference of settings whose value is a number within a range.
fn settings(reference: &str) -> String {
    let mut rows = String::new();
    for line in reference.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, key, _, _, values, default, what, _] = cells[..] else { continue };
        let Some((unit, (from, to))) =
            values.split_once(", ").and_then(|(unit, range)| Some((unit, range.split_once(" to ")?)))
        else {
            continue;
        };
        let number = |text: &str| text.trim_matches('`').parse().map(value::grouped);
        let (Ok(default), Ok(from), Ok(to)) = (number(default), number(from), number(to)) else { continue };
        if unit == "port" {
            continue;
        }
        let _ = writeln!(rows, "| {key} | {default} {unit} | {from} to {to} | {what} |");
    }
    rows
}

/// Links every error code in a text to its page.
fn linked(text: &str) -> String {
    let mut text = text.replace('|', "\\|");
    let mut known = codes(&text).into_iter().map(str::to_owned).collect::<Vec<_>>();
    known.sort_unstable();
    known.dedup();
    for code in known {
        text = text.replace(&format!("`{code}`"), &format!("[`{code}`](../errors/{code}.md)"));
    }
    text
}

fn page(limits: &[Limit], reference: &str) -> String {
    let mut page = format!("{HEAD}{}", settings(reference));
    for (name, title) in FILES {
        let _ = write!(page, "\n## {title}\n");
        let mut section = "";
        for limit in limits.iter().filter(|limit| limit.file == path(name)) {
            if limit.section != section {
                section = &limit.section;
                let _ = write!(
                    page,
                    "\n### {section}\n\n| limit | value | what it bounds | beyond it |\n|---|---:|---|---|\n"
                );
            }
            let shown = value::shown(limit, limits).unwrap_or_default();
            let (bounds, beyond) = (linked(&limit.bounds), linked(&limit.beyond));
            let _ = writeln!(page, "| `{}` | {shown} | {bounds}. | {beyond}. |", limit.name);
        }
    }
    page
}

#[test]
fn the_reference_lists_every_limit() {
    let wanted = page(&all(), tree::text(SETTINGS));
    let path = tree::root().join(PAGE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == wanted, "{PAGE} differs from core/src/limits: run `UPDATE_DOCS=1 ./test tidy::limits`");
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn a_page_has_a_line_for_each_limit_under_its_section() {
        let source =
            "// Bodies\n\n/// Bytes of x | y. More is refused with `OVERLOADED`.\npub const A_BYTES: u8 = 1;\n";
        let page = page(&read("core/src/limits/http.rs", source), "");
        let row = "| `A_BYTES` | 1 bytes | Bytes of x \\| y. | More is refused with [`OVERLOADED`](../errors/OVERLOADED.md). |\n";
        let head = "\n## HTTP\n\n### Bodies\n\n| limit | value | what it bounds | beyond it |\n|---|---:|---|---|\n";
        assert!(page.contains(&format!("{head}{row}")), "{page}");
    }

    #[test]
    fn a_setting_that_is_a_number_within_bounds_is_a_limit() {
        let row = |values| format!("| `a.b` | `A_B` |  | {values} | `1024` | What it is. |\n");
        assert_eq!(
            settings(&row("connections, 1 to 100000")),
            "| `a.b` | 1,024 connections | 1 to 100,000 | What it is. |\n"
        );
        assert_eq!(settings(&row("path")), "");
        assert_eq!(settings(&row("port, 1 to 65535")), "");
    }
}
