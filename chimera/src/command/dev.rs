//! `chimera dev`: a development server, everything in one process.

use super::{CommandContext, print, say};
use crate::failure::Outcome;
use crate::serve::{ReadyServer, ServerMode, serve};
use serde_json::json;
use std::process::ExitCode;

/// The request body of the printed example.
const TRY: &str = r#"{"steps":[{"tool":"local.summarize","input":{"text":"Chimera lets agents act. Every act is asked for, allowed, done and written down. What was done can be undone."}}],"autonomy_level":"L2_ExecuteNotify"}"#;

pub(crate) async fn run(scene: &CommandContext<'_>, examples: bool) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let ended = serve(config, scene.terminal, ServerMode::Dev { examples }, |ready| {
        let ReadyServer { url, token, examples } = ready;
        let token = token.as_deref().unwrap_or_default();
        if scene.json {
            let actors: Vec<_> =
                examples.iter().map(|it| json!({"actor": it.actor, "hmac_key": it.hmac_key})).collect();
            return print(&format!("{}\n", json!({"url": url, "token": token, "actors": actors})));
        }
        let actors: String = examples.iter().map(|it| format!("  {:<18} {}\n", it.actor, it.hmac_key)).collect();
        let signature = examples.first().map(|it| crate::access::sign(&it.hmac_key, TRY)).unwrap_or_default();
        say(&format!(
            "Chimera is ready.\n  API      {url}\n  Docs     {url}/docs\n  Health   {url}/readyz\n  Data     {}\n\
             Actors and their keys:\n{actors}Token of admin, for an hour:\n  {token}\nTry:\n  \
             curl {url}/act -H 'Content-Type: application/json' \\\n    -H 'Authorization: Bearer {token}' \\\n    \
             -H 'X-HMAC-Signature: {signature}' \\\n    -d '{TRY}'\nStop with Ctrl-C.",
            config.data_dir.display()
        ));
        Ok(())
    })
    .await?;
    Ok(ended.exit())
}
