//! Uploads into a real S3 server, cut sockets included, and into a folder.

use crate::fixtures::{apart, blobs, call, call_of, execute, owned};
use bytes::Bytes;
use chimera_connect::flow::s3_tool;
use chimera_core::secret::Secret;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::TenantBlobs;
use chimera_engine::flow::port::{
    Blobs, BucketError, Buckets, CallContext, CheckResult, CompletedCall, Object, Sent, Tool,
};
use chimera_storage::blob::S3Credentials;
use chimera_storage::bucket::{FolderBuckets, S3Buckets};
use chimera_testkit::proxy::{Cut, Proxy};
use chimera_testkit::s3::PrivateS3;
use chimera_testkit::suite::blobs::{all, incoming, sample};
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

const BUCKET: &str = PrivateS3::BUCKET;

fn buckets(url: &str) -> Arc<dyn Buckets> {
    let credentials = S3Credentials {
        access_key_id: PrivateS3::ACCESS_KEY_ID.into(),
        secret_access_key: Secret::new(PrivateS3::SECRET_ACCESS_KEY),
        session_token: None,
    };
    Arc::new(S3Buckets::new(url.parse().unwrap(), Some(credentials)).unwrap())
}

struct Yard {
    server: PrivateS3,
    buckets: Arc<dyn Buckets>,
    blobs: Arc<dyn Blobs>,
    owned: TenantBlobs,
    tool: Arc<dyn Tool>,
    _home: TempDir,
}

impl Yard {
    fn new() -> Self {
        let server = PrivateS3::start();
        let home = TempDir::new().unwrap();
        let buckets = buckets(&server.url("blobs"));
        let blobs = blobs(home.path());
        let owned = owned(&blobs);
        let tool = s3_tool(apart(Arc::clone(&buckets)), owned.clone()).unwrap();
        Self { server, buckets, blobs, owned, tool, _home: home }
    }

    async fn stored(&self, key: &str) -> Option<Bytes> {
        self.buckets.get(BUCKET, key, usize::MAX).await.unwrap().map(|object| object.content)
    }

    async fn leave(&self, key: &str, content: &'static str) {
        let content = Bytes::from_static(content.as_bytes());
        let object = Object { content, content_type: "text/x-other".into(), mark: String::new() };
        self.buckets.put(BUCKET, key, &object, true).await.unwrap();
    }
}

fn done(input: &Value, output: &Value) -> CompletedCall {
    CompletedCall { input: input.clone(), output: output.clone() }
}

#[tokio::test]
async fn an_upload_as_the_documents_workflow_writes_it_is_read_back() {
    let yard = Yard::new();
    let spec = yard.tool.spec();
    assert_eq!((spec.name.as_str(), spec.effect), ("s3_upload", EffectKind::Write));
    assert!(spec.metadata.idempotent && spec.metadata.dry_run_supported && spec.checkable && spec.is_reversible());
    assert_eq!(spec.input.document()["properties"]["dry_run"]["type"], "boolean");
    let input = json!({"bucket": BUCKET, "key_template": "uploads/run-1.bin"});
    let output = execute(&*yard.tool, &call(1), &input).await.unwrap();
    assert_eq!(output["success"], true);
    assert_eq!(output["url"], format!("{}/{BUCKET}/uploads/run-1.bin", yard.server.endpoint()));
    assert_eq!(yard.stored("uploads/run-1.bin").await.unwrap(), "");

    let bytes = sample(9 << 20, 1);
    let artifact = yard.owned.put(&call(1), "text/plain", incoming(&bytes)).await.unwrap().id.to_string();
    for (key, content, wanted) in [
        ("text", json!({"content": "Grüße"}), "Grüße".as_bytes()),
        ("base64", json!({"content_base64": "AP8B"}), &[0, 255, 1]),
        ("artifact", json!({"artifact": artifact}), &bytes),
    ] {
        let mut input = json!({"bucket": BUCKET, "key": key, "content_type": "application/x-thing"});
        input.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        let output = execute(&*yard.tool, &call(2), &input).await.unwrap();
        assert_eq!(output["bytes"], wanted.len());
        assert!(yard.stored(key).await.unwrap() == wanted, "{key}");
        assert_eq!(
            yard.buckets.get(BUCKET, key, usize::MAX).await.unwrap().unwrap().content_type,
            "application/x-thing"
        );
    }
}

