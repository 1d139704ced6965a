//! Notifications and inbox messages.

use super::pages;
use crate::access::notify::Notify;
use crate::ops::schema::ErrorDocument;
use crate::wire::{DateTime, IntoWire, JsonObject, wire, words};
use chimera_core::flow::status;
use chimera_engine::flow::view;
use uuid::Uuid;

words! {
    /// Status of a notification. `dropped`: it no longer applied.
    pub(crate) MessageStatus from status::NotificationStatus {
        Pending = "pending",
        Sent = "sent",
        Failed = "failed",
        Unknown = "unknown",
        Dropped = "dropped",
    }

    /// Outcome of a delivery attempt; `unknown` while it is in flight.
    pub(crate) DeliveryOutcome from view::DeliveryOutcome {
        Unknown = "unknown",
        Delivered = "delivered",
        Failed = "failed",
    }
}

wire! {
    /// A notification about a run.
    pub(crate) MessageDocument from view::MessageView {
        /// Event type.
        r#type: Option<String>,
        /// Id of the approval request that it is about.
        approval_id: Option<Uuid>,
        /// `webhook`, `email` or another configured channel.
        channel: String,
        /// Address.
        target: String,
        /// Current status.
        status: MessageStatus,
        /// Attempts so far.
        attempt: i64,
        /// When it was delivered.
        sent_at: Option<DateTime>,
        /// When the next attempt is due.
        next_attempt_at: Option<DateTime>,
        /// Why the last attempt failed.
        error: Option<ErrorDocument>,
        /// The latest attempts.
        deliveries: Vec<DeliveryDocument>,
    }

    /// A delivery attempt.
    pub(crate) DeliveryDocument from view::DeliveryAttempt {
        /// Attempt number.
        attempt: i64,
        /// When it started.
        #[schema(format = DateTime)]
        at: String,
        /// How it ended.
        outcome: DeliveryOutcome,
    } + maybe {
        /// How long it took.
        duration_ms: i64,
        /// HTTP or SMTP status of the receiver.
        status: u16,
        /// Error code.
        error: String,
    }

    /// An inbox message.
    pub(crate) InboxMessage from view::InboxMessage {
        /// Message id.
        message_id: Uuid,
        /// Event type.
        #[schema(example = "run.completed")]
        r#type: String,
        /// When the message was created.
        at: Option<DateTime>,
        /// Id of the run that the message is about; null if it is about no run.
        run_id: Option<Uuid>,
        /// What a person calls the run: the goal, the tools of its steps, or the id of its workflow.
        title: Option<String>,
        /// Same payload as a webhook of this type.
        data: Option<JsonObject>,
    }
}

impl IntoWire<Notify> for view::NotifyTargets {
    fn into_wire(self) -> Notify {
        Notify { webhook: self.webhook, email: self.email }
    }
}

pages! {
    /// A page of inbox messages.
    pub InboxPage of InboxMessage from view::InboxMessage: "Newest first.";
}
