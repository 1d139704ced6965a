//! Limits of access: actors, tokens, signatures, quotas and secrets.

use std::time::Duration;

// Actors and tenants

/// Characters of an actor's name. A longer name is refused with `VALIDATION_FAILED`.
pub const ACTOR_CHARS_MAX: usize = 255;
/// Scopes of one actor, or of one token. An entry with more is refused with `VALIDATION_FAILED`, a token with
/// `UNAUTHENTICATED`.
pub const ACTOR_SCOPES_MAX: usize = 256;
/// Roles of one actor. An entry with more is refused with `VALIDATION_FAILED`.
pub const ACTOR_ROLES_MAX: usize = 32;
/// Characters of a role's name. With a longer name in `access.actors_file` the server does not start: `CONFIG_INVALID`.
pub const ROLE_CHARS_MAX: usize = 63;
/// Roles of all tenants. With more in `access.actors_file` the server does not start: `CONFIG_INVALID`.
pub const ROLES_MAX: usize = 10_000;
/// Roles that an error about an unknown role lists. Further roles are omitted.
pub const ROLES_NAMED_MAX: usize = 16;
/// Characters of one scope. A longer one is refused with `VALIDATION_FAILED`.
pub const SCOPE_CHARS_MAX: usize = 128;
/// Actors and patterns that the registry holds. One more is refused with `VALIDATION_FAILED`.
pub const ACTORS_MAX: usize = 10_000;
/// Actors and patterns of one tenant other than the default one. One more is refused with `VALIDATION_FAILED`.
pub const TENANT_ACTORS_MAX: usize = 2_000;
/// Actors and patterns reserved for the default tenant in the registry. The other tenants together get no more than the
/// rest.
pub const ACTORS_OWN_MIN: usize = 1_000;
/// Removed actors of one tenant, whose names stay retired. One more removal is refused with `VALIDATION_FAILED`; disable
/// the actor instead.
pub const REMOVED_ACTORS_MAX: usize = 10_000;
/// Bytes of a mail address. A longer one is refused with `VALIDATION_FAILED`.
pub const MAIL_BYTES_MAX: usize = 254;
/// Former mail addresses that are kept of one person. A further change of the address is refused with
/// `VALIDATION_FAILED`.
pub const FORMER_MAILS_MAX: usize = 32;
/// Slots of a pool that all tenants share (calls, runs, waiting calls, event streams, actors) that one of several
/// tenants may hold per free slot: three quarters of the pool if no other tenant takes any. A request beyond it waits
/// or is refused as if the pool was full.
pub const TENANT_HELD_PER_FREE_MAX: usize = 3;
/// Attempts to store a change of the registry that conflicts with changes on other nodes. After the last one it is
/// refused with `OCC_CONFLICT`.
pub const REGISTRY_CHANGE_TRIES_MAX: usize = 16;
/// Tenants of one store. One more is refused with `VALIDATION_FAILED`.
pub const TENANTS_MAX: usize = 10_000;
/// Characters of a tenant's slug. A longer slug is refused with `VALIDATION_FAILED`.
pub const TENANT_SLUG_CHARS_MAX: usize = 63;
/// Characters of a tenant's name. A longer name is refused with `VALIDATION_FAILED`.
pub const TENANT_NAME_CHARS_MAX: usize = 200;
/// Interval between two reads of actors, keys and revocations that other nodes may have changed. A change without a
/// notification is seen this much later.
pub const DIRECTORY_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds between two such reads where no other node can change anything. A change whose caller disconnected before
/// the reload takes effect this much later.
pub const DIRECTORY_SINGLE_NODE_POLL_SECONDS: i64 = 5;
/// Seconds between two sweeps of expired nonces, tokens and keys. Until then expired rows stay in the store and have no
/// effect.
pub const EXPIRED_SWEEP_SECONDS: i64 = 60;

// Keys of actors

