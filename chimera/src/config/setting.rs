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
    /// Any text.
    Text,
    /// A text that must not be shown.
    Token,
    /// A path.
    Path,
    /// A host and a port to listen at.
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
    /// Yes or no.
    Boolean,
    /// `host` or `host:port`, any number of them.
    Hosts,
    /// IP addresses and ranges of them, any number.
    Networks,
    /// `name=value`, any number of them; what the value must look like.
    Pairs(Paired),
    /// Ed25519 public keys, any number of them.
    PublicKeys,
}

/// What stands behind the name in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paired {
    /// An address that begins with http.
    Address,
    /// A whole number, at least one.
    Count,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    /// The default in the spelling of an environment variable; none: not set.
    pub(crate) default: Option<&'static str>,
    pub(crate) flag: Option<&'static str>,
    /// Another name of its environment variable, one that others use too.
    pub(crate) alias: Option<&'static str>,
    pub(crate) doc: &'static str,
}

impl Setting {
    const fn new(key: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Self {
        Self { key, kind, default, flag: None, alias: None, doc }
    }

    const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    /// Whether an empty text is a value: a list of nothing.
    pub(crate) const fn is_list(&self) -> bool {
        matches!(self.kind, Kind::Hosts | Kind::Networks | Kind::Pairs(_) | Kind::PublicKeys)
    }

    /// The name of its environment variable.
    pub(crate) fn env(&self) -> String {
        format!("CHIMERA_{}", self.key.replace('.', "__").to_uppercase())
    }
}

const fn calls(max: u64) -> Kind {
    Kind::Number { min: 1, max, unit: "calls" }
}

const fn runs(max: u64) -> Kind {
    Kind::Number { min: 1, max, unit: "runs" }
}

const fn seconds(min: u64, max: u64) -> Kind {
    Kind::Number { min, max, unit: "seconds" }
}

/// The names of environment variables that don't begin like the others.
pub(crate) fn aliases() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().filter_map(|setting| setting.alias)
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
        "Host (a name or an address) and port at which HTTP is served; port 0 takes a free one.",
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
    Setting::new(
        "server",
        Kind::Url(&["http", "https"]),
        None,
        "Server that commands speak to; without it the one that uses the data folder.",
    )
    .flag("--server"),
    Setting::new(
        "token",
        Kind::Token,
        None,
        "Access token that commands show to the server; without it they sign in.",
    ),
    Setting::new(
        "actor",
        Kind::Text,
        None,
        "Whom commands sign in as; `admin` without it.",
    ),
    Setting::new(
        "hmac_key",
        Kind::Token,
        None,
        "Key of that actor; without it the one that `chimera dev` keeps in the data folder.",
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
        "ledger.mark_file",
        Kind::Path,
        None,
        "File that says how far the ledger has come, by which a store that was put back is noticed; without it \
         `ledger.mark` in the data folder, or `ledger.postgres.mark`. Best on another disk.",
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
        Some("4096"),
        "Connections at one time; more wait.",
    ),
    Setting::new(
        "http.connections_per_address_max",
        Kind::Number { min: 1, max: 100_000, unit: "connections" },
        Some("1024"),
        "Connections at one time from one address (IPv6: from one /64); more are refused with 429. One of \
         `http.connections_max` is always left for others.",
    ),
    Setting::new(
        "http.proxies",
        Kind::Networks,
        Some(""),
        "Addresses of reverse proxies in front of the server, such as `10.0.0.0/8`: they may have any number of connections, \
         and what strangers send through them is not counted by address.",
    ),
    Setting::new(
        "http.refused_bytes_per_minute_max",
        Kind::Number { min: 1, max: 1_000_000_000_000, unit: "bytes" },
        Some("8388608"),
        "Bytes of bodies a minute that are read for one address, or for one actor at an address, in requests that are then \
         refused; more are refused unread with 429.",
    ),
    Setting::new(
        "http.header_timeout_seconds",
        seconds(1, 600),
        Some("15"),
        "How long a client may take for a request head, idle, or leave an answer untaken.",
    ),
    Setting::new(
        "http.body_timeout_seconds",
        seconds(1, 600),
        Some("10"),
        "How long the body of a request may take before it has to arrive at 128 KiB a second on the whole; a slower one is \
         refused with 408.",
    ),
    Setting::new(
        "http.request_timeout_seconds",
        seconds(1, 600),
        Some("30"),
        "How long a request may take until its answer begins.",
    ),
    Setting::new(
        "access.actors_file",
        Kind::Path,
        None,
        "TOML file of actors, over the shipped registry, as docs/guides/access.md describes.",
    ),
    Setting::new(
        "access.hmac_actor",
        Kind::Text,
        Some("n8n_workflow_default"),
        "The actor that `access.hmac_secret` is the key of, or a pattern of services whose names share it.",
    ),
    Setting::new(
        "access.hmac_secret",
        Kind::Token,
        None,
        "Key of one actor or pattern, for the set-up with a single key; or the name of the secret that holds it.",
    )
    .alias("HMAC_SECRET_KEY"),
    Setting::new(
        "access.jwt_algorithm",
        Kind::Choice(&["EdDSA", "HS256"]),
        Some("EdDSA"),
        "How access tokens are signed. `HS256` needs `access.jwt_secret`.",
    )
    .alias("JWT_ALGORITHM"),
    Setting::new(
        "access.jwt_secret",
        Kind::Token,
        None,
        "Secret of `HS256`, or the name of the secret that holds it. Beside `access.hmac_secret` its tokens count for that one actor.",
    )
    .alias("JWT_SECRET_KEY"),
    Setting::new(
        "access.token_key",
        Kind::SecretName,
        None,
        "Secret that holds the Ed25519 seed (64 hex digits) of access tokens; without it `keys/token.key` in the data folder.",
    ),
    Setting::new(
        "access.token_keys_before",
        Kind::PublicKeys,
        Some(""),
        "Ed25519 public keys (64 hex digits each) whose tokens still count: of before a change, or of other nodes.",
    ),
    Setting::new("access.audience", Kind::Text, Some("chimera"), "Whom access tokens are for."),
    Setting::new(
        "access.seal_key",
        Kind::SecretName,
        None,
        "Secret that holds the key (64 hex digits) that seals actors' keys in the store; without it `keys/seal.key` in the data folder.",
    ),
    Setting::new(
        "access.cautious",
        Kind::Boolean,
        Some("false"),
        "Whether what an actor does for the first time is drafted.",
    ),
    Setting::new(
        "access.idempotency_ttl_seconds",
        seconds(1, 30 * 86_400),
        Some("86400"),
        "How long Redis remembers the run behind an idempotency key; the database remembers it for ever.",
    )
    .alias("REDIS_IDEMPOTENCY_TTL"),
    Setting::new(
        "access.without_redis",
        Kind::Choice(&["refuse", "database"]),
        Some("refuse"),
        "When Redis can't be reached: `refuse` requests, or let the `database` decide about keys and every node count requests for itself.",
    ),
    Setting::new(
        "scopes.strict",
        Kind::Boolean,
        Some("false"),
        "Whether a tool's name and `{adapter}.{action}` stop counting as scopes.",
    ),
    Setting::new(
        "flow.tools_dir",
        Kind::Path,
        None,
        "Folder whose `*.toml` files declare tools, as docs/guides/tools.md describes.",
    ),
    Setting::new(
        "flow.base_urls",
        Kind::Pairs(Paired::Address),
        Some(""),
        "Where vendors are called if not at their usual address, such as `github=https://github.example.com/api/v3`.",
    ),
    Setting::new(
        "flow.policy_file",
        Kind::Path,
        None,
        "TOML file of rules about which tools may be called and which need approval, as docs/guides/workflows.md describes.",
    ),
    Setting::new("flow.calls_max", calls(100_000), Some("1024"), "Calls of tools under way at a time in this process; of several tenants each has its share of these, as docs/guides/tenants.md describes."),
    Setting::new("flow.tenant_calls_max", calls(100_000), Some("512"), "Calls under way at a time for one tenant."),
    Setting::new("flow.tool_calls_max", calls(100_000), Some("256"), "Calls under way at a time of one tool; of several tenants each has its share."),
    Setting::new(
        "flow.host_calls_max",
        calls(100_000),
        Some("64"),
        "Calls under way at a time to one host, whichever tools make them; a host that hangs holds up no more than these.",
    ),
    Setting::new(
        "flow.calls_of",
        Kind::Pairs(Paired::Count),
        Some(""),
        "Calls under way at a time of tools with a limit of their own, such as `notion.search=3`.",
    ),
    Setting::new(
        "flow.calls_to",
        Kind::Pairs(Paired::Count),
        Some(""),
        "Calls under way at a time to hosts with a limit of their own, such as `api.example.com=200`, with `:port` if it is not the usual one.",
    ),
    Setting::new(
        "flow.calls_waiting_max",
        calls(50_000),
        Some("10000"),
        "Calls that may wait for one host, or for one tool without a host; a new run that would begin by waiting there is refused with `OVERLOADED`.",
    ),
    Setting::new("flow.runs_max", runs(1_000_000), Some("10000"), "Runs driven at a time by this process, of which each of several tenants has its share; runs that wait for a slot in the store, for a person or for a time don't count."),
    Setting::new("flow.tenant_runs_max", runs(1_000_000), Some("8000"), "Runs driven at a time for one tenant."),
    Setting::new(
        "flow.tool_runs_max",
        runs(1_000_000),
        Some("2000"),
        "Calls of one tool that runs in memory make or wait for; runs that would wait for more wait in the store.",
    ),
    Setting::new(
        "flow.runs_memory_bytes_max",
        Kind::Number { min: 1_048_576, max: 1_000_000_000_000, unit: "bytes" },
        Some("268435456"),
        "Memory that the inputs and outputs of runs driven by this process take together, as it is estimated; of several tenants each has its share. A run that would take more waits in the store.",
    ),
    Setting::new(
        "notify.webhook_key",
        Kind::SecretName,
        None,
        "Secret that holds the key that signs what webhooks are told about runs: `whsk_` (Ed25519) or `whsec_` (shared). Without it the data folder's own Ed25519 key signs; several nodes should share one.",
    ),
    Setting::new("mail.server", Kind::Text, None, "SMTP server that takes mails; without it no mail is sent."),
    Setting::new(
        "mail.port",
        Kind::Number { min: 1, max: 65_535, unit: "port" },
        Some("587"),
        "Its port: 587 for `starttls`, 465 for `implicit`, as a rule.",
    ),
    Setting::new(
        "mail.tls",
        Kind::Choice(&["starttls", "implicit", "none"]),
        Some("starttls"),
        "How the connection is protected; `none` is for a relay on this machine.",
    ),
    Setting::new("mail.from", Kind::Text, None, "Who mails are from: an address, or `Name <address>`."),
    Setting::new("mail.user", Kind::Text, None, "User at the SMTP server, if it asks for one."),
    Setting::new("mail.password", Kind::SecretName, None, "Secret that holds the password of that user."),
    Setting::new(
        "mail.roots_file",
        Kind::Path,
        None,
        "PEM file of certificates that are trusted besides the system's.",
    ),
    Setting::new(
        "shutdown.grace_seconds",
        seconds(0, 600),
        Some("20"),
        "How long calls of tools and requests that are under way may go on after a stop was asked for; nothing new begins meanwhile. The stores are closed within it too, so a database that does not answer delays a stop by a second or two beyond it at the most.",
    ),
    Setting::new(
        "shutdown.delay_seconds",
        seconds(0, 600),
        Some("0"),
        "How long a server that was asked to stop goes on as before while `/readyz` says that it stops, so that load balancers send nothing more; comes before the grace time.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::limits;

    #[test]
    fn the_limits_of_the_http_edge_have_their_defaults_in_the_page_of_limits() {
        let default = |key: &str| SETTINGS.iter().find(|setting| setting.key == key).unwrap().default.unwrap();
        for (key, limit) in [
            ("http.connections_per_address_max", limits::CONNECTIONS_PER_ADDRESS_DEFAULT as u64),
            ("http.refused_bytes_per_minute_max", limits::REFUSED_BODY_BYTES_DEFAULT),
            ("flow.runs_memory_bytes_max", limits::RUNS_MEMORY_BYTES_MAX as u64),
            ("http.body_timeout_seconds", limits::BODY_TIMEOUT_DEFAULT.as_secs()),
        ] {
            assert_eq!(default(key), limit.to_string(), "{key}");
        }
    }
}
