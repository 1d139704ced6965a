//! When two mail addresses are one.
//!
//! Two people with one address count as one person where several must decide, so no other spelling may make them two. What
//! a mail server does with a local part is its own business: `ann+x@…` may reach somebody else than `ann@…`, and is another
//! address here.

/// An address as it is compared: without a name before it, comments, quotes and spaces, in lower case, and without the dot that
/// may end a domain.
#[must_use]
pub fn mail_key(written: &str) -> String {
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
            assert_eq!(mail_key(spelled), "ann@acme.example", "{spelled}");
        }
        assert_ne!(mail_key("ann+x@acme.example"), mail_key("ann@acme.example"), "another address by its letter");
        assert_ne!(mail_key("ann@acme.example"), mail_key("ann@sales.acme.example"));
    }
}
