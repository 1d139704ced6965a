//! Secret names, and the values they resolve to.
//!
//! A configuration or a tool holds `secret://smtp`; the value exists only where it is used. A `Secret` cannot be
//! printed, serialized or accidentally compared, and its memory is zeroed on drop.

use crate::limits::SECRET_NAME_CHARS_MAX;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

const SCHEME: &str = "secret://";

/// The name of a secret: a lower-case letter, then lower-case letters, digits, `-`, `_`, `.`.
///
/// It cannot contain `/` or `..`, so it is safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a secret's name; expected secret:// and at most {SECRET_NAME_CHARS_MAX} of a-z, 0-9, '-', '_', '.', \
     beginning with a letter and without '..'"
)]
pub struct InvalidSecretName;

impl SecretName {
    /// Parses a bare name, without the scheme.
    pub fn new(name: &str) -> Result<Self, InvalidSecretName> {
        let begins_well = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        let spelled_well =
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'));
        let fits = name.len() <= SECRET_NAME_CHARS_MAX && !name.contains("..");
        if begins_well && spelled_well && fits { Ok(Self(name.to_owned())) } else { Err(InvalidSecretName) }
    }

    /// The bare name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = InvalidSecretName;

    fn from_str(text: &str) -> Result<Self, InvalidSecretName> {
        Self::new(text.strip_prefix(SCHEME).ok_or(InvalidSecretName)?)
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

/// The value of a secret. `Debug` and `Display` print `[redacted]`.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The value as text, if it is UTF-8.
    #[must_use]
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::redact::REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::redact::REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_as_it_is_written() {
        let name: SecretName = "secret://smtp.relay-2_eu".parse().unwrap();
        assert_eq!(name.as_str(), "smtp.relay-2_eu");
        assert_eq!(name.to_string(), "secret://smtp.relay-2_eu");
    }

    #[test]
    fn a_name_can_not_leave_its_folder() {
        for text in [
            "secret://",
            "secret://../etc/passwd",
            "secret://a/b",
            "secret://a\\b",
            "secret://a..b",
            "secret://.hidden",
            "secret://1st",
            "secret://Upper",
            "secret://sp ace",
            "secret://nul\0",
            "secret://é",
            "smtp",
            "SECRET://smtp",
        ] {
            assert_eq!(text.parse::<SecretName>(), Err(InvalidSecretName), "{text}");
        }
        let long = "a".repeat(SECRET_NAME_CHARS_MAX);
        assert!(SecretName::new(&long).is_ok());
        assert_eq!(SecretName::new(&format!("{long}a")), Err(InvalidSecretName));
    }

    #[test]
    fn a_value_never_prints_itself() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "[redacted] [redacted] Some([redacted])");
        assert_eq!((secret.expose(), secret.expose_text()), (&b"hunter2"[..], Some("hunter2")));
        assert_eq!(Secret::new([0xff]).expose_text(), None);
    }
}
