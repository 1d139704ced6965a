//! `chimera dev`: everything in one process, for trying out.

use super::{Scene, print, say};
use crate::failure::Outcome;
use chimera_core::access::Secret;
use serde_json::json;
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let ended = crate::serve::serve(config, scene.terminal, |home, address, ambient| {
        let url = format!("http://{address}");
        let token = home.dev_token(&*ambient.random)?;
        config.mask.learn(&Secret::new(token.as_bytes()));
        if scene.json {
            return print(&format!("{}\n", json!({"url": url, "token": token, "actors": []})));
        }
        say(&format!(
            "Chimera is ready.\n  API      {url}\n  Docs     {url}/docs\n  Health   {url}/readyz\n  Data     {}\nStop with Ctrl-C.",
            config.data_dir.display()
        ));
        Ok(())
    })
    .await?;
    Ok(ended.exit())
}
