//! Reads and merges the configuration layers.
//!
//! Nothing is ignored silently: unknown keys, a table in place of a value and values of the wrong kind are
//! all rejected, all at once, each with its location.

use super::check::{CheckedValue, RawValue, check, describe};
use super::service_links::is_service_link;
use super::setting::{ENV_CONFIG, ENV_SECRET_PREFIX, SETTINGS, Setting, SettingKind};
use super::{Config, LoadedConfig, Origin, SecretVariables, SettingValue};
use crate::ambient::Environment;
use crate::failure::{Failure, Outcome};
use chimera_core::error::{Code, io_reason};
use chimera_core::secret::Secret;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Read if it exists and no other file is named.
const DEFAULT_FILE: &str = "chimera.toml";

/// Settings given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    /// Setting key and value of each flag that was given.
    pub(crate) values: Vec<(&'static str, String)>,
}

pub(crate) fn load(flags: &Flags, environment: &Environment) -> Outcome<LoadedConfig> {
    let env = &environment.settings;
    let mut layers = Layers { home: environment.home.clone(), ..Layers::default() };
    layers.defaults();
    if let Some((path, text)) = file(named_file(flags, environment)?.as_deref())? {
        layers.file(&path.display().to_string(), &text);
    }
    layers.env(env);
    layers.flags(&flags.values);
    let mut loaded = layers.finish()?;
    let secrets = env.iter().filter(|(name, _)| name.starts_with(ENV_SECRET_PREFIX));
    loaded.config.secret_variables = SecretVariables(secrets.map(|(n, v)| (n.clone(), v.clone())).collect());
    register_secrets(&loaded);
    Ok(loaded)
}

/// Registers every secret in the layers with the mask.
fn register_secrets(loaded: &LoadedConfig) {
    let mask = &loaded.config.mask;
    for value in loaded.values.values() {
        match &value.typed {
            CheckedValue::Text(text) => mask.learn_url(text),
            // Of `name=URL` the URL.
            CheckedValue::List(items) => {
                let urls = items.iter().filter_map(|item| item.split_once('=')).filter(|(_, url)| url.contains("://"));
                urls.for_each(|(_, url)| mask.learn_url(url));
            }
            CheckedValue::Number(_) | CheckedValue::Boolean(_) => {}
        }
    }
    let config = &loaded.config;
    let tokens = [&config.token, &config.hmac_key, &config.access.hmac_secret, &config.access.jwt_secret];
    tokens.into_iter().flatten().for_each(|token| mask.learn(&Secret::new(token.0.as_bytes())));
    for secret in loaded.config.secret_variables.0.values() {
        mask.learn(&Secret::new(secret.as_bytes()));
    }
}

/// The file named by a flag or the environment, if any.
fn named_file(flags: &Flags, environment: &Environment) -> Outcome<Option<PathBuf>> {
    let refused = |origin: String, reason: &str| Failure::new(Code::ConfigInvalid, format!("{origin}: {reason}"));
    let (text, origin) = match (&flags.config, environment.settings.get(ENV_CONFIG)) {
        (Some(path), _) => (path.to_string_lossy().into_owned(), Origin::Flag("--config")),
        (None, Some(text)) => (text.trim().to_owned(), Origin::Env(ENV_CONFIG.to_owned())),
        (None, None) => return Ok(None),
    };
    if text.is_empty() {
        return Err(refused(origin.to_string(), EMPTY));
    }
    let path =
        expand_tilde(&text, environment.home.as_deref()).map_err(|reason| refused(origin.to_string(), reason))?;
    Ok(Some(path.into()))
}

const EMPTY: &str = "is set but empty; give it a value, or unset it";

/// Expands a leading `~`, as a shell would: no shell reads the file and most variables.
fn expand_tilde(path: &str, home: Option<&str>) -> Result<String, &'static str> {
    let Some(rest) = path.strip_prefix('~') else { return Ok(path.to_owned()) };
    match home {
        _ if !rest.is_empty() && !rest.starts_with('/') => {
            Err("home folders of other users are not expanded; write the full path")
        }
        Some(home) => Ok(format!("{}{rest}", home.trim_end_matches('/'))),
        None => Err("`~` can't be expanded because HOME is not set; write the full path"),
    }
}

