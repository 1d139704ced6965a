//! The configuration: all settings, and where each value came from.
//!
//! Values come from four layers, each overriding the previous one: defaults, the file
//! (`chimera.toml`), the environment (`CHIMERA_…`, nested keys separated by `__`), flags. `Config` is what
//! the rest of the program sees; `setting.rs` is the table of keys with their kinds and defaults;
//! `layer.rs` reads the layers. Secrets are never printed, neither by `Debug` nor by `config print`.

mod check;
mod layer;
mod listen;
#[cfg(test)]
mod notation_tests;
#[cfg(test)]
mod reference;
mod service_links;
mod setting;
mod show;

pub(crate) use layer::{Flags, line_of, load};
pub(crate) use listen::ListenAddress;
#[cfg(test)]
pub(crate) use reference::reference;
pub(crate) use setting::aliases;
pub(crate) use show::{masked_url, show};

use crate::mask::Mask;
use check::{CheckedValue, pair};
use chimera_core::access::address::Network;
use chimera_core::ledger::checkpoint::PublicKey;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: ListenAddress,
    /// Where clients reach this server, if not at `listen`.
    pub(crate) public_url: Option<String>,
    /// PostgreSQL; if unset, records are in the data folder (SQLite).
    pub(crate) database_url: Option<SensitiveText>,
    /// Redis; if unset, bus and counters are in this process.
    pub(crate) redis_url: Option<SensitiveText>,
    /// S3; if unset, blobs are in the data folder.
    pub(crate) s3_url: Option<SensitiveText>,
    /// Name of the secret with the S3 credentials.
    pub(crate) s3_credentials: Option<String>,
    /// The server that commands connect to.
    pub(crate) server: Option<String>,
    pub(crate) token: Option<Token>,
    /// Hosts that tools may call.
    pub(crate) egress_allow: Vec<String>,
    /// The actor that commands sign in as.
    pub(crate) actor: Option<String>,
    /// That actor's key.
    pub(crate) hmac_key: Option<Token>,
    pub(crate) access: AccessConfig,
    pub(crate) flow: FlowConfig,
    /// Name of the secret that signs webhook notifications.
    pub(crate) webhook_key: Option<String>,
    pub(crate) mail: Option<MailConfig>,
    pub(crate) log_level: String,
    pub(crate) log_format: LogFormat,
    pub(crate) otlp_endpoint: Option<SensitiveText>,
    pub(crate) checkpoint_interval: Duration,
    /// Name of the secret with the ledger's signing key; if unset, the file in the data folder.
    pub(crate) signing_key: Option<String>,
    /// Where the ledger's position is recorded, if not in the data folder.
    pub(crate) mark_file: Option<PathBuf>,
    /// Other keys that sign this ledger, or signed it earlier.
    pub(crate) trusted_keys: Vec<PublicKey>,
    /// Parallel commit lanes on PostgreSQL.
    pub(crate) lanes: usize,
    /// A folder with one file per secret.
    pub(crate) secrets_dir: Option<PathBuf>,
    /// A TOML or JSON file of secret names and values.
    pub(crate) secrets_file: Option<PathBuf>,
    /// Secrets from the environment, by variable name.
    pub(crate) secret_variables: SecretVariables,
    /// Redacts every secret in or referenced by these settings.
    pub(crate) mask: Mask,
    pub(crate) http: HttpConfig,
    /// How long calls and requests in flight may continue after a stop signal.
    pub(crate) shutdown_grace: Duration,
    /// How long the server keeps serving after a stop signal while `/readyz` reports that it is stopping.
    pub(crate) shutdown_delay: Duration,
}

impl Config {
    pub(crate) const SECRET_PREFIX: &'static str = setting::ENV_SECRET_PREFIX;

