//! Artifacts in a real folder, by links that it signed.

use crate::errors::problem;
use crate::support::{CountingRandom, LogCapture, TestServer, client, edge, served};
use chimera_api::Edge;
use chimera_core::id::BlobId;
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::Blobs;
use chimera_engine::port::Clock;
use chimera_storage::blob::{FolderBlobs, LinkSigner};
use chimera_testkit::suite::blobs::{id_of, incoming, sample};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BEGIN: i64 = 1_770_391_800;

/// A clock that stands still until it is set.
struct FrozenClock(AtomicI64);

impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Timestamp {
        self.now()
    }
}

struct Shop {
    server: TestServer,
    blobs: Arc<FolderBlobs>,
    clock: Arc<FrozenClock>,
    home: TempDir,
}

impl Shop {
    async fn open() -> Self {
        let home = TempDir::new().unwrap();
        let clock = Arc::new(FrozenClock(AtomicI64::new(BEGIN * 1_000_000)));
        let random = Arc::new(CountingRandom::default());
        // Without a base a link is a path, whatever port the server gets.
        let signer = LinkSigner::new("", &Secret::new("link key")).unwrap();
        let blobs = Arc::new(FolderBlobs::open(home.path(), signer, random.clone()));
        let server = served(Edge::new(clock.clone(), random).with_blobs(blobs.clone())).await;
        Self { server, blobs, clock, home }
    }

    /// Keeps content and gives a path to it that works for a minute.
    async fn keep(&self, content: &[u8]) -> String {
        let stat = self.blobs.put(incoming(content)).await.unwrap();
        self.blobs.presign(stat.id, 60, self.clock.now()).await.unwrap().url
    }

    fn file(&self, id: BlobId) -> PathBuf {
        let hex = id.hex();
        self.home.path().join("sha256").join(&hex[..2]).join(&hex[2..])
    }

    fn pass_seconds(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        client().get(self.server.url(path)).send().await.unwrap()
    }

    async fn code(&self, path: &str) -> (u16, String) {
        let answer = self.get(path).await;
        let status = answer.status().as_u16();
        (status, problem(answer).await["error"]["code"].as_str().unwrap().to_owned())
    }

    /// The bytes behind the head of a raw answer, and the length that the head announces.
    async fn raw(&self, path: &str) -> (Vec<u8>, usize) {
        let mut stream = self.server.connect().await;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A reset is as good as a close: either way there is less than was announced.
        let _ = stream.read_to_end(&mut answer).await;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        (answer.split_off(end), length.parse().unwrap())
    }
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// INTENT-041
#[tokio::test]
async fn a_presigned_link_gives_the_content_to_anyone_who_holds_it() {
    let shop = Shop::open().await;
    let content = sample(300_000, 1);
    let link = shop.keep(&content).await;
    let answer = shop.get(&link).await;
    assert_eq!(answer.status(), 200);
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-length"), "300000");
    assert_eq!(header("content-type"), "application/octet-stream");
    assert_eq!(header("etag"), format!("\"sha256:{}\"", id_of(&content).hex()));
    assert_eq!(header("content-disposition"), "attachment");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("cache-control"), "private, immutable, max-age=60");
    assert_eq!(header("accept-ranges"), "none");
    assert!(answer.bytes().await.unwrap() == content);
    let empty = shop.keep(b"").await;
    assert_eq!(shop.get(&empty).await.bytes().await.unwrap(), "");
}

#[tokio::test]
async fn a_large_artifact_arrives_whole() {
    let shop = Shop::open().await;
    let content = sample(20 << 20, 2);
    let link = shop.keep(&content).await;
    let answer = shop.get(&link).await;
    assert_eq!(answer.content_length(), Some(20 << 20));
    assert_eq!(id_of(&answer.bytes().await.unwrap()), id_of(&content));
}

#[tokio::test]
async fn a_part_is_not_offered_because_it_could_not_be_verified() {
    let shop = Shop::open().await;
    let link = shop.keep(b"content").await;
    let answer = client().get(shop.server.url(&link)).header("range", "bytes=0-2").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.bytes().await.unwrap(), "content");
}

