//! Sends what runs have to tell, until it is delivered or hopeless.
//!
//! A message is a row, written with the end of the run. Whoever sends it takes it first by moving
//! its next attempt into the future, so two processes don't send the same one at a time; a process
//! that dies in between leaves it to the next attempt.

use super::node::Stop;
use super::{Flow, FlowError};
use crate::ledger::audit::{Event, Writer};
use crate::port::{CommitError, Message};
use chimera_core::flow::run::Unstorable;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::limits;
use chimera_core::record::{Compare, Json, Row, Scope, Select, Tx, Update, Value};
use serde_json::json;
use std::time::Duration;

/// How long a sender may take before another may try.
const TAKEN_SECONDS: i64 = 60;

/// How often it looks without being told.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Flow {
    /// Sends messages until the engine is stopped.
    pub async fn deliver(&self) {
        let mut stopping = self.inner.stopping();
        loop {
            if let Err(error) = self.deliver_due().await {
                tracing::warn!(error = %error, "messages could not be looked for");
            }
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop != Stop::No) => return,
                () = self.inner.messages.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Tries every message that is due.
    pub async fn deliver_due(&self) -> Result<(), FlowError> {
        let now = self.inner.parts.clock.now();
        let select = Select::from(&NOTIFICATIONS, Scope::System)
            .with("status", "pending")
            .filter("next_attempt_at", Compare::AtMost, now)
            .take(limits::PAGE_ROWS_DEFAULT);
        for row in self.inner.parts.records.read(select).await?.rows {
            self.try_message(&row).await?;
        }
        Ok(())
    }

    async fn try_message(&self, row: &Row) -> Result<(), FlowError> {
        let attempt = row.int("attempt") + 1;
        let version = row.int("state_version");
        let until = self.inner.parts.clock.now().plus_seconds(TAKEN_SECONDS);
        let taken = vec![("attempt", attempt.into()), ("next_attempt_at", until.into())];
        match self.set(row, version, taken, None).await {
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
        let sent = self.inner.parts.notifier.send(&message).await;
        let now = self.inner.parts.clock.now();
        let (set, told) = match sent {
            Ok(()) => {
                let set = vec![
                    ("status", "sent".into()),
                    ("sent_at", now.into()),
                    ("next_attempt_at", Value::Null),
                    ("error", Value::Null),
                ];
                (set, Some(("notification.sent", json!({"channel": message.channel, "attempt": attempt}))))
            }
            Err(error) => {
                let body = Json::of(&*error.body).map_err(Unstorable::from)?;
                let again = error.body.retryable && attempt < limits::MESSAGE_TRIES_MAX;
                let wait = 1_i64 << attempt.clamp(0, 12);
                let next = if again { Value::Time(now.plus_seconds(wait)) } else { Value::Null };
                let status = if again { "pending" } else { "failed" };
                let (channel, code, reason) = (&message.channel, &error.body.code, &error.body.message);
                tracing::warn!(run_id = ?row.get("run_id").as_uuid(), channel, code, reason, attempt, again, "a message about a run was not delivered");
                let data = json!({"channel": channel, "attempt": attempt, "code": code, "reason": reason});
                let set = vec![("status", status.into()), ("next_attempt_at", next), ("error", body.into())];
                (set, (!again).then_some(("notification.failed", data)))
            }
        };
        self.set(row, version + 1, set, told).await
    }

    /// Changes a message, and enters in the ledger how it ended.
    async fn set(
        &self,
        row: &Row,
        version: i64,
        set: Vec<(&'static str, Value)>,
        told: Option<(&str, serde_json::Value)>,
    ) -> Result<(), FlowError> {
        let update = Update::versioned(&NOTIFICATIONS, vec![row.uuid("id").into()], version, set);
        let mut tx = Tx { updates: vec![update.map_err(Unstorable::from)?], ..Tx::default() };
        if let Some((event_type, data)) = told {
            let run_id = row.get("run_id").as_uuid();
            let event = Event {
                tenant_id: row.text("tenant_id").to_owned(),
                subject_type: SubjectType::Other,
                subject_id: row.uuid("id").to_string(),
                event_type: event_type.to_owned(),
                actor_type: ActorType::System,
                actor_id: None,
                data,
                run_id,
                run_seq: None,
                trace_id: run_id.map(chimera_core::id::trace_id),
            };
            let writer = Writer { random: &*self.inner.parts.random, clock: &*self.inner.parts.clock };
            writer.event(&mut tx, event)?;
        }
        self.inner.parts.records.commit(tx).await?;
        Ok(())
    }
}
