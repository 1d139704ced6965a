//! The tool `http.request`.
//!
//! It counts as a write except for GET, HEAD and OPTIONS without a method override, which may be retried. A secret's
//! name contains the host it may be sent to (`secret://http.api.example.com`). Otherwise the author of a workflow could
//! send any secret anywhere.

use super::exchange_log::{self, ExchangeLog, TOO_MANY_REQUESTS};
use crate::http::{
    Answer, Call, Client, EgressRule, IDEMPOTENCY_KEY, Keyring, ParsedAnswer, Request, Retryability, SentSecrets,
    authority_of, host_of, parse_url, reference,
};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_core::error::Code;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits::{ERROR_TEXT_CHARS_MAX, HTTP_REDIRECTS_MAX, TARGET_BYTES_MAX};
use chimera_core::secret::SecretName;
use chimera_core::tool::{
    EffectKind, Metadata, ReadOnlyInputs, Risk, Rollback, Spec, ToolDeclaration, is_dry_run, is_method_override,
};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use chimera_engine::port::Secrets;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const DESCRIPTION: &str = "Sends one HTTP request to a host that the egress rules allow. Answers below 400 (or those \
    in expect_status) are its output; others are errors. GET and HEAD are tried again after any failure, other methods \
    only if nothing was sent or the answer says so; they carry an Idempotency-Key. At most 5 redirects are followed. A \
    header may hold `secret://http.HOST`, which goes to that host over https only.";

/// Response headers included in the output.
const SHOWN: &[&str] = &[
    "cache-control",
    "content-length",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-request-id",
];

/// Headers that belong to the connection or to the call, not to the author of the input.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The value of a header, as the input gives it.
enum HeaderContent<'a> {
    Text(HeaderValue),
    Secret { before: &'a str, secret: SecretName },
}

pub struct HttpRequest {
    spec: Arc<Spec>,
    client: Client,
    secrets: Arc<dyn Secrets>,
}

