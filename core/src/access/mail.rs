//! When two mail addresses are the same.
//!
//! People with the same address count as one person where several must decide, so spelling variants must not make
//! them two. How a mail server treats a local part is unknown: `ann+x@…` may reach someone other than `ann@…`, and is
//! a different address here.

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
        assert_ne!(normalize_mail_address("ann+x@acme.example"), normalize_mail_address("ann@acme.example"), "another address by its letter");
        assert_ne!(normalize_mail_address("ann@acme.example"), normalize_mail_address("ann@sales.acme.example"));
    }
}
