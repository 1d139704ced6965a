//! Reading an envelope: strict JSON, the published schema, then the meaning of its members.
//!
//! What is signed must mean the same to every reader, so duplicate members and numbers that some readers round are
//! refused. The schema is open: members that it does not name are kept and are part of what is signed. An envelope
//! that was read has the right shape; whose signature it has and how old it is are questions of their own
//! (`signature`, `freshness`).

use super::schemas;
use crate::access::scope::is_capability;
use crate::json::schema::{InvalidSchema, Schema, SchemaViolation};
use crate::json::{self, CanonicalJson, Digest32, ParseError, canonical};
use crate::ledger::idempotency::check_key;
use crate::limits::{
    ACTOR_CHARS_MAX, ACTOR_ROLES_MAX, ACTOR_SCOPES_MAX, ENVELOPE_BYTES_MAX, ENVELOPE_FINDINGS_MAX,
    ENVELOPE_KID_CHARS_MAX, ENVELOPE_NUMBER_MAX, ENVELOPE_TRACE_CHARS_MAX, ENVELOPE_TTL_SECONDS_MAX,
    INTENT_TYPE_CHARS_MAX,
};
use crate::time::Timestamp;
use serde_json::{Map, Value, json};

/// An envelope of the right shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    pub intent_type: String,
    pub args: CanonicalJson,
    pub user_id: String,
    /// The slug of the tenant.
    pub tenant: String,
    /// `None`: all roles that the actor has.
    pub roles: Option<Vec<String>>,
    pub ttl_micros: i64,
    pub idempotency_key: String,
    /// `None`: all capabilities that the actor has.
    pub capabilities: Option<Vec<String>>,
    pub trace_id: Option<String>,
    pub issued_at: Option<Timestamp>,
    /// The id of the key that signed it.
    pub kid: Option<String>,
    /// As sent.
    pub sig: String,
    signed: String,
    digest: Digest32,
}

/// Reads envelopes by the published schema.
#[derive(Debug)]
pub struct EnvelopeReader(Schema);

impl EnvelopeReader {
    pub fn new() -> Result<Self, InvalidSchema> {
        Ok(Self(schemas::compile(schemas::ENVELOPE)?))
    }

    /// The published schema.
    #[must_use]
    pub const fn schema(&self) -> &Value {
        self.0.document()
    }

    /// Reads an envelope. The first few findings are returned.
    pub fn read(&self, bytes: &[u8]) -> Result<Envelope, Vec<SchemaViolation>> {
        let value = parse(bytes)?;
        let mut found = Vec::new();
        find_unportable(&value, &mut String::new(), &mut found);
        if found.is_empty() {
            self.0.check(&value)?;
            check_members(&value, &mut found);
        }
        if !found.is_empty() {
            return Err(found);
        }
        Envelope::of_members(value).ok_or_else(|| vec![violation("", "the envelope can't be read".to_owned())])
    }
}

impl Envelope {
    /// The members of a document that was checked.
    fn of_members(mut value: Value) -> Option<Self> {
        let envelope = value.as_object_mut()?;
        let sig = take_text(envelope, "sig")?;
        let signed = canonical(&value);
        let digest = Digest32::of_bytes(signed.as_bytes());
        let envelope = value.as_object_mut()?;
        let (trace_id, kid) = (take_text(envelope, "trace_id"), take_text(envelope, "kid"));
        let issued_at = take_text(envelope, "issued_at").and_then(|text| text.parse().ok());
        let intent = envelope.get_mut("intent")?.as_object_mut()?;
        let (intent_type, args) = (take_text(intent, "type")?, intent.remove("args")?);
        let actor = envelope.get_mut("actor")?.as_object_mut()?;
        let (user_id, tenant) = (take_text(actor, "user_id")?, take_text(actor, "tenant")?);
        let roles = actor.get("roles").map(texts);
        let constraints = envelope.get_mut("constraints")?.as_object_mut()?;
        Some(Self {
            intent_type,
            args: CanonicalJson::new(args).ok()?,
            user_id,
            tenant,
            roles,
            ttl_micros: ttl_micros(constraints.get("ttl_sec")?)?,
            idempotency_key: take_text(constraints, "idempotency_key")?,
            capabilities: constraints.get("capabilities").map(texts),
            trace_id,
            issued_at,
            kid,
            sig,
            signed,
            digest,
        })
    }

    /// The bytes that the signature covers: the canonical form without `sig`.
    #[must_use]
    pub const fn signed(&self) -> &[u8] {
        self.signed.as_bytes()
    }

    /// The digest of what is signed. Two signatures of the same content are the same envelope.
    #[must_use]
    pub const fn digest(&self) -> Digest32 {
        self.digest
    }

    /// What a request under an idempotency key is compared by: the intent without what differs between retries.
    #[must_use]
    pub fn request(&self) -> Value {
        json!({"type": self.intent_type, "args_digest": self.args.digest()})
    }
}

/// Parses a strict document. A duplicate member or a number that can't be kept is reported with its place.
fn parse(bytes: &[u8]) -> Result<Value, Vec<SchemaViolation>> {
    if bytes.len() > ENVELOPE_BYTES_MAX {
        let reason = format!("the envelope has {} bytes, at most {ENVELOPE_BYTES_MAX}", bytes.len());
        return Err(vec![violation("", reason)]);
    }
    let fault = match json::parse_bounded(bytes) {
        Ok(value) => return Ok(value),
        Err(fault) => fault,
    };
    let is_readable = matches!(
        fault,
        ParseError::DuplicateMember { .. }
            | ParseError::IntegerTooLarge { .. }
            | ParseError::NumberTooLarge { .. }
            | ParseError::NumberInexact { .. }
    );
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_readable);
    let Some(Ok((_, faults))) = text.map(|text| json::parse_collecting(text, ENVELOPE_FINDINGS_MAX)) else {
        return Err(vec![violation(&json::pointer_at(bytes, fault.at()), fault.to_string())]);
    };
    let mut places: Vec<usize> = faults.iter().map(|fault| fault.value_at).collect();
    places.sort_unstable();
    let pointers = json::pointers_at(bytes, &places);
    let pointer = |at: usize| places.binary_search(&at).map_or("", |found| &pointers[found]);
    Err(faults.iter().map(|fault| violation(pointer(fault.value_at), fault.error.to_string())).collect())
}

