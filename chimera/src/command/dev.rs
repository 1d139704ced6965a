//! `chimera dev`: everything in one process, for trying out.

use super::{Scene, print, say};
use crate::failure::Outcome;
use crate::serve::{Purpose, Ready, serve};
use serde_json::json;
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let ended = serve(config, scene.terminal, Purpose::Trying, |Ready { url, token }| {
        if scene.json {
            return print(&format!("{}\n", json!({"url": url, "token": token, "actors": []})));
        }
        let token = token.as_deref().unwrap_or_default();
        say(&format!(
            "Chimera is ready.\n  API      {url}\n  Docs     {url}/docs\n  Health   {url}/readyz\n  Data     {}\n  \
             Token    {token}\nTry: curl -H 'Authorization: Bearer {token}' {url}/workflows\nStop with Ctrl-C.",
            config.data_dir.display()
        ));
        Ok(())
    })
    .await?;
    Ok(ended.exit())
}
