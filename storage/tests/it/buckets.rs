//! Buckets in a folder and in S3: the contract on both, and what happens when either is lost.

use chimera_core::secret::Secret;
use chimera_engine::flow::port::{BucketError, Buckets};
use chimera_storage::blob::S3Credentials;
use chimera_storage::bucket::{FolderBuckets, S3Buckets};
use chimera_testkit::s3::PrivateS3;
use chimera_testkit::suite::buckets::{Fixture, contract, object, of_two_that_come_at_once_one_wins};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

fn s3(server: &PrivateS3, prefix: &str, secret: &str) -> S3Buckets {
    let credentials = S3Credentials {
        access_key_id: PrivateS3::ACCESS_KEY_ID.into(),
        secret_access_key: Secret::new(secret),
        session_token: None,
    };
    S3Buckets::new(server.url(prefix).parse().unwrap(), Some(credentials)).unwrap()
}

#[tokio::test]
async fn a_folder_keeps_the_contract_of_buckets() {
    let home = TempDir::new().unwrap();
    let count = AtomicU64::new(0);
    contract(async || {
        let root = home.path().join(count.fetch_add(1, Ordering::Relaxed).to_string());
        Fixture { buckets: Arc::new(FolderBuckets::new(root)), names: ["acme".into(), "other".into()] }
    })
    .await;
    let buckets = Arc::new(FolderBuckets::new(home.path().join("race")));
    of_two_that_come_at_once_one_wins(&Fixture { buckets, names: ["acme".into(), "other".into()] }).await;
}

#[tokio::test]
async fn an_s3_server_keeps_the_contract_of_buckets() {
    let server = PrivateS3::start();
    let count = AtomicU64::new(0);
    contract(async || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let names = ["acme", "other"].map(|name| format!("{name}-{number}"));
        for name in &names {
            std::fs::create_dir(server.folder().join(name)).unwrap();
        }
        Fixture { buckets: Arc::new(s3(&server, "blobs", PrivateS3::SECRET_ACCESS_KEY)), names }
    })
    .await;
}

#[tokio::test]
async fn the_place_of_the_blobs_is_no_bucket_for_others() {
    let server = PrivateS3::start();
    let within = s3(&server, "own/blobs", PrivateS3::SECRET_ACCESS_KEY);
    let whole = s3(&server, "", PrivateS3::SECRET_ACCESS_KEY);
    for (buckets, key) in [(&within, "own/blobs/sha256/ab/cd"), (&within, "own/blobs"), (&whole, "anything")] {
        let refused = buckets.put(PrivateS3::BUCKET, key, &object("x", ""), true).await;
        assert!(matches!(refused, Err(BucketError::Name(_))), "{key}: {refused:?}");
        assert!(buckets.get(PrivateS3::BUCKET, key, 10).await.is_err());
        assert!(buckets.delete(PrivateS3::BUCKET, key).await.is_err());
    }
    assert!(within.put(PrivateS3::BUCKET, "own/blobs-not", &object("x", ""), false).await.is_ok());
}

#[tokio::test]
async fn a_lost_server_and_a_wrong_key_are_told_apart() {
    let mut server = PrivateS3::start();
    let buckets = s3(&server, "blobs", PrivateS3::SECRET_ACCESS_KEY);
    let denied = s3(&server, "blobs", "another secret").put(PrivateS3::BUCKET, "k", &object("x", ""), true).await;
    assert_eq!(denied, Err(BucketError::Refused("it denies access".into())));
    server.stop();
    let gone = buckets.put(PrivateS3::BUCKET, "k", &object("x", ""), false).await;
    assert!(matches!(gone, Err(BucketError::Unavailable(_))), "{gone:?}");
    server.restart();
    assert_eq!(buckets.put(PrivateS3::BUCKET, "a b/k", &object("x", ""), false).await, Ok(()));
    let address = buckets.address(PrivateS3::BUCKET, "a b/k").unwrap();
    assert_eq!(address, format!("{}/{}/a%20b/k", server.endpoint(), PrivateS3::BUCKET));
    assert_eq!(buckets.host(PrivateS3::BUCKET).as_deref(), server.endpoint().strip_prefix("http://"));
}

#[tokio::test]
async fn objects_of_a_folder_are_files_under_their_key() {
    let home = TempDir::new().unwrap();
    let buckets = FolderBuckets::new(home.path());
    buckets.put("acme", "deep/in/k.txt", &object("text", "m"), false).await.unwrap();
    assert_eq!(std::fs::read(home.path().join("acme/deep/in/k.txt")).unwrap(), b"text");
    for key in ["deep/in", "deep/in/k.txt/more"] {
        let refused = buckets.put("acme", key, &object("x", ""), true).await;
        assert!(matches!(refused, Err(BucketError::Refused(_))), "{key}: {refused:?}");
    }
    // Somebody else overwrote it: the metadata of the old content does not apply to the new.
    std::fs::write(home.path().join("acme/deep/in/k.txt"), "changed").unwrap();
    let found = buckets.get("acme", "deep/in/k.txt", 100).await.unwrap().unwrap();
    assert_eq!((&found.content[..], found.mark.as_str()), (&b"changed"[..], ""));
    buckets.delete("acme", "deep/in/k.txt").await.unwrap();
    assert_eq!(std::fs::read_dir(home.path().join("acme")).unwrap().count(), 0, "no empty folders are left");
}
