//! `s3_upload`: puts an object into a bucket.
//!
//! The object carries a marker with the effect's id and, if it replaced an object, the artifact that holds the old
//! one. So a retry after a crash learns what the first attempt did, `check` can tell whose object it sees, and
//! rollback restores the old object or removes ours. An object that somebody else has put there since is left alone.
//!
//! Without `overwrite` nothing is ever replaced.

use super::artifact;
use super::input::read;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use chimera_core::error::Code;
use chimera_core::id::BlobId;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits::{OBJECT_KEY_BYTES_MAX, UPLOAD_BYTES_MAX};
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration};
use chimera_engine::flow::port::{BucketError, CallContext, CheckResult, CompletedCall, Object, Sent, Tool, ToolError};
use chimera_engine::flow::{TenantBlobs, TenantBuckets};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

const DEFAULT_TYPE: &str = "application/octet-stream";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

#[derive(Deserialize)]
struct S3UploadInput {
    bucket: String,
    key: Option<String>,
    key_template: Option<String>,
    content: Option<String>,
    content_base64: Option<String>,
    artifact: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    overwrite: bool,
    #[serde(default)]
    dry_run: bool,
}

/// The marker of an object: who put it there, and what it replaced.
///
/// Object metadata is limited to two kilobytes, so the marker of a replaced object is stored in an artifact: markers
/// don't grow with every replacement.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UploadMarker {
    effect: Uuid,
    replaced: Option<ReplacedObject>,
}

/// A replaced object: the artifacts that hold its content and its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReplacedObject {
    content: String,
    about: String,
}

/// The metadata of a replaced object.
#[derive(Serialize, Deserialize)]
struct ObjectMetadata {
    content_type: String,
    mark: String,
}

/// An upload that is ready to be sent.
struct Upload {
    tenant: String,
    bucket: String,
    key: String,
    url: String,
    content: Bytes,
    content_type: String,
    overwrite: bool,
}

impl Upload {
    fn place(&self) -> (&str, &str) {
        (&self.bucket, &self.key)
    }
}

struct S3Upload {
    spec: Arc<Spec>,
    buckets: TenantBuckets,
    blobs: TenantBlobs,
}

/// The tool, over these buckets; artifacts are read from, and replaced objects stored in, `blobs`.
pub fn s3_tool(buckets: TenantBuckets, blobs: TenantBlobs) -> Result<Arc<dyn Tool>, InvalidSchema> {
    Ok(Arc::new(S3Upload { spec: Arc::new(declare_tool().compile()?), buckets, blobs }))
}

fn declare_tool() -> ToolDeclaration {
    ToolDeclaration {
        name: "s3_upload",
        version: "1",
        description: "Puts a text, bytes or an artifact into a bucket.",
        metadata: Metadata {
            requires_approval: false,
            dry_run_supported: true,
            idempotent: true,
            capabilities: vec!["s3.upload".to_owned(), "external_api".to_owned()],
            risk_level: Risk::Medium,
        },
        effect: EffectKind::Write,
        reads_when: None,
        checkable: true,
        rollback: Rollback::Repeatable,
        timeout_ms: 60_000,
        input: json!({
            "type": "object",
            "properties": {
                "bucket": {"type": "string", "minLength": 3, "maxLength": 63},
                "key": {"type": "string", "minLength": 1, "maxLength": OBJECT_KEY_BYTES_MAX},
                "key_template": {
                    "type": "string", "minLength": 1, "maxLength": OBJECT_KEY_BYTES_MAX,
                    "description": "The key, under the name by which workflows give a text with ${…} in it."
                },
                "content": {"type": "string"},
                "content_base64": {"type": "string"},
                "artifact": {"type": "string", "pattern": BlobId::PATTERN},
                "content_type": {"type": "string", "maxLength": 200, "pattern": "^[!-~]+/[!-~][ -~]*$"},
                "overwrite": {"type": "boolean", "default": false}
            },
            "required": ["bucket"],
            "allOf": [
                {"oneOf": [{"required": ["key"]}, {"required": ["key_template"]}]},
                {"not": {"anyOf": [
                    {"required": ["content", "content_base64"]},
                    {"required": ["content", "artifact"]},
                    {"required": ["content_base64", "artifact"]}
                ]}}
            ],
            "additionalProperties": false
        }),
        output: json!({
            "type": "object",
            "properties": {
                "success": {"const": true},
                "url": {"type": "string"},
                "bucket": {"type": "string"},
                "key": {"type": "string"},
                "bytes": {"type": "integer"},
                "sha256": {"type": "string"},
                "upload_id": {"type": "string", "description": "The mark that the object carries."},
                "created": {"type": "boolean", "description": "False if the same object was there before."},
                "replaced": {
                    "type": ["string", "null"], "pattern": BlobId::PATTERN,
                    "description": "The artifact that holds the older object."
                }
            },
            "required": ["success", "url", "bucket", "key", "bytes", "sha256", "upload_id", "created", "replaced"],
            "additionalProperties": false
        }),
    }
}

