//! `chimera sign`: the signature of a body, or the headers of a signed request.
//!
//! The bytes are signed exactly as given. Signing a file with a trailing newline and sending it without one
//! gives an invalid signature.

use super::{CommandContext, print, read_bytes, read_text};
use crate::backend::local_actor_key;
use crate::cli::SignArgs;
use crate::compose::Ambient;
use crate::failure::{Failure, Outcome};
use chimera_core::access::signature::{RequestParts, Signed};
use chimera_core::access::{ADMIN, Ed25519PrivateKey, mac};
use chimera_core::error::Code;
use chimera_core::secret::Secret;
use serde_json::{Value, json};
use std::process::ExitCode;

pub(crate) fn run(scene: &CommandContext<'_>, args: &SignArgs) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let actor = args.acting.actor.as_deref().or(config.actor.as_deref()).unwrap_or(ADMIN);
    if let (Some(request), Some(file)) = (&args.request, &args.private_key) {
        let key = Ed25519PrivateKey::parse(&read_text(file)?)
            .map_err(|why| Failure::new(Code::MalformedArgs, format!("{}: {why}", file.display())))?;
        let body = if args.no_body { Vec::new() } else { read_bytes(&args.file)? };
        let sign = |parts: &RequestParts<'_>, now, nonce: &str| Signed::with_private_key(parts, &key, now, nonce);
        return message(scene, actor, request, &body, sign);
    }
    let key = match &args.key {
        Some(key) => Some(key.clone()),
        None => local_actor_key(config, actor)?,
    };
    let none = || {
        let failure = Failure::new(Code::ConfigInvalid, format!("no key found for {actor}"));
        failure.hint("set CHIMERA_HMAC_KEY, or pass the data folder of chimera dev with --data")
    };
    let key = Secret::new(key.ok_or_else(none)?);
    let body = if args.no_body { Vec::new() } else { read_bytes(&args.file)? };
    if let Some(request) = &args.request {
        let sign = |parts: &RequestParts<'_>, now, nonce: &str| Signed::new(parts, actor, &key, now, nonce);
        return message(scene, actor, request, &body, sign);
    }
    let signature = mac::sign(&key, &body);
    print(&match scene.json {
        true => format!("{}\n", json!({"actor": actor, "signature": signature, "bytes": body.len()})),
        false => format!("{signature}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The headers of a signed request.
fn message(
    scene: &CommandContext<'_>,
    actor: &str,
    request: &str,
    body: &[u8],
    sign: impl FnOnce(&RequestParts<'_>, i64, &str) -> Option<Signed>,
) -> Outcome<ExitCode> {
    let refused = |what: &str| Failure::new(Code::MalformedArgs, what).hint("such as --request 'POST /runs/ID/cancel'");
    let malformed = || refused("--request must be an upper-case method and a path that starts with a slash");
    let is_request =
        |method: &str, target: &str| target.starts_with('/') && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let parts = request.split_once(' ').filter(|(method, target)| is_request(method, target));
    let (method, target) = parts.ok_or_else(malformed)?;
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let parts = RequestParts { method, scheme: "http", authority: "", path, prefix: "", query, fields: &[], body };
    let ambient = Ambient::new();
    let (now, nonce) = (ambient.clock.now().millis().div_euclid(1_000), ambient.random.opaque_id());
    let signed = sign(&parts, now, &nonce).ok_or_else(|| refused("the actor's name must be printable ASCII"))?;
    let name = |name: &str| match name {
        "content-digest" => "Content-Digest",
        "signature-input" => "Signature-Input",
        _ => "Signature",
    };
    print(&match scene.json {
        true => {
            let headers: serde_json::Map<String, Value> =
                signed.headers().map(|(header, value)| (name(header).to_owned(), value.into())).collect();
            format!("{}\n", json!({"actor": actor, "headers": headers, "signature_base": signed.base}))
        }
        false => signed.headers().map(|(header, value)| format!("{}: {value}\n", name(header))).collect(),
    })?;
    Ok(ExitCode::SUCCESS)
}