/// Finds what another reader may read differently, or what no store can hold.
fn find_unportable(value: &Value, pointer: &mut String, found: &mut Vec<SchemaViolation>) {
    if found.len() >= ENVELOPE_FINDINGS_MAX {
        return;
    }
    let length = pointer.len();
    match value {
        Value::Number(number) if !is_portable(number) => {
            found.push(violation(
                pointer,
                format!("a number must lie between -{ENVELOPE_NUMBER_MAX} and {ENVELOPE_NUMBER_MAX}"),
            ));
        }
        Value::String(text) if text.contains('\0') => {
            found.push(violation(pointer, "a string must not contain the character U+0000".to_owned()));
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{at}"));
                find_unportable(item, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if name.contains('\0') {
                    found.push(violation(pointer, "a member name must not contain the character U+0000".to_owned()));
                }
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                find_unportable(member, pointer, found);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
}

/// Whether every reader of JSON keeps the digits of a number: beyond this magnitude doubles skip integers.
fn is_portable(number: &serde_json::Number) -> bool {
    #[allow(clippy::cast_precision_loss)]
    let fits = |value: f64| value.abs() <= ENVELOPE_NUMBER_MAX as f64;
    match (number.as_i64(), number.as_u64()) {
        (Some(whole), _) => whole.unsigned_abs() <= ENVELOPE_NUMBER_MAX,
        (None, Some(_)) => false,
        (None, None) => number.as_f64().is_some_and(fits),
    }
}

/// What the schema leaves open: lengths, ranges and forms.
fn check_members(value: &Value, found: &mut Vec<SchemaViolation>) {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let mut refuse = |is_refused: bool, pointer: &str, reason: &str| {
        if is_refused {
            found.push(violation(pointer, reason.to_owned()));
        }
    };
    let has = |text: Option<&str>, chars_max: usize| {
        text.is_none_or(|text| text.chars().take(chars_max + 1).count() <= chars_max)
    };
    let version = text("/version").unwrap_or_default();
    let is_known = version == "1" || version.strip_prefix("1.").is_some_and(|minor| minor.parse::<u32>().is_ok());
    refuse(!is_known, "/version", "unsupported version: use \"1.0\"");
    for (pointer, chars_max) in [
        ("/intent/type", INTENT_TYPE_CHARS_MAX),
        ("/actor/user_id", ACTOR_CHARS_MAX),
        ("/actor/tenant", ACTOR_CHARS_MAX),
        ("/trace_id", ENVELOPE_TRACE_CHARS_MAX),
        ("/kid", ENVELOPE_KID_CHARS_MAX),
    ] {
        refuse(!has(text(pointer), chars_max), pointer, &format!("at most {chars_max} characters"));
    }
    let roles = value.pointer("/actor/roles").and_then(Value::as_array).map_or(0, Vec::len);
    refuse(roles > ACTOR_ROLES_MAX, "/actor/roles", &format!("at most {ACTOR_ROLES_MAX} roles"));
    let ttl = value.pointer("/constraints/ttl_sec").and_then(ttl_micros);
    refuse(ttl.is_none(), "/constraints/ttl_sec", &format!("at most {ENVELOPE_TTL_SECONDS_MAX} seconds"));
    let key = text("/constraints/idempotency_key").unwrap_or_default();
    if let Err(error) = check_key(key) {
        refuse(true, "/constraints/idempotency_key", &error.to_string());
    }
    let capabilities = value.pointer("/constraints/capabilities").and_then(Value::as_array);
    let capabilities = capabilities.map_or(&[][..], Vec::as_slice);
    let most = format!("at most {ACTOR_SCOPES_MAX} capabilities");
    refuse(capabilities.len() > ACTOR_SCOPES_MAX, "/constraints/capabilities", &most);
    for (at, one) in capabilities.iter().enumerate().take(ACTOR_SCOPES_MAX) {
        let is_refused = !one.as_str().is_some_and(is_capability);
        let reason = "not a capability: write `logs:read` or `runs:start@workflow/lead_flow`";
        refuse(is_refused, &format!("/constraints/capabilities/{at}"), reason);
    }
    let is_time = text("/issued_at").is_none_or(|text| text.parse::<Timestamp>().is_ok());
    refuse(!is_time, "/issued_at", "not an RFC 3339 timestamp");
    found.truncate(ENVELOPE_FINDINGS_MAX);
}

/// A time to live in microseconds; `None` if it is longer than any may be. Zero or less is already over.
fn ttl_micros(seconds: &Value) -> Option<i64> {
    #[allow(clippy::cast_precision_loss)]
    let seconds = seconds.as_f64().filter(|seconds| *seconds <= ENVELOPE_TTL_SECONDS_MAX as f64)?;
    #[allow(clippy::cast_possible_truncation)]
    let micros = (seconds.max(0.0) * 1e6) as i64;
    Some(micros)
}

fn take_text(members: &mut Map<String, Value>, name: &str) -> Option<String> {
    match members.remove(name)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

fn violation(pointer: &str, message: String) -> SchemaViolation {
    SchemaViolation { pointer: pointer.to_owned(), message }
}
