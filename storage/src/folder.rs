//! Folders of the data: their owner's alone, however and whenever they are made.
//!
//! A data folder that was moved away under a running node is made anew by whoever writes next, so nobody here makes
//! a folder in another way.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Who may look into a folder: its owner.
const PRIVATE: u32 = 0o700;

/// Makes a folder and those above it that are missing. One that is there stays as it is.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}
