//! Generates the settings reference from the table of settings.

use super::setting::{ENV_CONFIG, ENV_SECRET_PREFIX, SETTINGS, SettingKind};
use std::fmt::Write;

/// The text of `docs/reference/config.md`.
pub(crate) fn reference() -> String {
    let mut text = format!(
        "# Settings\n\n\
         Values come from four layers, each overriding the previous one: defaults, the file (`--config FILE`, or `{ENV_CONFIG}`, \
         or `chimera.toml` in the current folder if it exists), the environment, flags. In the file, a dot separates tables: \
         `log.level` is `level` under `[log]`. Unknown keys are rejected, in the file and in the environment. \
         Variables that begin with `{ENV_SECRET_PREFIX}` are secrets, not settings: `secret://smtp.relay-2` is `{ENV_SECRET_PREFIX}SMTP_RELAY__2` (`_` for `.`, `__` for `-`, `___` for `_`). \
         White space around a value is ignored, `~/` at the start of a path is your home folder, and a boolean in the environment \
         may also be `yes` or `no`, `on` or `off`, `1` or `0`. A variable that is set but empty is rejected, except for a list, where it means the empty list. Unset it to use the value of the previous layer. Variables that a cluster sets beside a service called `chimera` or `chimera-…` \
         (`CHIMERA_SERVICE_HOST`, `CHIMERA_PORT_8080_TCP_ADDR`) are ignored. `chimera config print --origins` shows the effective values and where they came from.\n\n\
         | Key | Environment | Flag | Value | Default | Description |\n|---|---|---|---|---|---|\n"
    );
    for setting in SETTINGS {
        let flag = setting.flag.map_or(String::new(), |flag| format!("`{flag}`"));
        let default = match setting.default {
            None => "not set".to_owned(),
            Some("") => "empty".to_owned(),
            Some(default) => format!("`{default}`"),
        };
        let _ = writeln!(
            text,
            "| `{}` | `{}`{} | {flag} | {} | {default} | {} |",
            setting.key,
            setting.env(),
            setting.alias.map_or(String::new(), |alias| format!(" or `{alias}`")),
            kind(setting.kind),
            setting.doc
        );
    }
    text
}

fn kind(kind: SettingKind) -> String {
    match kind {
        SettingKind::LogFilter | SettingKind::Text | SettingKind::Token => "text".to_owned(),
        SettingKind::Path => "path".to_owned(),
        SettingKind::Listen => "`HOST:PORT`".to_owned(),
        SettingKind::Boolean => "`true`, `false`".to_owned(),
        SettingKind::SecretName => "`secret://NAME`".to_owned(),
        SettingKind::Hosts | SettingKind::Networks | SettingKind::PublicKeys | SettingKind::Pairs(_) => {
            "list; comma-separated in the environment".to_owned()
        }
        SettingKind::Url(schemes) => {
            let urls: Vec<String> = schemes.iter().map(|scheme| format!("`{scheme}://`")).collect();
            format!("URL: {}", urls.join(", "))
        }
        SettingKind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        SettingKind::Number { min, max, unit } => format!("{unit}, {min} to {max}"),
    }
}
