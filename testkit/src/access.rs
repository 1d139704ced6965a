//! A front door for tests: actors whose keys follow from their names, and tokens for them.

use crate::planner::VerbPlanner;
use chimera_core::access::signature::RequestParts as MessageParts;
use chimera_core::access::token::{Claims, TokenKey};
use chimera_core::access::{Entry, Level, mac};
use chimera_core::limits::RATE_HITS_MAX;
use chimera_core::secret::{Secret, SecretName};
use chimera_core::time::Timestamp;
use chimera_engine::access::port::Counters;
use chimera_engine::access::{Access, Directory, Authenticator, DirectoryPorts, Rates, Settings, CounterFallback};
use chimera_engine::act::Actions;
use chimera_engine::flow::Flow;
use chimera_engine::port::{Bus, Clock, Random, Records, SecretError, Secrets};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The actors whom tests act as.
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

/// The key of an actor.
#[must_use]
pub fn key_of(actor: &str) -> String {
    format!("the key of {actor}, long enough")
}

/// The signature of a body by an actor.
#[must_use]
pub fn signature(actor: &str, body: &[u8]) -> String {
    mac::sign(&Secret::new(key_of(actor)), body)
}

/// The headers of a request that an actor has signed with a key, made now: the signature of its body
/// and, unless it only asks, the one of the whole request.
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
        let signed = parts.sign(actor, &key, now.millis().div_euclid(1_000), &nonce);
        let signed = signed.expect("an actor and a nonce that can stand in a header");
        headers.extend(signed.headers().map(|(name, value)| (name, value.to_owned())));
    }
    headers
}

/// The same with the key that follows from the actor's name.
#[must_use]
pub fn signed(actor: &str, now: Timestamp, asked: (&str, &str), body: &[u8]) -> Vec<(&'static str, String)> {
    signed_with(&key_of(actor), actor, now, asked, body)
}

/// What time it is for a server that the test has started.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The key of access tokens.
#[must_use]
pub fn token_key() -> TokenKey {
    TokenKey::from_seed(&[9; 32])
}

/// An access token of an actor, made now.
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

/// Settings under which the shipped registry counts, with more entries over it.
#[must_use]
pub fn settings(tenant: &str, entries: Vec<Entry>) -> Settings {
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

/// Entries with which everybody may do everything, as often as they like, and acts at L2.
#[must_use]
pub fn everybody(tenant: &str) -> Vec<Entry> {
    let free = |id: &str| Entry {
        scopes: vec!["*".to_owned()],
        quota_per_minute: RATE_HITS_MAX,
        level: Some(Level::ExecuteNotify),
        ..Entry::default_for(id, tenant)
    };
    ["*", "admin", "user_*", "n8n_workflow_*", "anonymous"].into_iter().map(free).collect()
}

/// No secret has a value.
struct NoSecrets;

#[async_trait::async_trait]
impl Secrets for NoSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        Err(SecretError::Missing(name.clone()))
    }
}

/// What a front door stands on.
pub struct Ground {
    /// Where everything is kept.
    pub records: Arc<dyn Records>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub random: Arc<dyn Random>,
    /// How other processes are told.
    pub bus: Arc<dyn Bus>,
    /// What counts in this process.
    pub own: Arc<dyn Counters>,
    /// What all processes share, if anything.
    pub shared: Option<Arc<dyn Counters>>,
}

impl Ground {
    /// Who there is.
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

    /// The door to what a directory knows.
    #[must_use]
    pub fn door(&self, directory: &Arc<Directory>) -> Authenticator {
        let without = directory.counter_fallback();
        let shared = self.shared.clone().unwrap_or_else(|| Arc::clone(&self.own));
        let rates = Rates { shared, own: Arc::clone(&self.own), without };
        Authenticator::new(Arc::clone(directory), rates, self.shared.clone())
    }

    /// The front door to a flow engine.
    #[must_use]
    pub fn access(&self, directory: &Arc<Directory>, flow: Flow) -> Arc<Actions> {
        Arc::new(Actions::new(
            Arc::new(Access::new(Arc::clone(directory), self.door(directory))),
            flow,
            Arc::new(VerbPlanner),
        ))
    }
}
