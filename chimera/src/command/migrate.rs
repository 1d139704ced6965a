//! `chimera migrate`: bring the schema up to date.

use super::{Scene, print, say};
use crate::compose;
use crate::failure::Outcome;
use crate::home::Home;
use serde_json::json;
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let _home = Home::take(&config.data_dir)?;
    let (applied, version) = compose::migrate(config).await?;
    if scene.json {
        print(&format!("{}\n", json!({"applied": applied, "version": version})))?;
    } else if applied.is_empty() {
        say(&format!("The schema is up to date (version {version})."));
    } else {
        say(&format!("Applied {}; the schema has version {version} now.", applied.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}