    fn of(values: &BTreeMap<&'static str, SettingValue>) -> Self {
        let page = SettingsReader(values);
        Self {
            data_dir: page.path("data_dir").unwrap_or_default(),
            listen: page.listen(),
            public_url: page.text("public_url"),
            database_url: page.text("database_url").map(SensitiveText),
            redis_url: page.text("redis_url").map(SensitiveText),
            s3_url: page.text("s3_url").map(SensitiveText),
            s3_credentials: page.text("s3_credentials"),
            server: page.text("server"),
            token: page.text("token").map(Token),
            egress_allow: page.list("egress_allow").to_vec(),
            actor: page.text("actor"),
            hmac_key: page.text("hmac_key").map(Token),
            access: AccessConfig::of(&page),
            flow: FlowConfig::of(&page),
            webhook_key: page.text("notify.webhook_key"),
            mail: MailConfig::of(&page),
            log_level: page.text("log.level").unwrap_or_default(),
            log_format: page.text("log.format").map_or(LogFormat::Auto, |word| LogFormat::of(&word)),
            otlp_endpoint: page.text("otlp.endpoint").map(SensitiveText),
            checkpoint_interval: page.seconds("ledger.checkpoint_seconds"),
            signing_key: page.text("ledger.signing_key"),
            mark_file: page.path("ledger.mark_file"),
            trusted_keys: page.list("ledger.trusted_keys").iter().filter_map(|key| PublicKey::from_hex(key)).collect(),
            lanes: page.count("store.lanes"),
            secrets_dir: page.path("secrets.dir"),
            secrets_file: page.path("secrets.file"),
            secret_variables: SecretVariables::default(),
            mask: Mask::default(),
            http: HttpConfig::of(&page),
            shutdown_grace: page.seconds("shutdown.grace_seconds"),
            shutdown_delay: page.seconds("shutdown.delay_seconds"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct HttpConfig {
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    /// Reverse proxies, which are exempt from the per-address limits.
    pub(crate) proxies: Vec<Network>,
    pub(crate) refused_bytes_per_minute_max: u64,
    /// For a request head, an idle connection, or a response that the client does not read.
    pub(crate) header_timeout: Duration,
    /// How long a body may take before the minimum rate applies.
    pub(crate) body_timeout: Duration,
    /// Until the response begins.
    pub(crate) request_timeout: Duration,
}

impl HttpConfig {
    fn of(page: &SettingsReader<'_>) -> Self {
        Self {
            connections_max: page.count("http.connections_max"),
            connections_per_address_max: page.count("http.connections_per_address_max"),
            proxies: page.list("http.proxies").iter().filter_map(|network| network.parse().ok()).collect(),
            refused_bytes_per_minute_max: page.number("http.refused_bytes_per_minute_max"),
            header_timeout: page.seconds("http.header_timeout_seconds"),
            body_timeout: page.seconds("http.body_timeout_seconds"),
            request_timeout: page.seconds("http.request_timeout_seconds"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FlowConfig {
    pub(crate) tools_dir: Option<PathBuf>,
    pub(crate) intents_dir: Option<PathBuf>,
    /// Vendor base URLs that differ from the default.
    pub(crate) base_urls: BTreeMap<String, String>,
    pub(crate) policy_file: Option<PathBuf>,
    /// Concurrent calls: in this process, per tenant, per tool, per host.
    pub(crate) calls_max: [usize; 4],
    /// Per-tool overrides.
    pub(crate) calls_of: BTreeMap<String, usize>,
    /// Per-host overrides.
    pub(crate) calls_to: BTreeMap<String, usize>,
    pub(crate) calls_waiting_max: usize,
    /// Runs driven concurrently: in this process, per tenant, per tool.
    pub(crate) runs_max: [usize; 3],
    pub(crate) runs_memory_bytes_max: usize,
}

impl FlowConfig {
    fn of(page: &SettingsReader<'_>) -> Self {
        let pairs = |key| page.list(key).iter().filter_map(|text| pair(text));
        let count = |(name, count): (&str, &str)| Some((name.to_owned(), count.parse().ok()?));
        Self {
            tools_dir: page.path("flow.tools_dir"),
            intents_dir: page.path("flow.intents_dir"),
            base_urls: pairs("flow.base_urls").map(|(name, url)| (name.to_owned(), url.to_owned())).collect(),
            policy_file: page.path("flow.policy_file"),
            calls_max: ["calls_max", "tenant_calls_max", "tool_calls_max", "host_calls_max"]
                .map(|key| page.count(&format!("flow.{key}"))),
            calls_of: pairs("flow.calls_of").filter_map(count).collect(),
            calls_to: pairs("flow.calls_to").filter_map(count).collect(),
            calls_waiting_max: page.count("flow.calls_waiting_max"),
            runs_max: ["runs_max", "tenant_runs_max", "tool_runs_max"].map(|key| page.count(&format!("flow.{key}"))),
            runs_memory_bytes_max: page.count("flow.runs_memory_bytes_max"),
        }
    }
}

/// Settings of authentication and access control.
#[derive(Clone, Debug)]
pub(crate) struct AccessConfig {
    pub(crate) actors_file: Option<PathBuf>,
    /// The actor (or pattern) in a setup with a single key.
    pub(crate) hmac_actor: String,
    /// Its key, or the name of the secret that holds it.
    pub(crate) hmac_secret: Option<Token>,
    pub(crate) hs256: bool,
    /// The HS256 secret, or the name of the secret that holds it.
    pub(crate) jwt_secret: Option<Token>,
    /// Name of the secret with the Ed25519 seed for access tokens.
    pub(crate) token_key: Option<String>,
    /// Other keys whose tokens are accepted.
    pub(crate) token_keys_before: Vec<PublicKey>,
    pub(crate) audience: String,
    /// Name of the secret with the key that encrypts actors' keys.
    pub(crate) seal_key: Option<String>,
    /// An actor's first use of an action is drafted for approval.
    pub(crate) cautious: bool,
    pub(crate) idempotency_ttl: Duration,
    /// Reject all requests while Redis is unreachable.
    pub(crate) refuse_without_redis: bool,
    /// Do not accept tool names and `{adapter}.{action}` as scopes.
    pub(crate) strict_scopes: bool,
}

impl AccessConfig {
    fn of(page: &SettingsReader<'_>) -> Self {
        let public = |key: &str| page.list(key).iter().filter_map(|key| PublicKey::from_hex(key)).collect();
        let says = |key: &str, word: &str| page.text(key).as_deref() == Some(word);
        Self {
            actors_file: page.path("access.actors_file"),
            hmac_actor: page.text("access.hmac_actor").unwrap_or_default(),
            hmac_secret: page.text("access.hmac_secret").map(Token),
            hs256: says("access.jwt_algorithm", "HS256"),
            jwt_secret: page.text("access.jwt_secret").map(Token),
            token_key: page.text("access.token_key"),
            token_keys_before: public("access.token_keys_before"),
            audience: page.text("access.audience").unwrap_or_default(),
            seal_key: page.text("access.seal_key"),
            cautious: page.boolean("access.cautious"),
            idempotency_ttl: page.seconds("access.idempotency_ttl_seconds"),
            refuse_without_redis: says("access.without_redis", "refuse"),
            strict_scopes: page.boolean("scopes.strict"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct MailConfig {
    pub(crate) server: String,
    pub(crate) port: u16,
    /// `starttls`, `implicit` or `none`.
    pub(crate) tls: String,
    pub(crate) from: Option<String>,
    pub(crate) user: Option<String>,
    /// Name of the secret with the password.
    pub(crate) password: Option<String>,
    /// Additional trusted certificates.
    pub(crate) roots_file: Option<PathBuf>,
}

impl MailConfig {
    fn of(page: &SettingsReader<'_>) -> Option<Self> {
        Some(Self {
            server: page.text("mail.server")?,
            port: u16::try_from(page.number("mail.port")).unwrap_or(587),
            tls: page.text("mail.tls").unwrap_or_default(),
            from: page.text("mail.from"),
            user: page.text("mail.user"),
            password: page.text("mail.password"),
            roots_file: page.path("mail.roots_file"),
        })
    }
}

/// The configuration together with the origin of every value.
#[derive(Clone, Debug)]
pub(crate) struct LoadedConfig {
    pub(crate) config: Config,
    pub(crate) values: BTreeMap<&'static str, SettingValue>,
}

#[derive(Clone, Debug)]
pub(crate) struct SettingValue {
    pub(crate) typed: CheckedValue,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        file: String,
        /// 1-based.
        line: usize,
    },
    Env(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Secrets by variable name; `Debug` shows names only.
#[derive(Clone, Default)]
pub(crate) struct SecretVariables(pub(crate) BTreeMap<String, String>);

impl fmt::Debug for SecretVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Text that may contain a secret, such as a URL with a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SensitiveText(pub(crate) String);

impl fmt::Debug for SensitiveText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked_url(&self.0))
    }
}

/// A token; never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Human-readable on a terminal, JSON otherwise.
    Auto,
    /// One JSON object per line.
    Json,
    /// Human-readable text.
    Human,
}

impl LogFormat {
    fn of(word: &str) -> Self {
        match word {
            "json" => Self::Json,
            "human" => Self::Human,
            _ => Self::Auto,
        }
    }
}

/// Typed access to the validated values; the table guarantees the kind of each.
struct SettingsReader<'a>(&'a BTreeMap<&'static str, SettingValue>);

impl SettingsReader<'_> {
    fn text(&self, key: &str) -> Option<String> {
        match self.0.get(key).map(|value| &value.typed) {
            Some(CheckedValue::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    fn listen(&self) -> ListenAddress {
        let given = self.text("listen").and_then(|text| text.parse().ok());
        given.unwrap_or(ListenAddress { host: "127.0.0.1".to_owned(), port: 0 })
    }

    fn boolean(&self, key: &str) -> bool {
        matches!(self.0.get(key).map(|value| &value.typed), Some(CheckedValue::Boolean(true)))
    }

    fn list(&self, key: &str) -> &[String] {
        match self.0.get(key).map(|value| &value.typed) {
            Some(CheckedValue::List(items)) => items,
            _ => &[],
        }
    }

    fn number(&self, key: &str) -> u64 {
        match self.0.get(key).map(|value| &value.typed) {
            Some(CheckedValue::Number(number)) => *number,
            _ => 0,
        }
    }

    fn count(&self, key: &str) -> usize {
        usize::try_from(self.number(key)).unwrap_or(usize::MAX)
    }

    fn seconds(&self, key: &str) -> Duration {
        Duration::from_secs(self.number(key))
    }
}
