//! The connection to Redis that publishing and counters share.
//!
//! It connects when first needed, so that the process starts without Redis, and again after a
//! failure, one call later. A call that fails is never repeated here: whether it took effect is
//! for the caller to judge. A server that did not answer in time is left alone for a moment: one caller
//! waits for it, not every one.

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult};
use chimera_core::limits;
use std::io;
use std::sync::{Arc, PoisonError};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A Redis server, by its URL.
#[derive(Clone)]
pub struct Redis {
    client: Client,
    live: Arc<Mutex<Option<MultiplexedConnection>>>,
    alone_until: Arc<std::sync::Mutex<Option<Instant>>>,
}

/// A URL that names no Redis server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Redis URL; expected redis://[user:password@]host[:port][/number] or rediss://…")]
pub struct InvalidRedisUrl;

impl Redis {
    /// The server at `url`. Does not connect yet.
    pub fn new(url: &str) -> Result<Self, InvalidRedisUrl> {
        let client = Client::open(url).map_err(|_| InvalidRedisUrl)?;
        Ok(Self { client, live: Arc::default(), alone_until: Arc::default() })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// A connection that worked when it was last used, or a fresh one.
    pub(crate) async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        self.check_alone()?;
        let mut live = match self.is_suspect() {
            false => self.live.lock().await,
            // Somebody tries already whether it answers again.
            true => self.live.try_lock().map_err(|_| silent())?,
        };
        // Somebody may have waited in vain while we waited for them.
        self.check_alone()?;
        if let Some(connection) = live.as_ref() {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limits::REDIS_CONNECT_TIMEOUT))
            .set_response_timeout(Some(limits::REDIS_RESPONSE_TIMEOUT));
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        Ok(live.insert(connected.inspect_err(|error| self.leave_alone(error))?).clone())
    }

    /// Fails at once as long as the server is left alone.
    fn check_alone(&self) -> RedisResult<()> {
        let until = self.alone_until.lock().unwrap_or_else(PoisonError::into_inner);
        match *until {
            Some(until) if Instant::now() < until => Err(silent()),
            _ => Ok(()),
        }
    }

    /// Whether it did not answer in time when it was last asked.
    fn is_suspect(&self) -> bool {
        self.alone_until.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Leaves a server alone that did not answer in time, unless it is.
    fn leave_alone(&self, error: &RedisError) {
        if error.is_timeout() && self.check_alone().is_ok() {
            *self.alone_until.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Instant::now() + limits::REDIS_PAUSE);
        }
    }

    /// Looks at the outcome of a call: after a failure the next call gets a new connection, since
    /// this one may be dead, or lead to a server that has become a replica.
    pub(crate) async fn settle<T>(&self, outcome: RedisResult<T>) -> Result<T, String> {
        match outcome {
            Ok(value) => {
                *self.alone_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Ok(value)
            }
            Err(error) => {
                self.leave_alone(&error);
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
        self.settle(outcome).await
    }
}

/// What is said of a server that did not answer in time.
fn silent() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// What an operator should know, without the address.
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
