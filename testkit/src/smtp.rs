//! A private SMTP server (aiosmtpd) in its own process, killed when the test ends.
//!
//! It stores every accepted message in its folder as JSON. It rejects the recipient `refused@…` permanently and
//! `later@…` temporarily; after DATA it rejects messages with `reject` in their headers permanently and those
//! with `busy` temporarily.

use crate::net::free_port;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const TRIES: usize = 20;
const SCRIPT: &str = include_str!("smtp.py");
/// Debian's Python, which sees Debian's packages; another Python may come first in `PATH`.
const PYTHON: &str = "/usr/bin/python3";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    None,
    /// `STARTTLS` is required.
    StartTls,
    /// From the first byte.
    Implicit,
}

pub struct PrivateSmtp {
    folder: TempDir,
    port: u16,
    server: Option<Child>,
}

impl PrivateSmtp {
    /// The user name, if the server requires a password.
    pub const USER: &'static str = "chimera";

    /// Starts a server without TLS and authentication.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Tls::None, None)
    }

    /// Starts a server that requires `password` from [`Self::USER`], if given.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_with(tls: Tls, password: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = json!({});
        if tls != Tls::None {
            create_certificate(&folder);
            let file = |name: &str| folder.path().join(name).display().to_string();
            let implicit = tls == Tls::Implicit;
            options["tls"] = json!({"certificate": file("cert.pem"), "key": file("key.pem"), "implicit": implicit});
        }
        if let Some(password) = password {
            options["user"] = json!(Self::USER);
            options["password"] = json!(password);
        }
        for _ in 0..TRIES {
            let port = free_port();
            if let Some(server) = launch(port, &folder, &options) {
                return Self { folder, port, server: Some(server) };
            }
        }
        panic!("the SMTP server does not start; is python3-aiosmtpd installed?");
    }

    /// Its port on the loopback interface.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its certificate as PEM.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn certificate(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("cert.pem")).expect("a server with TLS")
    }

    /// The accepted messages, in order: `from`, `to`, `content`, `tls`, `user`.
    ///
    /// # Panics
    /// When one can't be read.
    #[must_use]
    pub fn accepted(&self) -> Vec<Value> {
        let file = |number: usize| -> PathBuf { self.folder.path().join(format!("{number}.json")) };
        let texts = (1..).map_while(|number| std::fs::read(file(number)).ok());
        texts.map(|text| serde_json::from_slice(&text).expect("a message")).collect()
    }

    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for PrivateSmtp {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Creates a fresh key and self-signed certificate for `localhost`.
fn create_certificate(folder: &TempDir) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.path().join("key.pem"))
        .arg("-out")
        .arg(folder.path().join("cert.pem"))
        .output();
    assert!(made.is_ok_and(|made| made.status.success()), "openssl failed to create a certificate");
}

/// Starts a server; `None` if it exited before it was ready. It exits at the end of its standard input, so it never
/// outlives the test process.
fn launch(port: u16, folder: &TempDir, options: &Value) -> Option<Child> {
    let mut server = Command::new(PYTHON)
        .args(["-c", SCRIPT, &port.to_string()])
        .arg(folder.path())
        .arg(options.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3");
    let mut line = String::new();
    let read = BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line);
    if read.is_ok() && line.trim() == "ready" {
        return Some(server);
    }
    let _ = server.kill();
    let _ = server.wait();
    None
}
