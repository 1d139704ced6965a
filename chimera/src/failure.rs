//! How a command fails: a code of the one table, words for a person, a hint, an exit status.
//!
//! Exit statuses: 0 done, 1 failed, 2 the command line can't be understood, 3 something was checked
//! and found wrong (ledger, doctor), 4 the configuration can't be used, 5 the data folder is taken,
//! 130 stopped by a second signal.

use crate::mask::Mask;
use chimera_core::error::{Code, ErrorBody, io_reason};
use chimera_core::text::escape_invisible_only;
use chimera_engine::EngineError;
use chimera_engine::port::{Blocked, CommitError, Outage, ReadError, SchemaMismatch, Unavailable};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::io::{self, ErrorKind};

/// What ended a command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) details: Map<String, Value>,
}

/// The result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, details: Map::new() }
    }

    /// An error as every surface tells it, with its hint if it has one.
    pub(crate) fn told(body: ErrorBody) -> Self {
        let code = Code::parse(&body.code).unwrap_or(Code::Internal);
        let hint = body.details.get("hint").and_then(Value::as_str).map(str::to_owned);
        Self { code, message: body.message, hint, details: body.details }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, without secrets in its words.
    pub(crate) fn masked(mut self, mask: &Mask) -> Self {
        self.message = mask.text(&self.message).into_owned();
        self.hint = self.hint.map(|hint| mask.text(&hint).into_owned());
        self
    }

    /// A failure of the file system. The path is the operator's own, so it may be named here.
    pub(crate) fn file(what: &str, path: &std::path::Path, error: &io::Error) -> Self {
        Self::of_io(format!("{what} {}: {}", path.display(), io_reason(error)), error)
    }

    /// A failure of the file system in words that need no path.
    pub(crate) fn of_io(message: String, error: &io::Error) -> Self {
        let failure = Self::new(Outage::from_io(error).code(), message);
        match hint_for(error) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// The exit status of the process.
    pub(crate) const fn exit(&self) -> u8 {
        match self.code {
            Code::LedgerBroken | Code::NotReady => 3,
            Code::ConfigInvalid => 4,
            Code::DataDirLocked => 5,
            _ => 1,
        }
    }

    /// The words for a person, or one JSON line.
    pub(crate) fn render(&self, json: bool) -> String {
        if json {
            let mut body = ErrorBody::new(self.code, self.message.clone());
            body.details = self.details.clone();
            if let Some(hint) = &self.hint {
                body = body.with("hint", hint.clone());
            }
            return serde_json::json!({ "error": body }).to_string();
        }
        let mut text = format!("error[{}]: {}", self.code, self.message);
        for (at, what) in self.faults() {
            let _ = write!(text, "\n  at {}: {what}", if at.is_empty() { "the top" } else { at });
        }
        if let Some(hint) = &self.hint {
            let _ = write!(text, "\n  hint: {hint}");
        }
        escape_invisible_only(&text).into_owned()
    }

    /// Place and reason of each fault of a document, if the error is about one.
    fn faults(&self) -> Vec<(&str, &str)> {
        let listed = ["problems", "faults"].iter().find_map(|name| self.details.get(*name)?.as_array());
        let faults = listed.map(Vec::as_slice).unwrap_or_default().iter();
        faults
            .filter_map(|fault| {
                let at = fault["pointer"].as_str().or(fault["path"].as_str())?;
                let what = fault["message"].as_str().or(fault["reason"].as_str())?;
                Some((at, what))
            })
            .collect()
    }
}

/// What an operator can do about an error of the file system, where that follows from it.
pub(crate) fn hint_for(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::ReadOnlyFilesystem => "its disk is mounted read-only: mount it for writing, or name another place",
        ErrorKind::PermissionDenied => "its owner must be the user that runs chimera",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on its disk, or raise the quota",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            "something else has this name: move it out of the way"
        }
        _ if Outage::from_io(error) == Outage::DiskError => "look at the system's log: the disk may be failing",
        _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => "raise the limit of open files (ulimit -n)",
        _ => return None,
    })
}

/// Too many open files: in the whole system, and in this process.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::told(error.body())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable(unavailable) => unavailable.into(),
            ReadError::Schema(error) => error.into(),
            ReadError::Cursor(error) => Self::new(Code::SchemaInvalid, error.to_string()),
            ReadError::Invalid { .. } => Self::new(Code::Internal, error.to_string()),
        }
    }
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        let hint = match error.outage {
            Outage::Damaged => {
                "keep a copy of the data, let chimera doctor --deep say what is damaged, and restore a backup; \
                 docs/guides/operations.md describes it"
            }
            Outage::Unusable => "a retry does not help: correct that first; chimera doctor looks at every part",
            _ => "chimera doctor says which part is missing",
        };
        Self::new(error.outage.code(), error.to_string()).hint(hint)
    }
}

impl From<SchemaMismatch> for Failure {
    fn from(error: SchemaMismatch) -> Self {
        Self::new(Code::SchemaMismatch, error.to_string()).hint("docs/guides/upgrade.md walks through an upgrade")
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        if let CommitError::Blocked(Blocked::Schema(error)) = error {
            return error.into();
        }
        let code = match &error {
            CommitError::Conflict(_) => Code::OccConflict,
            CommitError::Invalid(_) | CommitError::Rejected { .. } => Code::Internal,
            CommitError::Unavailable(why) => why.outage.code(),
            CommitError::Fenced => Code::StoreUnavailable,
            CommitError::Blocked(Blocked::Schema(_)) => Code::SchemaMismatch,
            CommitError::Overloaded => Code::Overloaded,
            CommitError::Blocked(Blocked::Held(_)) => Code::StoreHeld,
            CommitError::Unknown => Code::OutcomeUnknown,
        };
        Self::new(code, error.to_string())
    }
}
