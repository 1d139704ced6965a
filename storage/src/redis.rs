//! The Redis connection that publishing and counters share.
//!
//! It connects on first use, so that the process starts without Redis, and reconnects on the call after a failure. A
//! failed call is never retried here: the caller decides whether it may have taken effect. After a timeout the server
//! is left alone for a moment; then one caller probes it while the others fail fast.

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult};
use chimera_core::limits;
use std::io;
use std::sync::{Arc, PoisonError};
use tokio::sync::Mutex;
use tokio::time::Instant;

#[derive(Clone)]
pub struct Redis {
    client: Client,
    live: Arc<Mutex<Option<MultiplexedConnection>>>,
    paused_until: Arc<std::sync::Mutex<Option<Instant>>>,
}

/// A URL that names no Redis server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Redis URL; expected redis://[user:password@]host[:port][/number] or rediss://…")]
pub struct InvalidRedisUrl;

impl Redis {
    /// The server at `url`. Does not connect yet.
    pub fn new(url: &str) -> Result<Self, InvalidRedisUrl> {
        let client = Client::open(url).map_err(|_| InvalidRedisUrl)?;
        Ok(Self { client, live: Arc::default(), paused_until: Arc::default() })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// A connection that worked when last used, or a new one.
    pub(crate) async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        self.check_paused()?;
        let mut live = match self.is_suspect() {
            false => self.live.lock().await,
            // Another caller is already probing the server.
            true => self.live.try_lock().map_err(|_| timed_out())?,
        };
        // The previous holder of the lock may have timed out meanwhile.
        self.check_paused()?;
        if let Some(connection) = live.as_ref() {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limits::REDIS_CONNECT_TIMEOUT))
            .set_response_timeout(Some(limits::REDIS_RESPONSE_TIMEOUT));
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        Ok(live.insert(connected.inspect_err(|error| self.pause_after_timeout(error))?).clone())
    }

    /// Fails at once while the server is left alone.
    fn check_paused(&self) -> RedisResult<()> {
        let until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        match *until {
            Some(until) if Instant::now() < until => Err(timed_out()),
            _ => Ok(()),
        }
    }

    /// Whether the last call timed out.
    fn is_suspect(&self) -> bool {
        self.paused_until.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// After a timeout, leaves the server alone for a moment.
    fn pause_after_timeout(&self, error: &RedisError) {
        if error.is_timeout() && self.check_paused().is_ok() {
            *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Instant::now() + limits::REDIS_PAUSE);
        }
    }

    /// Records the outcome of a call. After a failure the next call gets a new connection, since this one may be
    /// dead, or lead to a server that has become a replica.
    pub(crate) async fn record_outcome<T>(&self, outcome: RedisResult<T>) -> Result<T, String> {
        match outcome {
            Ok(value) => {
                *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Ok(value)
            }
            Err(error) => {
                self.pause_after_timeout(&error);
                *self.live.lock().await = None;
                tracing::debug!(%error, "redis call failed");
                Err(reason(&error))
            }
        }
    }

    /// Whether the server answers now.
    pub(crate) async fn ping(&self) -> Result<(), String> {
        let outcome = match self.connection().await {
            Ok(mut connection) => ::redis::cmd("PING").query_async::<String>(&mut connection).await.map(drop),
            Err(error) => Err(error),
        };
        self.record_outcome(outcome).await
    }
}

/// The error for a server that timed out.
fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// The reason for an operator, without the address.
pub(crate) fn reason(error: &RedisError) -> String {
    match error.kind() {
        _ if error.is_connection_refusal() => "redis refuses connections".into(),
        _ if error.is_timeout() => "redis does not answer in time".into(),
        ErrorKind::AuthenticationFailed => "redis refuses our credentials".into(),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            format!("redis answered {}", error.code().unwrap_or("with an error"))
        }
        _ => "the connection to redis was lost".into(),
    }
}
