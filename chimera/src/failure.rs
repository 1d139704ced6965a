//! How a command fails: an error code, a message, a hint and an exit status.
//!
//! Exit statuses: 0 success, 1 failure, 2 usage error, 3 check failed (ledger, doctor), 4 invalid
//! configuration, 5 data folder in use, 130 stopped by a second signal.

use crate::mask::Mask;
use chimera_core::error::{Code, ErrorBody, io_reason};
use chimera_core::limits::PROBLEMS_MAX;
use chimera_core::text::{escape_invisible_line, escape_invisible_only};
use chimera_engine::EngineError;
use chimera_engine::port::{Blocked, CommitError, Outage, ReadError, SchemaMismatch, Unavailable};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::path::Path;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) details: Map<String, Value>,
    /// The file whose text the details are about.
    pub(crate) file: Option<String>,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, details: Map::new(), file: None }
    }

    /// A wire error, with its hint if it has one.
    pub(crate) fn from_body(body: ErrorBody) -> Self {
        let code = Code::parse(&body.code).unwrap_or(Code::Internal);
        let hint = body.details.get("hint").and_then(Value::as_str).map(str::to_owned);
        Self { code, message: body.message, hint, details: body.details, file: None }
    }

    /// Names the file whose text was refused, so that its problems are shown where they are.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        let file = if file == Path::new("-") { "<stdin>".to_owned() } else { file.display().to_string() };
        Self { file: Some(file), ..self }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Removes secrets from the message and the hint.
    pub(crate) fn masked(mut self, mask: &Mask) -> Self {
        self.message = mask.text(&self.message).into_owned();
        self.hint = self.hint.map(|hint| mask.text(&hint).into_owned());
        self
    }

    /// A file system error. The path is the operator's own, so the message may show it.
    pub(crate) fn file(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::from_io(format!("{what} {}: {}", path.display(), io_reason(error)), error)
    }

    /// A file system error whose message needs no path.
    pub(crate) fn from_io(message: String, error: &io::Error) -> Self {
        let failure = Self::new(Outage::from_io(error).code(), message);
        match io_hint(error) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    pub(crate) const fn exit(&self) -> u8 {
        match self.code {
            Code::LedgerBroken | Code::NotReady => 3,
            Code::ConfigInvalid => 4,
            Code::DataDirLocked => 5,
            _ => 1,
        }
    }

    /// Text for a person, or one JSON line.
    pub(crate) fn render(&self, json: bool) -> String {
        if json {
            let mut body = ErrorBody::new(self.code, self.message.clone());
            body.details = self.details.clone();
            if let Some(hint) = &self.hint {
                body = body.with("hint", hint.clone());
            }
            return serde_json::json!({ "error": body }).to_string();
        }
        if let Some(text) = self.render_positions() {
            return escape_invisible_only(&text).into_owned();
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

    /// The problems of a file as a compiler shows them, or `None` if their positions are not known.
    fn render_positions(&self) -> Option<String> {
        let (file, problems) = (self.file.as_deref()?, self.details.get("problems")?.as_array()?);
        let mut text = String::new();
        for problem in problems {
            let (line, column) = (problem["line"].as_u64()?, problem["column"].as_u64()?);
            let message = escape_invisible_line(problem["message"].as_str()?);
            let _ = writeln!(text, "{file}:{line}:{column}: {message}");
            if let Some(hint) = problem["hint"].as_str() {
                let _ = writeln!(text, "  hint: {}", escape_invisible_line(hint));
            }
        }
        let count = match problems.len() {
            1 => "1 problem".to_owned(),
            PROBLEMS_MAX => format!("{PROBLEMS_MAX} problems, and maybe more"),
            count => format!("{count} problems"),
        };
        let _ = write!(text, "error[{}]: {file} is not valid: {count}", self.code);
        Some(text)
    }

    /// Location and reason of each fault, if the error is about a document.
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

/// What an operator can do about a file system error, if its kind tells.
pub(crate) fn io_hint(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            "the disk is mounted read-only: remount it read-write, or choose another location"
        }
        ErrorKind::PermissionDenied => "its owner must be the user that runs chimera",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on the disk, or raise the quota",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            "something else has this name: move it out of the way"
        }
        _ if Outage::from_io(error) == Outage::DiskError => "check the system log: the disk may be failing",
        _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => "raise the open file limit (ulimit -n)",
        _ => return None,
    })
}

/// Too many open files, system-wide and in this process.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::from_body(error.body())
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
                "keep a copy of the data, run chimera doctor --deep to see what is damaged, and restore a backup; \
                 see docs/guides/operations.md"
            }
            Outage::Unusable => "retrying does not help: fix the cause first; chimera doctor checks every part",
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