fn file(named: Option<&Path>) -> Outcome<Option<(PathBuf, String)>> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(
            Code::ConfigInvalid,
            format!("the configuration file {} can't be read: {}", path.display(), io_reason(&error)),
        )),
    }
}

#[derive(Default)]
struct Layers {
    values: BTreeMap<&'static str, SettingValue>,
    refusals: Vec<String>,
    /// Expansion of `~`.
    home: Option<String>,
}

impl Layers {
    fn defaults(&mut self) {
        for setting in SETTINGS {
            if let Some(default) = setting.default {
                self.set(setting, &RawValue::Text(default.to_owned()), Origin::Default);
            }
        }
    }

    fn env(&mut self, env: &BTreeMap<String, String>) {
        for (name, value) in env {
            if name == ENV_CONFIG || name.starts_with(ENV_SECRET_PREFIX) {
                continue;
            }
            match SETTINGS.iter().find(|setting| setting.env() == *name || setting.alias == Some(name)) {
                Some(setting) if value.trim().is_empty() && !setting.is_list() => {
                    self.refusals.push(format!("env {name}: `{}` {EMPTY}", setting.key));
                }
                Some(setting) => self.set(setting, &RawValue::Text(value.clone()), Origin::Env(name.clone())),
                None if is_service_link(name, value) => {}
                None => {
                    let hint = suggest(name, SETTINGS.iter().map(Setting::env));
                    self.refusals.push(format!("env {name}: unknown setting{hint}"));
                }
            }
        }
    }

