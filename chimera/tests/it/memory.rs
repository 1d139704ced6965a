//! The memory of large requests is limited: that of one to a few copies of its JSON, and that of many at once.

use crate::support::{Server, Workspace};
use chimera_core::json::weight_of_text;
use chimera_core::limits::{LARGE_WORK_BYTES_MAX, UNREAD_BYTES_PER_ADDRESS_MAX};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Objects of a document that is small as text and large once it is parsed.
const OBJECTS: usize = 45_000;
/// How often one request may have its JSON in memory. Most of what a process allocates for it is counted as well.
const COPIES_MAX: usize = 8;
/// Such requests at once.
const AT_ONCE: usize = 8;
/// How many times more memory they may take together than one alone.
const MORE_MAX: usize = 2;
/// Calls with large inputs and outputs, and readers that ask for a page of them and never read it.
const LARGE_CALLS: usize = 8;
const READERS: usize = 100;

/// A number of `/proc/<pid>/status`, in bytes.
fn memory(server: &Server, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// By how many bytes the memory of the server grows at most while `work` is done.
fn growth<T>(server: &Server, work: impl FnOnce() -> T) -> (usize, T) {
    std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5").unwrap();
    let before = memory(server, "VmRSS");
    let done = work();
    (memory(server, "VmHWM").saturating_sub(before), done)
}

fn send_act(server: &Server, body: &Value) -> TcpStream {
    let (body, token) = (body.to_string(), server.ready["token"].as_str().unwrap());
    let mut stream = server.connect();
    let head = format!(
        "POST /act HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         authorization: Bearer {token}\r\nx-hmac-signature: {}\r\ncontent-length: {}\r\n\r\n",
        server.signature("admin", &body),
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

fn status(mut stream: TcpStream) -> u16 {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_large_request_takes_a_few_copies_of_its_json_and_many_at_once_little_more_than_one() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let many = vec![json!({"a": 2}); OBJECTS];
    let body = json!({"steps": [{"tool": "local.echo", "input": {"value": many}}], "dry_run": true});
    let weight = weight_of_text(body.to_string().as_bytes());
    let (one, answer) = growth(&server, || status(send_act(&server, &body)));
    assert_eq!(answer, 200);
    assert!(one <= weight * COPIES_MAX, "{one} bytes, of JSON that takes {weight}");

    let (all, answers) = growth(&server, || {
        let sent: Vec<TcpStream> = (0..AT_ONCE).map(|_| send_act(&server, &body)).collect();
        sent.into_iter().map(status).collect::<Vec<u16>>()
    });
    assert!(answers.iter().all(|answer| [200, 202, 503].contains(answer)), "{answers:?}");
    assert!(answers.contains(&200), "{answers:?}");
    let most = one.max(LARGE_WORK_BYTES_MAX);
    assert!(all <= most * MORE_MAX, "{all} bytes for {AT_ONCE} at once, {one} for one");
}

#[test]
fn readers_of_large_pages_take_no_more_than_their_budget_however_many_they_are() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let text = "x".repeat(900_000);
    let call = json!({"tool": "local.echo", "input": {"message": text}});
    let step = json!({"steps": [call], "autonomy_level": "L2_ExecuteNotify", "wait": 20});
    for _ in 0..LARGE_CALLS {
        assert_eq!(status(send_act(&server, &step)), 200);
    }
    let token = server.ready["token"].as_str().unwrap();
    let head = format!("GET /tool-calls?limit=1000 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    let (grown, _) = growth(&server, || {
        let ask = || {
            let mut stream = server.connect();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let mut asked: Vec<TcpStream> = (0..READERS).map(|_| ask()).collect();
        // Each is answered, refused or told to come back; that the last one was ends the wait.
        asked.iter_mut().map(|stream| stream.read(&mut [0; 16]).unwrap()).sum::<usize>()
    });
    let most = LARGE_WORK_BYTES_MAX + UNREAD_BYTES_PER_ADDRESS_MAX;
    assert!(grown <= most * MORE_MAX, "{grown} bytes, of {most}");
}
