//! Sends what runs have to tell, until it is delivered or hopeless.
//!
//! A message is a row, written with the end of the run. Whoever sends it takes it first by moving
//! its next attempt into the future, so two processes don't send the same one at a time; a process
//! that dies in between leaves it to the next attempt.

use super::{Flow, FlowError};
use crate::port::{CommitError, Message, Notifier};
use chimera_core::flow::run::Unstorable;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::limits;
use chimera_core::record::{Compare, Json, Row, Scope, Select, Tx, Update, Value};
use std::time::Duration;

/// How long a sender may take before another may try.
const TAKEN_SECONDS: i64 = 60;

/// How often it looks without being told.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Flow {
    /// Sends messages until the engine is stopped.
    pub async fn deliver(&self, notifier: &dyn Notifier) {
        let mut stopping = self.inner.stopping();
        loop {
            if let Err(error) = self.deliver_due(notifier).await {
                tracing::warn!(error = %error, "messages could not be looked for");
            }
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop) => return,
                () = self.inner.messages.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Tries every message that is due.
    pub async fn deliver_due(&self, notifier: &dyn Notifier) -> Result<(), FlowError> {
        let now = self.inner.parts.clock.now();
        let select = Select::from(&NOTIFICATIONS, Scope::System)
            .with("status", "pending")
            .filter("next_attempt_at", Compare::AtMost, now)
            .take(limits::PAGE_ROWS_DEFAULT);
        for row in self.inner.parts.records.read(select).await?.rows {
            self.try_message(notifier, &row).await?;
        }
        Ok(())
    }

    async fn try_message(&self, notifier: &dyn Notifier, row: &Row) -> Result<(), FlowError> {
        let attempt = row.int("attempt") + 1;
        let version = row.int("state_version");
        let until = self.inner.parts.clock.now().plus_seconds(TAKEN_SECONDS);
        let taken = vec![("attempt", attempt.into()), ("next_attempt_at", until.into())];
        match self.set(row, version, taken).await {
            Ok(()) => {}
            // Somebody else has it.
            Err(FlowError::Commit(CommitError::Conflict(_))) => return Ok(()),
            Err(error) => return Err(error),
        }
        let message = Message {
            id: row.uuid("id"),
            tenant: row.text("tenant_id").to_owned(),
            channel: row.text("channel").to_owned(),
            target: row.text("target").to_owned(),
            payload: row.get("payload").as_json().map(Json::to_value).unwrap_or_default(),
        };
        let sent = notifier.send(&message).await;
        let now = self.inner.parts.clock.now();
        let set = match sent {
            Ok(()) => vec![("status", "sent".into()), ("sent_at", now.into()), ("next_attempt_at", Value::Null)],
            Err(error) => {
                let body = Json::of(&*error.body).map_err(Unstorable::from)?;
                let again = error.body.retryable && attempt < limits::MESSAGE_TRIES_MAX;
                let wait = 1_i64 << attempt.clamp(0, 12);
                let next = if again { Value::Time(now.plus_seconds(wait)) } else { Value::Null };
                let status = if again { "pending" } else { "failed" };
                vec![("status", status.into()), ("next_attempt_at", next), ("error", body.into())]
            }
        };
        self.set(row, version + 1, set).await
    }

    async fn set(&self, row: &Row, version: i64, set: Vec<(&'static str, Value)>) -> Result<(), FlowError> {
        let update = Update::versioned(&NOTIFICATIONS, vec![row.uuid("id").into()], version, set);
        let tx = Tx { updates: vec![update.map_err(Unstorable::from)?], ..Tx::default() };
        self.inner.parts.records.commit(tx).await?;
        Ok(())
    }
}
