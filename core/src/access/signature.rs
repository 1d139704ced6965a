//! HTTP Message Signatures (RFC 9421) with an actor's key: its HMAC key or one of its signing keys (Ed25519).
//!
//! The `keyid` says which: the actor's name, or the id of a signing key. The key determines the algorithm.
//!
//! A signature covers at least the method, the path, the query and, if there is a body, its digest (`Content-Digest`,
//! RFC 9530), so that a signed decision about one run cannot be used for another. Clients may cover more components,
//! in any order and under any label.

use super::mac;
pub use super::request_signer::{ExpectedSigner, NamedKey, UnusableKey};
pub use super::signing::Signed;
use crate::limits::{NONCE_CHARS_MAX, SIGNATURE_COMPONENTS_MAX, SIGNATURES_PARSED_MAX, SIGNATURES_TRIED_MAX};
use crate::secret::Secret;
use crate::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::cell::OnceCell;
use core::fmt::Write as _;
use sfv::{BareItem, Dictionary, InnerList, Item, ListEntry, ListSerializer, Parser};
use sha2::{Digest as _, Sha256};

/// The algorithm of an actor's HMAC key.
pub const HMAC_SHA256: &str = "hmac-sha256";

/// The algorithm of signing keys.
pub const ED25519: &str = "ed25519";

/// Components that every signature must cover.
pub const REQUIRED: [&str; 3] = ["@method", "@path", "@query"];

/// Component that the signature of a request with a body must cover as well.
pub const CONTENT_DIGEST: &str = "content-digest";

/// The parts of a request that a signature can cover.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// As received.
    pub method: &'a str,
    /// `http` or `https`, as clients see it.
    pub scheme: &'a str,
    /// Host and port of the request.
    pub authority: &'a str,
    /// As received, not decoded.
    pub path: &'a str,
    /// Path prefix that clients see and a proxy removes.
    pub prefix: &'a str,
    /// Without the `?`.
    pub query: Option<&'a str>,
    /// Header fields: names in lower case, values in order of arrival.
    pub fields: &'a [(String, String)],
    /// As received.
    pub body: &'a [u8],
}

const TOO_MANY: SignatureError =
    SignatureError::Malformed("signature-input", "it has too many signatures of the actor");

/// Why a request counts as unsigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("missing header {0}")]
    Missing(&'static str),
    /// A header is not a valid structured field.
    #[error("header {0} is not valid: {1}")]
    Malformed(&'static str, &'static str),
    #[error(transparent)]
    Key(#[from] UnusableKey),
    #[error("signature parameter {0} {1}")]
    Parameter(&'static str, &'static str),
    /// A required component is not covered.
    #[error("the signature does not cover {0:?}")]
    NotCovered(&'static str),
    /// A covered component is not supported.
    #[error("the signature covers the unsupported component {0}")]
    UnknownComponent(String),
    /// The digest does not match the body.
    #[error("header content-digest does not match the SHA-256 of the {0}-byte body")]
    DigestMismatch(usize),
    /// The signature was made with another key, or over different content.
    #[error("the signature does not match the request")]
    Mismatch,
}

impl SignatureError {
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => "missing",
            Self::Malformed(..) => "unreadable",
            Self::Key(why) => why.reason(),
            Self::Parameter(..) => "parameter",
            Self::NotCovered(_) => "not_covered",
            Self::UnknownComponent(_) => "unknown_component",
            Self::DigestMismatch(_) => "content_digest",
            Self::Mismatch => "mismatch",
        }
    }
}

/// A parsed signature that is not verified yet.
#[derive(Clone, Debug)]
pub struct UnverifiedSignature {
    /// Unix seconds.
    pub created: i64,
    /// Unix seconds.
    pub expires: Option<i64>,
    /// Makes the signature single-use.
    pub nonce: String,
    pub key: NamedKey,
    /// What was signed, or why it can't be verified on this request: a covered field is missing, for instance.
    pub content: Result<SignedContent, SignatureError>,
}

