//! `LD_PRELOAD` libraries that inject faults into a process: a wrong wall clock, a slow or broken disk, a crash.
//! The sources are `preload/*.c`, each compiled when a test needs it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Compiles `preload/NAME.c` into `folder`. Returns the path of the library.
#[must_use]
pub fn compile(name: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("preload/{name}.c"));
    let library = folder.join(format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let status = cc.status().expect("a C compiler");
    assert!(status.success(), "cannot compile {}", source.display());
    library
}

/// A wall clock that a test sets, for processes started with [`WallClock::env`].
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
    /// A correct clock.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library = compile("clock", folder.path());
        let path = folder.path().join("wrong");
        let wrong = File::create(&path).expect("a file");
        let env = [("LD_PRELOAD", library), ("PRELOAD_CLOCK", path)];
        let env = env.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        let clock = Self { _folder: folder, wrong, env };
        clock.set(0);
        clock
    }

    #[must_use]
    pub const fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Sets the error of the clock.
    pub fn set(&self, seconds: i64) {
        self.wrong.write_all_at(&(seconds * 1_000_000).to_ne_bytes(), 0).expect("a file of eight bytes");
    }
}

/// A disk that a test makes slow or broken, for processes started with [`Disk::env`].
pub struct FaultyDisk {
    _folder: TempDir,
    state: File,
    env: [(String, String); 2],
}

impl Default for FaultyDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl FaultyDisk {
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library = compile("disk", folder.path());
        let path = folder.path().join("state");
        let state = File::create(&path).expect("a file");
        let env = [("LD_PRELOAD", library), ("PRELOAD_DISK", path)];
        let env = env.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        let disk = Self { _folder: folder, state, env };
        disk.set([0; 4]);
        disk
    }

    #[must_use]
    pub const fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Delays every flush, and lets everything succeed.
    pub fn slow(&self, milliseconds: i32) {
        self.set([milliseconds, 0, 0, 0]);
    }

    /// Flushes fail with `EIO`.
    pub fn fail_flushes(&self) {
        self.set([0, EIO, 0, 0]);
    }

    /// Writes fail with `ENOSPC`, as on a full disk.
    pub fn fail_writes(&self) {
        self.set([0, 0, ENOSPC, 0]);
    }

    /// Reads fail with `EIO`, except of the first page of a file.
    pub fn fail_reads(&self) {
        self.set([0, 0, 0, EIO]);
    }

    fn set(&self, state: [i32; 4]) {
        let bytes: Vec<u8> = state.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.state.write_all_at(&bytes, 0).expect("a file of sixteen bytes");
    }
}

/// Kills processes started with [`Crash::env`] before one of their changes to the file system.
pub struct KillSwitch {
    _folder: TempDir,
    state: File,
    env: [(String, String); 2],
}

impl Default for KillSwitch {
    fn default() -> Self {
        Self::new()
    }
}

impl KillSwitch {
    /// Kills nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library = compile("crash", folder.path());
        let path = folder.path().join("state");
        let state = File::create(&path).expect("a file");
        let env = [("LD_PRELOAD", library), ("PRELOAD_CRASH", path)];
        let env = env.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        let crash = Self { _folder: folder, state, env };
        crash.never();
        crash
    }

    #[must_use]
    pub const fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Kills processes that start from now on before this change; numbers start at one.
    pub fn before(&self, change: i32) {
        self.state.write_all_at(&change.to_ne_bytes(), 0).expect("a file of four bytes");
    }

    /// Stops killing.
    pub fn never(&self) {
        self.before(0);
    }
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// The environment that preloads several libraries into one process.
#[must_use]
pub fn merge_env(libraries: &[&[(String, String)]]) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    for (name, value) in libraries.iter().copied().flatten() {
        match env.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => *values += &format!(":{value}"),
            None => env.push((name.clone(), value.clone())),
        }
    }
    env
}