impl HttpRequest {
    pub fn new(client: Client, secrets: Arc<dyn Secrets>) -> Result<Self, InvalidSchema> {
        let spec = ToolDeclaration {
            name: "http.request",
            version: "1",
            description: DESCRIPTION,
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent: false,
                capabilities: vec!["http.request".into(), "external_api".into()],
                risk_level: Risk::Medium,
            },
            effect: EffectKind::Write,
            reads_when: Some(ReadOnlyInputs {
                member: "method",
                values: &["GET", "HEAD", "OPTIONS"],
                deletes: &["DELETE"],
            }),
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 30_000,
            input: input_schema(),
            output: output_schema(),
        };
        Ok(Self { spec: Arc::new(spec.compile()?), client, secrets })
    }

    /// The request with secret references left unresolved.
    fn request(&self, input: &Value) -> Result<Request, ToolError> {
        let method = input["method"].as_str().unwrap_or("GET");
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| malformed("the method is not valid"))?;
        let mut url = parse_url(input["url"].as_str().unwrap_or_default())?;
        if let Some(query) = input["query"].as_object() {
            let pairs = query.iter().flat_map(|(name, value)| {
                let values = value.as_array().map_or_else(|| vec![value], |values| values.iter().collect());
                values.into_iter().map(move |value| (name, plain(value)))
            });
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let mut request = Request::new(method, url, Retryability::Once);
        if self.spec.effect_of(input) == EffectKind::Read {
            request.care = Retryability::Read;
        }
        check_override(&request.method, &input["headers"])?;
        request.truncate_answer = true;
        request.redirects_max = if input["follow_redirects"] == false { 0 } else { HTTP_REDIRECTS_MAX };
        if let Some(body) = input.get("json") {
            request = request.json(body);
        } else if let Some(text) = input["text"].as_str() {
            request.body = text.to_owned().into();
            request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        }
        Ok(request)
    }

    async fn ask(
        &self,
        call: &Call,
        mut request: Request,
        input: &Value,
        keys: &mut Keyring,
    ) -> Result<Value, ToolError> {
        for (name, content) in self.headers(&request, input)? {
            let value = match content {
                HeaderContent::Text(value) => value,
                HeaderContent::Secret { before, secret } => keys.header(before, &secret).await?,
            };
            request.headers.insert(name, value);
        }
        let exchange = ExchangeLog::begin(call, &request, keys);
        let answer = self.client.send(call, request).await;
        exchange.end(call, &answer);
        let answer = answer?;
        let is_limited = answer.status == TOO_MANY_REQUESTS;
        let answer = expected(answer, input, keys).inspect_err(|error| {
            if is_limited {
                exchange_log::rate_limited(call, error)
            }
        })?;
        let sent = keys.sent();
        answer.open(move |answer| output(answer, &sent)).await?
    }

    /// The headers of the input, with everything checked that can be known before secrets are resolved.
    fn headers<'a>(
        &self,
        request: &Request,
        input: &'a Value,
    ) -> Result<Vec<(HeaderName, HeaderContent<'a>)>, ToolError> {
        let members = input["headers"].as_object().into_iter().flatten();
        let checked = members.map(|(name, value)| {
            let (name, text) = header(name, value)?;
            let valid = |text: &str| {
                HeaderValue::from_str(text)
                    .map_err(|_| malformed(&format!("the value of the header {name} is not valid")))
            };
            let content = match reference(text) {
                None => HeaderContent::Text(valid(text)?),
                Some((before, secret, behind)) => {
                    let secret = secret?;
                    self.may_send(request, &secret)?;
                    if !behind.is_empty() {
                        return Err(malformed(&format!("the header {name} has text after its secret")));
                    }
                    valid(before)?;
                    HeaderContent::Secret { before, secret }
                }
            };
            Ok((name, content))
        });
        checked.collect()
    }

    /// Whether a secret may be sent to the request's host.
    fn may_send(&self, request: &Request, secret: &SecretName) -> Result<(), ToolError> {
        let host = host_of(&request.url).unwrap_or_default();
        let meant = secret.as_str().strip_prefix("http.").and_then(|name| name.strip_prefix(host.as_str()));
        if !meant.is_some_and(|label| label.is_empty() || label.starts_with('_')) {
            let what = format!(
                "{secret} may not be sent to {host}: only secret://http.{host} may, or secret://http.{host}_LABEL"
            );
            return Err(ToolError::not_sent(Code::PolicyDenied, what).with("policy_id", "secret_host"));
        }
        if request.url.scheme() != "https" && self.client.allows(request)? != EgressRule::Listed {
            let what = format!("{secret} is sent over https only, unless {host} is on the egress allow-list");
            return Err(ToolError::not_sent(Code::PolicyDenied, what).with("policy_id", "secret_host"));
        }
        Ok(())
    }
}

#[async_trait]
impl Tool for HttpRequest {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn host(&self, input: &Value) -> Option<String> {
        authority_of(&Url::parse(input["url"].as_str()?).ok()?)
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let request = self.request(input)?;
        self.client.allows(&request)?;
        if is_dry_run(input) {
            self.headers(&request, input)?;
            let output = json!({"status": 200, "headers": {}, "body": null, "truncated": false});
            return Ok(Spec::dry_run_response(output, would_execute(&request)));
        }
        exchange_log::retried(ctx);
        let call = Call::for_tool(ctx);
        let mut keys = Keyring::of_call(&self.secrets, &call);
        let outcome = self.ask(&call, request, input, &mut keys).await;
        keys.clean(outcome).await
    }
}

/// The answer, if its status is one that the input expects.
fn expected(answer: Answer, input: &Value, keys: &Keyring) -> Result<Answer, ToolError> {
    let words = |answer: &Answer| keys.quote(&String::from_utf8_lossy(&answer.body));
    match input["expect_status"].as_array() {
        Some(listed) if listed.iter().any(|status| *status == answer.status) => Ok(answer),
        Some(_) if answer.is_success() => {
            let error = answer.unusable(&format!("answered {}, which is not in expect_status", answer.status));
            Err(error.with("status", answer.status).with("answer", words(&answer)))
        }
        None if answer.is_success() => Ok(answer),
        _ => Err(answer.refusal().with("answer", words(&answer))),
    }
}

