//! What the flow room needs from outside: tools, blobs, buckets, and ways to notify people. The doc comments are
//! the contracts; one suite in `testkit` checks every implementation against them.

mod blobs;
mod buckets;
mod call_log;
mod notifier;
mod recipients;
mod tool;
mod tool_source;

pub use blobs::{
    Blob, BlobError, BlobStat, Blobs, DownloadStream, InvalidLink, PresentedLink, PresignedUrl, UploadStream,
};
pub use buckets::{BucketError, Buckets, Object};
pub use call_log::{CallLog, CallLogSink, LogLevel, LogLine, LoggedCall};
pub use notifier::{DeliveryReceipt, Message, Notifier};
pub use recipients::{Recipient, Recipients, StoredDecider};
pub use tool::{CallContext, CancelToken, CheckResult, CompletedCall, Sent, Tool, ToolError};
pub use tool_source::{DeclarationProblem, Declarations, DeclaredTool, ToolSource};
