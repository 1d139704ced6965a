//! What the judge of a step decided last.
//!
//! It is stored with the step, so that a step whose input has passed is not judged again, and a rejected one knows why
//! when it is tried again.

use crate::flow::air::{CompiledJudge, FailedCheck, OnExhausted, OnFail};
use crate::flow::expr::{Shape, Type};
use crate::json::Digest32;
use crate::limits::{JUDGE_FAILED_CHARS_MAX, JUDGE_FAILED_SHOWN_MAX};
use crate::words::words;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

words! {
    /// What of a step was judged.
    JudgedPart {
        /// What it would send.
        Input = "input",
        /// What it returned.
        Output = "output",
    }
}

words! {
    Verdict {
        Passed = "passed",
        Rejected = "rejected",
        /// A person decides.
        Escalated = "escalated",
    }
}

/// The last judgement of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    pub of: JudgedPart,
    pub verdict: Verdict,
    /// The digest of what was judged.
    #[serde(deserialize_with = "digest")]
    pub digest: Digest32,
    /// How often the step was rejected so far.
    pub rejections: u32,
    /// How often it was tried again because of that. Every round is a call of its own.
    #[serde(default)]
    pub round: u32,
    /// The attempts of earlier rounds, which do not count as retries after an error.
    #[serde(default)]
    pub attempts_before: u32,
    /// What failed. Empty if it passed.
    pub failed: Vec<CheckFailure>,
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFailure {
    /// `schema`, `bytes_max` or `checks/N`.
    pub check: String,
    pub message: String,
}

fn digest<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Digest32, D::Error> {
    let text = String::deserialize(input)?;
    Digest32::from_hex(&text).ok_or_else(|| serde::de::Error::custom("not a digest"))
}

impl<'de> Deserialize<'de> for JudgedPart {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(input)?).ok_or_else(|| serde::de::Error::custom("unknown part of a step"))
    }
}

impl<'de> Deserialize<'de> for Verdict {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(input)?).ok_or_else(|| serde::de::Error::custom("unknown verdict"))
    }
}

/// What follows from a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    Release,
    /// The step is tried again.
    Retry,
    Fail,
    /// A person decides.
    Ask,
}

/// What happened to a step before, and how often it may be tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JudgeHistory {
    pub(crate) rejections: u32,
    pub(crate) round: u32,
    /// The attempts of earlier rounds, and those so far.
    pub(crate) attempts_before: u32,
    pub(crate) attempts: u32,
    pub(crate) retries: u32,
}

impl Judgement {
    /// Decides on a part of a step that failed these checks. A check that rejects outweighs one that escalates.
    pub(crate) fn decide(
        judge: &CompiledJudge,
        of: JudgedPart,
        digest: Digest32,
        failed: &[FailedCheck],
        history: JudgeHistory,
    ) -> (Self, NextAction) {
        let rejects = failed.iter().any(|failed| failed.on_fail == OnFail::Reject);
        let JudgeHistory { rejections, round, retries, .. } = history;
        let rejections = rejections.saturating_add(u32::from(rejects));
        let next = match judge.judge.on_exhausted {
            _ if failed.is_empty() => NextAction::Release,
            _ if !rejects => NextAction::Ask,
            _ if round < retries => NextAction::Retry,
            OnExhausted::Fail => NextAction::Fail,
            OnExhausted::Escalate => NextAction::Ask,
        };
        let verdict = match next {
            NextAction::Release => Verdict::Passed,
            NextAction::Ask => Verdict::Escalated,
            NextAction::Retry | NextAction::Fail => Verdict::Rejected,
        };
        let shown = |failed: &FailedCheck| CheckFailure {
            check: failed.check.clone(),
            message: failed.message.chars().take(JUDGE_FAILED_CHARS_MAX).collect(),
        };
        let failed = failed.iter().take(JUDGE_FAILED_SHOWN_MAX).map(shown).collect();
        let round = round.saturating_add(u32::from(next == NextAction::Retry));
        let attempts_before = if next == NextAction::Retry { history.attempts } else { history.attempts_before };
        (Self { of, verdict, digest, rejections, round, attempts_before, failed }, next)
    }

    /// The messages of the failed checks, as one sentence.
    #[must_use]
    pub fn reasons(&self) -> String {
        self.failed.iter().map(|failure| failure.message.as_str()).collect::<Vec<_>>().join("; ")
    }

    /// The value of `judge` in the inputs of the next attempt.
    pub(crate) fn feedback(&self) -> Value {
        let is_rejected = self.verdict == Verdict::Rejected;
        let messages = self.failed.iter().filter(|_| is_rejected).map(|failure| failure.message.as_str());
        json!({"rejections": self.rejections, "feedback": messages.collect::<Vec<_>>()})
    }
}

static NO_FEEDBACK: LazyLock<Value> = LazyLock::new(|| json!({"rejections": 0, "feedback": []}));

/// The value of `judge` before the first judgement.
pub(crate) fn no_feedback() -> &'static Value {
    &NO_FEEDBACK
}

/// The type of `judge`.
pub(crate) fn feedback_type() -> Type {
    let members = [("rejections", Type::Int), ("feedback", Type::List(Arc::new(Type::Text)))];
    let required: BTreeSet<String> = members.iter().map(|(name, _)| (*name).to_owned()).collect();
    let named = members.into_iter().map(|(name, known)| (name.to_owned(), known)).collect();
    Type::Object(Arc::new(Shape { named, required, open: false }))
}
