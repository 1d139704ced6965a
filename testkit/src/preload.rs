//! Libraries that a process is started with so that its machine misbehaves: `preload/*.c`, each
//! compiled when a test needs it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Compiles `preload/NAME.c` into `folder` and gives the library's path.
#[must_use]
pub fn compiled(name: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("preload/{name}.c"));
    let library = folder.join(format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let status = cc.status().expect("a C compiler");
    assert!(status.success(), "{} can't be compiled", source.display());
    library
}

/// A wall clock that a test sets, for the processes that are started with [`WallClock::env`].
pub struct WallClock {
    _folder: TempDir,
    wrong: File,
    env: [(String, String); 2],
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}

impl WallClock {
    /// A clock that is right.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library = compiled("clock", folder.path());
        let path = folder.path().join("wrong");
        let wrong = File::create(&path).expect("a file");
        let env = [("LD_PRELOAD", library), ("PRELOAD_CLOCK", path)];
        let env = env.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        let clock = Self { _folder: folder, wrong, env };
        clock.set(0);
        clock
    }

    /// What a process has to be started with.
    #[must_use]
    pub const fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// From now on it is wrong by so many seconds.
    pub fn set(&self, seconds: i64) {
        self.wrong.write_all_at(&(seconds * 1_000_000).to_ne_bytes(), 0).expect("a file of eight bytes");
    }
}
