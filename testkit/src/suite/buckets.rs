//! The contract of `chimera_engine::flow::port::Buckets`.

use bytes::Bytes;
use chimera_engine::flow::port::{BucketError, Buckets, Object};
use futures::future;
use std::sync::Arc;

const BYTES_MAX: usize = 1_000_000;

/// A store under test, with two empty buckets.
pub struct Fixture {
    pub buckets: Arc<dyn Buckets>,
    /// The names of two buckets in it.
    pub names: [String; 2],
}

#[must_use]
pub fn object(content: &str, mark: &str) -> Object {
    let content_type = "text/plain; charset=utf-8".to_owned();
    Object { content: Bytes::copy_from_slice(content.as_bytes()), content_type, mark: mark.to_owned() }
}

/// Runs the whole contract. `make` creates a fresh store.
pub async fn contract(make: impl AsyncFn() -> Fixture) {
    an_object_is_got_back_as_it_was_put(&make().await).await;
    what_is_taken_stays_unless_it_may_be_replaced(&make().await).await;
    what_is_deleted_is_gone(&make().await).await;
    a_key_is_used_as_it_is_written_or_refused(&make().await).await;
    nobody_gets_more_than_they_want(&make().await).await;
}

async fn an_object_is_got_back_as_it_was_put(on: &Fixture) {
    let [one, other] = &on.names;
    assert_eq!(on.buckets.get(one, "a/b.txt", BYTES_MAX).await, Ok(None));
    for (content, mark) in [("", ""), ("text", "by-me"), ("text", "by-another"), ("käse", "")] {
        let stored = object(content, mark);
        assert_eq!(on.buckets.put(one, "a/b.txt", &stored, true).await, Ok(()));
        assert_eq!(on.buckets.get(one, "a/b.txt", BYTES_MAX).await, Ok(Some(stored)));
    }
    let address = on.buckets.address(one, "a b/c").unwrap_or_default();
    assert!(address.contains("://") && address.ends_with("/a%20b/c"), "{address}");
    assert_eq!(on.buckets.get(other, "a/b.txt", BYTES_MAX).await, Ok(None), "buckets are separate");
}

async fn what_is_taken_stays_unless_it_may_be_replaced(on: &Fixture) {
    let bucket = &on.names[0];
    assert!(on.buckets.put(bucket, "k", &object("first", "1"), false).await.is_ok());
    for second in [object("second", "2"), object("first", "2")] {
        assert_eq!(on.buckets.put(bucket, "k", &second, false).await, Err(BucketError::Taken));
        assert_eq!(on.buckets.get(bucket, "k", BYTES_MAX).await, Ok(Some(object("first", "1"))));
        assert!(on.buckets.put(bucket, "k", &second, true).await.is_ok());
        assert_eq!(on.buckets.get(bucket, "k", BYTES_MAX).await, Ok(Some(second)));
        assert!(on.buckets.put(bucket, "k", &object("first", "1"), true).await.is_ok());
    }
}

/// For stores that check and write atomically; the S3 server of the tests does not.
pub async fn of_two_that_come_at_once_one_wins(on: &Fixture) {
    let bucket = &on.names[0];
    for round in 0..10 {
        let key = format!("race/{round}");
        let objects = [object("one", "1"), object("other", "2")];
        let puts = objects.iter().map(|object| on.buckets.put(bucket, &key, object, false));
        let outcomes = future::join_all(puts).await;
        let won: Vec<usize> = (0..2).filter(|at| outcomes[*at].is_ok()).collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        assert_eq!(on.buckets.get(bucket, &key, BYTES_MAX).await, Ok(Some(objects[won[0]].clone())));
    }
}

async fn what_is_deleted_is_gone(on: &Fixture) {
    let bucket = &on.names[0];
    for key in ["d/one", "d/two"] {
        assert!(on.buckets.put(bucket, key, &object(key, ""), false).await.is_ok());
    }
    for _ in 0..2 {
        assert_eq!(on.buckets.delete(bucket, "d/one").await, Ok(()));
        assert_eq!(on.buckets.get(bucket, "d/one", BYTES_MAX).await, Ok(None));
    }
    assert_eq!(on.buckets.get(bucket, "d/two", BYTES_MAX).await, Ok(Some(object("d/two", ""))));
    assert!(on.buckets.put(bucket, "d/one", &object("again", "2"), false).await.is_ok(), "the key is free again");
    assert_eq!(on.buckets.get(bucket, "d/one", BYTES_MAX).await, Ok(Some(object("again", "2"))));
}

async fn a_key_is_used_as_it_is_written_or_refused(on: &Fixture) {
    let bucket = &on.names[0];
    let keys = ["with space", "ünï/cødé.txt", "a%20b", "a+b&c=d", "q?x#y", "~'()*!", "UPPER/lower.Tar.gz", ".hidden"];
    for key in keys {
        assert!(on.buckets.put(bucket, key, &object(key, ""), false).await.is_ok(), "{key}");
    }
    for key in keys {
        assert_eq!(on.buckets.get(bucket, key, BYTES_MAX).await, Ok(Some(object(key, ""))), "{key}");
    }
    let long = "x".repeat(1_025);
    for key in ["", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\nb", "a\0b", "a\\b", &long] {
        let refused = on.buckets.put(bucket, key, &object("", ""), true).await;
        assert!(matches!(refused, Err(BucketError::Name(_))), "{key:?}: {refused:?}");
        assert!(matches!(on.buckets.get(bucket, key, 1).await, Err(BucketError::Name(_))), "{key:?}");
        assert!(matches!(on.buckets.delete(bucket, key).await, Err(BucketError::Name(_))), "{key:?}");
        assert!(matches!(on.buckets.address(bucket, key), Err(BucketError::Name(_))), "{key:?}");
    }
    for bucket in ["", "a", "..", ".about", "A-bucket", "a/b", "a_b", &long] {
        let refused = on.buckets.put(bucket, "k", &object("", ""), true).await;
        assert!(matches!(refused, Err(BucketError::Name(_))), "{bucket:?}: {refused:?}");
        assert!(matches!(on.buckets.address(bucket, "k"), Err(BucketError::Name(_))), "{bucket:?}");
    }
}

async fn nobody_gets_more_than_they_want(on: &Fixture) {
    let bucket = &on.names[0];
    assert!(on.buckets.put(bucket, "k", &object("12345", ""), false).await.is_ok());
    assert_eq!(on.buckets.get(bucket, "k", 5).await, Ok(Some(object("12345", ""))));
    assert_eq!(on.buckets.get(bucket, "k", 4).await, Err(BucketError::TooLarge { bytes_max: 4 }));
}
