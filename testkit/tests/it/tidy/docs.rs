//! Documents are consistent: every relative link resolves, the schema version is current, and no path of a
//! particular machine appears.

use super::finding::{Finding, assert_none};
use super::tree;
use std::collections::BTreeMap;

const MACHINE_PATHS: &[&str] = &["/home/", "/root/", "/work/", "/Users/", "C:\\", "../shared"];

/// Routes of the API that begin like one of them.
const ROUTES: &[&str] = &["/work/claim", "/work/renew", "/work/complete", "/work/fail", "/work/{what}"];

/// Line and target of every link in a Markdown text, outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        let mut rest = prose.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let target = after.split([')', ' ']).next().unwrap_or_default();
            found.push((line, target.to_owned()));
            rest = after;
        }
    }
    found
}

/// The lines that are not in a fenced block, without their inline code.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((at + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("`")));
        }
    }
    lines
}

/// The anchors of the headings in a Markdown text.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let title = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The path that `target` refers to in the file at `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Broken links. `texts` holds the Markdown files by path.
fn broken(path: &str, exists: &dyn Fn(&str) -> bool, texts: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let inside =
        links(texts[path]).into_iter().filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"));
    inside
        .filter_map(|(line, target)| {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
            let headed = |text: &&str| anchors(text).iter().any(|known| known == anchor);
            let good = exists(&file) && (anchor.is_empty() || texts.get(file.as_str()).is_none_or(headed));
            (!good).then(|| Finding::new(path, line, format!("broken link to {target}")))
        })
        .collect()
}

/// Whether a text contains the path, not as the middle of another path.
fn names(text: &str, machine: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}');
    let is_route = |rest: &str| ROUTES.iter().any(|route| rest.starts_with(route));
    text.match_indices(machine).any(|(at, _)| !text[..at].ends_with(inside) && !is_route(&text[at..]))
}

fn machine_paths(path: &str, lines: &[(usize, &str)]) -> Vec<Finding> {
    let found = lines.iter().filter_map(|(line, text)| {
        let machine = MACHINE_PATHS.iter().find(|machine| names(text, machine))?;
        Some(Finding::new(
            path,
            *line,
            format!("{machine} is a path of a particular machine: describe the location instead"),
        ))
    });
    found.collect()
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let files = tree::files().iter().filter(|file| file.path.ends_with(".md"));
    let texts: BTreeMap<&str, &str> = files.map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let root = tree::root();
    let exists = |path: &str| root.join(path).exists();
    assert_none(&texts.keys().flat_map(|path| broken(path, &exists, &texts)).collect::<Vec<_>>());
}

/// Outdated schema versions in quoted output of `chimera doctor`.
fn schema_versions(path: &str, text: &str, newest: usize) -> Vec<Finding> {
    let shown = text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, line.strip_prefix("ok    schema")?)));
    let other = shown.filter(|(_, rest)| rest.trim() != format!("version {newest}"));
    other.map(|(line, _)| Finding::new(path, line, format!("outdated schema version: show version {newest}"))).collect()
}

#[test]
fn the_schema_that_documents_show_is_the_newest() {
    let is_migration = |path: &str| path.starts_with("storage/migrations/sqlite/");
    let newest = tree::files().iter().filter(|file| is_migration(&file.path)).count();
    assert!(newest > 0, "no migrations found");
    let files = tree::files().iter().filter(|file| file.path.ends_with(".md"));
    assert_none(&files.flat_map(|file| schema_versions(&file.path, &file.text, newest)).collect::<Vec<_>>());
}

#[test]
fn nothing_speaks_of_one_machine() {
    let comments = tree::rust().iter().flat_map(|file| machine_paths(&file.path, &file.comments()));
    let others = tree::files().iter().filter(|file| !file.path.ends_with(".rs"));
    let others = others.flat_map(|file| {
        let lines: Vec<_> = file.text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
        machine_paths(&file.path, &lines)
    });
    assert_none(&comments.chain(others).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "# A *word*, two\n[a](b.md) [c](gone.md) [d](#a-word-two) [e](#none)\n`[f](gone.md)` [g](https://x.y)\n```\n[h](gone.md)\n```\n[i](../docs/b.md#b) [j](b.md#none)\n";
        let texts = BTreeMap::from([("docs/a.md", text), ("docs/b.md", "# B")]);
        let exists = |path: &str| texts.contains_key(path);
        let found = broken("docs/a.md", &exists, &texts);
        let seen: Vec<(usize, &str)> = found.iter().map(|found| (found.line, found.what.as_str())).collect();
        assert_eq!(
            seen,
            [(2, "broken link to gone.md"), (2, "broken link to #none"), (7, "broken link to b.md#none"),]
        );
    }

    #[test]
    fn an_older_schema_in_a_document_is_found() {
        let text = "ok    store        SQLite answers\nok    schema       version 2\nok    schema       version 3\n";
        let found = schema_versions("README.md", text, 3);
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let lines = [(1, "run it in /home/me/chimera"), (2, "see docs/home/page"), (3, "(`/root/x`)")];
        let found = machine_paths("README.md", &lines);
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [1, 3]);
    }
}
