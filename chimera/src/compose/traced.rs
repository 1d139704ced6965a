//! Wraps stores so that every call is a span, for a server that exports spans.
//!
//! A call without a parent span, such as polling by a background loop, makes none. Spans contain table names
//! and row counts, never row contents.

use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::access::window::{Quota, RateDecision};
use chimera_core::record::{CountQuery, Page, RowGroup, Select, Tx};
use chimera_core::time::Timestamp;
use chimera_engine::access::port::{ClaimOutcome, CounterError, Counters};
use chimera_engine::port::{
    Bus, BusError, CommitError, HeldLane, Hold, ReadError, Receipt, Records, Subscription, Unavailable,
};
use std::sync::Arc;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// A client span below the current span; none if there is no current span.
macro_rules! client_span {
    ($name:literal, $($field:tt)*) => {
        if Span::current().is_none() {
            Span::none()
        } else {
            tracing::info_span!($name, otel.kind = "client", otel.status_code = Empty, $($field)*)
        }
    };
}

async fn traced<T, E>(span: Span, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let done = work.instrument(span.clone()).await;
    if done.is_err() {
        span.record("otel.status_code", "ERROR");
    }
    done
}

/// Records with a span for each transaction and each page.
pub(super) struct TracedRecords {
    pub(super) inner: Arc<dyn Records>,
    /// What OpenTelemetry calls the database.
    pub(super) system: &'static str,
}

#[async_trait]
impl Records for TracedRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        let span = client_span!(
            "db.commit",
            db.system.name = self.system,
            db.operation.name = "commit",
            inserts = tx.inserts.len(),
            updates = tx.updates.len(),
            statements = tx.steps.len(),
        );
        traced(span, self.inner.commit(tx)).await
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        let span = client_span!(
            "db.read",
            db.system.name = self.system,
            db.operation.name = "select",
            db.collection.name = select.table.name,
        );
        traced(span, self.inner.read(select)).await
    }

    async fn count(&self, count: CountQuery) -> Result<Vec<RowGroup>, ReadError> {
        let span = client_span!(
            "db.count",
            db.system.name = self.system,
            db.operation.name = "select",
            db.collection.name = count.select.table.name,
        );
        traced(span, self.inner.count(count)).await
    }

    fn lane(&self, affinity: u64) -> Option<HeldLane> {
        self.inner.lane(affinity)
    }

    fn hold(&self) -> Option<Hold> {
        self.inner.hold()
    }

    fn damage(&self) -> Option<Unavailable> {
        self.inner.damage()
    }

    fn warning(&self) -> Option<String> {
        self.inner.warning()
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        let span = client_span!("db.ready", db.system.name = self.system);
        traced(span, self.inner.ready()).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// A bus in Redis with a span for each message.
pub(super) struct TracedBus(pub(super) Arc<dyn Bus>);

#[async_trait]
impl Bus for TracedBus {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<(), BusError> {
        let span = client_span!("redis.publish", db.system.name = "redis", topic);
        traced(span, self.0.publish(topic, message)).await
    }

    async fn subscribe(&self, topic: &str) -> Result<Subscription, BusError> {
        let span = client_span!("redis.subscribe", db.system.name = "redis", topic);
        traced(span, self.0.subscribe(topic)).await
    }

    async fn ready(&self) -> Result<(), BusError> {
        traced(client_span!("redis.ready", db.system.name = "redis"), self.0.ready()).await
    }
}

/// Counters in Redis with a span for each call. Keys may name people, so spans omit them.
pub(super) struct TracedCounters(pub(super) Arc<dyn Counters>);

#[async_trait]
impl Counters for TracedCounters {
    async fn claim(&self, key: &str, value: &str, ttl: Duration, now: Timestamp) -> Result<ClaimOutcome, CounterError> {
        let span = client_span!("redis.claim", db.system.name = "redis");
        traced(span, self.0.claim(key, value, ttl, now)).await
    }

    async fn read(&self, key: &str, now: Timestamp) -> Result<Option<String>, CounterError> {
        traced(client_span!("redis.read", db.system.name = "redis"), self.0.read(key, now)).await
    }

    async fn release(&self, key: &str, value: &str, now: Timestamp) -> Result<bool, CounterError> {
        traced(client_span!("redis.release", db.system.name = "redis"), self.0.release(key, value, now)).await
    }

    async fn hit(&self, key: &str, quota: Quota, now: Timestamp) -> Result<RateDecision, CounterError> {
        traced(client_span!("redis.hit", db.system.name = "redis"), self.0.hit(key, quota, now)).await
    }

    async fn ready(&self) -> Result<(), CounterError> {
        traced(client_span!("redis.ready", db.system.name = "redis"), self.0.ready()).await
    }
}

#[cfg(test)]
#[path = "traced_tests.rs"]
mod tests;
