//! A small private disk for a test, which can be filled, emptied, and made read-only.
//!
//! It is a tmpfs in a mount namespace that a waiting shell keeps alive. Commands enter the namespace; the test
//! itself reaches the files through `/proc/PID/root`. Without root it also needs a user namespace.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) struct SmallDisk {
    mount: TempDir,
    keeper: Child,
}

impl SmallDisk {
    pub(crate) fn new(mebibytes: u32) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let script = r#"mount -t tmpfs -o "size=$1m" tmpfs "$2" && echo mounted && read -r _"#;
        let mut keeper = Command::new("unshare")
            .args([if is_root() { "-m" } else { "-rm" }, "sh", "-c", script, "sh", &mebibytes.to_string()])
            .arg(mount.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n", "this test needs permission to mount a tmpfs in a new mount namespace");
        Self { mount, keeper }
    }

    /// The program that enters the namespace, for `Workspace::via`.
    pub(crate) fn entrance(&self) -> Vec<String> {
        let pid = self.keeper.id().to_string();
        let user: &[&str] = if is_root() { &[] } else { &["-U", "--preserve-credentials"] };
        let words = [&["nsenter", "-t", pid.as_str(), "-m"], user, &["--"]].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// The path of the data folder inside the namespace.
    pub(crate) fn data(&self) -> String {
        format!("{}/data", self.mount.path().display())
    }

    fn filler(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}/filler", self.keeper.id(), self.mount.path().display()))
    }

    /// Fills the disk to the last byte.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        for chunk in [65_536, 4_096, 1] {
            while file.write_all(&vec![0; chunk]).is_ok() {}
        }
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// Mounts the folder read-only over itself: open files stay writable, but no file can be opened for writing.
    /// What is opened meanwhile keeps the mount in use, so it is made writable again instead of being removed.
    pub(crate) fn make_read_only(&self) {
        self.mount(&["mount", "--bind", &self.data(), &self.data()]);
        self.mount(&["mount", "-o", "remount,bind,ro", &self.data()]);
    }

    pub(crate) fn make_writable(&self) {
        self.mount(&["mount", "-o", "remount,bind,rw", &self.data()]);
    }

    fn mount(&self, words: &[&str]) {
        let entrance = self.entrance();
        let status = Command::new(&entrance[0]).args(&entrance[1..]).args(words).status().unwrap();
        assert!(status.success(), "{words:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}