/// What a signature is computed over, and the signature itself.
#[derive(Clone, Debug)]
pub struct SignedContent {
    /// The signature base, as this server sees it.
    pub base: String,
    /// The signature base as clients see it, before a proxy removes the path prefix.
    outer_base: Option<String>,
    signature: Vec<u8>,
}

impl UnverifiedSignature {
    /// Parses the signatures of `signer` on a request and checks everything that needs no key. Proxies and libraries may
    /// add their own, so those that are never valid are skipped; if none can be verified, the error of the first is
    /// returned. One that is only invalid on this request, because a field that it covers was removed on the way, is
    /// part of the result: it could be replayed with that field. A request with more than [`SIGNATURES_TRIED_MAX`] is
    /// refused: all are consumed, so none may be left unread.
    pub fn parse(parts: &RequestParts<'_>, signer: &ExpectedSigner<'_>) -> Result<Vec<Self>, SignatureError> {
        let inputs = parts.dictionary("signature-input")?;
        let signatures = parts.dictionary("signature")?;
        let labelled =
            inputs.iter().filter_map(|(label, entry)| Some((signatures.get(label), signer.covered_list(entry)?)));
        // Computed once for all signatures.
        let digest = OnceCell::new();
        let (mut found, mut first) = (Vec::new(), None);
        for (at, (signature, (key, list))) in labelled.enumerate() {
            match Self::parse_one(parts, signature, (key, list), &digest) {
                Ok(claimed) => {
                    first = first.or_else(|| claimed.content.as_ref().err().cloned());
                    found.push(claimed);
                }
                Err(why) => first = first.or(Some(why)),
            }
            if found.len() > SIGNATURES_TRIED_MAX || at >= SIGNATURES_PARSED_MAX {
                // A signature that is not tried would not be consumed, and could be replayed alone.
                return Err(TOO_MANY);
            }
        }
        if found.iter().any(|claimed| claimed.content.is_ok()) {
            return Ok(found);
        }
        Err(first.unwrap_or_else(|| UnusableKey::NoMatch(signer.actor.to_owned()).into()))
    }

    /// Checks that the headers carry a readable signature of `signer`, like [`Self::parse`], but without the body.
    pub fn check_head(parts: &RequestParts<'_>, signer: &ExpectedSigner<'_>) -> Result<(), SignatureError> {
        let inputs = parts.dictionary("signature-input")?;
        parts.dictionary("signature")?;
        match inputs.iter().any(|(_, entry)| signer.covered_list(entry).is_some()) {
            true => Ok(()),
            false => Err(UnusableKey::NoMatch(signer.actor.to_owned()).into()),
        }
    }

    /// Fails for a signature that is not valid on any request.
    fn parse_one(
        parts: &RequestParts<'_>,
        signature: Option<&ListEntry>,
        (key, list): (NamedKey, &InnerList),
        digest: &OnceCell<Result<(), SignatureError>>,
    ) -> Result<Self, SignatureError> {
        let (algorithm, other) = match key {
            NamedKey::Hmac => (HMAC_SHA256, "is not hmac-sha256"),
            NamedKey::Signing(_) => (ED25519, "is not ed25519"),
        };
        if list.params.contains_key("alg") && text(list, "alg") != Some(algorithm) {
            return Err(SignatureError::Parameter("alg", other));
        }
        let created = seconds(list, "created")?.ok_or(SignatureError::Parameter("created", "is missing"))?;
        let nonce = text(list, "nonce").ok_or(SignatureError::Parameter("nonce", "is missing"))?.to_owned();
        if !is_nonce(&nonce) {
            return Err(SignatureError::Parameter("nonce", "is empty or too long"));
        }
        let expires = seconds(list, "expires")?;
        let covered = covered(list)?;
        if let Some(missing) = REQUIRED.into_iter().find(|name| !covered.contains(name)) {
            return Err(SignatureError::NotCovered(missing));
        }
        let content = SignedContent::parse(parts, signature, list, &covered, digest);
        Ok(Self { created, expires, nonce, key, content })
    }

