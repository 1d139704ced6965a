//! Blobs in a folder and in S3: the contract on both, and what happens when either is lost.

use chimera_core::id::BlobId;
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{BlobError, Blobs, InvalidLink, PresentedLink};
use chimera_engine::port::{Outage, Random, Records, Unavailable};
use chimera_storage::blob::{FolderBlobs, LinkSigner, S3Blobs, S3Credentials};
use chimera_storage::records;
use chimera_testkit::s3::PrivateS3;
use chimera_testkit::suite::blobs::{Fixture, all, contract, id_of, incoming, sample};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// Bytes that differ each time they are asked for.
struct CountingRandom(AtomicU64);

impl Random for CountingRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        bytes.iter_mut().zip(number.iter().cycle()).for_each(|(byte, digit)| *byte = *digit);
    }
}

fn random() -> Arc<dyn Random> {
    static SHARED: std::sync::OnceLock<Arc<CountingRandom>> = std::sync::OnceLock::new();
    SHARED.get_or_init(|| Arc::new(CountingRandom(AtomicU64::new(1)))).clone()
}

fn signer(key: &str) -> LinkSigner {
    LinkSigner::new("https://chimera.example/", &Secret::new(key)).unwrap()
}

fn folder(root: &Path) -> FolderBlobs {
    FolderBlobs::open(root, signer("link key"), random())
}

fn bucket(server: &PrivateS3, prefix: &str, secret: &str) -> S3Blobs {
    let credentials = S3Credentials {
        access_key_id: PrivateS3::ACCESS_KEY_ID.into(),
        secret_access_key: Secret::new(secret),
        session_token: None,
    };
    S3Blobs::new(&server.url(prefix).parse().unwrap(), Some(&credentials), random()).unwrap()
}

fn unavailable(outage: Outage, reason: &str) -> BlobError {
    BlobError::Unavailable(Unavailable::new(outage, reason))
}

#[tokio::test]
async fn a_folder_keeps_the_contract_of_blobs() {
    let home = TempDir::new().unwrap();
    let count = AtomicU64::new(0);
    contract(async |bytes_max| {
        let root = home.path().join(count.fetch_add(1, Ordering::Relaxed).to_string());
        Fixture { blobs: Arc::new(folder(&root).with_bytes_max(bytes_max)), objects: root }
    })
    .await;
}

#[tokio::test]
async fn an_s3_bucket_keeps_the_contract_of_blobs() {
    let server = PrivateS3::start();
    let count = AtomicU64::new(0);
    contract(async |bytes_max| {
        let prefix = format!("some/prefix{}", count.fetch_add(1, Ordering::Relaxed));
        let blobs = bucket(&server, &prefix, PrivateS3::SECRET_ACCESS_KEY).with_bytes_max(bytes_max);
        Fixture { blobs: Arc::new(blobs), objects: server.bucket_folder().join(prefix) }
    })
    .await;
}

#[tokio::test]
async fn what_a_dead_writer_left_is_removed_and_a_living_one_is_left_alone() {
    let home = TempDir::new().unwrap();
    std::fs::create_dir(home.path().join("tmp")).unwrap();
    let [dead, living] = ["dead", "living"].map(|name| home.path().join("tmp").join(name));
    std::fs::write(&dead, "half").unwrap();
    let writer = std::fs::File::create(&living).unwrap();
    writer.lock().unwrap();
    drop(folder(home.path()));
    assert!(!dead.exists());
    assert!(living.exists());
}

#[tokio::test]
async fn a_folder_that_can_not_be_written_is_unavailable_until_it_can() {
    let home = TempDir::new().unwrap();
    let root = home.path().join("blobs");
    // A plain file in place of the folder stops everybody, root included.
    std::fs::write(&root, "in the way").unwrap();
    let blobs = folder(&root);
    for error in [blobs.put(incoming(b"x")).await.unwrap_err(), blobs.ready().await.unwrap_err()] {
        assert_eq!(error, unavailable(Outage::Unusable, "the folder is not a folder"));
        assert!(!error.to_string().contains('/'), "no path in {error}");
    }
    std::fs::remove_file(&root).unwrap();
    assert_eq!(blobs.ready().await, Ok(()));
    let stat = blobs.put(incoming(b"x")).await.unwrap();
    assert_eq!(all(blobs.get(stat.id).await.unwrap()).await.unwrap(), b"x");
}

