//! `chimera serve`: run as configured.

use super::CommandContext;
use crate::failure::Outcome;
use crate::serve::{ServerMode, serve};
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>) -> Outcome<ExitCode> {
    let ended = serve(&scene.loaded.config, scene.terminal, ServerMode::Serve, |_| Ok(())).await?;
    Ok(ended.exit())
}