    /// Whether the key that it names made it, and is valid now. `hmac_keys` are the actor's.
    pub fn verify<'k>(
        &self,
        hmac_keys: impl IntoIterator<Item = &'k Secret> + Clone,
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        let SignedContent { base, outer_base, signature } = self.content.as_ref().map_err(Clone::clone)?;
        self.key.check_valid(now)?;
        let fits = |base: &String| match &self.key {
            NamedKey::Hmac => mac::verify_bytes(hmac_keys.clone(), base.as_bytes(), signature),
            NamedKey::Signing(key) => key.public.verify_strict(base.as_bytes(), signature),
        };
        let signed = fits(base) || outer_base.as_ref().is_some_and(fits);
        if signed { Ok(()) } else { Err(SignatureError::Mismatch) }
    }
}

impl SignedContent {
    fn parse(
        parts: &RequestParts<'_>,
        signature: Option<&ListEntry>,
        list: &InnerList,
        covered: &[&str],
        digest: &OnceCell<Result<(), SignatureError>>,
    ) -> Result<Self, SignatureError> {
        let unreadable = |why| SignatureError::Malformed("signature", why);
        let signature = signature.ok_or(unreadable("no signature for the label in signature-input"))?;
        let signature = bytes(signature).ok_or(unreadable("the signature is not a byte sequence"))?;
        if !covered.contains(&CONTENT_DIGEST) && !parts.body.is_empty() {
            return Err(SignatureError::NotCovered(CONTENT_DIGEST));
        }
        if covered.contains(&CONTENT_DIGEST) {
            digest.get_or_init(|| parts.check_digest()).clone()?;
        }
        let base = parts.base(covered, list)?;
        let whole = (!parts.prefix.is_empty()).then(|| format!("{}{}", parts.prefix, parts.path));
        let outer_base = whole.map(|path| RequestParts { path: &path, ..*parts }.base(covered, list)).transpose()?;
        Ok(Self { base, outer_base, signature })
    }
}

impl RequestParts<'_> {
    /// A field as one value: its trimmed lines, joined.
    fn field(&self, name: &str) -> Option<String> {
        let mut values = self.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.trim());
        let mut joined = values.next()?.to_owned();
        for value in values {
            joined.push_str(", ");
            joined.push_str(value);
        }
        Some(joined)
    }

    fn dictionary(&self, name: &'static str) -> Result<Dictionary, SignatureError> {
        let value = self.field(name).ok_or(SignatureError::Missing(name))?;
        Parser::new(&value).parse().map_err(|_| SignatureError::Malformed(name, "it is not a structured dictionary"))
    }

    fn check_digest(&self) -> Result<(), SignatureError> {
        let digests = self.dictionary(CONTENT_DIGEST)?;
        let digest = digests.get("sha-256").and_then(bytes);
        let digest = digest.ok_or(SignatureError::Malformed(CONTENT_DIGEST, "it has no sha-256 digest"))?;
        let same = digest == Sha256::digest(self.body).as_slice();
        if same { Ok(()) } else { Err(SignatureError::DigestMismatch(self.body.len())) }
    }

    /// The value of a component.
    fn component(&self, name: &str) -> Option<String> {
        let path = if self.path.is_empty() { "/" } else { self.path };
        let query = self.query.map(|query| format!("?{query}"));
        Some(match name {
            "@method" => self.method.to_owned(),
            "@scheme" => self.scheme.to_ascii_lowercase(),
            "@authority" => self.authority(),
            "@path" => path.to_owned(),
            "@query" => query.unwrap_or_else(|| "?".to_owned()),
            "@request-target" => format!("{path}{}", query.unwrap_or_default()),
            "@target-uri" => format!("{}://{}{path}{}", self.scheme, self.authority(), query.unwrap_or_default()),
            _ if name.starts_with('@') => return None,
            _ => self.field(name)?,
        })
    }

    /// The host in lower case, without the default port of its scheme.
    fn authority(&self) -> String {
        let usual = if self.scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
        self.authority.strip_suffix(usual).unwrap_or(self.authority).to_ascii_lowercase()
    }

    /// The signature base: one line per component, and one for the parameters.
    pub(super) fn base(&self, covered: &[&str], list: &InnerList) -> Result<String, SignatureError> {
        let mut base = String::new();
        for name in covered {
            let value = self.component(name).ok_or_else(|| SignatureError::UnknownComponent((*name).to_owned()))?;
            // Writing to a `String` cannot fail.
            let _ = writeln!(base, "\"{name}\": {value}");
        }
        let _ = write!(base, "\"@signature-params\": {}", serialize_list(list));
        Ok(base)
    }
}

