//! The judge of a node: what it checks, and what happens when a check fails.
//!
//! A call that may change something outside is judged before it is sent, on its resolved input. Everything else is
//! judged on its output, which nothing else sees until it passes. In a map, the judge decides on every item.

use super::document::Approval;
use super::parse::read_approval;
use super::problem::{ProblemCode, Problems};
use super::read::Members;
use super::write::write_approval;
use crate::flow::expr::{Judged, Lookup, Preview, Scope, Template, Type, WorkMeter};
use crate::json::schema::{Schema, SchemaViolation};
use crate::limits::{
    JSON_INLINE_BYTES_MAX, JUDGE_CHECKS_MAX, JUDGE_MESSAGE_CHARS_MAX, JUDGE_RETRIES_MAX, OUTPUT_BYTES_MAX,
};
use crate::words::words;
use serde_json::{Map, Value};
use std::sync::Arc;

words! {
    /// What a failed check does.
    OnFail {
        /// The step is tried again, or fails.
        Reject = "reject",
        /// A person decides.
        Escalate = "escalate",
    }
}

words! {
    /// What a rejection does when no retries are left.
    OnExhausted {
        Fail = "fail",
        /// A person decides.
        Escalate = "escalate",
    }
}

/// A judge, as the author wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judge {
    /// The JSON Schema of what is judged.
    pub schema: Option<Value>,
    /// The size limit of what is judged, as JSON text.
    pub bytes_max: Option<u32>,
    pub checks: Vec<JudgeCheck>,
    /// How often a rejected step is tried again.
    pub retries: u32,
    pub on_exhausted: OnExhausted,
    /// Who decides when it escalates.
    pub approval: Approval,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeCheck {
    /// A `${…}` that must be true.
    pub require: String,
    pub message: Option<String>,
    pub on_fail: OnFail,
}

/// A judge whose expressions and schema are compiled.
#[derive(Debug)]
pub struct CompiledJudge {
    pub judge: Judge,
    pub(crate) schema: Option<Schema>,
    /// The conditions of the checks, in the same order.
    pub(crate) conditions: Vec<Template>,
    /// The type of `output`, or why the checks can't see it.
    pub(crate) output: Result<Type, String>,
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedCheck {
    /// Which one: a JSON pointer into the judge, without the leading slash.
    pub(crate) check: String,
    pub(crate) message: String,
    pub(crate) on_fail: OnFail,
}

/// The judge in the member `judge`.
pub(super) fn read_judge(members: &mut Members, out: &mut Problems) -> Option<Judge> {
    let path = members.path("judge");
    let mut inner = members.inner("judge", out)?;
    let most = u32::try_from(OUTPUT_BYTES_MAX).unwrap_or(u32::MAX);
    let judge = Judge {
        schema: inner.object("schema", out).map(Value::Object),
        bytes_max: inner.count("bytes_max", 1..=most, out),
        checks: read_checks(&mut inner, out),
        retries: inner.count("retries", 0..=JUDGE_RETRIES_MAX, out).unwrap_or(0),
        on_exhausted: read_word(&mut inner, "on_exhausted", OnExhausted::ALL, OnExhausted::Fail, out),
        approval: inner.inner("approval", out).map(|inner| read_approval(inner, out)).unwrap_or_default(),
    };
    inner.finish(out);
    if judge.schema.is_none() && judge.bytes_max.is_none() && judge.checks.is_empty() {
        let reason = "a judge needs a schema, bytes_max or checks";
        out.add(ProblemCode::MissingMember, path, reason);
    }
    Some(judge)
}

fn read_checks(members: &mut Members, out: &mut Problems) -> Vec<JudgeCheck> {
    let path = members.path("checks");
    let items = members.list("checks", out).unwrap_or_default();
    if items.len() > JUDGE_CHECKS_MAX {
        out.add(ProblemCode::TooLarge, path, format!("{} items, at most {JUDGE_CHECKS_MAX}", items.len()));
        return Vec::new();
    }
    let read = |(at, item)| {
        let mut members = Members::of(item, format!("{path}/{at}"), out);
        let check = JudgeCheck {
            require: members.text("require", out),
            message: members.optional_text("message", out),
            on_fail: read_word(&mut members, "on_fail", OnFail::ALL, OnFail::Reject, out),
        };
        if check.message.as_ref().is_some_and(|message| message.chars().count() > JUDGE_MESSAGE_CHARS_MAX) {
            let reason = format!("a message has at most {JUDGE_MESSAGE_CHARS_MAX} characters");
            out.add(ProblemCode::TooLarge, members.path("message"), reason);
        }
        members.finish(out);
        check
    };
    items.into_iter().enumerate().map(read).collect()
}

fn read_word<W: Copy + serde::Serialize>(
    members: &mut Members,
    name: &'static str,
    words: &[W],
    default: W,
    out: &mut Problems,
) -> W {
    let Some(text) = members.optional_text(name, out) else { return default };
    let written = |word: &W| serde_json::to_value(word).unwrap_or_default();
    if let Some(word) = words.iter().find(|word| written(word) == text.as_str()) {
        return *word;
    }
    let known: Vec<String> = words.iter().map(|word| written(word).to_string()).collect();
    out.add(ProblemCode::InvalidValue, members.path(name), format!("{name} must be {}", known.join(" or ")));
    default
}

pub(super) fn write_judge(judge: &Judge) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Option<Value>| drop(value.map(|value| out.insert(name.to_owned(), value)));
    put("schema", judge.schema.clone());
    put("bytes_max", judge.bytes_max.map(Value::from));
    let checks: Vec<Value> = judge.checks.iter().map(write_check).collect();
    put("checks", (!checks.is_empty()).then(|| checks.into()));
    put("retries", (judge.retries > 0).then(|| judge.retries.into()));
    put("on_exhausted", (judge.on_exhausted != OnExhausted::Fail).then(|| judge.on_exhausted.as_str().into()));
    put("approval", (judge.approval != Approval::default()).then(|| write_approval(&judge.approval)));
    Value::Object(out)
}

