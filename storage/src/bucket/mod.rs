//! Buckets: in S3, or in a local folder for the embedded default.

mod folder;
mod s3;

pub use folder::FolderBuckets;
pub use s3::S3Buckets;

use chimera_core::limits::OBJECT_KEY_BYTES_MAX;
use chimera_engine::flow::port::BucketError;

/// Rejects names that a store would normalize, or that escape their folder.
fn check_names(bucket: &str, key: &str) -> Result<(), BucketError> {
    let refuse = |reason: &str| Err(BucketError::Name(reason.to_owned()));
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let spelled = bucket.bytes().all(|b| letter(b) || matches!(b, b'-' | b'.'));
    let begins = bucket.bytes().next().is_some_and(letter) && !bucket.contains("..");
    if !(3..=63).contains(&bucket.len()) || !spelled || !begins {
        return refuse("a bucket name must have 3 to 63 lower-case letters, digits, hyphens and dots");
    }
    if key.is_empty() || key.len() > OBJECT_KEY_BYTES_MAX {
        return refuse("a key has 1 to 1024 bytes");
    }
    if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return refuse("the segments of a key must not be empty, `.` or `..`");
    }
    if key.chars().any(|c| c.is_control() || c == '\\') {
        return refuse("a key must not contain control characters or backslashes");
    }
    Ok(())
}

/// A key, percent-encoded for a URL.
fn escaped(key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'/');
    key.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
