//! `chimera config print`: the settings in force.

use super::{CommandContext, print as write};
use crate::config;
use crate::failure::Outcome;
use std::process::ExitCode;

pub(crate) fn print(scene: &CommandContext<'_>, origins: bool) -> Outcome<ExitCode> {
    write(&config::show(scene.loaded, scene.json, origins))?;
    Ok(ExitCode::SUCCESS)
}