fn write_check(check: &JudgeCheck) -> Value {
    let mut out = Map::new();
    out.insert("require".to_owned(), check.require.as_str().into());
    if let Some(message) = &check.message {
        out.insert("message".to_owned(), message.as_str().into());
    }
    if check.on_fail != OnFail::Reject {
        out.insert("on_fail".to_owned(), check.on_fail.as_str().into());
    }
    Value::Object(out)
}

impl CompiledJudge {
    /// Whether judging a value may use much CPU time, so that it gets a turn of its own.
    pub(crate) fn may_take_long(&self, value: &Value) -> bool {
        self.is_costly() || crate::json::size(value) > JSON_INLINE_BYTES_MAX
    }

    /// Whether its cost depends on more than the size of the value.
    pub(crate) fn is_costly(&self) -> bool {
        self.schema.as_ref().is_some_and(Schema::is_expensive) || self.conditions.iter().any(Template::loops)
    }

    /// Bytes that the compiled patterns of its schema take at most.
    pub(crate) fn pattern_bytes(&self) -> usize {
        self.schema.as_ref().map_or(0, Schema::pattern_bytes)
    }

    /// The same as [`Self::failures`], or `None` if a check depends on what is not known yet.
    pub(crate) fn preview_failures(&self, value: &Value, scope: &dyn Scope) -> Option<Vec<FailedCheck>> {
        let is_deferred = |check: &Template| matches!(check.preview(scope), Ok(Preview::Deferred { .. }));
        (!self.conditions.iter().any(is_deferred)).then(|| self.failures(value, scope))
    }

    /// The checks that a value fails.
    pub(crate) fn failures(&self, value: &Value, scope: &dyn Scope) -> Vec<FailedCheck> {
        let mut failed = Vec::new();
        let reject =
            |check: &str, message: String| FailedCheck { check: check.to_owned(), message, on_fail: OnFail::Reject };
        if let Some(most) = self.judge.bytes_max {
            let bytes = value.to_string().len();
            if u64::try_from(bytes).unwrap_or(u64::MAX) > u64::from(most) {
                failed.push(reject("bytes_max", format!("it has {bytes} bytes, at most {most}")));
            }
        }
        if let Some(Err(faults)) = self.schema.as_ref().map(|schema| schema.check(value)) {
            let message = |fault: &SchemaViolation| format!("{} {}", fault.pointer, fault.message);
            failed.extend(faults.iter().map(|fault| reject("schema", message(fault).trim().to_owned())));
        }
        for (at, (check, condition)) in self.judge.checks.iter().zip(&self.conditions).enumerate() {
            let reason = match condition.render(scope) {
                Ok(Value::Bool(true)) => continue,
                Ok(Value::Bool(false)) => None,
                Ok(_) => Some("it is not a boolean".to_owned()),
                Err(error) => Some(format!("it can't be evaluated: {}", error.reason)),
            };
            let told = check.message.clone().unwrap_or_else(|| format!("${{{}}} is not true", condition.source()));
            let message = reason.map_or_else(|| told.clone(), |reason| format!("{told} ({reason})"));
            failed.push(FailedCheck { check: format!("checks/{at}"), message, on_fail: check.on_fail });
        }
        failed
    }
}

/// The scope of a judge's checks: that of its node, with the input and output of the step.
pub(crate) struct JudgeScope<'a> {
    pub(crate) scope: &'a dyn Scope,
    pub(crate) judged: Judged<'a>,
}

impl Scope for JudgeScope<'_> {
    fn run_id(&self) -> &str {
        self.scope.run_id()
    }

    fn inputs(&self) -> &Value {
        self.scope.inputs()
    }

    fn outputs(&self, node: &str) -> Lookup<'_> {
        self.scope.outputs(node)
    }

    fn item(&self) -> Option<(&Value, usize)> {
        self.scope.item()
    }

    fn judged(&self) -> Option<Judged<'_>> {
        Some(self.judged)
    }

    fn meter(&self) -> &WorkMeter {
        self.scope.meter()
    }
}

/// A compiled judge, shared by all runs of its workflow.
pub type SharedJudge = Arc<CompiledJudge>;
