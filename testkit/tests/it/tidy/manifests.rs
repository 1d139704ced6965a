//! Every crate inherits its lints, edition and dependencies from the workspace.

use super::finding::{Finding, assert_none};
use super::tree;
use toml::Table;

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];
const DEPENDENCIES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

fn is_inherited(value: Option<&toml::Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
}

/// The line that starts with a key, or 1.
pub(super) fn line_of(text: &str, key: &str) -> usize {
    let names = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', ' ', '=', ']']));
    text.lines().position(|line| names(line.trim_start_matches('['))).map_or(1, |at| at + 1)
}

fn member(path: &str, text: &str) -> Vec<Finding> {
    let Ok(manifest) = text.parse::<Table>() else {
        return vec![Finding::new(path, 1, "is not TOML")];
    };
    let finding = |key: &str, what: String| Finding::new(path, line_of(text, key), what);
    let mut found = Vec::new();
    if !is_inherited(manifest.get("lints")) {
        found.push(finding("lints", "write `[lints] workspace = true`".into()));
    }
    if manifest.contains_key("features") {
        found.push(finding("features", "cargo features are not allowed: every build has the same features".into()));
    }
    for key in INHERITED {
        if !is_inherited(manifest.get("package").and_then(|package| package.get(key))) {
            found.push(finding(key, format!("write `{key}.workspace = true`")));
        }
    }
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(Table::values);
    let places = targets.filter_map(toml::Value::as_table).chain([&manifest]);
    for (name, value) in
        places.flat_map(|place| DEPENDENCIES.iter().filter_map(|kind| place.get(*kind)?.as_table())).flatten()
    {
        if !is_inherited(Some(value)) {
            found.push(finding(name, format!("write `{name}.workspace = true`, and its version in the root manifest")));
        }
    }
    found
}

/// Unsorted names in `[workspace.dependencies]`. A blank line starts a new list.
fn unsorted(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != "[workspace.dependencies]").skip(1);
    let lines: Vec<(usize, &str)> = lines.take_while(|(_, line)| !line.starts_with('[')).collect();
    let name = |line: &str| line.split([' ', '=', '.']).next().unwrap_or_default().to_owned();
    let pairs = lines.windows(2).filter(|pair| !pair[0].1.is_empty() && !pair[1].1.is_empty());
    let wrong = pairs.filter(|pair| name(pair[0].1) > name(pair[1].1));
    wrong.map(|pair| Finding::new(path, pair[1].0 + 1, format!("{} is out of order", name(pair[1].1)))).collect()
}

#[test]
fn every_crate_inherits_from_the_workspace() {
    // The fuzz targets are a separate workspace, because they need a nightly compiler.
    let manifests =
        tree::files().iter().filter(|file| file.path.ends_with("/Cargo.toml") && !file.path.starts_with("fuzz/"));
    let found: Vec<Finding> = manifests.flat_map(|file| member(&file.path, &file.text)).collect();
    assert_none(&found);
}

#[test]
fn the_dependencies_of_the_workspace_are_sorted() {
    assert_none(&unsorted("Cargo.toml", tree::text("Cargo.toml")));
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"x\"\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\n[lints]\nworkspace = true\n\n[dependencies]\nserde.workspace = true\ntokio = { workspace = true, features = [\"test-util\"] }\n";

    #[test]
    fn a_crate_that_goes_its_own_way_is_found() {
        assert_eq!(member("x/Cargo.toml", GOOD), []);
        for (from, to) in [
            ("serde.workspace = true", "serde = \"1\""),
            ("[lints]\nworkspace = true", ""),
            ("edition.workspace = true", "edition = \"2021\""),
            ("[dependencies]", "[features]\nfast = []\n\n[dependencies]"),
            ("[dependencies]", "[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n\n[dependencies]"),
        ] {
            assert_eq!(member("x/Cargo.toml", &GOOD.replace(from, to)).len(), 1, "{to}");
        }
        assert_eq!(member("x/Cargo.toml", &GOOD.replace("serde.workspace = true", "serde = \"1\""))[0].line, 13);
    }

    #[test]
    fn a_dependency_out_of_order_is_found() {
        let text =
            "[workspace.dependencies]\nb = \"1\"\nc = \"1\"\n\na = \"1\"\nd = \"1\"\nc = \"1\"\n[other]\na = 1\n";
        assert_eq!(unsorted("Cargo.toml", text).iter().map(|found| found.line).collect::<Vec<_>>(), [7]);
    }
}
