//! The read model of an approval request, which the terminal, the web page and the mail all show.
//!
//! It is built from the stored request, so all three show the same, and everything that the digest covers.
//! Nothing is truncated: identical calls are shown once with their count, and unlisted calls are counted.

mod change;
mod text;

pub use change::Change;
pub use text::{calls_title, facts, headline, lines, remarks, title};

use crate::error::Code;
use crate::flow::approval::{Decision, RequestStatus, RequestedAction};
use crate::flow::cause::ScheduleCause;
use crate::flow::risk::{Factor, Score};
use crate::time::Timestamp;
use crate::tool::Risk;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// A stored approval request.
#[derive(Clone, Debug)]
pub struct ApprovalRecord<'a> {
    pub approval_id: Uuid,
    pub run_id: Uuid,
    pub workflow_id: &'a str,
    pub requested_by: &'a str,
    /// Everyone besides the requester who changed the action or contributed to its data.
    pub changed_by: &'a [String],
    pub autonomy_level: &'a str,
    pub node_id: Option<&'a str>,
    /// A tool, `hitl`, `workflow`, `map`, `judge.output`, `plan` or `graph.patch`.
    pub action_type: &'a str,
    /// The action, as stored.
    pub data: &'a Value,
    pub digest: Option<String>,
    pub created_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub approvals_needed: i64,
    /// The decisions so far.
    pub decisions: &'a Value,
    pub status: &'a str,
    pub reviewed_at: Option<Timestamp>,
    pub reviewed_by: Option<&'a str>,
    pub notes: Option<&'a str>,
    /// The risk of the run when it was admitted.
    pub run_risk: Option<&'a Value>,
    /// Who is notified of the result, as the request names them.
    pub notify: Option<&'a Value>,
    /// The data of the previous request about the same action.
    pub before: Option<&'a Value>,
    pub now: Timestamp,
}

/// Everything a person needs to decide about an approval request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Review {
    pub approval_id: Uuid,
    pub run_id: Uuid,
    pub workflow_id: String,
    pub requested_by: String,
    /// The schedule that started the run.
    #[serde(default)]
    pub schedule: Option<ScheduleCause>,
    #[serde(default)]
    pub changed_by: Vec<String>,
    pub autonomy_level: String,
    pub subject: Subject,
    pub node_id: Option<String>,
    /// Why approval is required.
    pub reason: String,
    pub question: Option<Question>,
    /// The calls that would be made, in order.
    pub calls: Vec<PlannedCall>,
    /// The number of calls in `calls`, identical ones included.
    pub calls_listed: u64,
    /// Known calls that are not in `calls`. Each needs its own approval.
    pub calls_unlisted: u64,
    /// Maps whose list is not known yet. They need approval once it is.
    pub maps_unknown: Vec<String>,
    /// The graph patch, if the request is about one.
    pub patch: Option<Value>,
    pub risk: Option<RiskSummary>,
    /// Where the result of the run is sent. The approval covers this message too.
    #[serde(default)]
    pub notifies: Vec<String>,
    /// The differences from the previous request.
    pub changes: Vec<Change>,
    /// Why it cannot be approved.
    pub refusals: Vec<String>,
    pub digest: Option<String>,
    pub created_at: Option<String>,
    pub expires_at: Option<String>,
    pub approvals_needed: i64,
    pub decisions: Vec<RecordedDecision>,
    pub standing: ApprovalState,
}

/// What the request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Plan,
    Patch,
    Question,
    ChildRun,
    Map,
    /// What a step returned.
    Output,
    Call,
}

impl Subject {
    const fn of(action: &RequestedAction) -> Self {
        match action {
            RequestedAction::Plan => Self::Plan,
            RequestedAction::Patch => Self::Patch,
            RequestedAction::Question => Self::Question,
            RequestedAction::ChildRun => Self::ChildRun,
            RequestedAction::Map => Self::Map,
            RequestedAction::Output => Self::Output,
            RequestedAction::Call(_) => Self::Call,
        }
    }
}

/// The question of a `hitl` node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub prompt: Option<String>,
    pub shown: Value,
}

/// One call, or several identical ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The node and the item of a map: `upload[3]`.
    pub place: String,
    /// What happens there, as a phrase: `calls s3_upload`.
    pub what: String,
    pub input: Option<Value>,
    /// Further items with the identical call, as ranges: `1-99`.
    pub alike: Vec<String>,
    pub alike_count: u64,
    /// What the call would do, according to the dry run.
    pub would: Option<String>,
    /// Remarks, e.g. that the input is not known yet or was not tried.
    pub notes: Vec<String>,
    /// Why the rules refuse it.
    pub refused: Option<String>,
    /// Why the dry run failed.
    pub failed: Option<String>,
}

