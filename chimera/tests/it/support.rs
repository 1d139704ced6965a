//! Runs the binary in a folder of its own, with an environment of its own.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use tempfile::TempDir;

pub(crate) struct Place {
    pub(crate) dir: TempDir,
    env: Vec<(String, String)>,
}

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), env: Vec::new() }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.dir.path().join(name), text).unwrap();
        self
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chimera"));
        command.args(args).current_dir(self.dir.path()).env_clear().envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { status: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Starts `chimera dev --json` on a free port and waits until it says that it is ready.
    pub(crate) fn dev(&self, args: &[&str]) -> Server {
        let mut all = vec!["dev", "--json", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut child = self.command(&all).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("dev said {line:?}"));
        let address = ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        Server { child, log: Some(log), ready, address }
    }
}

/// A running server; killed when a test drops it without a stop.
pub(crate) struct Server {
    child: Child,
    log: Option<JoinHandle<String>>,
    pub(crate) ready: Value,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Sends a request head as it is and reads until the server closes.
    pub(crate) fn ask(&self, head: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(format!("{head}\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for the end: exit status and everything that was written to stderr.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap().code();
        (status, self.log.take().unwrap().join().unwrap())
    }

    pub(crate) fn stop(self) -> (Option<i32>, String) {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777
}