/// Characters of an actor's key, at least. A shorter key is refused with `VALIDATION_FAILED`.
pub const ACTOR_KEY_CHARS_MIN: usize = 16;
/// Keys of one actor that are valid at the same time. One more is refused with `VALIDATION_FAILED`.
pub const ACTOR_KEYS_MAX: usize = 8;
/// Default number of seconds that earlier keys stay valid after a new one was added. After them the earlier keys are
/// refused.
pub const ACTOR_KEY_OVERLAP_SECONDS: u32 = 86_400;
/// Expired keys that one step of a sweep removes. The next step removes more.
pub const EXPIRED_KEYS_SWEPT_MAX: usize = 500;
/// Signing keys of one actor that are valid or will be. One more is refused with `VALIDATION_FAILED`.
pub const SIGNING_KEYS_MAX: usize = 10;
/// Signing keys of one actor that are valid or ended within the last 30 days. One more is refused with
/// `VALIDATION_FAILED`.
pub const SIGNING_KEYS_RECENT_MAX: usize = 100;
/// Signing keys of all actors that are valid or ended within the last 30 days. One more is refused with
/// `VALIDATION_FAILED`.
pub const SIGNING_KEYS_TOTAL_MAX: usize = 20_000;
/// Such keys of one tenant other than the default one. One more is refused with `VALIDATION_FAILED`.
pub const TENANT_SIGNING_KEYS_MAX: usize = 4_000;
/// Such keys reserved for the default tenant. The other tenants together get no more than the rest.
pub const SIGNING_KEYS_OWN_MIN: usize = 2_000;
/// Default number of seconds that a signing key stays valid after another has replaced it. After them a signature with it
/// is refused.
pub const SIGNING_KEY_OVERLAP_SECONDS: u32 = 86_400;
/// Seconds that a replaced signing key may stay valid. A longer overlap is refused with `VALIDATION_FAILED`.
pub const SIGNING_KEY_OVERLAP_SECONDS_MAX: u32 = 30 * 86_400;
/// Seconds for which an expired or revoked signing key is listed. After them it is only known to the store, which
/// refuses to add it again.
pub const SIGNING_KEY_ENDED_SECONDS: i64 = 30 * 86_400;
/// Characters of a signing key's label. A longer one is refused with `VALIDATION_FAILED`.
pub const SIGNING_KEY_LABEL_CHARS_MAX: usize = 100;
/// Characters of the reason for which a signing key was revoked. A longer one is refused with `VALIDATION_FAILED`.
pub const SIGNING_KEY_REASON_CHARS_MAX: usize = 500;
/// Seconds for which callers may cache `/.well-known/intent-keys.json`. A revoked key is in their copies for this long.
pub const INTENT_KEYS_CACHE_SECONDS: u32 = 60;
/// Seconds after which that document is built again if no key changed. A key that expired is in it for this long.
pub const INTENT_KEYS_REBUILD_SECONDS: i64 = 1;
/// Bytes of a public or private key as text. A longer text is refused with `VALIDATION_FAILED`.
pub const KEY_TEXT_BYTES_MAX: usize = 1_024;
/// Characters of `access.hmac_secret` and `access.jwt_secret`, at least. With a shorter secret the server does not
/// start: `CONFIG_INVALID`.
pub const SHARED_SECRET_CHARS_MIN: usize = 8;
/// Characters of such a secret that are considered enough against guessing. With a shorter secret the server starts and
/// logs a warning.
pub const SHARED_SECRET_CHARS_RECOMMENDED: usize = 32;

// Tokens

/// Bytes of an access token. A longer token is refused with `UNAUTHENTICATED`.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Lifetime of an access token. After it the token is refused with `UNAUTHENTICATED`.
pub const TOKEN_SECONDS: i64 = 3_600;
/// Lifetime of a refresh token and of every token derived from the same sign-in. After it the actor has to sign in
/// again.
pub const REFRESH_SECONDS: i64 = 30 * 86_400;
/// Time within which a refresh token may be used again, for clients that refresh concurrently. A later second use
/// revokes every token of that sign-in.
pub const REFRESH_GRACE_SECONDS: i64 = 30;
/// Revoked tokens, and revoked sign-ins, that a process caches in memory. With more, each token is looked up in the
/// store.
pub const REVOKED_CACHED_MAX: usize = 10_000;
/// Verified tokens that a process caches. When the cache is full it is cleared, and tokens are verified again.
pub const TOKENS_CACHED_MAX: usize = 4_096;

