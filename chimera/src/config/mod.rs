//! The configuration: one page of settings, and where each value came from.
//!
//! Values come from four layers, each overriding the one before: defaults, the file
//! (`chimera.toml`), the environment (`CHIMERA_…`, nested keys by `__`), flags. The page below is
//! what the rest of the program sees; `setting.rs` is the table of keys with their kinds and
//! defaults; `layer.rs` reads the layers. Secrets are never printed: neither by `Debug` nor by
//! `config print`.

mod check;
mod layer;
mod listen;
#[cfg(test)]
mod reference;
mod service_links;
mod setting;
mod show;
#[cfg(test)]
mod spellings_tests;

pub(crate) use layer::{Flags, load};
pub(crate) use listen::Listen;
#[cfg(test)]
pub(crate) use reference::reference;
pub(crate) use setting::aliases;
pub(crate) use show::{masked_url, show};

use crate::mask::Mask;
use check::{Typed, pair};
use chimera_core::access::address::Network;
use chimera_core::ledger::checkpoint::PublicKey;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Every setting of a process.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Where everything local lives.
    pub(crate) data_dir: PathBuf,
    /// Where HTTP is served.
    pub(crate) listen: Listen,
    /// Where clients reach this server, if it is not where it listens.
    pub(crate) public_url: Option<String>,
    /// PostgreSQL; without it the records live in the data folder.
    pub(crate) database_url: Option<Secretive>,
    /// Redis; without it bus and counters live in this process.
    pub(crate) redis_url: Option<Secretive>,
    /// S3; without it blobs live in the data folder.
    pub(crate) s3_url: Option<Secretive>,
    /// The secret with the credentials for S3.
    pub(crate) s3_credentials: Option<String>,
    /// The server that commands speak to.
    pub(crate) server: Option<String>,
    /// The token that they show.
    pub(crate) token: Option<Token>,
    /// Whom tools may call.
    pub(crate) egress_allow: Vec<String>,
    /// Whom commands sign in as.
    pub(crate) actor: Option<String>,
    /// The key that they sign with.
    pub(crate) hmac_key: Option<Token>,
    /// The front door.
    pub(crate) access: AccessConfig,
    /// Tools, rules and bounds of workflows.
    pub(crate) flow: FlowConfig,
    /// The secret that signs webhooks about runs.
    pub(crate) webhook_key: Option<String>,
    /// Where mails are handed over, if anywhere.
    pub(crate) mail: Option<MailConfig>,
    /// Log filter.
    pub(crate) log_level: String,
    /// Log format.
    pub(crate) log_format: LogFormat,
    /// Where spans are sent, if anywhere.
    pub(crate) otlp_endpoint: Option<Secretive>,
    /// How often the ledger is sealed by a signed checkpoint.
    pub(crate) checkpoint_interval: Duration,
    /// The ledger's signing key, if it is not the file in the data folder.
    pub(crate) signing_key: Option<String>,
    /// Where it is kept how far the ledger has come, if not in the data folder.
    pub(crate) mark_file: Option<PathBuf>,
    /// Who else signs this ledger, or did.
    pub(crate) trusted_keys: Vec<PublicKey>,
    /// Lanes that commit side by side on PostgreSQL.
    pub(crate) lanes: usize,
    /// A folder with one file per secret.
    pub(crate) secrets_dir: Option<PathBuf>,
    /// A TOML or JSON file of secret names and values.
    pub(crate) secrets_file: Option<PathBuf>,
    /// The environment's secrets by the names of their variables.
    pub(crate) secret_variables: SecretVariables,
    /// What of all this, and of the secrets that it names, must not be read.
    pub(crate) mask: Mask,
    /// Connections, requests and their bodies.
    pub(crate) http: HttpConfig,
    /// How long calls and requests may run on after the stop.
    pub(crate) shutdown_grace: Duration,
    /// How long everything goes on before the stop, while readiness says that it comes.
    pub(crate) shutdown_delay: Duration,
}

impl Config {
    /// What the names of the environment's secrets begin with.
    pub(crate) const SECRET_PREFIX: &'static str = setting::ENV_SECRET_PREFIX;

