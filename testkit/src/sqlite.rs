//! A hand in an SQLite file, for what no version of the product does.

use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// Python brings SQLite along, and the tests need it anyway.
const EXECUTE: &str = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1]) as db: db.executescript(sys.argv[2])";

/// Runs SQL in the file, beside whoever uses it.
pub fn execute(file: &Path, sql: &str) -> Result<()> {
    let done = Command::new("python3").args(["-c", EXECUTE]).arg(file).arg(sql).output()?;
    if done.status.success() { Ok(()) } else { Err(Error::other(String::from_utf8_lossy(&done.stderr).into_owned())) }
}
