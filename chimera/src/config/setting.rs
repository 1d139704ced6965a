//! The table of settings: key, kind, default, description.
//!
//! Environment variable names are derived from the keys (`log.level` is `CHIMERA_LOG__LEVEL`), and
//! `docs/reference/config.md` is generated from this table.

/// Names the configuration file, unless `--config` does.
pub(crate) const ENV_CONFIG: &str = "CHIMERA_CONFIG";
/// Variables with this prefix are secrets, not settings.
pub(crate) const ENV_SECRET_PREFIX: &str = "CHIMERA_SECRET_";

/// The value type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingKind {
    LogFilter,
    Text,
    /// Secret text; never shown.
    Token,
    Path,
    Listen,
    /// A URL with one of these schemes.
    Url(&'static [&'static str]),
    /// `secret://NAME`.
    SecretName,
    Choice(&'static [&'static str]),
    /// An integer within inclusive bounds.
    Number {
        min: u64,
        max: u64,
        unit: &'static str,
    },
    Boolean,
    /// A list of `host` or `host:port`.
    Hosts,
    /// A list of IP addresses and ranges.
    Networks,
    /// A list of `name=value`.
    Pairs(PairValue),
    /// A list of Ed25519 public keys.
    PublicKeys,
}

/// The value type in a `name=value` pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairValue {
    /// An HTTP or HTTPS URL.
    Address,
    /// A positive integer.
    Count,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) kind: SettingKind,
    /// As written in an environment variable; `None` means not set.
    pub(crate) default: Option<&'static str>,
    pub(crate) flag: Option<&'static str>,
    /// An alternative environment variable, which other software uses too.
    pub(crate) alias: Option<&'static str>,
    pub(crate) doc: &'static str,
}

impl Setting {
    const fn new(key: &'static str, kind: SettingKind, default: Option<&'static str>, doc: &'static str) -> Self {
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

    /// Whether empty text is a valid value: the empty list.
    pub(crate) const fn is_list(&self) -> bool {
        matches!(
            self.kind,
            SettingKind::Hosts | SettingKind::Networks | SettingKind::Pairs(_) | SettingKind::PublicKeys
        )
    }

    pub(crate) fn env(&self) -> String {
        format!("CHIMERA_{}", self.key.replace('.', "__").to_uppercase())
    }
}

const fn calls(max: u64) -> SettingKind {
    SettingKind::Number { min: 1, max, unit: "calls" }
}

const fn runs(max: u64) -> SettingKind {
    SettingKind::Number { min: 1, max, unit: "runs" }
}

const fn seconds(min: u64, max: u64) -> SettingKind {
    SettingKind::Number { min, max, unit: "seconds" }
}

/// Environment variables without the `CHIMERA_` prefix.
pub(crate) fn aliases() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().filter_map(|setting| setting.alias)
}