#[async_trait]
impl Tool for S3Upload {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn host(&self, input: &Value) -> Option<String> {
        let bucket = input["bucket"].as_str()?;
        self.buckets.host(bucket)
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let input: S3UploadInput = read(input)?;
        let dry = input.dry_run;
        let upload = self.prepare(ctx, input).await?;
        if dry {
            let output = output(&upload, ctx.effect_id, true, None);
            let what = format!("put {} bytes into {} as {}", upload.content.len(), upload.bucket, upload.key);
            return Ok(Spec::dry_run_response(output, what));
        }
        let found = self.fetch_current(&upload).await.map_err(not_sent_error)?;
        if let Some(found) = &found {
            if let Some(origin) = own_marker(found, ctx) {
                return self.put(&upload, &origin, true).await;
            }
            if found.content == upload.content && found.content_type == upload.content_type {
                // Somebody else already stored exactly this: there is nothing to do or to roll back.
                return Ok(output(&upload, ctx.effect_id, false, None));
            }
            if !upload.overwrite {
                return Err(key_taken_error());
            }
        }
        let replaced = match found {
            Some(found) => Some(self.save_replaced(ctx, found).await?),
            None => None,
        };
        let origin = UploadMarker { effect: ctx.effect_id, replaced };
        self.put(&upload, &origin, origin.replaced.is_some()).await
    }

    async fn rollback(&self, ctx: &CallContext, done: &CompletedCall) -> Result<Value, ToolError> {
        let text = |name: &str| done.output[name].as_str().unwrap_or_default();
        let (bucket, key) = (text("bucket"), text("key"));
        let report = |undone: bool, restored: Option<&str>, why: &str| {
            Ok(json!({"undone": undone, "restored": restored, "reason": why, "bucket": bucket, "key": key}))
        };
        if done.output["created"] == json!(false) {
            return report(false, None, "the same object existed before and is kept");
        }
        let replaced = done.output["replaced"].as_str();
        let found = self.buckets.get(&ctx.tenant, (bucket, key), UPLOAD_BYTES_MAX).await;
        let found = found.map_err(not_sent_error)?;
        let stored = found.as_ref().map(|found| hex::encode(Sha256::digest(&found.content)));
        let before = replaced.map(|artifact| artifact.trim_start_matches("cas://sha256:"));
        let origin = found.as_ref().and_then(|found| UploadMarker::from_mark(&found.mark));
        let origin = origin.filter(|origin| origin.effect.to_string() == text("upload_id"));
        let Some(origin) = origin.filter(|_| stored.as_deref() == Some(text("sha256"))) else {
            if found.is_none() && ctx.attempt <= 1 && !self.buckets.is_shared() {
                // This node has not removed it, so its absence does not mean that it was rolled back.
                let why = "the object is not in this node's folder: it was removed, or it is on another node";
                return Err(ToolError::not_sent(Code::InvalidTransition, why).with("bucket", bucket).with("key", key));
            }
            if stored.as_deref() == before {
                return report(true, replaced, "it was already rolled back");
            }
            let why = "the object has been changed since by somebody else; it is left alone";
            return Err(ToolError::not_sent(Code::InvalidTransition, why).with("bucket", bucket).with("key", key));
        };
        match origin.replaced {
            Some(older) => {
                let object = self.load_replaced(ctx, &older).await?;
                self.buckets.put(&ctx.tenant, (bucket, key), &object, true).await.map_err(maybe_sent_error)?;
                report(true, Some(&older.content), "the previous object was restored")
            }
            None => {
                self.buckets.delete(&ctx.tenant, (bucket, key)).await.map_err(maybe_sent_error)?;
                report(true, None, "the object is removed")
            }
        }
    }

    async fn check(&self, ctx: &CallContext, input: &Value) -> Result<CheckResult, ToolError> {
        let upload = self.prepare(ctx, read(input)?).await?;
        let Some(found) = self.fetch_current(&upload).await.map_err(not_sent_error)? else {
            return Ok(CheckResult::DidNotHappen);
        };
        match own_marker(&found, ctx) {
            Some(origin) if found.content == upload.content => {
                Ok(CheckResult::Happened(output(&upload, origin.effect, true, origin.replaced.as_ref())))
            }
            // Ours may have been there and been replaced since.
            _ => Ok(CheckResult::Unknown),
        }
    }
}

impl S3Upload {
    /// The upload with its content loaded.
    async fn prepare(&self, ctx: &CallContext, input: S3UploadInput) -> Result<Upload, ToolError> {
        let key = input.key.or(input.key_template);
        let key = key.ok_or_else(|| ToolError::not_sent(Code::MalformedArgs, "key or key_template is required"))?;
        let is_text = input.content_base64.is_none() && input.artifact.is_none();
        let content = match (input.content_base64, input.artifact) {
            (Some(encoded), _) => STANDARD
                .decode(encoded)
                .map(Bytes::from)
                .map_err(|_| ToolError::not_sent(Code::MalformedArgs, "content_base64 is not base64"))?,
            (None, Some(address)) => artifact::fetch(&self.blobs, ctx, &address, UPLOAD_BYTES_MAX).await?,
            (None, None) => Bytes::from(input.content.unwrap_or_default()),
        };
        if content.len() > UPLOAD_BYTES_MAX {
            return Err(ToolError::not_sent(Code::PayloadTooLarge, "the content is too large for one upload")
                .with("bytes_max", UPLOAD_BYTES_MAX));
        }
        let default = if is_text { TEXT_TYPE } else { DEFAULT_TYPE };
        let content_type = input.content_type.unwrap_or_else(|| default.to_owned());
        let (tenant, bucket, overwrite) = (ctx.tenant.clone(), input.bucket, input.overwrite);
        let url = self.buckets.address(&tenant, (&bucket, &key)).map_err(not_sent_error)?;
        Ok(Upload { tenant, bucket, key, url, content, content_type, overwrite })
    }

