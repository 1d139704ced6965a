//! Access control for tests: actors whose HMAC keys are derived from their names, and access tokens for them.

use crate::planner::VerbPlanner;
use chimera_core::access::signature::{RequestParts as MessageParts, Signed};
use chimera_core::access::token::{Claims, TokenKey};
use chimera_core::access::{ActorEntry, Level, mac};
use chimera_core::limits::RATE_HITS_MAX;
use chimera_core::secret::{Secret, SecretName};
use chimera_core::time::Timestamp;
use chimera_engine::access::port::Counters;
use chimera_engine::access::{Access, Authenticator, CounterFallback, Directory, DirectoryPorts, Rates, Settings};
use chimera_engine::act::Actions;
use chimera_engine::flow::Flow;
use chimera_engine::port::{Bus, Clock, Random, Records, SecretError, Secrets};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The actors that tests act as. Each has a key in [`settings`].
pub const ACTORS: [&str; 13] = [
    "agent_x",
    "admin",
    "user_1",
    "user_123",
    "user_ann",
    "user_bob",
    "user_cat",
    "n8n_workflow_123",
    "n8n_workflow_abc",
    "n8n_workflow_1",
    "service_bot",
    "service_chatbot",
    "anonymous",
];

#[must_use]
pub fn key_of(actor: &str) -> String {
    format!("the key of {actor}, long enough")
}

#[must_use]
pub fn signature(actor: &str, body: &[u8]) -> String {
    mac::sign(&Secret::new(key_of(actor)), body)
}

/// The signature headers of a request: the HMAC of its body and, unless it is a `GET` or `HEAD`, an HTTP message
/// signature with a fresh nonce.
#[must_use]
pub fn signed_with(
    key: &str,
    actor: &str,
    now: Timestamp,
    (method, target): (&str, &str),
    body: &[u8],
) -> Vec<(&'static str, String)> {
    static NONCES: AtomicU64 = AtomicU64::new(0);
    let key = Secret::new(key);
    let mut headers = Vec::new();
    if !body.is_empty() {
        headers.push(("x-hmac-signature", mac::sign(&key, body)));
    }
    if !["GET", "HEAD"].contains(&method) {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let parts = MessageParts { method, scheme: "http", authority: "", path, prefix: "", query, fields: &[], body };
        let nonce = format!("{}-{}", std::process::id(), NONCES.fetch_add(1, Ordering::Relaxed));
        let signed = Signed::new(&parts, actor, &key, now.millis().div_euclid(1_000), &nonce);
        let signed = signed.expect("an actor and a nonce that can stand in a header");
        headers.extend(signed.headers().map(|(name, value)| (name, value.to_owned())));
    }
    headers
}

/// Like [`signed_with`], with the key of [`key_of`].
#[must_use]
pub fn signed(actor: &str, now: Timestamp, asked: (&str, &str), body: &[u8]) -> Vec<(&'static str, String)> {
    signed_with(&key_of(actor), actor, now, asked, body)
}

/// The wall clock of this machine, which a server process shares.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[must_use]
pub fn token_key() -> TokenKey {
    TokenKey::from_seed(&[9; 32])
}

/// An access token of an actor, issued at `now` and valid for an hour.
#[must_use]
pub fn token(actor: &str, now: Timestamp) -> String {
    let iat = now.millis().div_euclid(1_000);
    let jti = Some(format!("token of {actor}"));
    let claims = Claims {
        sub: actor.to_owned(),
        exp: iat + 3_600,
        iat,
        nbf: None,
        jti,
        fam: None,
        aud: None,
        scopes: None,
        key_of: None,
    };
    token_key().sign(&claims).unwrap_or_default()
}

/// Settings with the shipped registry, overridden by `entries`.
#[must_use]
pub fn settings(tenant: &str, entries: Vec<ActorEntry>) -> Settings {
    Settings {
        tenant: tenant.to_owned(),
        entries,
        roles: Vec::new(),
        tenants: BTreeMap::new(),
        keys: ACTORS.iter().map(|actor| ((*actor).to_owned(), Secret::new(key_of(actor)))).collect(),
        token_keys: vec![token_key()],
        audience: "chimera".to_owned(),
        strict_scopes: false,
        cautious: false,
        idempotency_ttl: Duration::from_secs(86_400),
        counter_fallback: CounterFallback::Refuse,
    }
}

/// Entries that grant everybody every scope, without a rate limit, at L2.
#[must_use]
pub fn everybody(tenant: &str) -> Vec<ActorEntry> {
    let free = |id: &str| ActorEntry {
        scopes: vec!["*".to_owned()],
        quota_per_minute: RATE_HITS_MAX,
        level: Some(Level::ExecuteNotify),
        ..ActorEntry::default_for(id, tenant)
    };
    ["*", "admin", "user_*", "n8n_workflow_*", "anonymous"].into_iter().map(free).collect()
}

/// Resolves no secret.
struct NoSecrets;

#[async_trait::async_trait]
impl Secrets for NoSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        Err(SecretError::Missing(name.clone()))
    }
}

/// The ports that access control is built from.
pub struct AccessFixture {
    pub records: Arc<dyn Records>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub bus: Arc<dyn Bus>,
    /// Counters of this process alone.
    pub own: Arc<dyn Counters>,
    /// Counters shared by all processes, if there are any.
    pub shared: Option<Arc<dyn Counters>>,
}

impl AccessFixture {
    /// A directory with these settings, already refreshed from the store.
    pub async fn directory(&self, settings: Settings) -> Arc<Directory> {
        let parts = DirectoryPorts {
            records: Arc::clone(&self.records),
            clock: Arc::clone(&self.clock),
            random: Arc::clone(&self.random),
            bus: Arc::clone(&self.bus),
            secrets: Arc::new(NoSecrets),
            seal: Secret::new(crate::flow::SEAL),
            alone: false,
        };
        let directory = Arc::new(Directory::new(parts, settings));
        directory.refresh().await.expect("a store that can be read");
        directory
    }

    #[must_use]
    pub fn authenticator(&self, directory: &Arc<Directory>) -> Authenticator {
        let without = directory.counter_fallback();
        let shared = self.shared.clone().unwrap_or_else(|| Arc::clone(&self.own));
        let rates = Rates { shared, own: Arc::clone(&self.own), without };
        Authenticator::new(Arc::clone(directory), rates, self.shared.clone())
    }

    /// Access control in front of a flow engine.
    #[must_use]
    pub fn access(&self, directory: &Arc<Directory>, flow: Flow) -> Arc<Actions> {
        Arc::new(Actions::new(
            Arc::new(Access::new(Arc::clone(directory), self.authenticator(directory))),
            flow,
            Arc::new(VerbPlanner),
        ))
    }
}
