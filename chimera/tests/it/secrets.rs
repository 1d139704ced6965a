//! Secrets from settings, environment and data folder do not appear in any output of the process.
//!
//! The fake servers here reject the login and echo the password in their error.

use crate::support::{CommandOutput, Workspace};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What a server received.
const TOLD_MAX: usize = 64;
const SMTP: &str = "marked-smtp-swordfish";
const CACHE: &str = "marked-cache-swordfish";
const DATABASE: &str = "marked-database-swordfish";
const SEED: &str = "6d61726b65646d61726b65646d61726b65646d61726b65646d61726b65646d61";

/// A server on a free port that runs `talk` on each connection. Returns what it received.
fn server(talk: fn(TcpStream, &SyncSender<String>) -> std::io::Result<()>) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = sync_channel(TOLD_MAX);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client may close the connection early.
            let _ = talk(stream, &tell);
        }
    });
    (port, told)
}

/// PostgreSQL: requests a clear-text password and rejects it.
fn postgres(mut stream: TcpStream, tell: &SyncSender<String>) -> std::io::Result<()> {
    const ENCRYPTION: [u8; 4] = 80_877_103_u32.to_be_bytes();
    while frame(&mut stream)?.starts_with(&ENCRYPTION) {
        stream.write_all(b"N")?;
    }
    stream.write_all(b"R\0\0\0\x08\0\0\0\x03")?;
    stream.read_exact(&mut [0])?;
    let password = String::from_utf8_lossy(&frame(&mut stream)?).trim_end_matches('\0').to_owned();
    let fields = format!("SFATAL\0VFATAL\0C28P01\0Mno such password: {password}\0Dsent {password}\0\0");
    stream.write_all(b"E")?;
    stream.write_all(&u32::try_from(fields.len() + 4).unwrap().to_be_bytes())?;
    stream.write_all(fields.as_bytes())?;
    let _ = tell.try_send(password);
    Ok(())
}

/// A message with its length, which includes itself.
fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// Redis: answers every command with an error that repeats it.
fn redis(mut stream: TcpStream, tell: &SyncSender<String>) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let length = stream.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&bytes[..length]).replace("\r\n", " ");
        let commands = words.matches('*').count();
        stream.write_all(format!("-WRONGPASS refused {words}\r\n").repeat(commands).as_bytes())?;
        let _ = tell.try_send(words);
    }
}

fn without_secrets(what: &str, text: &str) {
    for secret in [SMTP, CACHE, DATABASE, SEED, "swordfish"] {
        assert!(!text.contains(secret), "{what} gives {secret} away: {text}");
    }
}

fn silent(place: &Workspace, args: &[&str]) -> CommandOutput {
    let said = place.run(args);
    without_secrets(&args.join(" "), &said.stdout);
    without_secrets(&args.join(" "), &said.stderr);
    said
}

/// CONTENT-115
#[test]
fn servers_that_refuse_a_password_find_nobody_to_repeat_it() {
    let ((database, asked), (cache, _told)) = (server(postgres), server(redis));
    let place = Workspace::new()
        .env("CHIMERA_LOG__LEVEL", "trace,chimera=trace")
        .env("CHIMERA_SECRET_SMTP", SMTP)
        .env("CHIMERA_DATABASE_URL", &format!("postgres://ada:{DATABASE}@127.0.0.1:{database}/main"))
        .env("CHIMERA_REDIS_URL", &format!("redis://:{CACHE}@127.0.0.1:{cache}"));
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"], &["audit", "list"], &["migrate", "--json"]]
    {
        let said = silent(&place, command);
        assert_eq!(said.status, 1, "{command:?}: {said:?}");
        assert_eq!(asked.recv().unwrap(), DATABASE, "{command:?}");
    }
    for command in [&["doctor"][..], &["doctor", "--json"]] {
        let said = silent(&place, command);
        assert_eq!(said.status, 3, "{said:?}");
        assert!(said.stdout.contains("redis"), "{said:?}");
        assert_eq!(asked.recv().unwrap(), DATABASE);
    }
    for command in [&["config", "print", "--origins"][..], &["config", "print", "--json"]] {
        assert!(silent(&place, command).stdout.contains("ada:***@127.0.0.1"));
    }
}

/// CONTENT-115
#[test]
fn a_running_server_names_none_of_its_secrets_even_to_who_knows_them() {
    let (cache, told) = server(redis);
    let place = Workspace::new()
        .env("CHIMERA_LOG__LEVEL", "trace,chimera=trace")
        .env("CHIMERA_SECRET_SMTP", SMTP)
        .env("CHIMERA_SECRETS__FILE", "secrets.toml")
        .env("CHIMERA_REDIS_URL", "secret://cache")
        .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
        .file("secrets.toml", &format!("cache = \"redis://:{CACHE}@127.0.0.1:{cache}\"\nledger = \"{SEED}\"\n"));
    let server = place.dev(&[]);
    let ready = server.ask("GET /readyz HTTP/1.1");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("redis"), "{ready}");
    without_secrets("/readyz", &ready);
    assert!(told.recv().unwrap().contains(CACHE), "the password was not used");
    let token = server.ready["token"].as_str().unwrap().to_owned();
    let links = std::fs::read_to_string(place.path(".chimera/keys/links.key")).unwrap().trim().to_owned();
    // The path of an unknown route appears in the log.
    for secret in [SMTP, CACHE, SEED, &token, &links] {
        server.ask(&format!("GET /seen/{secret}/there HTTP/1.1"));
    }
    without_secrets("/metrics", &server.ask("GET /metrics HTTP/1.1"));
    let (status, log) = server.stop();
    assert_eq!(status, Some(0), "{log}");
    without_secrets("the log", &log);
    assert!(!log.contains(&token) && !log.contains(&links), "{log}");
    assert_eq!(log.matches("no route matches /seen/[redacted]/there").count(), 5, "{log}");
    silent(&place, &["config", "print"]);
    silent(&place, &["doctor"]);
}
