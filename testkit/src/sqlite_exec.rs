//! Runs SQL directly on an SQLite file, for changes that no version of Chimera makes.

use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// Python includes SQLite, and the tests need Python anyway.
const EXECUTE: &str = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1]) as db: db.executescript(sys.argv[2])";

/// Runs SQL on the file, even while another process uses it.
pub fn execute(file: &Path, sql: &str) -> Result<()> {
    let done = Command::new("python3").args(["-c", EXECUTE]).arg(file).arg(sql).output()?;
    if done.status.success() { Ok(()) } else { Err(Error::other(String::from_utf8_lossy(&done.stderr).into_owned())) }
}
