//! Inbox messages.

use chimera_core::record::Json;
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

#[derive(Clone, Debug, Serialize)]
pub struct InboxMessage {
    pub message_id: Uuid,
    pub r#type: String,
    pub at: Option<Timestamp>,
    /// `None`: the message is about no run.
    pub run_id: Option<Uuid>,
    /// What a person calls the run.
    pub title: Option<String>,
    /// The payload of a webhook of this type.
    pub data: Option<Json>,
}
