//! The table of settings: key, kind, default, what it is for.
//!
//! Environment names follow from the keys (`log.level` is `CHIMERA_LOG__LEVEL`), and so does the
//! reference in `docs/reference/config.md`.

/// Names the configuration file, when no flag does.
pub(crate) const ENV_CONFIG: &str = "CHIMERA_CONFIG";
/// Variables with this prefix are secrets, not settings.
pub(crate) const ENV_SECRET_PREFIX: &str = "CHIMERA_SECRET_";

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Which lines are logged.
    LogFilter,
    /// A path.
    Path,
    /// An address to listen at.
    Listen,
    /// A URL with one of these schemes.
    Url(&'static [&'static str]),
    /// The name of a secret.
    SecretName,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number within these bounds.
    Number {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// `host` or `host:port`, any number of them.
    Hosts,
    /// Ed25519 public keys, any number of them.
    PublicKeys,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    /// The default in the spelling of an environment variable; none: not set.
    pub(crate) default: Option<&'static str>,
    pub(crate) flag: Option<&'static str>,
    pub(crate) doc: &'static str,
}

impl Setting {
    const fn new(key: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Self {
        Self { key, kind, default, flag: None, doc }
    }

    const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    /// The name of its environment variable.
    pub(crate) fn env(&self) -> String {
        format!("CHIMERA_{}", self.key.replace('.', "__").to_uppercase())
    }
}

const fn seconds(min: u64, max: u64) -> Kind {
    Kind::Number { min, max, unit: "seconds" }
}

/// Every setting, in the order in which they are shown.
pub(crate) static SETTINGS: &[Setting] = &[
    Setting::new(
        "data_dir",
        Kind::Path,
        Some(".chimera"),
        "Folder of everything local: records, blobs, keys, the lock.",
    )
    .flag("--data"),
    Setting::new(
        "listen",
        Kind::Listen,
        Some("127.0.0.1:8080"),
        "Address at which HTTP is served; port 0 takes a free one.",
    )
    .flag("--listen"),
    Setting::new(
        "public_url",
        Kind::Url(&["http", "https"]),
        None,
        "Address at which clients reach the server, for links in its answers; without it the one it listens at.",
    ),
    Setting::new(
        "database_url",
        Kind::Url(&["postgres", "postgresql", "secret"]),
        None,
        "PostgreSQL for the records; without it they live in the data folder.",
    ),
    Setting::new(
        "redis_url",
        Kind::Url(&["redis", "rediss", "secret"]),
        None,
        "Redis for bus and counters; without it they live in the process.",
    ),
    Setting::new(
        "s3_url",
        Kind::Url(&["s3", "secret"]),
        None,
        "S3 for blobs, such as `s3://bucket/prefix?endpoint=https://host&region=name`; without it they live in the data folder.",
    ),
    Setting::new(
        "s3_credentials",
        Kind::SecretName,
        None,
        "Secret that holds `ACCESS_KEY_ID:SECRET_ACCESS_KEY` for S3.",
    ),
    Setting::new("egress_allow", Kind::Hosts, Some(""), "Hosts that tools may call, as `host` or `host:port`."),
    Setting::new(
        "log.level",
        Kind::LogFilter,
        Some("info"),
        "`debug`, `info`, `warn` or `error` for Chimera's own lines; or a list such as `info,chimera_storage=debug`.",
    ),
    Setting::new(
        "log.format",
        Kind::Choice(&["auto", "json", "human"]),
        Some("auto"),
        "`auto` is human on a terminal and JSON otherwise.",
    )
    .flag("--log-format"),
    Setting::new(
        "otlp.endpoint",
        Kind::Url(&["http", "https"]),
        None,
        "Collector for spans (OTLP over HTTP), such as `http://localhost:4318`.",
    ),
    Setting::new(
        "ledger.checkpoint_seconds",
        seconds(1, 86_400),
        Some("60"),
        "How often the ledger is sealed by a signed checkpoint.",
    ),
    Setting::new(
        "ledger.signing_key",
        Kind::SecretName,
        None,
        "Secret that holds the Ed25519 seed (64 hex digits); without it `keys/ledger.key` in the data folder.",
    ),
    Setting::new(
        "ledger.trusted_keys",
        Kind::PublicKeys,
        Some(""),
        "Ed25519 public keys (64 hex digits each) that also sign this ledger: of other nodes, or earlier ones.",
    ),
    Setting::new(
        "store.lanes",
        Kind::Number { min: 1, max: 64, unit: "lanes" },
        Some("2"),
        "Lanes that commit side by side on PostgreSQL.",
    ),
    Setting::new("secrets.dir", Kind::Path, None, "Folder with one file per secret, named like the secret."),
    Setting::new("secrets.file", Kind::Path, None, "TOML or JSON file of secret names and values."),
    Setting::new(
        "http.connections_max",
        Kind::Number { min: 1, max: 100_000, unit: "connections" },
        Some("1024"),
        "Connections at one time; more wait.",
    ),
    Setting::new(
        "http.header_timeout_seconds",
        seconds(1, 600),
        Some("15"),
        "How long a client may take for a request head, idle, or leave an answer untaken.",
    ),
    Setting::new(
        "http.request_timeout_seconds",
        seconds(1, 600),
        Some("30"),
        "How long a request may take until its answer begins.",
    ),
    Setting::new(
        "shutdown.grace_seconds",
        seconds(0, 600),
        Some("20"),
        "How long running requests may go on after a stop was asked for.",
    ),
];
