//! The source tree, read once: every hand-written file by its path from the root.
//!
//! It is read from disk, not from version control, so that rules apply before a commit.

use super::rust_file::RustFile;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(super) struct TextFile {
    pub(super) path: String,
    pub(super) text: String,
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit lies in the workspace").to_path_buf()
}

/// Every text file except build output, hidden files and `Cargo.lock`; `.ci` is included.
pub(super) fn files() -> &'static [TextFile] {
    static FILES: OnceLock<Vec<TextFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut files = Vec::new();
        walk(&root(), "", &mut files);
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files
    })
}

pub(super) fn rust() -> &'static [RustFile] {
    static RUST: OnceLock<Vec<RustFile>> = OnceLock::new();
    RUST.get_or_init(|| {
        let sources = files().iter().filter(|file| file.path.ends_with(".rs"));
        sources.map(|file| RustFile::new(&file.path, &file.text)).collect()
    })
}

pub(super) fn text(path: &str) -> &'static str {
    let file = files().iter().find(|file| file.path == path);
    file.map(|file| file.text.as_str()).unwrap_or_else(|| panic!("{path} is missing"))
}

/// The output of `cargo metadata` for this platform.
pub(super) fn metadata() -> &'static serde_json::Value {
    static METADATA: OnceLock<serde_json::Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let platform = host();
        let arguments = ["metadata", "--format-version", "1", "--frozen", "--filter-platform", &platform];
        let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo metadata");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
    })
}

fn host() -> String {
    let output = Command::new("rustc").arg("-vV").current_dir(root()).output().expect("rustc");
    let told = String::from_utf8(output.stdout).expect("rustc prints text");
    told.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host").to_owned()
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let entry = entry.expect("an entry of a folder");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().expect("the type of an entry");
        let skipped = (name.starts_with('.') && name != ".ci") || name == "target" || name == "node_modules";
        if kind.is_dir() && !skipped {
            walk(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file()
            && !skipped
            && name != "Cargo.lock"
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(TextFile { path, text });
        }
    }
}

#[test]
fn the_tree_holds_the_sources_and_not_what_is_built() {
    let paths: Vec<&str> = files().iter().map(|file| file.path.as_str()).collect();
    assert!(paths.contains(&"core/src/lib.rs") && paths.contains(&".ci/run") && paths.contains(&"README.md"));
    assert!(!paths.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
}