/// All settings, in display order.
pub(crate) static SETTINGS: &[Setting] = &[
    Setting::new(
        "data_dir",
        SettingKind::Path,
        Some(".chimera"),
        "Data folder: records, blobs, keys and the lock file.",
    )
    .flag("--data"),
    Setting::new(
        "listen",
        SettingKind::Listen,
        Some("127.0.0.1:8080"),
        "Host (name or address) and port to serve HTTP on; port 0 picks a free port.",
    )
    .flag("--listen"),
    Setting::new(
        "public_url",
        SettingKind::Url(&["http", "https"]),
        None,
        "URL at which clients reach the server, for links in its responses; by default the listen address.",
    ),
    Setting::new(
        "database_url",
        SettingKind::Url(&["postgres", "postgresql", "secret"]),
        None,
        "PostgreSQL database for the records; by default they are kept in the data folder.",
    ),
    Setting::new(
        "redis_url",
        SettingKind::Url(&["redis", "rediss", "secret"]),
        None,
        "Redis for the message bus and the counters; by default they are kept in the process.",
    ),
    Setting::new(
        "s3_url",
        SettingKind::Url(&["s3", "secret"]),
        None,
        "S3 for blobs, such as `s3://bucket/prefix?endpoint=https://host&region=name`; by default they are kept in the data folder.",
    ),
    Setting::new(
        "s3_credentials",
        SettingKind::SecretName,
        None,
        "Secret that holds `ACCESS_KEY_ID:SECRET_ACCESS_KEY` for S3.",
    ),
    Setting::new(
        "server",
        SettingKind::Url(&["http", "https"]),
        None,
        "Server that commands connect to; by default the one that uses the data folder.",
    )
    .flag("--server"),
    Setting::new(
        "token",
        SettingKind::Token,
        None,
        "Access token that commands send to the server; by default they sign in.",
    ),
    Setting::new(
        "actor",
        SettingKind::Text,
        None,
        "Actor that commands sign in as; by default `admin`.",
    ),
    Setting::new(
        "hmac_key",
        SettingKind::Token,
        None,
        "Key of that actor; by default the one that `chimera dev` keeps in the data folder.",
    ),
    Setting::new("egress_allow", SettingKind::Hosts, Some(""), "Hosts that tools may call, as `host` or `host:port`."),
    Setting::new(
        "log.level",
        SettingKind::LogFilter,
        Some("info"),
        "`debug`, `info`, `warn` or `error` for Chimera's own log lines; or a list of directives such as `info,chimera_storage=debug`.",
    ),
    Setting::new(
        "log.format",
        SettingKind::Choice(&["auto", "json", "human"]),
        Some("auto"),
        "`auto` is human-readable on a terminal and JSON otherwise.",
    )
    .flag("--log-format"),
    Setting::new(
        "otlp.endpoint",
        SettingKind::Url(&["http", "https"]),
        None,
        "OpenTelemetry collector to send spans to (OTLP over HTTP), such as `http://localhost:4318`.",
    ),
    Setting::new(
        "ledger.checkpoint_seconds",
        seconds(1, 86_400),
        Some("60"),
        "Interval between signed checkpoints of the ledger.",
    ),
    Setting::new(
        "ledger.signing_key",
        SettingKind::SecretName,
        None,
        "Secret that holds the Ed25519 seed (64 hex digits); by default `keys/ledger.key` in the data folder.",
    ),
    Setting::new(
        "ledger.mark_file",
        SettingKind::Path,
        None,
        "File that records the ledger's position, to detect a store that was rolled back; by default `ledger.mark` or `ledger.postgres.mark` in the data folder. Best kept on another disk.",
    ),
    Setting::new(
        "ledger.trusted_keys",
        SettingKind::PublicKeys,
        Some(""),
        "Ed25519 public keys (64 hex digits each) that also sign this ledger: keys of other nodes, or earlier keys.",
    ),
    Setting::new(
        "store.lanes",
        SettingKind::Number { min: 1, max: 64, unit: "lanes" },
        Some("2"),
        "Number of lanes that commit in parallel on PostgreSQL.",
    ),
    Setting::new("secrets.dir", SettingKind::Path, None, "Folder with one file per secret, named after the secret."),
    Setting::new("secrets.file", SettingKind::Path, None, "TOML or JSON file of secret names and values."),
    Setting::new(
        "http.connections_max",
        SettingKind::Number { min: 1, max: 100_000, unit: "connections" },
        Some("4096"),
        "Maximum number of open connections; further ones wait.",
    ),
    Setting::new(
        "http.connections_per_address_max",
        SettingKind::Number { min: 1, max: 100_000, unit: "connections" },
        Some("1024"),
        "Maximum number of open connections from one address (IPv6: one /64); further ones are rejected with 429. One of `http.connections_max` is always kept free for others.",
    ),
    Setting::new(
        "http.proxies",
        SettingKind::Networks,
        Some(""),
        "Addresses of reverse proxies in front of the server, such as `10.0.0.0/8`. They can open any number of connections, and unauthenticated traffic through them is not counted by address.",
    ),
    Setting::new(
        "http.refused_bytes_per_minute_max",
        SettingKind::Number { min: 1, max: 1_000_000_000_000, unit: "bytes" },
        Some("8388608"),
        "Body bytes per minute that are read from one address, or from one actor at an address, in requests that are then rejected; beyond that, requests are rejected unread with 429.",
    ),
    Setting::new(
        "http.header_timeout_seconds",
        seconds(1, 600),
        Some("15"),
        "Timeout for a request head, an idle connection, or a response that the client does not read.",
    ),
    Setting::new(
        "http.body_timeout_seconds",
        seconds(1, 600),
        Some("10"),
        "Time that a request body may take before it must arrive at 128 KiB per second on average; slower bodies are rejected with 408.",
    ),
    Setting::new(
        "http.request_timeout_seconds",
        seconds(1, 600),
        Some("30"),
        "Time that a request may take until its response begins.",
    ),
    Setting::new(
        "access.actors_file",
        SettingKind::Path,
        None,
        "TOML file of actors that override the built-in registry; see docs/guides/access.md.",
    ),
    Setting::new(
        "access.hmac_actor",
        SettingKind::Text,
        Some("n8n_workflow_default"),
        "Actor whose key is `access.hmac_secret`, or a pattern of services that share it.",
    ),
    Setting::new(
        "access.hmac_secret",
        SettingKind::Token,
        None,
        "Key of one actor or pattern, for a setup with a single key; or the name of the secret that holds it.",
    )
    .alias("HMAC_SECRET_KEY"),
    Setting::new(
        "access.jwt_algorithm",
        SettingKind::Choice(&["EdDSA", "HS256"]),
        Some("EdDSA"),
        "How access tokens are signed. `HS256` needs `access.jwt_secret`.",
    )
    .alias("JWT_ALGORITHM"),
    Setting::new(
        "access.jwt_secret",
        SettingKind::Token,
        None,
        "Shared secret for `HS256`, or the name of the secret that holds it. Together with `access.hmac_secret`, its tokens are valid for that one actor only.",
    )
    .alias("JWT_SECRET_KEY"),
    Setting::new(
        "access.token_key",
        SettingKind::SecretName,
        None,
        "Secret that holds the Ed25519 seed (64 hex digits) that signs access tokens; by default `keys/token.key` in the data folder.",
    ),
    Setting::new(
        "access.token_keys_before",
        SettingKind::PublicKeys,
        Some(""),
        "Ed25519 public keys (64 hex digits each) whose tokens are also accepted: keys from before a rotation, or of other nodes.",
    ),
    Setting::new("access.audience", SettingKind::Text, Some("chimera"), "Audience of access tokens."),
    Setting::new(
        "access.seal_key",
        SettingKind::SecretName,
        None,
        "Secret that holds the key (64 hex digits) that encrypts actors' keys in the store; by default `keys/seal.key` in the data folder.",
    ),
    Setting::new(
        "access.cautious",
        SettingKind::Boolean,
        Some("false"),
        "Whether an actor's first use of an action is drafted for approval.",
    ),
    Setting::new(
        "access.idempotency_ttl_seconds",
        seconds(1, 30 * 86_400),
        Some("86400"),
        "How long Redis keeps the run of an idempotency key; the database keeps it forever.",
    )
    .alias("REDIS_IDEMPOTENCY_TTL"),
    Setting::new(
        "access.without_redis",
        SettingKind::Choice(&["refuse", "database"]),
        Some("refuse"),
        "When Redis is unreachable: `refuse` requests, or let the `database` check idempotency keys while each node counts requests by itself.",
    ),
    Setting::new(
        "scopes.strict",
        SettingKind::Boolean,
        Some("false"),
        "Whether a tool's name and `{adapter}.{action}` are no longer accepted as scopes.",
    ),
    Setting::new(
        "flow.tools_dir",
        SettingKind::Path,
        None,
        "Folder whose `*.toml` files declare tools, those in `tenants/SLUG` for one tenant; read again when they change; see docs/guides/tools.md.",
    ),
    Setting::new(
        "flow.intents_dir",
        SettingKind::Path,
        None,
        "Folder whose `*.json` files define intents; read again when they change; see docs/guides/intents.md.",
    ),
    Setting::new(
        "flow.base_urls",
        SettingKind::Pairs(PairValue::Address),
        Some(""),
        "Base URLs of vendors that differ from the default, such as `github=https://github.example.com/api/v3`.",
    ),
    Setting::new(
        "flow.policy_file",
        SettingKind::Path,
        None,
        "TOML file of rules about which tools may be called, how often, and which need approval; see docs/guides/workflows.md.",
    ),
    Setting::new("flow.calls_max", calls(100_000), Some("1024"), "Maximum number of concurrent tool calls in this process, shared fairly between tenants; see docs/guides/tenants.md."),
    Setting::new("flow.tenant_calls_max", calls(100_000), Some("512"), "Maximum number of concurrent tool calls of one tenant."),
    Setting::new("flow.tool_calls_max", calls(100_000), Some("256"), "Maximum number of concurrent calls of one tool, shared fairly between tenants."),
    Setting::new(
        "flow.host_calls_max",
        calls(100_000),
        Some("64"),
        "Maximum number of concurrent calls to one host, whichever tools make them; a host that hangs blocks no more than these.",
    ),
    Setting::new(
        "flow.calls_of",
        SettingKind::Pairs(PairValue::Count),
        Some(""),
        "Maximum number of concurrent calls of individual tools, such as `notion.search=3`.",
    ),
    Setting::new(
        "flow.calls_to",
        SettingKind::Pairs(PairValue::Count),
        Some(""),
        "Maximum number of concurrent calls to individual hosts, such as `api.example.com=200`, with `:port` unless it is the default port.",
    ),
    Setting::new(
        "flow.calls_waiting_max",
        calls(50_000),
        Some("10000"),
        "Maximum number of calls that wait for one host, or for one tool without a host; beyond that, a new run whose first call would wait there is rejected with `OVERLOADED`.",
    ),
    Setting::new("flow.runs_max", runs(1_000_000), Some("10000"), "Maximum number of runs that this process drives concurrently, shared fairly between tenants. Runs that wait in the store for a slot, a person or a timer do not count."),
    Setting::new("flow.tenant_runs_max", runs(1_000_000), Some("8000"), "Maximum number of runs driven concurrently for one tenant."),
    Setting::new(
        "flow.tool_runs_max",
        runs(1_000_000),
        Some("2000"),
        "Maximum number of calls of one tool that runs in memory make or wait for; further runs wait in the store.",
    ),
    Setting::new(
        "flow.runs_memory_bytes_max",
        SettingKind::Number { min: 1_048_576, max: 1_000_000_000_000, unit: "bytes" },
        Some("268435456"),
        "Estimated memory for the inputs and outputs of all runs that this process drives, shared fairly between tenants. A run that would exceed it waits in the store.",
    ),
    Setting::new(
        "notify.webhook_key",
        SettingKind::SecretName,
        None,
        "Secret that holds the key that signs webhook notifications about runs: `whsk_` (Ed25519) or `whsec_` (shared). By default the data folder's own Ed25519 key; several nodes should share one.",
    ),
    Setting::new("mail.server", SettingKind::Text, None, "SMTP server for outgoing mail; by default no mail is sent."),
    Setting::new(
        "mail.port",
        SettingKind::Number { min: 1, max: 65_535, unit: "port" },
        Some("587"),
        "SMTP port: usually 587 for `starttls`, 465 for `implicit`.",
    ),
    Setting::new(
        "mail.tls",
        SettingKind::Choice(&["starttls", "implicit", "none"]),
        Some("starttls"),
        "TLS mode of the SMTP connection; use `none` only for a relay on this machine.",
    ),
    Setting::new("mail.from", SettingKind::Text, None, "Sender of mails: an address, or `Name <address>`."),
    Setting::new("mail.user", SettingKind::Text, None, "SMTP user, if the server requires one."),
    Setting::new("mail.password", SettingKind::SecretName, None, "Secret that holds the SMTP password."),
    Setting::new(
        "mail.roots_file",
        SettingKind::Path,
        None,
        "PEM file of additional trusted certificates.",
    ),
    Setting::new(
        "shutdown.grace_seconds",
        seconds(0, 600),
        Some("20"),
        "How long tool calls and requests in flight may continue after a stop signal; nothing new starts. The stores are closed within this time too, so an unresponsive database delays the stop by at most a second or two more.",
    ),
    Setting::new(
        "shutdown.delay_seconds",
        seconds(0, 600),
        Some("0"),
        "How long a server keeps serving after a stop signal while `/readyz` reports that it is stopping, so that load balancers stop sending requests; precedes the grace time.",
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