#[tokio::test]
async fn an_upload_that_makes_no_sense_is_refused_before_anything_is_sent() {
    let yard = Yard::new();
    for bad in [
        json!({"bucket": BUCKET}),
        json!({"bucket": BUCKET, "key": "a", "key_template": "b"}),
        json!({"bucket": BUCKET, "key": "a", "content": "x", "artifact": format!("cas://sha256:{}", "0".repeat(64))}),
        json!({"bucket": BUCKET, "key": "a", "content_type": "text/plain\r\nx-evil: 1"}),
        json!({"bucket": BUCKET, "key": "a", "acl": "public-read"}),
    ] {
        assert!(yard.tool.spec().input.check(&bad).is_err(), "{bad}");
    }
    for (bad, code) in [
        (json!({"bucket": "NOT", "key": "a"}), "MALFORMED_ARGS"),
        (json!({"bucket": BUCKET, "key": "../a"}), "MALFORMED_ARGS"),
        (json!({"bucket": BUCKET, "key": "blobs/sha256/x"}), "MALFORMED_ARGS"),
        (json!({"bucket": BUCKET, "key": "a", "content_base64": "?"}), "MALFORMED_ARGS"),
        (json!({"bucket": BUCKET, "key": "a", "artifact": format!("cas://sha256:{}", "0".repeat(64))}), "NOT_FOUND"),
    ] {
        let error = execute(&*yard.tool, &call(1), &bad).await.unwrap_err();
        assert_eq!((error.body.code.as_str(), error.sent), (code, Sent::No), "{bad}");
    }
}

#[tokio::test]
async fn a_dry_upload_stores_nothing_and_says_what_it_would_do() {
    let yard = Yard::new();
    let input = json!({"bucket": BUCKET, "key": "k", "content": "four", "dry_run": true});
    let output = execute(&*yard.tool, &call(1), &input).await.unwrap();
    assert_eq!((&output["status"], &output["simulated_output"]["bytes"]), (&json!("dry_run"), &json!(4)));
    assert_eq!(output["would_execute"], format!("put 4 bytes into {BUCKET} as k"));
    assert_eq!(yard.stored("k").await, None);
}

#[tokio::test]
async fn an_upload_that_is_undone_is_gone_and_undoing_twice_is_no_error() {
    let yard = Yard::new();
    let input = json!({"bucket": BUCKET, "key": "k", "content": "x"});
    let output = execute(&*yard.tool, &call(1), &input).await.unwrap();
    for _ in 0..2 {
        // A rollback is an effect of its own.
        let undone = yard.tool.rollback(&call(9), &done(&input, &output)).await.unwrap();
        assert_eq!(undone["undone"], true);
        assert_eq!(yard.stored("k").await, None);
    }
}

