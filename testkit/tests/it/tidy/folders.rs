//! Every data folder is created readable by its owner only, through one of two functions.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::tree;

/// The files that create folders, with the right mode.
const MAKERS: &[&str] = &["storage/src/folder.rs", "chimera/src/data_folder.rs"];

fn check(file: &RustFile) -> Vec<Finding> {
    let is_product = file.path.contains("/src/") && file.layer() != "testkit" && !MAKERS.contains(&file.path.as_str());
    let patterns: &[&str] = if is_product { &["create_dir", "create_dir_all", "DirBuilder"] } else { &[] };
    let lines = patterns.iter().flat_map(|pattern| file.lines_outside_tests(pattern));
    let what =
        "create folders with folder::create or home::private_folder, which make them readable by their owner only";
    lines.map(|line| Finding::new(&file.path, line, what)).collect()
}

#[test]
fn every_folder_is_made_for_its_owner_alone() {
    assert_none(&tree::rust().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn a_folder_that_is_made_in_another_way_is_found() {
    let text = "fn f() {\n    std::fs::create_dir_all(path)?;\n    fs::create_dir(path)?;\n    DirBuilder::new();\n}";
    let lines = |path| check(&RustFile::new(path, text)).len();
    assert_eq!(["storage/src/blob/folder.rs", "storage/src/folder.rs", "testkit/src/s3.rs"].map(lines), [3, 0, 0]);
}