/// Whether a text is a valid nonce.
#[must_use]
pub fn is_nonce(text: &str) -> bool {
    (1..=NONCE_CHARS_MAX).contains(&text.chars().count()) && !text.contains('\0')
}

/// The value of `Content-Digest` for a body.
#[must_use]
pub fn content_digest(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)))
}

/// The covered components in order. Duplicates and component parameters are rejected: no supported component has
/// parameters, and one that silently changes a value would be a vulnerability.
fn covered(list: &InnerList) -> Result<Vec<&str>, SignatureError> {
    let unreadable = |why| SignatureError::Malformed("signature-input", why);
    if list.items.len() > SIGNATURE_COMPONENTS_MAX {
        return Err(unreadable("it covers too many components"));
    }
    let mut names: Vec<&str> = Vec::with_capacity(list.items.len());
    for item in &list.items {
        let BareItem::String(name) = &item.bare_item else { return Err(unreadable("a component is not a string")) };
        if !item.params.is_empty() {
            return Err(SignatureError::UnknownComponent(format!("{name} with parameters")));
        }
        if names.contains(&name.as_str()) {
            return Err(unreadable("duplicate component"));
        }
        names.push(name.as_str());
    }
    Ok(names)
}

pub(super) fn text<'a>(list: &'a InnerList, name: &str) -> Option<&'a str> {
    match list.params.get(name)? {
        BareItem::String(text) => Some(text.as_str()),
        _ => None,
    }
}

fn seconds(list: &InnerList, name: &'static str) -> Result<Option<i64>, SignatureError> {
    match list.params.get(name) {
        None => Ok(None),
        Some(BareItem::Integer(seconds)) => Ok(Some(i64::from(*seconds))),
        Some(_) => Err(SignatureError::Parameter(name, "is not an integer in Unix seconds")),
    }
}

fn bytes(entry: &ListEntry) -> Option<Vec<u8>> {
    match entry {
        ListEntry::Item(Item { bare_item: BareItem::ByteSequence(bytes), .. }) => Some(bytes.clone()),
        _ => None,
    }
}