#[tokio::test]
async fn what_somebody_else_has_put_there_is_never_lost() {
    let yard = Yard::new();
    yard.leave("k", "older").await;
    let mut input = json!({"bucket": BUCKET, "key": "k", "content": "newer"});
    let error = execute(&*yard.tool, &call(1), &input).await.unwrap_err();
    assert_eq!((error.body.code.as_str(), error.sent, error.body.retryable), ("VALIDATION_FAILED", Sent::No, false));
    assert_eq!(yard.stored("k").await.unwrap(), "older");

    input["overwrite"] = json!(true);
    let output = execute(&*yard.tool, &call(1), &input).await.unwrap();
    assert_eq!(yard.stored("k").await.unwrap(), "newer");
    let kept = output["replaced"].as_str().unwrap().parse().unwrap();
    assert_eq!(all(yard.blobs.get(kept).await.unwrap()).await.unwrap(), b"older");
    // A retry of the same effect still knows what the first attempt replaced.
    assert_eq!(execute(&*yard.tool, &call(1), &input).await.unwrap(), output);
    for _ in 0..2 {
        let undone = yard.tool.rollback(&call(9), &done(&input, &output)).await.unwrap();
        assert_eq!((&undone["undone"], &undone["restored"]), (&json!(true), &output["replaced"]));
        let back = yard.buckets.get(BUCKET, "k", 100).await.unwrap().unwrap();
        assert_eq!((&back.content[..], back.content_type.as_str()), (&b"older"[..], "text/x-other"));
    }

    let output = execute(&*yard.tool, &call(2), &input).await.unwrap();
    yard.leave("k", "changed since").await;
    let error = yard.tool.rollback(&call(9), &done(&input, &output)).await.unwrap_err();
    assert_eq!((error.body.code.as_str(), error.sent), ("INVALID_TRANSITION", Sent::No));
    assert_eq!(yard.stored("k").await.unwrap(), "changed since");
}

#[tokio::test]
async fn the_same_object_from_elsewhere_is_accepted_and_not_removed() {
    let yard = Yard::new();
    yard.leave("k", "same").await;
    let input = json!({"bucket": BUCKET, "key": "k", "content": "same", "content_type": "text/x-other"});
    let output = execute(&*yard.tool, &call(1), &input).await.unwrap();
    assert_eq!(output["created"], false);
    let undone = yard.tool.rollback(&call(9), &done(&input, &output)).await.unwrap();
    assert_eq!(undone["undone"], false);
    assert_eq!(yard.stored("k").await.unwrap(), "same");
}

#[tokio::test]
async fn a_check_tells_whether_the_upload_happened() {
    let yard = Yard::new();
    let input = json!({"bucket": BUCKET, "key": "k", "content": "x"});
    assert_eq!(yard.tool.check(&call(1), &input).await.unwrap(), CheckResult::DidNotHappen);
    let output = execute(&*yard.tool, &call(1), &input).await.unwrap();
    assert_eq!(yard.tool.check(&call(1), &input).await.unwrap(), CheckResult::Happened(output));
    assert_eq!(yard.tool.check(&call(2), &input).await.unwrap(), CheckResult::Unknown, "it is another effect's");
    yard.leave("k", "changed since").await;
    assert_eq!(yard.tool.check(&call(1), &input).await.unwrap(), CheckResult::Unknown);
}

#[tokio::test]
async fn a_lost_server_is_a_failure_that_can_be_tried_again() {
    let mut yard = Yard::new();
    yard.server.stop();
    let input = json!({"bucket": BUCKET, "key": "k", "content": "x"});
    let error = execute(&*yard.tool, &call(1), &input).await.unwrap_err();
    assert_eq!((error.body.code.as_str(), error.sent), ("EXTERNAL_SERVICE_UNAVAILABLE", Sent::No));
    assert!(error.body.retryable && !error.to_string().contains("127.0.0.1"), "{error}");
    yard.server.restart();
    assert!(execute(&*yard.tool, &call(1), &input).await.is_ok());
}

