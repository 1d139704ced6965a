//! Limits over time in the rules: how often, or up to which sum.
//!
//! What a limit counts together is its subject: the calls of one actor, of one tool, with one value in their input, or
//! all calls of the tenant that the rule matches. Names are part of the subject as they are, values of inputs as
//! digests.

use chimera_core::flow::policy::Action;
use chimera_core::flow::reservation::{BeyondLimit, Limit, Measure, WindowKey, parse_amount};
use chimera_core::flow::run::ApprovalRequirement;
use chimera_core::json::Digest32;
use chimera_core::limits::RULE_WINDOW_SECONDS_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// A limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawLimit")]
pub struct RuleLimit {
    pub measure: Measure,
    /// The largest total within the window: calls, or millionths.
    pub most: i64,
    pub seconds: u32,
    /// What is counted together.
    pub by: Vec<SubjectPart>,
}

/// A part of what a limit counts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectPart {
    Actor,
    Tool,
    Tenant,
    /// The value at a JSON pointer of the input.
    Input(String),
}

/// What a rule does with calls beyond its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    #[default]
    Deny,
    Ask(ApprovalRequirement),
}

/// `at_most` or `sum_at_most` as written in the file.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimit {
    count: Option<i64>,
    of: Option<String>,
    limit: Option<Value>,
    per: String,
    by: Option<OneOrMany<String>>,
}

/// A value, or a list of them. What is wrong with one of them is said, not only that none fits.
#[derive(Clone)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = match Value::deserialize(deserializer)? {
            Value::Array(list) => list,
            one => vec![one],
        };
        let list = list.into_iter().map(serde_json::from_value).collect::<Result<Vec<T>, _>>();
        list.map(Self).map_err(serde::de::Error::custom)
    }
}

impl TryFrom<RawLimit> for RuleLimit {
    type Error = String;

    fn try_from(raw: RawLimit) -> Result<Self, String> {
        let (measure, most) = match (raw.count, raw.of, raw.limit) {
            (Some(count), None, None) if count >= 0 => (Measure::Count, count),
            (Some(count), None, None) => return Err(format!("count is {count}; it can't be negative")),
            (None, Some(of), Some(limit)) => {
                let most = parse_amount(Some(&limit)).map_err(|error| format!("limit {error}"))?;
                (Measure::Sum { of: pointer(of)? }, most)
            }
            (None, Some(_), None) => return Err("sum_at_most requires `limit`".to_owned()),
            _ => return Err("at_most takes `count`, and sum_at_most takes `of` and `limit`".to_owned()),
        };
        let by = raw.by.map_or_else(|| vec!["tenant".to_owned()], |by| by.0);
        let by = by.into_iter().map(subject_part).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { measure, most, seconds: window(&raw.per)?, by })
    }
}

fn subject_part(written: String) -> Result<SubjectPart, String> {
    Ok(match written.as_str() {
        "actor" => SubjectPart::Actor,
        "tool" => SubjectPart::Tool,
        "tenant" => SubjectPart::Tenant,
        _ => SubjectPart::Input(pointer(written)?),
    })
}

/// Why a text of a rule is refused: no store can hold it.
pub(super) const HAS_NUL: &str = "contains U+0000, which can't be stored";

fn pointer(written: String) -> Result<String, String> {
    if written.contains('\0') {
        return Err(format!("`{}` {HAS_NUL}", written.escape_debug()));
    }
    if written.starts_with('/') {
        return Ok(written);
    }
    Err(format!("`{written}` is not a JSON pointer such as `/amount`, nor one of actor, tool and tenant"))
}

/// Seconds of a duration such as `90s`, `15m`, `1h` or `7d`.
fn window(per: &str) -> Result<u32, String> {
    let invalid = || format!("per is `{}`; write a duration such as `90s`, `15m`, `1h` or `7d`", per.escape_debug());
    let unit = per.chars().last().ok_or_else(invalid)?;
    let scale = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(invalid()),
    };
    let number: u32 = per[..per.len() - 1].parse().map_err(|_| invalid())?;
    let seconds = number.checked_mul(scale).filter(|seconds| (1..=RULE_WINDOW_SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| format!("per is `{per}`; a window has 1 to {RULE_WINDOW_SECONDS_MAX} seconds"))
}

impl RuleLimit {
    /// The limit on a call.
    pub(super) fn on(&self, rule: &str, action: &Action<'_>, beyond: &Beyond) -> Limit {
        let amount = match &self.measure {
            Measure::Count => Ok(1),
            Measure::Sum { of } => parse_amount(action.input.pointer(of))
                .map_err(|error| format!("the value at {of} of the input {error}")),
        };
        let beyond = match beyond {
            Beyond::Deny => BeyondLimit::Deny,
            Beyond::Ask(demand) => BeyondLimit::Ask(demand.clone()),
        };
        let key = WindowKey { subject: self.subject(rule, action), seconds: self.seconds };
        Limit { rule: rule.to_owned(), key, measure: self.measure.clone(), most: self.most, amount, beyond }
    }

    /// Bytes of its subject under a rule of this name, without the names of actors and tools.
    pub(super) fn subject_bytes(&self, rule: &str) -> usize {
        let of = match &self.measure {
            Measure::Count => 0,
            Measure::Sum { of } => of.len(),
        };
        let part = |part: &SubjectPart| match part {
            SubjectPart::Actor | SubjectPart::Tool | SubjectPart::Tenant => 0,
            // A digest as hex digits.
            SubjectPart::Input(at) => at.len() + 2 * size_of::<Digest32>(),
        };
        rule.len() + of + self.by.iter().map(part).sum::<usize>()
    }

    /// What the call is counted with. A list, so that no name can look like two.
    fn subject(&self, rule: &str, action: &Action<'_>) -> String {
        let measure = match &self.measure {
            Measure::Count => "count".to_owned(),
            Measure::Sum { of } => format!("sum {of}"),
        };
        let mut parts = vec![rule.to_owned(), measure];
        parts.extend(self.by.iter().map(|part| match part {
            SubjectPart::Actor => format!("actor {}", action.actor),
            SubjectPart::Tool => format!("tool {}", action.tool.name),
            SubjectPart::Tenant => "tenant".to_owned(),
            SubjectPart::Input(at) => {
                format!("{at} {}", Digest32::of(action.input.pointer(at).unwrap_or(&Value::Null)))
            }
        }));
        json!(parts).to_string()
    }
}