#[tokio::test]
async fn a_head_request_gives_the_same_headers_and_nothing_else() {
    let shop = Shop::open().await;
    let link = shop.keep(&sample(300_000, 1)).await;
    let got = shop.get(&link).await;
    let head = client().head(shop.server.url(&link)).send().await.unwrap();
    let names = ["content-length", "content-type", "etag", "content-disposition", "cache-control", "accept-ranges"];
    assert_eq!(names.map(|name| &head.headers()[name]), names.map(|name| &got.headers()[name]));
    let raw = format!("HEAD {link} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(shop.server.raw(raw.as_bytes()).await.ends_with("\r\n\r\n"));
    let forged = format!("HEAD {link}0 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let refused = shop.server.raw(forged.as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.ends_with("\r\n\r\n"), "{refused}");
}

#[tokio::test]
async fn who_has_the_content_already_is_not_sent_it_again() {
    let shop = Shop::open().await;
    let link = shop.keep(b"content").await;
    let etag = format!("\"sha256:{}\"", id_of(b"content").hex());
    let ask =
        async |tags: &str| client().get(shop.server.url(&link)).header("if-none-match", tags).send().await.unwrap();
    for tags in [&etag, &format!("W/{etag}"), &format!("\"other\", {etag}"), &"*".to_owned()] {
        let answer = ask(tags).await;
        assert_eq!(answer.status(), 304, "{tags}");
        assert_eq!(answer.headers()["etag"].to_str().unwrap(), etag);
        assert_eq!(answer.headers()["cache-control"], "private, immutable, max-age=60");
        assert!(answer.bytes().await.unwrap().is_empty());
    }
    for tags in ["\"other\"", etag.trim_matches('"'), ""] {
        assert_eq!(ask(tags).await.bytes().await.unwrap(), "content", "{tags}");
    }
    shop.blobs.delete(id_of(b"content")).await.unwrap();
    assert_eq!(ask(&etag).await.status(), 404);
}

#[tokio::test]
async fn a_link_ends_when_it_says_so() {
    let shop = Shop::open().await;
    let link = shop.keep(b"content").await;
    shop.pass_seconds(59);
    assert_eq!(shop.get(&link).await.headers()["cache-control"], "private, immutable, max-age=1");
    shop.pass_seconds(1);
    assert_eq!(shop.code(&link).await, refused(401, "EXPIRED_TTL"));
    let longer = link.replace(&(BEGIN + 60).to_string(), &(BEGIN + 90).to_string());
    assert_eq!(shop.code(&longer).await, refused(401, "SIGNATURE_INVALID"));
}

#[tokio::test]
async fn a_link_that_was_changed_anywhere_is_refused() {
    let shop = Shop::open().await;
    let link = shop.keep(b"content").await;
    let (rest, signature) = link.split_once("&signature=").unwrap();
    for at in 0..signature.len() {
        let mut changed = signature.to_owned();
        let digit = if &signature[at..=at] == "0" { "1" } else { "0" };
        changed.replace_range(at..=at, digit);
        let link = format!("{rest}&signature={changed}");
        assert_eq!(shop.code(&link).await, refused(401, "SIGNATURE_INVALID"), "{at}");
    }
    let other = shop.keep(b"other content").await;
    let (_, others_signature) = other.split_once("&signature=").unwrap();
    for signature in [others_signature, "", &signature[2..], &format!("{signature}00"), "not-hex", "%00"] {
        let link = format!("{rest}&signature={signature}");
        assert_eq!(shop.code(&link).await, refused(401, "SIGNATURE_INVALID"), "{signature}");
    }
}

#[tokio::test]
async fn a_stranger_can_not_tell_which_artifacts_exist() {
    let shop = Shop::open().await;
    let link = shop.keep(b"content").await;
    let present = shop.get(&format!("{link}00")).await;
    let absent = shop.get(&link.replace(&id_of(b"content").hex(), &id_of(b"never kept").hex())).await;
    let names = |answer: &reqwest::Response| answer.headers().keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&present), names(&absent));
    let (mut present, mut absent) = (problem(present).await, problem(absent).await);
    for body in [&mut present, &mut absent] {
        body["instance"].take();
        body["trace_id"].take();
    }
    assert_eq!(present, absent);
}