    fn of(values: &BTreeMap<&'static str, Value>) -> Self {
        let page = Page(values);
        Self {
            data_dir: page.path("data_dir").unwrap_or_default(),
            listen: page.listen(),
            public_url: page.text("public_url"),
            database_url: page.text("database_url").map(Secretive),
            redis_url: page.text("redis_url").map(Secretive),
            s3_url: page.text("s3_url").map(Secretive),
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
            otlp_endpoint: page.text("otlp.endpoint").map(Secretive),
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

/// Settings of the HTTP edge.
#[derive(Clone, Debug)]
pub(crate) struct HttpConfig {
    /// Connections at one time.
    pub(crate) connections_max: usize,
    /// Of these, connections from one address.
    pub(crate) connections_per_address_max: usize,
    /// Addresses of proxies, which have no limit of their own.
    pub(crate) proxies: Vec<Network>,
    /// Bytes of refused bodies that are read for one address in a minute.
    pub(crate) refused_bytes_per_minute_max: u64,
    /// How long a client may take for a request head, idle, or leave an answer untaken.
    pub(crate) header_timeout: Duration,
    /// How long a body may take before it has to arrive at the least rate.
    pub(crate) body_timeout: Duration,
    /// How long a request may take until its answer begins.
    pub(crate) request_timeout: Duration,
}

impl HttpConfig {
    fn of(page: &Page<'_>) -> Self {
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

/// Settings of workflows.
#[derive(Clone, Debug)]
pub(crate) struct FlowConfig {
    /// Folder of files that declare tools.
    pub(crate) tools_dir: Option<PathBuf>,
    /// Vendors that are elsewhere.
    pub(crate) base_urls: BTreeMap<String, String>,
    /// File of rules.
    pub(crate) policy_file: Option<PathBuf>,
    /// Calls under way at a time: in this process, for one tenant, of one tool, to one host.
    pub(crate) calls_max: [usize; 4],
    /// Tools with a limit of their own.
    pub(crate) calls_of: BTreeMap<String, usize>,
    /// Hosts with a limit of their own.
    pub(crate) calls_to: BTreeMap<String, usize>,
    /// Calls that may wait for one host or tool.
    pub(crate) calls_waiting_max: usize,
    /// Runs driven at a time: in this process, for one tenant, for one tool.
    pub(crate) runs_max: [usize; 3],
    /// Memory that runs take together.
    pub(crate) runs_memory_bytes_max: usize,
}

impl FlowConfig {
    fn of(page: &Page<'_>) -> Self {
        let pairs = |key| page.list(key).iter().filter_map(|text| pair(text));
        let count = |(name, count): (&str, &str)| Some((name.to_owned(), count.parse().ok()?));
        Self {
            tools_dir: page.path("flow.tools_dir"),
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

/// Settings of the front door.
#[derive(Clone, Debug)]
pub(crate) struct AccessConfig {
    /// File of actors.
    pub(crate) actors_file: Option<PathBuf>,
    /// The one actor of the set-up with a single key.
    pub(crate) hmac_actor: String,
    /// Its key, or the name of the secret with it.
    pub(crate) hmac_secret: Option<Token>,
    /// Access tokens are signed with a shared secret.
    pub(crate) hs256: bool,
    /// That secret, or its name.
    pub(crate) jwt_secret: Option<Token>,
    /// The secret with the seed of access tokens.
    pub(crate) token_key: Option<String>,
    /// Keys of access tokens that count too.
    pub(crate) token_keys_before: Vec<PublicKey>,
    /// Whom access tokens are for.
    pub(crate) audience: String,
    /// The secret with the key that seals actors' keys.
    pub(crate) seal_key: Option<String>,
    /// What is done for the first time is drafted.
    pub(crate) cautious: bool,
    /// How long Redis remembers a key.
    pub(crate) idempotency_ttl: Duration,
    /// Without Redis nobody is let in.
    pub(crate) refuse_without_redis: bool,
    /// Only the document's rules about scopes count.
    pub(crate) strict_scopes: bool,
}

impl AccessConfig {
    fn of(page: &Page<'_>) -> Self {
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

/// Settings of mail.
#[derive(Clone, Debug)]
pub(crate) struct MailConfig {
    /// SMTP server.
    pub(crate) server: String,
    /// Its port.
    pub(crate) port: u16,
    /// `starttls`, `implicit` or `none`.
    pub(crate) tls: String,
    /// Who mails are from.
    pub(crate) from: Option<String>,
    /// User there.
    pub(crate) user: Option<String>,
    /// The secret with its password.
    pub(crate) password: Option<String>,
    /// Certificates that are trusted too.
    pub(crate) roots_file: Option<PathBuf>,
}

impl MailConfig {
    fn of(page: &Page<'_>) -> Option<Self> {
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
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) values: BTreeMap<&'static str, Value>,
}

/// A checked value and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) typed: Typed,
    pub(crate) origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the file.
    File {
        /// The file as it was named.
        file: String,
        /// The line, from one.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A flag.
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

/// Variables that hold secrets; never shown.
#[derive(Clone, Default)]
pub(crate) struct SecretVariables(pub(crate) BTreeMap<String, String>);

impl fmt::Debug for SecretVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A text that may hold a secret, such as an address with a password in it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secretive(pub(crate) String);

impl fmt::Debug for Secretive {
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

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// One JSON object per line.
    Json,
    /// For reading.
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

/// Reads the checked values; the table guarantees that each has its kind.
struct Page<'a>(&'a BTreeMap<&'static str, Value>);

impl Page<'_> {
    fn text(&self, key: &str) -> Option<String> {
        match self.0.get(key).map(|value| &value.typed) {
            Some(Typed::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    fn listen(&self) -> Listen {
        let given = self.text("listen").and_then(|text| text.parse().ok());
        given.unwrap_or(Listen { host: "127.0.0.1".to_owned(), port: 0 })
    }

    fn boolean(&self, key: &str) -> bool {
        matches!(self.0.get(key).map(|value| &value.typed), Some(Typed::Boolean(true)))
    }

    fn list(&self, key: &str) -> &[String] {
        match self.0.get(key).map(|value| &value.typed) {
            Some(Typed::List(items)) => items,
            _ => &[],
        }
    }

    fn number(&self, key: &str) -> u64 {
        match self.0.get(key).map(|value| &value.typed) {
            Some(Typed::Number(number)) => *number,
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
