//! The risk of a run, as it was assessed when the run was admitted.

use chimera_core::flow::policy::Because;
use chimera_core::flow::risk::Reason;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskView {
    /// The sum of the reasons' points.
    #[serde(default)]
    pub score: u32,
    #[serde(default)]
    pub reasons: Vec<Reason>,
    /// Why the autonomy level is not higher.
    #[serde(default, deserialize_with = "because", skip_serializing_if = "Option::is_none")]
    pub level_because: Option<Because>,
    /// The number of calls of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// The digest of the child workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_digest: Option<String>,
}

fn because<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Because>, D::Error> {
    let Some(word) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    Because::parse(&word).map(Some).ok_or_else(|| D::Error::custom(format_args!("unknown reason `{word}`")))
}