/// The risk, with its reasons in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskSummary {
    pub score: u32,
    /// `low`, `medium` or `high`.
    pub band: String,
    pub reasons: Vec<RiskReason>,
}

/// One reason, with every place where it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskReason {
    pub meaning: String,
    pub points: u32,
    pub places: Vec<String>,
}

/// One person's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDecision {
    pub by: String,
    pub decision: String,
    pub at: String,
    pub notes: Option<String>,
}

/// Whether the request is still open, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalState {
    pub status: ApprovalStatus,
    pub by: Vec<String>,
    pub at: Option<String>,
    pub notes: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStatus {
    /// Pending.
    Open,
    /// Nobody decided in time.
    Expired,
    /// The action was changed.
    Superseded,
    /// The run ended or took another path.
    Cancelled,
    Approved,
    Denied,
}

impl ApprovalState {
    /// The status as a sentence without a full stop.
    #[must_use]
    pub fn describe(&self) -> String {
        let by = if self.by.is_empty() { String::new() } else { format!(" by {}", self.by.join(" and ")) };
        let at = self.at.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
        match self.status {
            ApprovalStatus::Open => "this request is waiting for a decision".to_owned(),
            ApprovalStatus::Expired => format!("this request expired{at}; nobody decided in time"),
            ApprovalStatus::Superseded => {
                format!("this request was superseded{at}{by}; fetch the run for the current digest")
            }
            ApprovalStatus::Cancelled => format!("this request was cancelled{at}: the run no longer needs it"),
            ApprovalStatus::Approved => format!("this request was approved{by}{at}"),
            ApprovalStatus::Denied => format!("this request was denied{by}{at}"),
        }
    }
}

impl Review {
    #[must_use]
    pub fn of(request: &ApprovalRecord<'_>) -> Self {
        let data = request.data;
        let subject = Subject::of(&RequestedAction::parse(request.action_type));
        let calls = calls_of(subject, data);
        let (calls_unlisted, maps_unknown) = unlisted_calls(subject, data);
        let refused = |call: &PlannedCall| Some(format!("{}: {}", call.place, call.refused.as_deref()?));
        Self {
            approval_id: request.approval_id,
            run_id: request.run_id,
            workflow_id: request.workflow_id.to_owned(),
            requested_by: request.requested_by.to_owned(),
            schedule: None,
            changed_by: request.changed_by.to_vec(),
            autonomy_level: request.autonomy_level.to_owned(),
            subject,
            node_id: request.node_id.map(str::to_owned),
            reason: text_of(&data["reason"]).unwrap_or_default(),
            question: match subject {
                Subject::Question => Some(question(&data["input"])),
                Subject::Output => Some(held_output(data)),
                _ => None,
            },
            calls_listed: calls.iter().filter(|call| call.is_call()).map(|call| 1 + call.alike_count).sum(),
            refusals: calls.iter().filter_map(refused).collect(),
            changes: request.before.map(|before| change::diff(&calls_of(subject, before), &calls)).unwrap_or_default(),
            calls,
            calls_unlisted,
            maps_unknown,
            patch: (subject == Subject::Patch).then(|| data["patch"].clone()),
            // The risk of the run says nothing about what a patch adds.
            risk: risk(&data["risk"]).or_else(|| risk(request.run_risk.filter(|_| subject != Subject::Patch)?)),
            notifies: notifies(request.notify),
            digest: request.digest.clone(),
            created_at: request.created_at.map(|at| at.to_string()),
            expires_at: request.expires_at.map(|at| at.to_string()),
            approvals_needed: request.approvals_needed,
            decisions: serde_json::from_value(request.decisions.clone()).unwrap_or_default(),
            standing: approval_state(request),
        }
    }

    #[must_use]
    pub fn is_open(&self) -> bool {
        self.standing.status == ApprovalStatus::Open
    }
}

impl PlannedCall {
    /// Whether this is a call, rather than a skipped node, a map or a question.
    #[must_use]
    pub const fn is_call(&self) -> bool {
        self.input.is_some()
    }
}

