//! Authentication of requests to a vendor.
//!
//! The plain kinds put a secret into a header. With `oauth2` the secret holds either a token that somebody else
//! refreshes, or `{"client_id", "client_secret", "refresh_token"?, "tenant"?, "token_url"?}`, with which a token is
//! fetched. The token is cached in memory until shortly before it expires, and dropped when the vendor rejects it.

use crate::http::{Call, Client, Keyring, Request, Retryability, not_retryable};
use chimera_core::error::Code;
use chimera_core::limits;
use chimera_core::secret::{Secret, SecretName};
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::ToolError;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use std::sync::Mutex;

/// The `auth` of a file, validated.
#[derive(Debug, Clone)]
pub(super) enum Credential {
    Bearer(SecretName),
    Basic { username: String, secret: SecretName },
    Header { name: HeaderName, prefix: String, secret: SecretName },
    Oauth2 { secret: SecretName, token_url: String, scope: Option<String> },
}

/// The secret of an OAuth client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OauthClient {
    client_id: String,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    tenant: Option<String>,
    token_url: Option<String>,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    #[serde(default)]
    expires_in: i64,
}

struct CachedToken {
    /// The secret it was fetched with; a different one invalidates the token.
    account: Secret,
    value: Secret,
    until: Timestamp,
}

/// The cached token of one vendor, shared by its tools.
#[derive(Default)]
pub(super) struct TokenCache(Mutex<Option<CachedToken>>);

impl Credential {
    /// The header that authenticates a request.
    pub(super) async fn header(
        &self,
        client: &Client,
        tokens: &TokenCache,
        call: &Call,
        keys: &mut Keyring,
    ) -> Result<(HeaderName, HeaderValue), ToolError> {
        Ok(match self {
            Self::Bearer(secret) => (AUTHORIZATION, keys.header("Bearer ", secret).await?),
            Self::Basic { username, secret } => (AUTHORIZATION, keys.basic(username, secret).await?),
            Self::Header { name, prefix, secret } => (name.clone(), keys.header(prefix, secret).await?),
            Self::Oauth2 { secret, token_url, scope } => {
                let account = keys.text(secret).await?;
                let token = match account.expose_text() {
                    Some(text) if text.starts_with('{') => {
                        let fetch = TokenRequest { client, call, secret, token_url, scope: scope.as_deref() };
                        tokens.get(&fetch, &account, keys).await?
                    }
                    _ => account,
                };
                let text = format!("Bearer {}", token.expose_text().unwrap_or_default());
                let mut value = HeaderValue::from_str(&text).map_err(|_| unusable(secret))?;
                value.set_sensitive(true);
                (AUTHORIZATION, value)
            }
        })
    }
}

/// The inputs of a token request.
struct TokenRequest<'a> {
    client: &'a Client,
    call: &'a Call,
    secret: &'a SecretName,
    token_url: &'a str,
    scope: Option<&'a str>,
}

impl TokenCache {
    /// Drops the cached token, because the vendor rejected it. Returns whether there was one.
    pub(super) fn forget(&self) -> bool {
        self.0.lock().is_ok_and(|mut token| token.take().is_some())
    }

    async fn get(&self, fetch: &TokenRequest<'_>, account: &Secret, keys: &mut Keyring) -> Result<Secret, ToolError> {
        let now = fetch.client.clock().steady();
        if let Some(known) = self.cached(account, now) {
            keys.add(known.clone());
            return Ok(known);
        }
        let issued = fetch.token(account, keys).await?;
        let value = Secret::new(issued.access_token);
        keys.add(value.clone());
        let until = now.plus_seconds(issued.expires_in - limits::DECLARED_TOKEN_REFRESH_SECONDS);
        if let Ok(mut token) = self.0.lock() {
            *token = Some(CachedToken { account: account.clone(), value: value.clone(), until });
        }
        Ok(value)
    }

    fn cached(&self, account: &Secret, now: Timestamp) -> Option<Secret> {
        let token = self.0.lock().ok()?;
        let token = token.as_ref()?;
        (token.account.expose() == account.expose() && now < token.until).then(|| token.value.clone())
    }
}

impl TokenRequest<'_> {
    async fn token(&self, account: &Secret, keys: &mut Keyring) -> Result<TokenResponse, ToolError> {
        let account: OauthClient =
            serde_json::from_str(account.expose_text().unwrap_or_default()).map_err(|_| unusable(self.secret))?;
        for part in [&account.client_secret, &account.refresh_token].into_iter().flatten() {
            keys.add(Secret::new(part.as_str()));
        }
        let address = account.token_url.as_deref().unwrap_or(self.token_url);
        let address = address.replace("{tenant}", account.tenant.as_deref().unwrap_or("common"));
        let mut url = Url::parse(&address).map_err(|_| unusable(self.secret))?;
        let grant = if account.refresh_token.is_some() { "refresh_token" } else { "client_credentials" };
        let mut form = vec![("grant_type", grant), ("client_id", &account.client_id)];
        form.extend(account.client_secret.as_deref().map(|value| ("client_secret", value)));
        form.extend(account.refresh_token.as_deref().map(|value| ("refresh_token", value)));
        form.extend(self.scope.map(|value| ("scope", value)));
        url.set_query(None);
        let mut spelled = url.clone();
        spelled.query_pairs_mut().extend_pairs(form);
        // A token request has no side effect as far as the call is concerned.
        let mut request = Request::new(Method::POST, url, Retryability::Read);
        request.body = spelled.query().unwrap_or_default().to_owned().into();
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        request.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        request.redirects_max = 0;
        let answer = self.client.send(self.call, request).await?;
        if answer.status != 200 {
            let words = keys.quote(&String::from_utf8_lossy(&answer.body));
            return Err(answer.refusal().with("answer", words));
        }
        answer.open(|answer| answer.read()).await?.ok_or_else(|| answer.unusable("the answer contains no token"))
    }
}

fn unusable(secret: &SecretName) -> ToolError {
    let what = format!("the secret {secret} is neither a token nor OAuth client credentials");
    not_retryable(ToolError::not_sent(Code::ToolUnavailable, what))
}
