//! `chimera serve`: run as configured.

use super::Scene;
use crate::failure::Outcome;
use crate::serve::{Purpose, serve};
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>) -> Outcome<ExitCode> {
    let ended = serve(&scene.loaded.config, scene.terminal, Purpose::Serving, |_| Ok(())).await?;
    Ok(ended.exit())
}
