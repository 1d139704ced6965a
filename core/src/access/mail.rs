//! When two mail addresses are the same.
//!
//! People with the same address count as one person where several must decide, so spelling variants must not make
//! them two. How a mail server treats a local part is unknown: `ann+x@…` may reach someone other than `ann@…`, and is
//! a different address here.
//!
//! An address that is registered or named by a request must be plain: other spellings (quotes, comments, other
//! alphabets, several addresses) reach a mailbox by rules that differ between mail servers.

use crate::limits::MAIL_BYTES_MAX;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMail {
    #[error(
        "{0:?} is not a plain mail address: write one address like ann@example.com, without a name, quotes or spaces"
    )]
    NotPlain(String),
    #[error("{0:?} is not a plain mail address: write it in ASCII, with the domain in its xn-- form")]
    NotAscii(String),
    #[error("a mail address has at most {MAIL_BYTES_MAX} bytes")]
    TooLong,
}

/// Refuses a mail address that is not a plain ASCII `local@domain`.
pub fn check_mail(text: &str) -> Result<(), BadMail> {
    if text.len() > MAIL_BYTES_MAX {
        return Err(BadMail::TooLong);
    }
    if !text.is_ascii() {
        return Err(BadMail::NotAscii(text.to_owned()));
    }
    let not_plain = || BadMail::NotPlain(text.to_owned());
    let (local, domain) = text.split_once('@').ok_or_else(not_plain)?;
    let atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let is_local = local.split('.').all(|part| !part.is_empty() && part.bytes().all(atom));
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let edge = label.starts_with('-') || label.ends_with('-');
        !label.is_empty() && !edge && label.bytes().all(plain)
    };
    if is_local && domain.split('.').all(is_label) { Ok(()) } else { Err(not_plain()) }
}

/// Normalizes an address for comparison: no display name, comments, quotes or spaces, in lower case, without a trailing
/// dot.
#[must_use]
pub fn normalize_mail_address(written: &str) -> String {
    let address = match written.rsplit_once('<') {
        Some((_, address)) => address.split('>').next().unwrap_or_default(),
        None => written,
    };
    let (mut key, mut depth) = (String::new(), 0_usize);
    for sign in address.chars() {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '"' | '\\' => {}
            sign if depth > 0 || sign.is_whitespace() => {}
            sign => key.extend(sign.to_lowercase()),
        }
    }
    key.truncate(key.trim_end_matches('.').len());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_address_is_taken() {
        for plain in ["ann@acme.example", "Ann.B+x@ACME.example", "o'neil@xn--bcher-kva.example", "root@localhost"] {
            assert_eq!(check_mail(plain), Ok(()), "{plain}");
        }
        for strange in [
            "ann\u{200b}@acme.example",
            "ann@\u{ff41}cme.example",
            "ann@acme\u{3002}example",
            "jose\u{301}@acme.example",
            "ann@b\u{fc}cher.example",
        ] {
            assert_eq!(check_mail(strange), Err(BadMail::NotAscii(strange.to_owned())), "{strange}");
        }
        for strange in [
            "",
            "ann",
            "@acme.example",
            "ann@",
            "Ann <ann@acme.example>",
            "mailto:ann@acme.example",
            "ann@acme.example,bob@acme.example",
            "ann@acme.example;bob@acme.example",
            "ann@acme.example bob@acme.example",
            "\"ann\"@acme.example",
            "ann(home)@acme.example",
            "ann@[127.0.0.1]",
            "ann@acme.example.",
            "ann@-acme.example",
            "ann..b@acme.example",
            "ann@acme@example",
            " ann@acme.example",
            "ann@acme.example\r\nBcc: eve@evil.test",
        ] {
            assert_eq!(check_mail(strange), Err(BadMail::NotPlain(strange.to_owned())), "{strange}");
        }
        assert_eq!(check_mail(&format!("a@{}", "b.".repeat(200))), Err(BadMail::TooLong));
    }

    #[test]
    fn an_address_is_the_same_however_it_is_spelled() {
        for spelled in [
            "ann@acme.example",
            " Ann@ACME.example ",
            "Ann <ann@acme.example>",
            "\"Ann, B. (x)\" <ann@Acme.example>",
            "ann@acme.example.",
            "\"ann\"@acme.example",
            "ann(home)@acme.example",
        ] {
            assert_eq!(normalize_mail_address(spelled), "ann@acme.example", "{spelled}");
        }
        assert_ne!(
            normalize_mail_address("ann+x@acme.example"),
            normalize_mail_address("ann@acme.example"),
            "another address by its letter"
        );
        assert_ne!(normalize_mail_address("ann@acme.example"), normalize_mail_address("ann@sales.acme.example"));
    }
}
