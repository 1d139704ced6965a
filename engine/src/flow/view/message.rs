//! Notifications about a run, and how their delivery stands.

use chimera_core::error::ErrorBody;
use chimera_core::flow::status::NotificationStatus;
use chimera_core::flow::tables::NotificationRow;
use chimera_core::record::{DamagedRows, Json};
use chimera_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

/// Where notifications about a run are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifyTargets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct MessageView {
    pub r#type: Option<String>,
    pub approval_id: Option<Uuid>,
    pub channel: String,
    pub target: String,
    pub status: NotificationStatus,
    pub attempt: i64,
    pub sent_at: Option<Timestamp>,
    pub next_attempt_at: Option<Timestamp>,
    pub error: Option<ErrorBody>,
    /// The latest attempts.
    pub deliveries: Vec<DeliveryAttempt>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryAttempt {
    pub attempt: i64,
    /// RFC 3339.
    pub at: String,
    pub outcome: DeliveryOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    /// The status of the receiver's response. Mail servers' statuses are stored as text.
    #[serde(default, deserialize_with = "status", skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryOutcome {
    /// In flight, or cut off by a crash.
    Unknown,
    Delivered,
    Failed,
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Number(u16),
        Text(String),
    }
    Ok(match Option::<Stored>::deserialize(deserializer)? {
        Some(Stored::Number(number)) => Some(number),
        Some(Stored::Text(text)) => text.parse().ok(),
        None => None,
    })
}

#[derive(Deserialize)]
struct Payload {
    r#type: Option<String>,
}

impl MessageView {
    pub(in crate::flow) fn of(message: NotificationRow) -> Result<Self, DamagedRows> {
        Ok(Self {
            r#type: message.payload.decode::<Payload>()?.r#type,
            approval_id: message.approval_id,
            channel: message.channel,
            target: message.target,
            status: message.status,
            attempt: message.attempt.into(),
            sent_at: message.sent_at,
            next_attempt_at: message.next_attempt_at,
            error: message.error.as_ref().map(Json::decode).transpose()?,
            deliveries: message.deliveries.decode()?,
        })
    }
}
