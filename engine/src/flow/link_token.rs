//! The token of an approval link.
//!
//! A token is random and ends in a check of the mail address that it was sent to. So a link ends with its address, also
//! when the address changes while the message is being written: the row of the link does not exist yet then, and nobody
//! could end it.

use crate::error::EngineError;
use crate::port::Random;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chimera_core::access::normalize_mail_address;
use chimera_core::json::Digest32;

const SECRET_BYTES: usize = 32;

/// The check is no secret; it only has to differ between two addresses.
const CHECK_BYTES: usize = 8;

/// The length of a token with its check, and of one from before tokens had a check.
const TOKEN_CHARS: [usize; 2] = [54, 43];

/// A new token for a link that is mailed to this address.
pub(super) fn new_link_token(random: &dyn Random, address: &str) -> String {
    let mut secret = [0; SECRET_BYTES];
    random.fill(&mut secret);
    let check = address_check(&secret, &normalize_mail_address(address));
    URL_SAFE_NO_PAD.encode([&secret[..], &check].concat())
}

/// The digest that identifies a stored link.
pub(super) fn token_digest(token: &str) -> Digest32 {
    Digest32::of_bytes(token.as_bytes())
}

/// Refuses a text that can't be a token, so that it costs no read.
pub(super) fn check_token(token: &str) -> Result<(), EngineError> {
    let plausible = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if TOKEN_CHARS.contains(&token.len()) && token.bytes().all(plausible) {
        return Ok(());
    }
    Err(EngineError::not_found("link"))
}

/// Whether a token was mailed to this normalized address. One without a check is only ended by its row.
pub(super) fn was_mailed_to(token: &str, address: Option<&str>) -> bool {
    let bytes = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    match bytes.split_at_checked(SECRET_BYTES) {
        Some((_, [])) => true,
        Some((secret, check)) => address.is_some_and(|address| check == address_check(secret, address)),
        None => false,
    }
}

fn address_check(secret: &[u8], address: &str) -> [u8; CHECK_BYTES] {
    let digest = Digest32::of_bytes(&[secret, address.as_bytes()].concat());
    std::array::from_fn(|at| digest.0[at])
}