#[tokio::test]
async fn what_is_not_a_link_is_malformed() {
    let shop = Shop::open().await;
    let link = shop.keep(b"content").await;
    let hex = id_of(b"content").hex();
    let (path, query) = link.split_once('?').unwrap();
    for query in ["", "expires=1", "signature=00", &format!("{query}&expires=1"), &format!("{query}&signature=00")] {
        assert_eq!(shop.code(&format!("{path}?{query}")).await, refused(400, "SCHEMA_INVALID"), "{query}");
    }
    assert_eq!(shop.code(path).await, refused(400, "SCHEMA_INVALID"));
    let raw = async |target: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        shop.server.raw(request.as_bytes()).await
    };
    for digest in [
        &hex.to_uppercase(),
        &hex[1..],
        &format!("{hex}0"),
        &format!("cas:%2f%2fsha256:{hex}"),
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "%ff",
        "%zz",
        "%",
    ] {
        let answer = raw(&format!("/artifacts/{digest}?{query}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("SCHEMA_INVALID"), "{digest}: {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    for target in ["/artifacts/../artifacts/", "/artifacts/./", "//artifacts/", "/artifacts//"] {
        let answer = raw(&format!("{target}{hex}?{query}")).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{target}: {answer}");
    }
    // Two spellings of one address in the eyes of RFC 3986.
    let spelled = raw(&format!("/artifacts/%{:x}{}?{query}", hex.as_bytes()[0], &hex[1..])).await;
    assert!(spelled.starts_with("HTTP/1.1 200 "), "{spelled}");
}

#[tokio::test]
async fn what_is_gone_and_a_store_that_is_gone_are_told_apart() {
    let shop = Shop::open().await;
    let link = shop.keep(b"content").await;
    shop.blobs.delete(id_of(b"content")).await.unwrap();
    assert_eq!(shop.code(&link).await, refused(404, "NOT_FOUND"));
    let folder = shop.home.path().join("sha256");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    let answer = shop.get(&link).await;
    assert_eq!((answer.status().as_u16(), answer.headers().get("retry-after")), (503, None), "only people mend that");
    assert_eq!(problem(answer).await["error"]["code"], "STORE_UNUSABLE");
    let server = served(edge()).await;
    let none = client().get(server.url(&link)).send().await.unwrap();
    assert_eq!(problem(none).await["error"]["code"], "NOT_FOUND");
}

#[tokio::test]
async fn a_damaged_artifact_never_looks_whole() {
    let content = sample(1_000_000, 3);
    let flipped = |at: usize| {
        let mut bytes = content.clone();
        bytes[at] ^= 1;
        bytes
    };
    let longer = [&content[..], b"more"].concat();
    for damaged in [flipped(0), flipped(500_000), flipped(999_999), content[..900_000].to_vec(), longer] {
        let shop = Shop::open().await;
        let link = shop.keep(&content).await;
        std::fs::write(shop.file(id_of(&content)), &damaged).unwrap();
        let (got, announced) = shop.raw(&link).await;
        assert_eq!(announced, damaged.len());
        assert!(got.len() < announced, "{} of {announced} bytes", got.len());
        assert!(shop.get(&link).await.bytes().await.is_err(), "a polite client took it for whole");
        assert_eq!(shop.get(&shop.keep(b"sound").await).await.bytes().await.unwrap(), "sound");
    }
}

#[tokio::test]
async fn damage_that_is_found_at_once_is_told_at_once() {
    let shop = Shop::open().await;
    let link = shop.keep(b"small").await;
    for damaged in ["smalk", "", "small and more"] {
        std::fs::write(shop.file(id_of(b"small")), damaged).unwrap();
        assert_eq!(shop.code(&link).await, refused(500, "INTERNAL"), "{damaged}");
    }
}

#[tokio::test]
async fn damage_is_logged_as_critical_under_the_trace_of_the_request() {
    let shop = Shop::open().await;
    let content = sample(1_000_000, 4);
    let link = shop.keep(&content).await;
    std::fs::write(shop.file(id_of(&content)), sample(1_000_000, 5)).unwrap();
    let lines = LogCapture::default();
    let _listening = lines.listen();
    let mut stream = shop.server.connect().await;
    stream.write_all(format!("GET {link} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let head = String::from_utf8_lossy(&answer[..answer.len().min(1_000)]).into_owned();
    let trace = head.split("traceparent: 00-").nth(1).unwrap()[..32].to_owned();
    let text = lines.text();
    let line = text.lines().find(|line| line.contains("is damaged")).expect(&text);
    for part in ["ERROR", "critical=true", "error_code=\"INTERNAL\"", &trace, &id_of(&content).to_string()] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!text.contains("signature="), "the link is a secret: {text}");
}

#[test]
fn the_document_names_every_answer_and_calls_the_content_binary() {
    let document = serde_json::to_value(chimera_api::document()).unwrap();
    let answers = document.pointer("/paths/~1artifacts~1{sha256}/get/responses").unwrap();
    let statuses: Vec<&String> = answers.as_object().unwrap().keys().collect();
    assert_eq!(statuses, ["200", "304", "400", "401", "404", "500", "503"]);
    let content = &answers["200"]["content"]["application/octet-stream"]["schema"];
    assert_eq!((content["type"].as_str(), content["format"].as_str()), (Some("string"), Some("binary")));
}
