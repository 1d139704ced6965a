//! Creates data folders that only their owner can access.
//!
//! If a data folder is moved away under a running node, the next writer creates it again. So every folder is created
//! through this module.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

const PRIVATE: u32 = 0o700;

/// Creates a folder and its missing parents. An existing one stays as it is.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}