#[tokio::test]
async fn without_s3_a_folder_takes_uploads() {
    let home = TempDir::new().unwrap();
    let buckets = Arc::new(FolderBuckets::new(home.path().join("buckets")));
    let tool = s3_tool(apart(buckets), owned(&blobs(&home.path().join("blobs")))).unwrap();
    let input = json!({"bucket": "acme", "key_template": "uploads/1.txt", "content": "x"});
    let output = execute(&*tool, &call(1), &input).await.unwrap();
    assert_eq!(output["url"], "folder://acme/uploads/1.txt");
    let file = home.path().join("buckets/acme/uploads/1.txt");
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
    assert_eq!(tool.rollback(&call(9), &done(&input, &output)).await.unwrap()["undone"], true);
    assert!(!file.exists());
    let error = tool.rollback(&call(9), &done(&input, &output)).await.unwrap_err();
    assert_eq!(error.body.code, "INVALID_TRANSITION", "another node's folder may have it");
    let again = CallContext { attempt: 2, ..call(9) };
    assert_eq!(tool.rollback(&again, &done(&input, &output)).await.unwrap()["undone"], true);
}

#[tokio::test]
async fn an_answer_that_is_lost_on_the_way_does_not_make_a_stranger_of_our_own_object() {
    let yard = Yard::new();
    let server = yard.server.endpoint().trim_start_matches("http://").parse().unwrap();
    let relay = Proxy::start(server, b"PUT ").await.unwrap();
    let through = buckets(&format!("s3://{BUCKET}/blobs?endpoint=http://{}", relay.address()));
    let tool = s3_tool(apart(through), yard.owned.clone()).unwrap();
    let input = json!({"bucket": BUCKET, "key": "k", "content": "x"});
    relay.arm(Cut::AfterMarker);
    let output = match execute(&*tool, &call(1), &input).await {
        Ok(output) => output,
        Err(error) => {
            assert_eq!(error.sent, Sent::Maybe);
            execute(&*tool, &call(1), &input).await.unwrap()
        }
    };
    assert!(relay.is_spent());
    assert_eq!(output["created"], true);
    assert_eq!(yard.stored("k").await.unwrap(), "x");
    assert_eq!(tool.rollback(&call(9), &done(&input, &output)).await.unwrap()["undone"], true);
    assert_eq!(yard.stored("k").await, None);
}

#[tokio::test]
async fn objects_that_replace_each_other_come_back_one_by_one() {
    let yard = Yard::new();
    yard.leave("k", "0").await;
    let inputs: Vec<Value> =
        (1..=12).map(|n| json!({"bucket": BUCKET, "key": "k", "content": n.to_string(), "overwrite": true})).collect();
    let mut outputs = Vec::new();
    for (effect, input) in (1..).zip(&inputs) {
        outputs.push(execute(&*yard.tool, &call(effect), input).await.unwrap());
    }
    for (at, (input, output)) in inputs.iter().zip(&outputs).enumerate().rev() {
        assert_eq!(yard.tool.rollback(&call(99), &done(input, output)).await.unwrap()["undone"], true);
        assert_eq!(yard.stored("k").await.unwrap(), at.to_string());
    }
}

#[tokio::test]
async fn an_artifact_of_another_tenant_is_not_there() {
    let yard = Yard::new();
    let artifact = yard.owned.put(&call(1), "text/plain", incoming(b"ours")).await.unwrap().id.to_string();
    let absent = format!("cas://sha256:{}", "0".repeat(64));
    let refusal = async |address: &str| {
        let input = json!({"bucket": BUCKET, "key": "k", "artifact": address});
        let error = execute(&*yard.tool, &call_of("globex", 2), &input).await.unwrap_err();
        assert_eq!((error.body.code.as_str(), error.sent), ("NOT_FOUND", Sent::No));
        error.to_string().replace(address, "X")
    };
    assert_eq!(refusal(&artifact).await, refusal(&absent).await);
    let input = json!({"bucket": BUCKET, "key": "k", "artifact": artifact});
    assert!(execute(&*yard.tool, &call(3), &input).await.is_ok());
}

