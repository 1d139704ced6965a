//! `chimera token`: signs in, and prints what the server gave.

use super::{CommandContext, print};
use crate::backend::Backend;
use crate::cli::TokenArgs;
use crate::failure::Outcome;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, args: TokenArgs) -> Outcome<ExitCode> {
    let backend = Backend::connect(&scene.loaded.config, args.acting.actor.as_deref())?;
    let tokens = backend.sign_in(args.scopes).await?;
    print(&match scene.json {
        true => format!("{tokens}\n"),
        false => format!("{}\n", tokens["access_token"].as_str().unwrap_or_default()),
    })?;
    Ok(ExitCode::SUCCESS)
}