/// Why the dry run stored in `data` rules out an approval.
#[must_use]
pub fn refusals(action_type: &str, data: &Value) -> Vec<String> {
    let subject =
        if RequestedAction::parse(action_type) == RequestedAction::Plan { Subject::Plan } else { Subject::Call };
    let refused = |call: PlannedCall| Some(format!("{}: {}", call.place, call.refused?));
    calls_of(subject, data).into_iter().filter_map(refused).collect()
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// What a step returned and its judge escalated.
fn held_output(data: &Value) -> Question {
    let tool = data["tool"].as_str().unwrap_or_default();
    let prompt = format!("{tool} has returned this output. Approve to let later steps use exactly this output.");
    let failed = &data["judgement"]["failed"];
    Question {
        prompt: Some(prompt),
        shown: json!({"input": data["input"], "output": data["output"], "failed_checks": failed}),
    }
}

fn question(input: &Value) -> Question {
    match input.as_object() {
        Some(asked) if asked.len() == 2 && asked.contains_key("prompt") && asked.contains_key("show") => {
            let prompt = match &asked["prompt"] {
                Value::String(prompt) => prompt.clone(),
                other => other.to_string(),
            };
            Question { prompt: Some(prompt), shown: asked["show"].clone() }
        }
        _ => Question { prompt: None, shown: input.clone() },
    }
}

fn calls_of(subject: Subject, data: &Value) -> Vec<PlannedCall> {
    match subject {
        Subject::Plan => data["plan"]["steps"].as_array().into_iter().flatten().map(|line| call(None, line)).collect(),
        Subject::Map => {
            let node = data["node"].as_str();
            data["calls"].as_array().into_iter().flatten().map(|line| call(node, line)).collect()
        }
        Subject::Call | Subject::ChildRun => vec![call(None, data)],
        Subject::Patch | Subject::Question | Subject::Output => Vec::new(),
    }
}

/// Reads one call of a stored request.
fn call(node: Option<&str>, line: &Value) -> PlannedCall {
    let node = node.or(line["node"].as_str()).unwrap_or_default();
    let place = line["item"].as_u64().map_or_else(|| node.to_owned(), |item| format!("{node}[{item}]"));
    let (result, error) = (&line["result"], &line["result"]["error"]);
    let message = text_of(&error["message"]);
    let denies = [Code::PolicyDenied, Code::RbacForbidden].iter().any(|code| error["code"] == code.as_str());
    let (refused, failed) = if denies { (message, None) } else { (None, message) };
    let ranges = line["alike"].as_array().into_iter().flatten();
    let ranges: Vec<(u64, u64)> = ranges.filter_map(|range| Some((range[0].as_u64()?, range[1].as_u64()?))).collect();
    let range = |(from, to): &(u64, u64)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    PlannedCall {
        place,
        what: describe_action(line),
        input: line.get("input").filter(|input| !input.is_null() && line["type"] != "map").cloned(),
        alike_count: ranges.iter().map(|(from, to)| to.saturating_sub(*from) + 1).sum(),
        alike: ranges.iter().map(range).collect(),
        // The headline of a question already says it.
        would: text_of(&result["would_execute"])
            .or_else(|| text_of(&line["would_execute"]))
            .filter(|_| line["type"] != "hitl" && line["type"] != "wait"),
        notes: notes(line),
        refused,
        failed: failed.or_else(|| text_of(&line["error"])),
    }
}

fn describe_action(line: &Value) -> String {
    if let Some(workflow) = line["workflow_id"].as_str() {
        return format!("starts a run of {workflow}");
    }
    match (line["status"].as_str(), line["type"].as_str(), line["tool"].as_str()) {
        (Some("skipped"), ..) => "is skipped".to_owned(),
        (Some("recorded"), ..) => "is already done and not repeated".to_owned(),
        (_, Some("hitl"), _) => "a person decides".to_owned(),
        (_, Some("wait"), _) => describe_wait(&line["input"]),
        (_, Some("map"), _) => match line["items"].as_u64() {
            Some(items) => format!("iterates over a list of {items} items"),
            None => "iterates over a list that is not known yet".to_owned(),
        },
        (_, _, Some(tool)) => format!("calls {tool}"),
        _ => String::new(),
    }
}

/// What a wait waits for, as far as it is known.
fn describe_wait(input: &Value) -> String {
    if let Some(until) = input["until"].as_str() {
        return format!("waits until {until}");
    }
    if let Some(seconds) = input["for_seconds"].as_i64() {
        return format!("waits for {seconds} s");
    }
    match (input["event"]["name"].as_str(), input["event"]["key"].as_str()) {
        (Some(name), Some(key)) => format!("waits for the event {name} with the key {key}"),
        (Some(name), None) => format!("waits for the event {name}"),
        _ => "waits until a time that is not known yet".to_owned(),
    }
}

fn notes(line: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    if line["type"] == "map" && line["items"].is_null() {
        notes.push("you will be asked about every item once the list is known".to_owned());
    } else if !line["deferred"].is_null() {
        notes.push("the input depends on results that are not known yet".to_owned());
    }
    if let (Some(items), Some(listed)) = (line["items"].as_u64(), line["items_listed"].as_u64())
        && listed < items
    {
        notes.push(format!("{} items are not listed here; each needs its own approval", items - listed));
    }
    notes.extend(judge_note(&line["judge"]));
    // A draft never executes anything, so this warning adds nothing.
    let warning = text_of(&line["result"]["warning"]).filter(|warning| !warning.starts_with("This is a simulated"));
    notes.extend(warning.filter(|_| line["deferred"].is_null()));
    notes
}

/// What the judge of a planned call will do, or says already.
fn judge_note(judge: &Value) -> Option<String> {
    let failed = || judge["failed"].as_array().into_iter().flatten().filter_map(|failed| failed["message"].as_str());
    let failed = || failed().collect::<Vec<_>>().join("; ");
    Some(match (judge["of"].as_str()?, judge["verdict"].as_str()) {
        (_, Some("passed")) => "its judge lets this input pass".to_owned(),
        (_, Some("rejected")) => format!("its judge rejects this input, so the step will fail: {}", failed()),
        (_, Some(_)) => format!("its judge leaves this input to a person: {}", failed()),
        ("input", None) => "its judge decides on the input before it is sent".to_owned(),
        (_, None) => "its judge decides on the output before later steps see it".to_owned(),
    })
}

/// The number of known calls that are not listed, and the maps whose list is not known.
fn unlisted_calls(subject: Subject, data: &Value) -> (u64, Vec<String>) {
    let missing = |line: &Value| -> u64 {
        let (items, listed) = (line["items"].as_u64(), line["items_listed"].as_u64());
        items.unwrap_or(0).saturating_sub(listed.or(items).unwrap_or(0))
    };
    match subject {
        Subject::Plan => {
            let maps = || data["plan"]["steps"].as_array().into_iter().flatten().filter(|line| line["type"] == "map");
            let unknown = maps().filter(|line| line["items"].is_null()).filter_map(|line| text_of(&line["node"]));
            (maps().map(missing).sum(), unknown.collect())
        }
        Subject::Map => (missing(data), Vec::new()),
        _ => (0, Vec::new()),
    }
}

/// The channels and addresses of a run's `notify`.
fn notifies(notify: Option<&Value>) -> Vec<String> {
    let members = notify.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(channel, target)| Some(format!("{channel} {}", target.as_str()?))).collect()
}