// Signatures

/// Clock skew allowed between a signed request and the server. A request with more is refused with `EXPIRED_TTL`.
pub const CLOCK_SKEW_SECONDS: i64 = 60;
/// Characters of a nonce. A longer nonce is refused with `SCHEMA_INVALID`, or its signature is ignored.
pub const NONCE_CHARS_MAX: usize = 128;
/// Signatures of one actor in one request that are verified. A request with more that could match is refused with
/// `SIGNATURE_INVALID`.
pub const SIGNATURES_TRIED_MAX: usize = 8;
/// Signatures of one actor in one request that are parsed, including those that can't match. A request with more is
/// refused with `SIGNATURE_INVALID`.
pub const SIGNATURES_PARSED_MAX: usize = 4 * SIGNATURES_TRIED_MAX;
/// Components that one signature covers. A signature with more is ignored.
pub const SIGNATURE_COMPONENTS_MAX: usize = 32;
/// Time by which a second signature of a request may be ahead of the server's time. A request with one that is further
/// ahead is refused with `EXPIRED_TTL`.
pub const SIGNATURE_AHEAD_SECONDS_MAX: i64 = 86_400;

// Quotas

/// Requests per minute of an actor without an entry in the registry. More are refused with `RATE_LIMITED`.
pub const QUOTA_DEFAULT: u32 = 60;
/// Requests per minute that `admin` always keeps. A lower quota is refused with `VALIDATION_FAILED`, because nobody
/// could raise it again.
pub const ADMIN_QUOTA_MIN: u32 = 10;
/// Reads that an actor may make per request of its quota. More are refused with `RATE_LIMITED`.
pub const READ_QUOTA_FACTOR: u32 = 10;
/// Length of the window in which requests are counted. The next window starts with a new count.
pub const RATE_WINDOW_SECONDS: u32 = 60;
/// Requests that a quota may allow in one window. A larger quota is refused with `VALIDATION_FAILED`.
pub const RATE_HITS_MAX: u32 = 1_000_000;
/// Length of a rate window. A longer window is refused.
pub const RATE_WINDOW_SECONDS_MAX: u32 = 86_400;
/// Time over which refusals of one actor over its quota are aggregated. The ledger has one entry for the first refusal
/// and one for the rest.
pub const FLOOD_SECONDS: i64 = 60;
/// Actors and operations whose refusals over a quota are aggregated at a time. Further refusals are counted in
/// `chimera_access_refusals_not_entered_total` and not written to the ledger.
pub const FLOODS_MAX: usize = 10_000;
/// Addresses whose requests without valid credentials are counted one by one in a window of a minute. Further addresses
/// share one counter.
pub const STRANGER_ADDRESSES_MAX: usize = 10_000;
/// Refusals of callers without valid credentials that one process writes to the ledger in a minute, and refusals of one
/// actor with a token and without a valid signature. Further ones are summed up in one entry.
pub const STRANGER_ENTRIES_MAX: usize = 120;
/// Bytes of a detail in the ledger entry about a refusal. A longer detail is omitted from the entry.
pub const REFUSAL_DETAIL_BYTES_MAX: usize = 300;
/// Pointers to validation errors in the ledger entry about a refusal. Further pointers are omitted from the entry.
pub const REFUSAL_POINTERS_MAX: usize = 32;

// Secrets

/// Characters of a secret's name. A longer name is refused as not valid.
pub const SECRET_NAME_CHARS_MAX: usize = 128;
/// Bytes of a secret's value. A call that needs a larger secret fails with `TOOL_UNAVAILABLE`.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the file at `secrets.file`. A larger file can't be read.
pub const SECRETS_FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes that are read of a one-line file in the data folder, such as a key. The rest is ignored.
pub const KEY_FILE_BYTES_MAX: u64 = 4_096;