fn output(answer: &ParsedAnswer<'_>, sent: &SentSecrets) -> Result<Value, ToolError> {
    let shown = SHOWN.iter().filter_map(|name| {
        let values = answer.headers.get_all(*name).into_iter().filter_map(|value| value.to_str().ok());
        let values = values.collect::<Vec<_>>().join(", ");
        (!values.is_empty()).then(|| ((*name).to_owned(), values.into()))
    });
    let is_json = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    });
    let parsed = if is_json && !answer.truncated { answer.json().ok() } else { None };
    let text = text_of(answer);
    let bytes = text.is_none().then(|| STANDARD.encode(&answer.body));
    let body = parsed.or_else(|| text.filter(|text| !text.is_empty()).map(Value::from)).unwrap_or_default();
    let mut output = json!({
        "status": answer.status, "headers": shown.collect::<Map<_, _>>(), "body": body, "truncated": answer.truncated,
    });
    if let Some(bytes) = bytes {
        if sent.is_in(&answer.body) {
            return Err(answer.unusable("the answer is binary and contains a secret that was sent"));
        }
        output["body_base64"] = bytes.into();
    }
    Ok(output)
}

/// The body, if it is text. A character cut in two at the size limit is dropped; any other invalid byte makes it
/// binary.
fn text_of(answer: &Answer) -> Option<&str> {
    match std::str::from_utf8(&answer.body) {
        Ok(text) => Some(text),
        Err(error) if answer.truncated && error.error_len().is_none() => {
            std::str::from_utf8(&answer.body[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn would_execute(request: &Request) -> String {
    let line = format!("{} {}", request.method, request.url);
    let body = String::from_utf8_lossy(&request.body);
    let body: String = body.chars().take(ERROR_TEXT_CHARS_MAX).collect();
    if body.is_empty() { line } else { format!("{line} with {body}") }
}

/// A header of the input, if authors may set it.
fn header<'a>(name: &str, value: &'a Value) -> Result<(HeaderName, &'a str), ToolError> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| malformed(&format!("{name:?} is not a valid header name")))?;
    if RESERVED.contains(&parsed.as_str()) || parsed == IDEMPOTENCY_KEY {
        return Err(malformed(&format!("the header {parsed} is set by Chimera itself")));
    }
    Ok((parsed, value.as_str().unwrap_or_default()))
}

/// Rejects headers that would make the server run another method than the one that was authorized.
fn check_override(method: &Method, headers: &Value) -> Result<(), ToolError> {
    let other = |(name, value): &(&String, &Value)| {
        is_method_override(name)
            && !value.as_str().is_some_and(|value| value.trim().eq_ignore_ascii_case(method.as_str()))
    };
    match headers.as_object().into_iter().flatten().find(other) {
        Some((name, _)) => {
            Err(malformed(&format!("the header {name} overrides the method {method}; set `method` instead")))
        }
        None => Ok(()),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn malformed(what: &str) -> ToolError {
    ToolError::not_sent(Code::MalformedArgs, what)
}

fn input_schema() -> Value {
    let scalar = json!({"type": ["string", "number", "boolean"]});
    json!({
        "type": "object",
        "properties": {
            "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], "default": "GET"},
            "url": {"type": "string", "minLength": 1, "maxLength": TARGET_BYTES_MAX,
                "description": "http or https, without user name and password"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"},
                "description": "a value may end with secret://http.HOST"},
            "query": {"type": "object", "additionalProperties": {"anyOf": [scalar, {"type": "array", "items": scalar}]}},
            "json": {"description": "body, sent as application/json"},
            "text": {"type": "string", "description": "body, sent as text/plain unless a header says otherwise"},
            "expect_status": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 200, "maximum": 599}},
            "follow_redirects": {"type": "boolean", "default": true},
        },
        "required": ["url"],
        "not": {"required": ["json", "text"]},
        "additionalProperties": false,
    })
}

fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"type": "integer"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "body": {"description": "JSON if the answer says so, else text, null if there is none or it is no UTF-8"},
            "body_base64": {"type": "string", "description": "the bytes of a body that is no UTF-8"},
            "truncated": {"type": "boolean", "description": "the body was longer than what is given"},
        },
        "required": ["status", "headers", "body", "truncated"],
    })
}