    /// Stores an object that is about to be replaced.
    async fn save_replaced(&self, ctx: &CallContext, found: Object) -> Result<ReplacedObject, ToolError> {
        let kept = artifact::store(&self.blobs, ctx, &found.content_type, found.content).await?;
        let about = json!(ObjectMetadata { content_type: found.content_type, mark: found.mark }).to_string();
        let about = artifact::store(&self.blobs, ctx, "application/json", Bytes::from(about)).await?.id.to_string();
        let content = kept.id.to_string();
        Ok(ReplacedObject { content, about })
    }

    async fn load_replaced(&self, ctx: &CallContext, older: &ReplacedObject) -> Result<Object, ToolError> {
        let content = artifact::fetch(&self.blobs, ctx, &older.content, UPLOAD_BYTES_MAX).await?;
        let about = match artifact::fetch(&self.blobs, ctx, &older.about, UPLOAD_BYTES_MAX).await {
            // Stored by a version that kept no owner: the content is restored without its metadata.
            Err(error) if error.body.code == Code::NotFound.as_str() => {
                return Ok(Object { content, content_type: DEFAULT_TYPE.to_owned(), mark: String::new() });
            }
            about => about?,
        };
        let ObjectMetadata { content_type, mark } = serde_json::from_slice(&about).map_err(|_| {
            ToolError::not_sent(Code::Internal, "the saved metadata of the previous object can't be read")
        })?;
        Ok(Object { content, content_type, mark })
    }

    async fn fetch_current(&self, upload: &Upload) -> Result<Option<Object>, BucketError> {
        self.buckets.get(&upload.tenant, upload.place(), UPLOAD_BYTES_MAX).await
    }

    async fn put(&self, upload: &Upload, origin: &UploadMarker, replace: bool) -> Result<Value, ToolError> {
        let object = Object {
            content: upload.content.clone(),
            content_type: upload.content_type.clone(),
            mark: origin.to_mark(),
        };
        match self.buckets.put(&upload.tenant, upload.place(), &object, replace).await {
            // The first response may have been lost, so that the store sees its own write.
            Err(BucketError::Taken) if self.fetch_current(upload).await.map_err(maybe_sent_error)? != Some(object) => {
                return Err(key_taken_error());
            }
            Err(BucketError::Taken) => {}
            put => put.map_err(maybe_sent_error)?,
        }
        Ok(output(upload, origin.effect, true, origin.replaced.as_ref()))
    }
}

fn output(upload: &Upload, effect: Uuid, created: bool, replaced: Option<&ReplacedObject>) -> Value {
    json!({
        "success": true,
        "url": upload.url,
        "bucket": upload.bucket,
        "key": upload.key,
        "bytes": upload.content.len(),
        "sha256": hex::encode(Sha256::digest(&upload.content)),
        "upload_id": effect,
        "created": created,
        "replaced": replaced.map(|older| older.content.clone()),
    })
}

impl UploadMarker {
    /// Encoded for a header value.
    fn to_mark(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    fn from_mark(mark: &str) -> Option<Self> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(mark).ok()?).ok()
    }
}

/// The marker of an object, if this effect put it there.
fn own_marker(found: &Object, ctx: &CallContext) -> Option<UploadMarker> {
    UploadMarker::from_mark(&found.mark).filter(|origin| origin.effect == ctx.effect_id)
}

fn key_taken_error() -> ToolError {
    ToolError::not_sent(
        Code::ValidationFailed,
        "an object with this key already exists; set overwrite: true to replace it",
    )
}

fn not_sent_error(error: BucketError) -> ToolError {
    failed(error, Sent::No)
}

/// A store that did not answer may have applied the change.
fn maybe_sent_error(error: BucketError) -> ToolError {
    failed(error, Sent::Maybe)
}

fn failed(error: BucketError, unanswered: Sent) -> ToolError {
    let (code, sent) = match &error {
        BucketError::Name(_) => (Code::MalformedArgs, Sent::No),
        BucketError::Taken => (Code::ValidationFailed, Sent::No),
        BucketError::TooLarge { .. } => (Code::PayloadTooLarge, Sent::No),
        BucketError::Refused(_) => (Code::ValidationFailed, Sent::No),
        BucketError::Unavailable(_) => (Code::ExternalServiceUnavailable, unanswered),
    };
    ToolError { sent, ..ToolError::not_sent(code, error.to_string()) }
}