/// A score with its reasons in words. Reasons of the same factor are merged.
fn risk(value: &Value) -> Option<RiskSummary> {
    let number = value["score"].as_u64().and_then(|score| u32::try_from(score).ok())?;
    let score = Score { score: number, reasons: Vec::new() };
    let mut reasons: Vec<RiskReason> = Vec::new();
    for reason in value["reasons"].as_array().into_iter().flatten() {
        let factor = serde_json::from_value::<Factor>(reason["factor"].clone()).ok();
        let meaning = factor.map_or_else(|| reason["factor"].to_string(), |factor| factor.meaning().to_owned());
        let points = reason["points"].as_u64().and_then(|points| u32::try_from(points).ok()).unwrap_or(0);
        let place = text_of(&reason["pointer"]).unwrap_or_default();
        match reasons.iter_mut().find(|known| known.meaning == meaning) {
            Some(known) => {
                known.points = known.points.saturating_add(points);
                known.places.push(place);
            }
            None => reasons.push(RiskReason { meaning, points, places: vec![place] }),
        }
    }
    let band = match score.band() {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
    };
    Some(RiskSummary { score: number, band: band.to_owned(), reasons })
}

fn approval_state(request: &ApprovalRecord<'_>) -> ApprovalState {
    let late = request.expires_at.is_some_and(|end| end <= request.now);
    let status = match RequestStatus::parse(request.status) {
        Some(RequestStatus::Pending) if late => ApprovalStatus::Expired,
        Some(RequestStatus::Pending) => ApprovalStatus::Open,
        Some(RequestStatus::Approved) => ApprovalStatus::Approved,
        Some(RequestStatus::Denied) => ApprovalStatus::Denied,
        Some(RequestStatus::Expired) => ApprovalStatus::Expired,
        Some(RequestStatus::Superseded) => ApprovalStatus::Superseded,
        Some(RequestStatus::Cancelled) | None => ApprovalStatus::Cancelled,
    };
    let said = request.decisions.as_array().into_iter().flatten();
    let approving =
        said.filter(|said| said["decision"] == Decision::Approve.as_str()).filter_map(|said| text_of(&said["by"]));
    let by = match status {
        ApprovalStatus::Approved => approving.collect(),
        ApprovalStatus::Open | ApprovalStatus::Expired => Vec::new(),
        _ => request.reviewed_by.map(str::to_owned).into_iter().collect(),
    };
    let at = match status {
        ApprovalStatus::Open => None,
        ApprovalStatus::Expired => request.expires_at.or(request.reviewed_at),
        _ => request.reviewed_at,
    };
    ApprovalState { status, by, at: at.map(|at| at.to_string()), notes: request.notes.map(str::to_owned) }
}
