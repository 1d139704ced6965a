//! `chimera serve`: run as configured.

use super::Scene;
use crate::failure::Outcome;
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>) -> Outcome<ExitCode> {
    let ended = crate::serve::serve(&scene.loaded.config, scene.terminal, |_, _, _| Ok(())).await?;
    Ok(ended.exit())
}