/// The test re-runs itself in a process with a file size limit.
#[tokio::test]
async fn a_full_disk_is_said_to_be_full_and_works_again_when_it_is_not() {
    const INNER: &str = "CHIMERA_TEST_FULL_DISK";
    if std::env::var_os(INNER).is_none() {
        let me = std::env::current_exe().unwrap();
        let name = "blobs::a_full_disk_is_said_to_be_full_and_works_again_when_it_is_not";
        let mut inner = Command::new("sh");
        inner.args(["-c", r#"trap "" XFSZ; exec "$@""#, "sh"]).arg(me).args(["--exact", name]).env(INNER, "1");
        let output = inner.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it did run");
        return;
    }
    let limit_files_to = |size: &str| {
        let pid = std::process::id().to_string();
        let done = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={size}:")]).status();
        assert!(done.unwrap().success());
    };
    let home = TempDir::new().unwrap();
    let blobs = folder(home.path());
    let (small, large) = (sample(1_000, 1), sample(1_000_000, 2));
    let kept = blobs.put(incoming(&small)).await.unwrap();
    limit_files_to("4096");
    assert_eq!(blobs.put(incoming(&large)).await, Err(unavailable(Outage::Full, "the disk is full")));
    assert_eq!(blobs.stat(id_of(&large)).await, Ok(None));
    assert_eq!(std::fs::read_dir(home.path().join("tmp")).unwrap().count(), 0, "no half-written file takes space");
    limit_files_to("0");
    assert_eq!(blobs.ready().await, Err(unavailable(Outage::Full, "the disk is full")));
    assert_eq!(all(blobs.get(kept.id).await.unwrap()).await.unwrap(), small, "reading goes on");
    limit_files_to("unlimited");
    assert_eq!(blobs.ready().await, Ok(()));
    assert_eq!(blobs.put(incoming(&large)).await.map(|stat| stat.id), Ok(id_of(&large)));
}

#[tokio::test]
async fn a_lost_bucket_is_unavailable_until_it_is_back() {
    let mut server = PrivateS3::start();
    let blobs = bucket(&server, "p", PrivateS3::SECRET_ACCESS_KEY);
    let stat = blobs.put(incoming(b"kept")).await.unwrap();
    server.stop();
    let gone = unavailable(Outage::Transient, "the object store is unreachable or returned an unexpected response");
    assert_eq!(blobs.ready().await, Err(gone.clone()));
    assert_eq!(blobs.put(incoming(b"lost")).await, Err(gone.clone()));
    assert_eq!(blobs.put(incoming(&sample(9 << 20, 1))).await, Err(gone.clone()));
    assert_eq!(blobs.get(stat.id).await.err(), Some(gone.clone()));
    assert_eq!(blobs.stat(stat.id).await, Err(gone.clone()));
    assert_eq!(blobs.delete(stat.id).await, Err(gone));
    server.restart();
    assert_eq!(blobs.ready().await, Ok(()));
    assert_eq!(all(blobs.get(stat.id).await.unwrap()).await.unwrap(), b"kept");
    assert_eq!(blobs.stat(id_of(b"lost")).await, Ok(None));
}

#[tokio::test]
async fn a_bucket_does_not_open_to_a_wrong_key() {
    let server = PrivateS3::start();
    let blobs = bucket(&server, "p", "another secret");
    let error = blobs.put(incoming(b"x")).await.unwrap_err();
    assert_eq!(error, unavailable(Outage::Unusable, "the object store denies access"));
    assert_eq!(blobs.ready().await, Err(error));
}

/// INTENT-041
#[tokio::test]
async fn anyone_can_fetch_a_presigned_s3_url_and_no_other() {
    let server = PrivateS3::start();
    let blobs = bucket(&server, "p", PrivateS3::SECRET_ACCESS_KEY);
    let (first, second) = (sample(9 << 20, 1), sample(10, 2));
    let (first_stat, second_stat) =
        (blobs.put(incoming(&first)).await.unwrap(), blobs.put(incoming(&second)).await.unwrap());
    let now = Timestamp::from_micros(0);
    let link = blobs.presign(first_stat.id, 60, now).await.unwrap();
    let client = reqwest::Client::new();
    let answer = client.get(&link.url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.bytes().await.unwrap() == first);

    let key = |id: BlobId| id.hex()[2..].to_owned();
    let elsewhere = link
        .url
        .replace(&key(first_stat.id), &key(second_stat.id))
        .replace(&format!("/{}/", &first_stat.id.hex()[..2]), &format!("/{}/", &second_stat.id.hex()[..2]));
    let longer = link.url.replace("X-Amz-Expires=60", "X-Amz-Expires=600");
    let bare = link.url.split('?').next().unwrap().to_owned();
    for forged in [elsewhere, longer, bare] {
        assert_ne!(forged, link.url);
        assert_eq!(client.get(&forged).send().await.unwrap().status(), 403, "{forged}");
    }
    assert_eq!(client.delete(&link.url).send().await.unwrap().status(), 403, "it permits reading only");
    let ours = PresentedLink { id: first_stat.id, expires: "60", signature: "00" };
    assert_eq!(blobs.check_link(&ours, now), Err(InvalidLink::Forged), "links of a bucket don't lead to us");
}

/// INTENT-041
#[tokio::test]
async fn a_local_link_opens_one_blob_until_it_expires() {
    let home = TempDir::new().unwrap();
    let blobs = folder(home.path());
    let stat = blobs.put(incoming(b"content")).await.unwrap();
    let now: Timestamp = "2026-02-06T15:30:00.5Z".parse().unwrap();
    let link = blobs.presign(stat.id, 60, now).await.unwrap();
    let query = link.url.strip_prefix(&format!("https://chimera.example/artifacts/{}?", stat.id.hex())).unwrap();
    let (expires, signature) = query.strip_prefix("expires=").unwrap().split_once("&signature=").unwrap();
    assert_eq!((expires, signature.len()), ("1770391860", 64));

    let check = |id, expires, signature, now| blobs.check_link(&PresentedLink { id, expires, signature }, now);
    assert_eq!(check(stat.id, expires, signature, now), Ok(()));
    let last = Timestamp::from_micros(link.expires_at.micros() - 1);
    assert_eq!(check(stat.id, expires, signature, last), Ok(()));
    assert_eq!(check(stat.id, expires, signature, link.expires_at), Err(InvalidLink::Expired));
    assert_eq!(check(stat.id, expires, signature, now.plus_seconds(86_400)), Err(InvalidLink::Expired));

    let mut flipped = signature.to_owned();
    flipped.replace_range(..1, if signature.starts_with('0') { "1" } else { "0" });
    for (id, expires, signature) in [
        (id_of(b"other"), expires, signature),
        (stat.id, "1770391861", signature),
        (stat.id, "9999999999", signature),
        (stat.id, "01770391860", signature),
        (stat.id, "+1770391860", signature),
        (stat.id, "", signature),
        (stat.id, "-1", signature),
        (stat.id, expires, flipped.as_str()),
        (stat.id, expires, &signature[2..]),
        (stat.id, expires, ""),
        (stat.id, expires, "not hex"),
    ] {
        assert_eq!(check(id, expires, signature, now), Err(InvalidLink::Forged), "{id} {expires} {signature}");
    }
    let stranger = FolderBlobs::open(home.path(), signer("another key"), random());
    let presented = PresentedLink { id: stat.id, expires, signature };
    assert_eq!(stranger.check_link(&presented, now), Err(InvalidLink::Forged));
    assert_eq!(
        check(stat.id, expires, signature, now.plus_seconds(-7_200)),
        Err(InvalidLink::Forged),
        "far in the future"
    );
    assert!(LinkSigner::new("https://x", &Secret::new("")).is_none(), "an empty key signs nothing");
}

/// A data folder that was moved away under a running node is created again by the next writer.
#[tokio::test]
async fn folders_that_are_missing_are_made_for_their_owner_alone_whoever_makes_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let place = TempDir::new().unwrap();
    let data = place.path().join("data");
    let fresh = || {
        // The first time there is none.
        let _ = std::fs::remove_dir_all(&data);
    };
    folder(&data.join("blobs")).put(incoming(b"x")).await.unwrap();
    assert_eq!([&data, &data.join("blobs")].map(|path| mode(path)), [0o700; 2], "blobs");
    fresh();
    crate::records::sqlite(&data).unwrap().close().await;
    assert_eq!(mode(&data), 0o700, "records");
    fresh();
    records::migrate_sqlite(&data).unwrap();
    assert_eq!(mode(&data), 0o700, "migrate");
}
