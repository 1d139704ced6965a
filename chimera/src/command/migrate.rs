//! `chimera migrate`: applies pending schema migrations.

use super::{CommandContext, EXIT_FOUND_WRONG, print, say};
use crate::compose::{self, MigrationSummary};
use crate::data_folder::DataFolder;
use crate::failure::Outcome;
use serde_json::json;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let _home = DataFolder::lock(&config.data_dir)?;
    let migrated = compose::migrate(config).await?;
    if scene.json {
        print(&format!("{}\n", json!(migrated)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let MigrationSummary { applied, put_back, version } = migrated;
    if applied.is_empty() {
        say(&format!("The schema is up to date (version {version})."));
    } else {
        say(&format!("Applied {}; the schema is now at version {version}.", applied.join(", ")));
    }
    if !put_back.is_empty() {
        say(&format!("Restored: {}.", put_back.join(", ")));
        say(
            "The schema did not reject invalid data while these were missing: run chimera doctor --deep to check the data.",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists pending migrations. Works while a server uses the store.
pub(crate) async fn check(scene: &CommandContext<'_>) -> Outcome<ExitCode> {
    let (pending, version) = compose::pending(&scene.loaded.config).await?;
    if scene.json {
        print(&format!("{}\n", json!({"pending": pending, "version": version})))?;
    } else if pending.is_empty() {
        say(&format!("The schema is up to date (version {version})."));
    } else {
        say(&format!("The schema is at version {version}; chimera migrate would apply {}.", pending.join(", ")));
    }
    Ok(if pending.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FOUND_WRONG) })
}
