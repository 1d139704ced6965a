//! Connections to the server: TLS when the URL asks for it, UTC, and durable commits.

use super::super::OpenError;
use super::failure::unavailable;
use chimera_core::limits::{self, DATABASE_SILENCE_SECONDS_MAX};
use chimera_engine::port::{Outage, Unavailable};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Session settings that must not depend on the server's defaults.
const SESSION: &str = "SET TIME ZONE 'UTC'; SET synchronous_commit = on; SET standard_conforming_strings = on";

/// Timeouts that must not depend on the server's defaults.
fn patience() -> String {
    format!(
        "SET lock_timeout = '{}s'; SET statement_timeout = '{}s'; SET idle_in_transaction_session_timeout = '{}s'",
        limits::POSTGRES_LOCK_TIMEOUT.as_secs(),
        limits::POSTGRES_STATEMENT_TIMEOUT.as_secs(),
        limits::POSTGRES_IDLE_IN_TRANSACTION_TIMEOUT.as_secs(),
    )
}

/// A lane accesses rows only by key. A cached plan that was made while a table was small must not scan it after it
/// has grown.
const LANE: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
     SET plan_cache_mode = force_generic_plan; SET jit = off";

/// The server's address, credentials and TLS settings.
#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Server {
    /// Parses a `postgres://` URL; `sslmode=require` turns TLS on. The server's certificate and name are then
    /// verified, so `verify-ca` and `verify-full` add nothing.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        let (place, query) = split_query(url);
        let usual =
            query.replace("sslmode=verify-full", "sslmode=require").replace("sslmode=verify-ca", "sslmode=require");
        let parsed = format!("{place}{usual}").parse();
        let mut config: Config = parsed.map_err(|error| OpenError::Url { reason: unreadable(query, &error) })?;
        config.connect_timeout(limits::POSTGRES_CONNECT_TIMEOUT).application_name("chimera");
        config.keepalives_idle(limits::POSTGRES_KEEPALIVE_IDLE);
        config.tcp_user_timeout(limits::POSTGRES_UNACKNOWLEDGED_TIMEOUT);
        let wants_tls = config.get_ssl_mode() == tokio_postgres::config::SslMode::Require;
        let tls = wants_tls.then(tls).transpose()?;
        Ok(Self { config, tls })
    }

    /// Opens a session within the connect timeout.
    pub(crate) async fn connect(&self) -> Result<Client, Unavailable> {
        in_time(self.session()).await
    }

    /// Opens a session without a timeout: a suspended server accepts connections and never answers. A task drives the
    /// connection until the client is dropped.
    pub(super) async fn session(&self) -> Result<Client, Unavailable> {
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(|e| unavailable(&e))?;
                tokio::spawn(connection);
                client
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(|e| unavailable(&e))?;
                tokio::spawn(connection);
                client
            }
        };
        client.batch_execute(&format!("{SESSION}; {}", patience())).await.map_err(|error| unavailable(&error))?;
        Ok(client)
    }

    /// Opens a session for a lane.
    pub(crate) async fn connect_lane(&self) -> Result<Client, Unavailable> {
        let client = self.connect().await?;
        let set = async { client.batch_execute(LANE).await.map_err(|error| unavailable(&error)) };
        in_time(set).await?;
        Ok(client)
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, Unavailable>>) -> Result<T, Unavailable> {
    let done = tokio::time::timeout(Duration::from_secs(DATABASE_SILENCE_SECONDS_MAX), work).await;
    done.unwrap_or_else(|_| Err(passing("the database does not answer")))
}

/// Splits a URL into the part before its parameters, and the parameters. A password may contain a question mark, so
/// only one behind the last `@` counts.
fn split_query(url: &str) -> (&str, &str) {
    let authority = url.rfind('@').unwrap_or_default();
    let query = url[authority..].find('?').map_or(url.len(), |at| authority + at);
    url.split_at(query)
}

/// Names the invalid parameter, as far as possible without revealing part of a password.
fn unreadable(query: &str, error: &tokio_postgres::Error) -> String {
    let names = query.trim_start_matches('?').split('&').filter_map(|pair| Some(pair.split_once('=')?.0));
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match names.into_iter().find(|name| source.contains(&format!("`{name}`"))) {
        Some(name) => format!("its parameter `{name}` is unknown or has a value that is not supported"),
        None => "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with every special character as %XX".to_owned(),
    }
}

/// The oldest supported server version.
const VERSION_MIN: i32 = 140_000;

/// Rejects a server that can't hold our data.
pub(crate) async fn check(client: &Client) -> Result<(), Unavailable> {
    let text = "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')";
    let row = client.query_one(text, &[]).await.map_err(|error| unavailable(&error))?;
    suits(row.get(0), row.get(1))
}

fn suits(version: i32, encoding: &str) -> Result<(), Unavailable> {
    if version < VERSION_MIN {
        return Err(unusable("the database server is older than PostgreSQL 14"));
    }
    if encoding != "UTF8" {
        return Err(unusable("the database's encoding is not UTF-8"));
    }
    Ok(())
}

fn tls() -> Result<MakeRustlsConnect, Unavailable> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| unusable("TLS can't be set up"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// A transient outage.
pub(crate) fn passing(words: &str) -> Unavailable {
    Unavailable::new(Outage::Transient, words)
}

fn unusable(words: &str) -> Unavailable {
    Unavailable::new(Outage::Unusable, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_testkit::postgres::PrivatePostgres;

    #[tokio::test]
    async fn every_commit_of_a_lane_waits_for_the_disk_whatever_the_database_is_set_to() {
        let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
        let (server, name) = (Server::parse(&url).unwrap(), url.rsplit('/').next().unwrap());
        let plain = server.connect().await.unwrap();
        plain.batch_execute(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await.unwrap();
        let lane = server.connect_lane().await.unwrap();
        let setting: String = lane.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
        assert_eq!(setting, "on");
    }

    #[test]
    fn a_url_that_can_not_be_used_names_the_parameter_and_no_part_of_a_password() {
        for (url, named) in [
            ("postgres://u:hunter2@h/d?sslmode=sometimes", Some("sslmode")),
            ("postgres://u:hunter2@h/d?connect_timeout=3&sslrootcert=/x", Some("sslrootcert")),
            ("postgres://u@h/d?hunter2=x@y", None),
            ("postgres://u:hunter2@h:port/d", None),
        ] {
            let Err(OpenError::Url { reason }) = Server::parse(url) else { panic!("{url}") };
            assert_eq!(named.is_some(), reason.contains("its parameter"), "{reason}");
            assert!(named.is_none_or(|name| reason.contains(name)) && !reason.contains("hunter2"), "{reason}");
        }
    }

    #[test]
    fn what_asks_for_a_checked_certificate_turns_tls_on() {
        for (mode, tls) in [("disable", false), ("require", true), ("verify-ca", true), ("verify-full", true)] {
            let server = Server::parse(&format!("postgresql://u:p@h/d?sslmode={mode}")).unwrap();
            assert_eq!(server.tls.is_some(), tls, "{mode}");
        }
    }

    /// CONTENT-052, CONTENT-053
    #[test]
    fn servers_before_14_and_other_encodings_are_refused() {
        assert!(suits(140_000, "UTF8").is_ok() && suits(180_001, "UTF8").is_ok());
        assert!(suits(130_014, "UTF8").is_err_and(|error| error.reason.contains("PostgreSQL 14")));
        assert!(suits(150_000, "LATIN1").is_err_and(|error| error.reason.contains("UTF-8")));
    }
}
