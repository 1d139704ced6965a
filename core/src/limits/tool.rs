//! Limits of the tools that runs call: HTTP, mail, objects, documents and declared tools.

use super::{JSON_DEPTH_MAX, OUTPUT_VALUES_MAX};
use std::time::Duration;

// HTTP

/// Bytes of a request body that a tool sends. A larger one fails with `PAYLOAD_TOO_LARGE` before it is sent.
pub const HTTP_REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a response body that a tool reads. `http.request` truncates the rest; other tools fail with
/// `EXTERNAL_SERVICE_ERROR`.
pub const HTTP_RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of all headers of a response. With more the call fails with `EXTERNAL_SERVICE_ERROR`.
pub const HTTP_RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Headers of a response. With more the call fails with `EXTERNAL_SERVICE_ERROR`.
pub const HTTP_RESPONSE_HEADERS_MAX: usize = 128;
/// Nesting of a JSON response, which leaves room for the record around it. With more the call fails with
/// `EXTERNAL_SERVICE_ERROR`.
pub const HTTP_RESPONSE_DEPTH_MAX: usize = JSON_DEPTH_MAX - 8;
/// Values of a JSON response, including lists and objects. With more the call fails with `EXTERNAL_SERVICE_ERROR`.
pub const HTTP_RESPONSE_VALUES_MAX: usize = OUTPUT_VALUES_MAX;
/// Bytes of a response that is processed on a request thread. A larger one is processed on a worker thread.
pub const HTTP_RESPONSE_INLINE_BYTES_MAX: usize = 16_384;
/// Large responses that are processed at a time. Others wait, each tenant in its turn.
pub const HTTP_RESPONSES_PROCESSED_MAX: usize = 2;
/// Redirects that one request follows. With more the call fails with `EXTERNAL_SERVICE_ERROR`.
pub const HTTP_REDIRECTS_MAX: usize = 5;
/// Time to open one connection, including DNS resolution. After it the call fails with `EXTERNAL_SERVICE_UNAVAILABLE`.
pub const HTTP_CONNECT_TIMEOUT_MS: u64 = 10_000;
/// Timeout of one call over HTTP, whatever its tool allows. After it the call fails with `REQUEST_TIMEOUT`.
pub const HTTP_CALL_TIMEOUT_MAX: Duration = Duration::from_secs(86_400);
/// Characters of a tool's name. A declared tool with a longer one is refused.
pub const TOOL_NAME_CHARS_MAX: usize = 128;
/// Timeout that a tool may declare. A declared tool with a longer one is refused.
pub const TOOL_TIMEOUT_MS_MAX: u64 = 3_600_000;

// Declared tools

/// Bytes of a file that declares tools, actors or rules. With a larger file the server does not start:
/// `CONFIG_INVALID`.
pub const DECLARED_FILE_BYTES_MAX: usize = 256 * 1024;
/// Tools that one file declares. With more the server does not start: `CONFIG_INVALID`.
pub const DECLARED_TOOLS_MAX: usize = 100;
/// Pages that one call of a declared tool reads. Further pages are not read.
pub const DECLARED_PAGES_MAX: usize = 50;
/// Time before its expiry from which on a vendor's access token is not used. A new token is fetched.
pub const DECLARED_TOKEN_REFRESH_SECONDS: i64 = 60;
/// Files that declare tools, those of all tenants together. Further ones are not read, and are reported as broken.
pub const DECLARED_FILES_MAX: usize = 500;
/// Time between two looks at the files that declare tools. A changed file is in use that much later at most, unless a
/// reload is requested.
pub const TOOLS_RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// Definitions of declared tools that are kept in memory although new runs do not use them. The one that was not used
/// for the longest time is dropped; a run that needs it reads it from the store.
pub const TOOL_DEFINITIONS_KEPT_MAX: usize = 200;
/// Tries to record a change of a declared tool while other nodes record theirs. Then it is recorded at the next reload.
pub const TOOL_RECORD_TRIES_MAX: usize = 5;
/// Lines that one tool call writes to the log. Further ones are dropped, and a last line says how many.
pub const CALL_LOG_LINES_MAX: usize = 200;
/// Bytes of all lines that one tool call writes to the log. Further lines are dropped, and a last line says how many.
pub const CALL_LOG_BYTES_MAX: usize = 32 * 1024;
/// Clock skew allowed when searching a vendor for a call that may have happened. A call with a timestamp further off is
/// not found.
pub const DECLARED_CLOCK_SKEW_SECONDS: i64 = 300;

