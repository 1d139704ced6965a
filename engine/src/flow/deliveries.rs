//! The deliveries in flight, and which messages may join them.
//!
//! A receiver gets one message at a time, oldest first, so that its order is kept and a receiver that hangs blocks
//! nobody else. A free slot goes to the tenant with the fewest deliveries in flight, and no tenant gets all of them.

use crate::error::EngineError;
use chimera_core::flow::tables::{NotificationRow, notifications};
use chimera_core::limits::{MESSAGES_SENT_AT_ONCE_MAX, MESSAGES_SENT_AT_ONCE_TENANT_MAX};
use chimera_core::record::{Comparison, Select};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Deliveries<'a> {
    under_way: FuturesUnordered<BoxFuture<'a, (String, Result<(), EngineError>)>>,
    /// Receivers with the tenant of the message in flight.
    receivers: BTreeMap<String, String>,
}

impl<'a> Deliveries<'a> {
    pub(super) fn is_full(&self) -> bool {
        self.receivers.len() >= MESSAGES_SENT_AT_ONCE_MAX
    }

    /// Restricts a query to messages that may start now.
    pub(super) fn exclude_busy(&self, select: Select) -> Select {
        let receivers = self.receivers.keys();
        let select = receivers.fold(select, |select, receiver| {
            select.filter(notifications::target, Comparison::IsNot, receiver.as_str())
        });
        let full: Vec<&str> =
            self.receivers.values().map(String::as_str).filter(|tenant| self.is_tenant_full(tenant)).collect();
        full.into_iter()
            .fold(select, |select, tenant| select.filter(notifications::tenant_id, Comparison::IsNot, tenant))
    }

    /// Takes the next message to send from `rows`, which are in order.
    pub(super) fn take_next(&self, rows: &mut Vec<NotificationRow>) -> Option<NotificationRow> {
        if self.is_full() {
            return None;
        }
        rows.retain(|row| !self.receivers.contains_key(&row.target) && !self.is_tenant_full(&row.tenant_id));
        let next = rows.iter().enumerate().min_by_key(|(_, row)| self.count(&row.tenant_id));
        next.map(|(at, _)| at).map(|at| rows.remove(at))
    }

    pub(super) fn begin(&mut self, receiver: String, tenant: String, sending: BoxFuture<'a, Result<(), EngineError>>) {
        self.receivers.insert(receiver.clone(), tenant);
        self.under_way.push(Box::pin(async move { (receiver, sending.await) }));
    }

    /// Waits for a delivery to end; `None` if there is none.
    pub(super) async fn next_ended(&mut self) -> Option<Result<(), EngineError>> {
        let (receiver, ended) = self.under_way.next().await?;
        self.receivers.remove(&receiver);
        Some(ended)
    }

    fn count(&self, tenant: &str) -> usize {
        self.receivers.values().filter(|of| *of == tenant).count()
    }

    fn is_tenant_full(&self, tenant: &str) -> bool {
        self.count(tenant) >= MESSAGES_SENT_AT_ONCE_TENANT_MAX
    }
}
