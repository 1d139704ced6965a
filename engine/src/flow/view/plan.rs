//! The plan of a run: as drafted by a dry run, or as its workflow says.

use chimera_core::error::ErrorBody;
use chimera_core::flow::judgement::{CheckFailure, JudgedPart, Verdict};
use chimera_core::flow::plan::Plan;
use chimera_core::record::{DamagedRows, Json, JsonError};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, Serialize)]
pub struct PlanView {
    pub steps: Vec<PlanLine>,
    /// Whether there are more calls than `steps` lists.
    pub more: bool,
    /// What an approval of the whole plan covers.
    pub digest: Option<String>,
}

/// One call, or what happens at a node that makes none. Only what applies is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanLine {
    /// The name by which the line is decided and edited.
    #[serde(default)]
    pub step_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<LineStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<LineKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_execute: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<Deferral>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The node's judge, and what it says if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<PlannedJudge>,
    #[serde(flatten)]
    pub call: CheckedCall,
    #[serde(flatten)]
    pub covers: CoveredItems,
    #[serde(flatten)]
    pub child: PlannedChild,
    #[serde(flatten)]
    pub map: PlannedMap,
    /// What the dry run of the line returned.
    #[serde(default, skip_serializing)]
    result: Option<Map<String, Value>>,
}

/// What was checked of a call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CheckedCall {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<String>,
    /// The risk score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<u32>,
}

/// The judge of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedJudge {
    pub of: JudgedPart,
    /// `None` if it depends on what a dry run does not know.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// What fails.
    #[serde(default)]
    pub failed: Vec<CheckFailure>,
}

/// The items of a map that a line is about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CoveredItems {
    /// The index of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// Further items with the identical call, as ranges of first and last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alike: Option<Vec<[u64; 2]>>,
}

/// The workflow of a child run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlannedChild {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// How many items a map has, as far as it is known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlannedMap {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_listed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineStatus {
    /// The graph takes another path.
    Skipped,
    /// Done by the run that is retried.
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    Hitl,
    Workflow,
    Map,
    Wait,
}

/// What the input of a line waits for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Deferral {
    /// The list of a map.
    List(bool),
    /// The outputs of these nodes; none if only the list of the enclosing map is not known.
    Nodes(Vec<String>),
}

/// What a dry run of a line found.
#[derive(Clone, Debug, Serialize)]
pub struct DryRunResult {
    pub step_id: String,
    pub tool: Option<String>,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_execute: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_output: Option<Value>,
    /// False if only the first items of the map were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<bool>,
    /// What else the tool returned.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A plan as a draft stores it.
#[derive(Deserialize)]
struct StoredPlan {
    #[serde(default)]
    steps: Vec<Box<RawValue>>,
    digest: Option<String>,
}

impl PlanView {
    /// The plan that a draft stored, and the dry-run result of each line.
    pub(in crate::flow) fn drafted(plan: &Json) -> Result<(Self, Vec<DryRunResult>), DamagedRows> {
        let stored: StoredPlan = plan.decode()?;
        let damaged = |error: serde_json::Error| DamagedRows { what: format!("a line of a plan: {error}") };
        let mut steps = Vec::with_capacity(stored.steps.len());
        let mut results = Vec::with_capacity(stored.steps.len());
        for text in stored.steps {
            let mut line: PlanLine = serde_json::from_str(text.get()).map_err(damaged)?;
            let result = line.result.take();
            line.step_id = line.node.clone().unwrap_or_default();
            results.push(DryRunResult::of(&line, result.unwrap_or_default()));
            steps.push(line);
        }
        Ok((Self { steps, more: false, digest: stored.digest }, results))
    }

    /// The plan of a workflow that was not drafted.
    pub fn of_plan(plan: &Plan) -> Result<Self, JsonError> {
        let line = |step: &chimera_core::flow::plan::PlanStep| {
            Ok(PlanLine {
                step_id: step.id.clone(),
                tool: Some(step.tool.clone()),
                input: Some(to_raw_value(&step.input).map_err(JsonError::Serialise)?),
                ..PlanLine::default()
            })
        };
        let steps = plan.steps.iter().map(line).collect::<Result<_, JsonError>>()?;
        Ok(Self { steps, more: plan.more, digest: None })
    }
}

impl DryRunResult {
    /// A tool may return anything, so a member of another type than expected stays among the others.
    fn of(line: &PlanLine, mut more: Map<String, Value>) -> Self {
        more.remove("step_id");
        more.remove("tool");
        let status = take_text(&mut more, "status").unwrap_or_else(|| "dry_run".to_owned());
        let error = more.get("error").and_then(|error| serde_json::from_value(error.clone()).ok());
        if error.is_some() {
            more.remove("error");
        }
        Self {
            step_id: line.step_id.clone(),
            tool: line.tool.clone(),
            status,
            would_execute: take_text(&mut more, "would_execute"),
            warning: take_text(&mut more, "warning"),
            error,
            simulated_output: more.remove("simulated_output").filter(|output| !output.is_null()),
            tried: take_flag(&mut more, "tried"),
            deferred: take_flag(&mut more, "deferred"),
            more,
        }
    }
}

fn take_text(members: &mut Map<String, Value>, name: &str) -> Option<String> {
    let text = members.get(name)?.as_str()?.to_owned();
    members.remove(name);
    Some(text)
}

fn take_flag(members: &mut Map<String, Value>, name: &str) -> Option<bool> {
    let flag = members.get(name)?.as_bool()?;
    members.remove(name);
    Some(flag)
}