// Mail and Slack

/// Recipients of one mail. A mail with more is refused with `MALFORMED_ARGS`.
pub const MAIL_RECIPIENTS_MAX: usize = 100;
/// Characters of a mail's subject. A longer one is refused with `MALFORMED_ARGS`.
pub const MAIL_SUBJECT_CHARS_MAX: usize = 500;
/// Bytes of a mail's text, and of its HTML. A longer one is refused with `PAYLOAD_TOO_LARGE`.
pub const MAIL_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Time to connect to the mail server, within the timeout of the call. After it the call fails and may be retried.
pub const MAIL_CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to close the session with the mail server after a mail was accepted. After it the connection is dropped; the
/// mail is delivered.
pub const MAIL_QUIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Characters of a Slack message. A longer one is refused with `VALIDATION_FAILED`, because Slack would truncate it.
pub const SLACK_TEXT_CHARS_MAX: usize = 40_000;

// Objects

/// Bytes of one object that a tool uploads. A larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const UPLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a segment of an object's key in a local folder: the name of a file. A longer one is refused with
/// `MALFORMED_ARGS`.
pub const FILE_NAME_BYTES_MAX: usize = 255;
/// Bytes of an object's key. A longer one is refused with `VALIDATION_FAILED`.
pub const OBJECT_KEY_BYTES_MAX: usize = 1_024;
/// Buckets with cached connections. With one more all are closed and reopened on demand.
pub const BUCKETS_OPEN_MAX: usize = 64;

// Summaries

/// Calls of local tools that compute at a time, such as those that make a PDF or a summary. Others wait, each tenant in
/// its turn.
pub const LOCAL_TOOLS_AT_ONCE_MAX: usize = 2;
/// Bytes of a text that is summarised. A longer one is refused with `PAYLOAD_TOO_LARGE`.
pub const SUMMARY_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Sentences of a summary. A larger number is refused with `VALIDATION_FAILED`.
pub const SUMMARY_SENTENCES_MAX: usize = 50;
/// Default number of sentences of a summary. The summary ends after them.
pub const SUMMARY_SENTENCES_DEFAULT: usize = 3;

// PDF documents

/// Bytes of a Markdown document that becomes a PDF, with the images in it; each takes about 250 bytes of memory. A
/// larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const MARKDOWN_BYTES_MAX: usize = 512 * 1024;
/// Nesting of lists and quotes in a Markdown document. A deeper one is refused with `PAYLOAD_TOO_LARGE`.
pub const MARKDOWN_DEPTH_MAX: usize = 32;
/// Pages of one PDF. A document with more is refused with `PAYLOAD_TOO_LARGE`.
pub const PDF_PAGES_MAX: usize = 1_000;
/// Images of one PDF. A document with more is refused with `PAYLOAD_TOO_LARGE`.
pub const PDF_IMAGES_MAX: usize = 200;
/// Bytes of all images of one PDF. A document with more is refused with `PAYLOAD_TOO_LARGE`.
pub const PDF_IMAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pixels of all images of one PDF, because a small file can decompress into a large image. A document with more is
/// refused with `VALIDATION_FAILED`.
pub const PDF_IMAGE_PIXELS_MAX: u64 = 50_000_000;
/// Cells of all tables of one PDF. A document with more is refused with `PAYLOAD_TOO_LARGE`.
pub const PDF_TABLE_CELLS_MAX: usize = 100_000;
/// Characters without a glyph in the fonts that an output lists. Further ones are omitted.
pub const PDF_MISSING_SHOWN_MAX: usize = 20;