    fn flags(&mut self, flags: &[(&'static str, String)]) {
        for (key, value) in flags {
            if let Some((setting, flag)) = find(key).and_then(|setting| Some((setting, setting.flag?))) {
                self.set(setting, &RawValue::Text(value.clone()), Origin::Flag(flag));
            }
        }
    }

    fn file(&mut self, file: &str, text: &str) {
        match DeTable::parse(text) {
            Ok(table) => self.table(file, text, "", table.get_ref()),
            Err(error) => {
                let line = error.span().map_or(1, |span| line_of(text, span.start));
                self.refusals.push(format!("{file}:{line}: not valid TOML: {}", error.message()));
            }
        }
    }

    fn table(&mut self, file: &str, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key =
                if prefix.is_empty() { name.get_ref().to_string() } else { format!("{prefix}.{}", name.get_ref()) };
            let line = line_of(text, name.span().start);
            if let Some(setting) = find(&key) {
                let origin = Origin::File { file: file.to_owned(), line };
                self.set(setting, &raw(value.get_ref()), origin);
            } else if let (Some(inner), true) = (value.get_ref().as_table(), is_group(&key)) {
                self.table(file, text, &key, inner);
            } else if is_group(&key) {
                self.refusals.push(format!("{file}:{line}: `{key}` must be a table"));
            } else {
                let hint = suggest(&key, SETTINGS.iter().map(|setting| setting.key.to_owned()));
                self.refusals.push(format!("{file}:{line}: unknown setting `{key}`{hint}"));
            }
        }
    }

    fn set(&mut self, setting: &Setting, raw: &RawValue, origin: Origin) {
        match check(setting.kind, raw) {
            Ok(CheckedValue::Text(path)) if setting.kind == SettingKind::Path => {
                match expand_tilde(&path, self.home.as_deref()) {
                    Ok(path) => {
                        drop(self.values.insert(setting.key, SettingValue { typed: CheckedValue::Text(path), origin }))
                    }
                    Err(reason) => self.refusals.push(format!("{origin}: `{}`: {reason}", setting.key)),
                }
            }
            Ok(typed) => drop(self.values.insert(setting.key, SettingValue { typed, origin })),
            Err(expected) => {
                let found = describe(setting.kind, raw);
                self.refusals.push(format!("{origin}: `{}` must be {expected}, not {found}", setting.key));
            }
        }
    }

    fn finish(self) -> Outcome<LoadedConfig> {
        if self.refusals.is_empty() {
            return Ok(LoadedConfig { config: Config::of(&self.values), values: self.values });
        }
        Err(Failure::new(Code::ConfigInvalid, self.refusals.join("\n  also: "))
            .hint("docs/reference/config.md lists every setting"))
    }
}

fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

fn is_group(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

fn raw(value: &DeValue<'_>) -> RawValue {
    match value {
        DeValue::String(text) => RawValue::Text(text.to_string()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => RawValue::Number(number.to_string()),
            Err(_) => RawValue::Number(number.as_str().to_owned()),
        },
        DeValue::Boolean(value) => RawValue::Boolean(*value),
        DeValue::Array(items) => {
            RawValue::List(items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect())
        }
        other => RawValue::Other(other.type_str()),
    }
}

/// The line of a position in a text.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// A suggestion, if some known name is similar enough.
fn suggest(name: &str, known: impl Iterator<Item = String>) -> String {
    let close = |candidate: &String| distance(name, candidate) <= 1 + candidate.len() / 5;
    match known.filter(close).min_by_key(|candidate| distance(name, candidate)) {
        Some(candidate) => format!("; did you mean `{candidate}`?"),
        None => String::new(),
    }
}

/// Levenshtein distance.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogFormat;

    fn refused(file_text: &str, env: &[(&str, &str)]) -> String {
        let mut layers = Layers::default();
        layers.file("chimera.toml", file_text);
        layers.env(&env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
        layers.refusals.join("\n")
    }

    #[test]
    fn later_layers_win_and_every_value_knows_its_origin() {
        let mut layers = Layers::default();
        layers.defaults();
        layers.file("c.toml", "listen = \"127.0.0.1:1\"\n[log]\nlevel = \"debug\"\nformat = \"human\"\n");
        layers.env(&BTreeMap::from([
            ("CHIMERA_LOG__FORMAT".to_owned(), "json".to_owned()),
            ("CHIMERA_LISTEN".to_owned(), "127.0.0.1:2".to_owned()),
            ("CHIMERA_SECRET_SMTP".to_owned(), "x".to_owned()),
        ]));
        layers.flags(&[("listen", "127.0.0.1:3".to_owned())]);
        let loaded = layers.finish().unwrap();
        let origin = |key: &str| loaded.values[key].origin.to_string();
        assert_eq!(loaded.config.listen.port, 3);
        assert_eq!((loaded.config.log_level.as_str(), loaded.config.log_format), ("debug", LogFormat::Json));
        assert_eq!(
            ["listen", "log.format", "log.level", "data_dir"].map(origin),
            ["flag --listen", "env CHIMERA_LOG__FORMAT", "c.toml:3", "default"]
        );
    }

    #[test]
    fn unknown_keys_are_refused_with_the_name_that_was_meant() {
        let text = refused("listn = \"x\"\n[log]\nlevle = \"info\"\n[zzz]\na = 1\n", &[("CHIMERA_DATABSE_URL", "x")]);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn wrong_kinds_are_refused_with_key_place_and_expectation() {
        let file = "listen = 80\negress_allow = [\"a\", 1]\nlog = 3\n\n[store]\nlanes = \"four\"\n[http]\nconnections_max = 0\n";
        let env = [
            ("CHIMERA_REDIS_URL", "http://u:hunter2@h"),
            ("CHIMERA_LOG__FORMAT", "xml"),
            ("CHIMERA_LEDGER__CHECKPOINT_SECONDS", "1h"),
        ];
        let text = refused(file, &env);
        assert!(!text.contains("hunter2"));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn broken_toml_is_refused_with_its_line() {
        insta::assert_snapshot!(refused("listen = \"a\"\nlog = [\n", &[]));
    }

    #[test]
    fn every_default_is_a_valid_value() {
        let mut layers = Layers::default();
        layers.defaults();
        assert_eq!(layers.refusals, Vec::<String>::new());
    }
}
