//! A private SMTP server: a real one (aiosmtpd) in a process of its own, gone with the test.
//!
//! Every message that it accepts lies in its folder as JSON. It refuses the receivers `refused@…`
//! for good and `later@…` for now, and at the end of the data whatever has `reject` or `busy` among
//! its headers.

use crate::net::free_port;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const TRIES: usize = 20;
const SCRIPT: &str = include_str!("smtp.py");
/// Debian's Python, which sees Debian's packages, whatever other Python comes first in the path.
const PYTHON: &str = "/usr/bin/python3";

/// How the server speaks TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Not at all.
    None,
    /// After `STARTTLS`, which it demands.
    StartTls,
    /// From the first byte.
    Implicit,
}

/// An SMTP server of one test.
pub struct PrivateSmtp {
    folder: TempDir,
    port: u16,
    server: Option<Child>,
}

impl PrivateSmtp {
    /// The user that it knows, if it asks for one.
    pub const USER: &'static str = "chimera";

    /// Starts a server that speaks to everybody.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Tls::None, None)
    }

    /// Starts a server with TLS, and with a password that [`Self::USER`] must know.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_with(tls: Tls, password: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = json!({});
        if tls != Tls::None {
            certify(&folder);
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

    /// The certificate that vouches for it, as PEM.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn certificate(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("cert.pem")).expect("a server with TLS")
    }

    /// The messages that it has accepted, in their order: `from`, `to`, `content`, `tls`, `user`.
    ///
    /// # Panics
    /// When one can't be read.
    #[must_use]
    pub fn accepted(&self) -> Vec<Value> {
        let file = |number: usize| -> PathBuf { self.folder.path().join(format!("{number}.json")) };
        let texts = (1..).map_while(|number| std::fs::read(file(number)).ok());
        texts.map(|text| serde_json::from_slice(&text).expect("a message")).collect()
    }

    /// Kills it.
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

/// A key and a certificate for `localhost` that nobody else has.
fn certify(folder: &TempDir) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.path().join("key.pem"))
        .arg("-out")
        .arg(folder.path().join("cert.pem"))
        .output();
    assert!(made.is_ok_and(|made| made.status.success()), "openssl makes a certificate");
}

/// A running server, or `None` if it ended before it was ready. It ends with its standard input, so
/// it outlives no test, however that ends.
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
