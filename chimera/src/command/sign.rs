//! `chimera sign`: the signature of a body.
//!
//! The bytes are taken exactly as they are. Whoever signs what an editor saved and sends it without the
//! newline at its end has signed something else.

use super::{Scene, bytes_of, print};
use crate::cli::SignArgs;
use crate::failure::{Failure, Outcome};
use crate::flow::desk::key_of;
use chimera_core::access::{ADMIN, Secret, mac};
use chimera_core::error::Code;
use serde_json::json;
use std::process::ExitCode;

pub(crate) fn run(scene: &Scene<'_>, args: &SignArgs) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let actor = args.acting.actor.as_deref().or(config.actor.as_deref()).unwrap_or(ADMIN);
    let key = match &args.key {
        Some(key) => Some(key.clone()),
        None => key_of(config, actor)?,
    };
    let none = || {
        let failure = Failure::new(Code::ConfigInvalid, format!("there is no key of {actor} here"));
        failure.hint("set CHIMERA_HMAC_KEY, or name the data folder of chimera dev with --data")
    };
    let key = Secret::new(key.ok_or_else(none)?);
    let body = bytes_of(&args.file)?;
    let signature = mac::sign(&key, &body);
    print(&match scene.json {
        true => format!("{}\n", json!({"actor": actor, "signature": signature, "bytes": body.len()})),
        false => format!("{signature}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}
