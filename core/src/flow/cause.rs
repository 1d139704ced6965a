//! What caused a run, if it was not a request: the tick of a schedule.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A schedule that started a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleCause {
    pub schedule_id: Uuid,
    pub name: String,
    /// The time of the tick; `None`: somebody started it now.
    pub tick_at: Option<String>,
}

impl ScheduleCause {
    /// The cause in the request of a run; `None` if no schedule started it.
    #[must_use]
    pub fn of_request(request: &Value) -> Option<Self> {
        Self::deserialize(request.get("schedule")?).ok()
    }

    /// The same for the text of a stored request, which may be large.
    #[must_use]
    pub fn of_text(request: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Request {
            schedule: Option<ScheduleCause>,
        }
        serde_json::from_str::<Request>(request).ok()?.schedule
    }

    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.tick_at {
            Some(tick) => format!("{}, tick of {tick}", self.name),
            None => format!("{}, started by hand", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_of_a_schedule_names_it() {
        let tick = json!({"schedule_id": Uuid::nil(), "name": "often", "tick_at": "2027-01-01T00:00:00Z"});
        let request = json!({"workflow_id": "w", "schedule": tick});
        let cause = ScheduleCause::of_request(&request).unwrap();
        assert_eq!(ScheduleCause::of_text(&request.to_string()).as_ref(), Some(&cause));
        assert_eq!(cause.describe(), "often, tick of 2027-01-01T00:00:00Z");
        let by_hand = json!({"schedule_id": Uuid::nil(), "name": "often", "tick_at": null});
        assert_eq!(
            ScheduleCause::of_request(&json!({"schedule": by_hand})).unwrap().describe(),
            "often, started by hand"
        );
        assert_eq!(ScheduleCause::of_request(&json!({"workflow_id": "w"})), None);
    }
}