/// Another tenant asks for the same bucket and key: the first tenant's object is neither seen nor touched.
async fn kept_apart(yard: &Yard) {
    let put = |content: &str, overwrite: bool| json!({"bucket": BUCKET, "key": "k", "content": content, "overwrite": overwrite});
    let ours = put("ours", false);
    let first = execute(&*yard.tool, &call(1), &ours).await.unwrap();
    let neighbour = call_of("globex", 2);
    assert_eq!(yard.tool.check(&neighbour, &ours).await.unwrap(), CheckResult::DidNotHappen);
    let theirs = put("theirs", true);
    let output = execute(&*yard.tool, &neighbour, &theirs).await.unwrap();
    assert_eq!((&output["created"], &output["replaced"], &output["key"]), (&json!(true), &Value::Null, &json!("k")));
    assert_eq!(yard.stored("k").await.unwrap(), "ours");
    assert_eq!(yard.stored(".tenants/globex/k").await.unwrap(), "theirs");
    assert!(output["url"].as_str().unwrap().ends_with("/.tenants/globex/k"), "{output}");
    // The same content stored by somebody else proves nothing about ours.
    let same = execute(&*yard.tool, &call_of("globex", 3), &put("ours", true)).await.unwrap();
    assert_eq!((&same["created"], &same["replaced"].is_string()), (&json!(true), &true));
    // Even with our output, the other tenant rolls back nothing of ours.
    let refused = yard.tool.rollback(&call_of("globex", 9), &done(&ours, &first)).await.unwrap_err();
    assert_eq!(refused.body.code, "INVALID_TRANSITION");
    assert_eq!(yard.stored("k").await.unwrap(), "ours");
    assert_eq!(
        yard.tool.rollback(&call_of("globex", 9), &done(&put("ours", true), &same)).await.unwrap()["undone"],
        true
    );
    assert_eq!(yard.stored(".tenants/globex/k").await.unwrap(), "theirs");
    assert_eq!(yard.tool.rollback(&call(9), &done(&ours, &first)).await.unwrap()["undone"], true);
}

#[tokio::test]
async fn tenants_that_share_a_bucket_neither_see_nor_touch_each_others_objects() {
    let yard = Yard::new();
    kept_apart(&yard).await;
    // The first tenant's keys can't reach the others' objects, nor theirs its own.
    for (tenant, key) in [("acme", ".tenants/globex/k"), ("acme", ".Tenants/x"), ("globex", "../k"), ("globex", "")] {
        let place = (BUCKET, key);
        let object = Object { content: Bytes::new(), content_type: String::new(), mark: String::new() };
        let apart = apart(Arc::clone(&yard.buckets));
        assert!(matches!(apart.put(tenant, place, &object, true).await, Err(BucketError::Name(_))), "{tenant} {key}");
        assert!(matches!(apart.get(tenant, place, 10).await, Err(BucketError::Name(_))), "{tenant} {key}");
        assert!(matches!(apart.delete(tenant, place).await, Err(BucketError::Name(_))), "{tenant} {key}");
    }
}

#[tokio::test]
async fn a_bucket_that_is_not_shared_is_refused_like_one_that_is_not_there() {
    let home = TempDir::new().unwrap();
    let buckets = Arc::new(FolderBuckets::new(home.path().join("buckets")));
    let tool = s3_tool(apart(buckets), owned(&blobs(&home.path().join("blobs")))).unwrap();
    let input = |bucket: &str| json!({"bucket": bucket, "key": "k", "content": "x"});
    execute(&*tool, &call(1), &input("acme-files")).await.unwrap();
    let refusal = async |bucket: &str| {
        let error = execute(&*tool, &call_of("globex", 2), &input(bucket)).await.unwrap_err();
        assert_eq!((error.body.code.as_str(), error.sent), ("VALIDATION_FAILED", Sent::No));
        error.to_string()
    };
    assert_eq!(refusal("acme-files").await, refusal("nobodys-files").await);
    assert!(execute(&*tool, &call_of("globex", 3), &input("shared")).await.is_ok());
    assert_eq!(std::fs::read(home.path().join("buckets/shared/.tenants/globex/k")).unwrap(), b"x");
}