/// Serializes a list with its parameters as a structured field.
pub(super) fn serialize_list(list: &InnerList) -> String {
    let mut text = ListSerializer::new();
    let mut inner = text.inner_list();
    inner.items(&list.items);
    inner.finish().parameters(&list.params);
    text.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"decision":"approve"}"#;

    fn parts<'a>(fields: &'a [(String, String)], body: &'a [u8]) -> RequestParts<'a> {
        let (scheme, authority, path) = ("http", "127.0.0.1:8080", "/runs/7/approve");
        RequestParts { method: "POST", scheme, authority, path, prefix: "", query: None, fields, body }
    }

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn actor(actor: &str) -> ExpectedSigner<'_> {
        ExpectedSigner { actor, signing_keys: &[] }
    }

    fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn signed(body: &[u8]) -> Signed {
        Signed::new(&parts(&[], body), "user_ann", &Secret::new("key"), 1_700_000_000, "n1").unwrap()
    }

    fn read(signed: &Signed, change: impl FnOnce(&mut RequestParts<'_>), body: &[u8]) -> Result<(), SignatureError> {
        let mut fields = vec![("signature-input", signed.input.as_str()), ("signature", signed.signature.as_str())];
        fields.extend(signed.content_digest.as_deref().map(|digest| ("content-digest", digest)));
        let fields = owned(&fields);
        let mut parts = parts(&fields, body);
        change(&mut parts);
        UnverifiedSignature::parse(&parts, &actor("user_ann"))?[0].verify([&Secret::new("key")], NOW)
    }

    /// RFC 9421, B.2.5
    #[test]
    fn the_standards_own_example_gives_the_standards_signature() {
        let fields = [("date", "Tue, 20 Apr 2021 02:07:55 GMT"), ("content-type", "application/json")];
        let fields = owned(&fields);
        let parts = RequestParts { scheme: "https", authority: "Example.com:443", ..parts(&fields, b"") };
        let input = r#"sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#;
        let inputs: Dictionary = Parser::new(input).parse().unwrap();
        let Some(ListEntry::InnerList(list)) = inputs.get("sig-b25") else { panic!("a list") };
        let base = parts.base(&covered(list).unwrap(), list).unwrap();
        assert_eq!(
            base,
            "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@authority\": example.com\n\"content-type\": application/json\n\
             \"@signature-params\": (\"date\" \"@authority\" \"content-type\");created=1618884473;keyid=\"test-shared-secret\""
        );
        let key = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==";
        let key = STANDARD.decode(key).unwrap();
        let mac = mac::bytes(&Secret::new(key), base.as_bytes());
        assert_eq!(STANDARD.encode(mac), "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=");
    }

    #[test]
    fn a_signed_request_is_taken_and_any_other_is_not() {
        for body in [BODY, b""] {
            let signed = signed(body);
            assert_eq!(read(&signed, |_| {}, body), Ok(()));
            assert_eq!(read(&signed, |parts| parts.method = "PUT", body), Err(SignatureError::Mismatch));
            assert_eq!(read(&signed, |parts| parts.path = "/runs/8/approve", body), Err(SignatureError::Mismatch));
            assert_eq!(read(&signed, |parts| parts.query = Some("x=1"), body), Err(SignatureError::Mismatch));
            assert_eq!(read(&signed, |parts| parts.authority = "other:1", body), Ok(()), "a proxy may change it");
            let behind = |parts: &mut RequestParts<'_>| (parts.prefix, parts.path) = ("/runs", "/7/approve");
            assert_eq!(read(&signed, behind, body), Ok(()), "a proxy may take the front of the path away");
            assert_eq!(read(&signed, |parts| parts.prefix = "/chimera", body), Ok(()), "or the caller may know of it");
        }
        assert_eq!(read(&signed(BODY), |_| {}, b"{}"), Err(SignatureError::DigestMismatch(2)));
        assert_eq!(read(&signed(BODY), |_| {}, b""), Err(SignatureError::DigestMismatch(0)));
        assert_eq!(read(&signed(b""), |_| {}, BODY), Err(SignatureError::NotCovered("content-digest")));
    }

    #[test]
    fn labels_order_and_further_components_are_the_callers_choice() {
        let fields = [("host", "a.example"), ("x-order", " 1 "), ("x-order", "2")];
        let fields = owned(&fields);
        let mut parts = parts(&fields, b"");
        let covered = ["x-order", "@query", "@target-uri", "@path", "@authority", "@method"];
        let names = covered.map(|name| format!("\"{name}\"")).join(" ");
        let input = format!(r#"({names});keyid="user_ann";nonce="n";created=7"#);
        let header = format!(r#"other=("@method");keyid="x", mine={input}"#);
        let inputs: Dictionary = Parser::new(&header).parse().unwrap();
        let Some(ListEntry::InnerList(list)) = inputs.get("mine") else { panic!("a list") };
        let base = parts.base(&covered, list).unwrap();
        assert!(
            base.starts_with(
                "\"x-order\": 1, 2\n\"@query\": ?\n\"@target-uri\": http://127.0.0.1:8080/runs/7/approve\n"
            )
        );
        let signature = format!("mine=:{}:", STANDARD.encode(mac::bytes(&Secret::new("key"), base.as_bytes())));
        let mut all = fields.clone();
        all.extend(owned(&[("signature-input", header.as_str()), ("signature", signature.as_str())]));
        parts.fields = &all;
        let claimed = UnverifiedSignature::parse(&parts, &actor("user_ann")).unwrap().remove(0);
        assert_eq!((claimed.created, claimed.expires, claimed.nonce.as_str()), (7, None, "n"));
        assert_eq!(claimed.verify([&Secret::new("other"), &Secret::new("key")], NOW), Ok(()));
        assert_eq!(claimed.verify([], NOW), Err(SignatureError::Mismatch));
        assert_eq!(
            UnverifiedSignature::parse(&parts, &actor("user_bob")).unwrap_err(),
            UnusableKey::NoMatch("user_bob".to_owned()).into()
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let all = r#"("@method" "@path" "@query")"#;
        let cases = [
            ("", UnusableKey::NoMatch("a".to_owned()).into()),
            ("(", SignatureError::Malformed("signature-input", "it is not a structured dictionary")),
            (r#"s=("@method" "@path");keyid="a";created=1;nonce="n""#, SignatureError::NotCovered("@query")),
            (&format!(r#"s={all};keyid="a";nonce="n""#), SignatureError::Parameter("created", "is missing")),
            (
                &format!(r#"s={all};keyid="a";created="x";nonce="n""#),
                SignatureError::Parameter("created", "is not an integer in Unix seconds"),
            ),
            (&format!(r#"s={all};keyid="a";created=1"#), SignatureError::Parameter("nonce", "is missing")),
            (
                &format!(r#"s={all};keyid="a";created=1;nonce="n";alg="none""#),
                SignatureError::Parameter("alg", "is not hmac-sha256"),
            ),
            (
                r#"s=("@method" "@path" "@query" "@method");keyid="a";created=1;nonce="n""#,
                SignatureError::Malformed("signature-input", "duplicate component"),
            ),
            (
                r#"s=("@method" "@path" "@query" "@status");keyid="a";created=1;nonce="n""#,
                SignatureError::UnknownComponent("@status".to_owned()),
            ),
            (
                r#"s=("@method" "@path";req "@query");keyid="a";created=1;nonce="n""#,
                SignatureError::UnknownComponent("@path with parameters".to_owned()),
            ),
            (
                r#"s=("@method" "@path" "@query" "x-no");keyid="a";created=1;nonce="n""#,
                SignatureError::UnknownComponent("x-no".to_owned()),
            ),
            (r#"s=("@METHOD" "@path" "@query");keyid="a";created=1;nonce="n""#, SignatureError::NotCovered("@method")),
            (
                r#"s=("@method" "@path" "@query" "signature";sf);keyid="a";created=1;nonce="n""#,
                SignatureError::UnknownComponent("signature with parameters".to_owned()),
            ),
            (
                r#"s=("@method" "@path" "@query" "signature";bs);keyid="a";created=1;nonce="n""#,
                SignatureError::UnknownComponent("signature with parameters".to_owned()),
            ),
            (
                &format!(r#"s={all};keyid="a";created=1.5;nonce="n""#),
                SignatureError::Parameter("created", "is not an integer in Unix seconds"),
            ),
            (
                &format!(r#"s={all};keyid="a";created=1;expires=9.0;nonce="n""#),
                SignatureError::Parameter("expires", "is not an integer in Unix seconds"),
            ),
            // If a label occurs twice, the last one counts, as the standard says.
            (
                &format!(r#"s={all};keyid="a";created=1;nonce="n", s=();keyid="b""#),
                UnusableKey::NoMatch("a".to_owned()).into(),
            ),
            (
                &format!(r#"t={all};keyid="a";created=1;nonce="n""#),
                SignatureError::Malformed("signature", "no signature for the label in signature-input"),
            ),
            (
                r#"s=("@method" "@path" "@query" "content-digest");keyid="a";created=1;nonce="n""#,
                SignatureError::Missing(CONTENT_DIGEST),
            ),
        ];
        for (input, wrong) in cases {
            let fields = owned(&[("signature-input", input), ("signature", "s=:AAAA:")]);
            assert_eq!(UnverifiedSignature::parse(&parts(&fields, b""), &actor("a")).unwrap_err(), wrong, "{input}");
        }
        assert_eq!(
            UnverifiedSignature::parse(&parts(&[], b""), &actor("a")).unwrap_err(),
            SignatureError::Missing("signature-input")
        );
    }

    #[test]
    fn of_several_signatures_of_an_actor_those_count_that_can_and_many_are_refused() {
        let whole = r#"("@method" "@path" "@query");keyid="a";created=1"#;
        let input =
            format!(r#"bare=("@method");keyid="a";created=1;nonce="0", other={whole};nonce="1", s={whole};nonce="2""#);
        let read = |input: &str, macs: &str| {
            let fields = owned(&[("signature-input", input), ("signature", macs)]);
            let read = UnverifiedSignature::parse(&parts(&fields, b""), &actor("a"));
            read.map(|all| all.into_iter().map(|claimed| claimed.nonce).collect::<Vec<_>>())
        };
        let macs = "bare=:AAAA:, other=:AAAA:, s=:AAAA:";
        assert_eq!(read(&input, macs), Ok(vec!["1".to_owned(), "2".to_owned()]));
        assert_eq!(
            read(&input, "bare=:AAAA:, s=:AAAA:"),
            Ok(vec!["1".to_owned(), "2".to_owned()]),
            "it may come later"
        );
        assert_eq!(read(&input, "bare=:AAAA:"), Err(SignatureError::NotCovered("@path")), "the first says why");
        let numbered =
            |count: usize, each: &dyn Fn(usize) -> String| (0..count).map(each).collect::<Vec<_>>().join(", ");
        let several = |count: usize, more: &str| {
            let inputs = numbered(count, &|at| format!(r#"s{at}={whole};nonce="{at}{more}""#));
            read(&inputs, &numbered(count, &|at| format!("s{at}=:AAAA:")))
        };
        assert_eq!(several(SIGNATURES_TRIED_MAX, "").unwrap().len(), SIGNATURES_TRIED_MAX);
        assert_eq!(several(SIGNATURES_TRIED_MAX + 1, ""), Err(TOO_MANY));
        let long = "n".repeat(NONCE_CHARS_MAX);
        let unusable = SignatureError::Parameter("nonce", "is empty or too long");
        assert_eq!(several(SIGNATURES_TRIED_MAX + 1, &long), Err(unusable), "such don't count");
        assert_eq!(several(500, &long), Err(TOO_MANY), "but cost something");
    }

    #[test]
    fn the_body_is_covered_by_its_sha_256_whatever_else_the_header_has() {
        let input = r#"s=("@method" "@path" "@query" "content-digest");keyid="a";created=1;nonce="n""#;
        let read = |digest: &str, body: &[u8]| {
            let fields = owned(&[("signature-input", input), ("signature", "s=:AAAA:"), ("content-digest", digest)]);
            UnverifiedSignature::parse(&parts(&fields, body), &actor("a")).map(drop)
        };
        let own = content_digest(BODY);
        assert_eq!(read(&own, BODY), Ok(()));
        assert_eq!(read(&format!("{own}, sha-512=:AAAA:"), BODY), Ok(()));
        assert_eq!(
            read("sha-512=:AAAA:", BODY),
            Err(SignatureError::Malformed(CONTENT_DIGEST, "it has no sha-256 digest"))
        );
        assert_eq!(read(&own, b"other"), Err(SignatureError::DigestMismatch(5)));
        assert_eq!(
            read(&format!("{own}, {}", content_digest(b"other")), BODY),
            Err(SignatureError::DigestMismatch(BODY.len()))
        );
        assert_eq!(read(&own, b""), Err(SignatureError::DigestMismatch(0)));
    }
}
