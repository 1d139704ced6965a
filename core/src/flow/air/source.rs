//! The text of a workflow while it is checked: what could be read of it, and all its problems.
//!
//! A text that is not JSON has one problem. Otherwise, what can be read is checked, whatever else is wrong: problems
//! that only follow from another one are left out. The problems are located in the text at the end, in one walk.

use super::catalog::Catalog;
use super::compile::compile_source;
use super::document::Document;
use super::graph::Graph;
use super::problem::{DocumentProblem, ProblemCode, Problems};
use crate::json::{self, ParseError, Position, ReadableFault};
use crate::limits::{PROBLEMS_MAX, WORKFLOW_BYTES_MAX};

pub struct Source<'a> {
    text: &'a str,
    document: Option<Document>,
    problems: Problems,
}

/// The document of a text, or the problems of its structure, in the order in which they were found.
pub fn parse(text: &str) -> Result<Document, Vec<DocumentProblem>> {
    let Source { document, problems, .. } = Source::read(text);
    match document {
        Some(document) => problems.into_result(document),
        None => Err(problems.into_vec()),
    }
}

impl<'a> Source<'a> {
    /// Reads a text. Its problems are kept for [`Source::compile`].
    #[must_use]
    pub fn read(text: &'a str) -> Self {
        let mut problems = Problems::default();
        let document = read_document(text, &mut problems);
        Self { text, document, problems }
    }

    /// What could be read. Names that are missing or malformed are empty. `None` if there is nothing to check.
    #[must_use]
    pub const fn document(&self) -> Option<&Document> {
        self.document.as_ref()
    }

    /// Adds a problem that was found elsewhere.
    pub fn add(&mut self, problem: DocumentProblem) {
        self.problems.push(problem);
    }

    /// The compiled graph, or all problems, sorted by position.
    pub fn compile(self, catalog: &dyn Catalog) -> Result<Graph, Vec<DocumentProblem>> {
        let Self { text, document, problems } = self;
        let compiled = match document {
            Some(document) => compile_source(None, document, catalog, problems),
            None => Err(problems.into_vec()),
        };
        compiled.map_err(|problems| located(text, problems))
    }
}

fn read_document(text: &str, out: &mut Problems) -> Option<Document> {
    let start = Some(Position { line: 1, column: 1 });
    if text.len() > WORKFLOW_BYTES_MAX {
        let reason = format!("the document has {} bytes, at most {WORKFLOW_BYTES_MAX}", text.len());
        out.push(DocumentProblem { position: start, ..DocumentProblem::new(ProblemCode::TooLarge, "", reason) });
        return None;
    }
    let (value, faults) = match json::parse_collecting(text, PROBLEMS_MAX) {
        Ok(read) => read,
        Err(error) => {
            let position = json::positions(text, &[error.at()]).pop();
            let problem = DocumentProblem::new(ProblemCode::NotJson, "", describe(error, text, ""));
            out.push(DocumentProblem { position, ..problem });
            return None;
        }
    };
    add_faults(text, &faults, out);
    let before = out.count();
    let document = super::parse::read_document(value, out);
    out.mark_unreadable(before);
    document
}

/// Adds duplicate members, and numbers that can't be kept.
fn add_faults(text: &str, faults: &[ReadableFault], out: &mut Problems) {
    // A container is read after what is inside it, so its own fault comes later than those inside.
    let mut faults: Vec<&ReadableFault> = faults.iter().collect();
    faults.sort_by_key(|fault| fault.value_at);
    let pointers = json::pointers_at(text.as_bytes(), &faults.iter().map(|fault| fault.value_at).collect::<Vec<_>>());
    let positions = json::positions(text, &faults.iter().map(|fault| fault.at).collect::<Vec<_>>());
    for ((fault, pointer), position) in faults.into_iter().zip(pointers).zip(positions) {
        let reason = describe(fault.error, text, &pointer);
        let problem = DocumentProblem::new(ProblemCode::NotJson, pointer, reason);
        let is_number = !matches!(fault.error, ParseError::DuplicateMember { .. });
        let hint = if is_number { "write it as a string" } else { "remove it, or the one before it" };
        let before = out.count();
        out.push(DocumentProblem { position: Some(position), ..problem.with_hint(hint) });
        if is_number {
            out.mark_unreadable(before);
        }
    }
}

/// Why a text is not acceptable JSON, in words without a position.
fn describe(error: ParseError, text: &str, pointer: &str) -> String {
    match error {
        ParseError::Syntax { at } => match text.get(at..).and_then(|rest| rest.chars().next()) {
            Some(letter) => format!("invalid JSON: unexpected {letter:?}"),
            None => "invalid JSON: the text ends too early".to_owned(),
        },
        ParseError::Unicode { .. } => "invalid Unicode".to_owned(),
        ParseError::DuplicateMember { .. } => {
            let name = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
            format!("duplicate member {name:?}")
        }
        ParseError::IntegerTooLarge { .. } => "the integer does not fit in 64 bits".to_owned(),
        ParseError::NumberTooLarge { .. } => "the number exceeds the range of a double".to_owned(),
        ParseError::NumberInexact { .. } => "the number has more digits than a double holds".to_owned(),
        ParseError::LimitExceeded { what, .. } => what.to_string(),
        ParseError::Trailing { .. } => "there is more text after the document".to_owned(),
    }
}

/// The problems with their positions in the text, sorted by position.
fn located(text: &str, mut problems: Vec<DocumentProblem>) -> Vec<DocumentProblem> {
    let unlocated: Vec<usize> = (0..problems.len()).filter(|at| problems[*at].position.is_none()).collect();
    let pointers: Vec<&str> = unlocated.iter().map(|at| problems[*at].path.as_str()).collect();
    let found = json::positions(text, &json::locate(text, &pointers));
    for (at, position) in unlocated.into_iter().zip(found) {
        problems[at].position = Some(position);
    }
    problems.sort_by_key(|problem| problem.position);
    problems
}
