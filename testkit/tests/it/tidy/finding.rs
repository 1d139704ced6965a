//! Findings of a rule, exceptions, and how a test reports them.

use std::fmt;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) what: String,
}

/// A file that may violate a rule, and why.
pub(super) struct Exception {
    pub(super) file: &'static str,
    pub(super) why: &'static str,
}

impl Finding {
    pub(super) fn new(file: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Fails with one line per finding.
pub(super) fn assert_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} finding(s)\n{}\n", lines.len(), lines.join("\n"));
}

/// Drops excepted findings, and reports each unused exception.
pub(super) fn apply_exceptions(findings: Vec<Finding>, exceptions: &[Exception]) -> Vec<Finding> {
    let needless = exceptions.iter().filter(|exception| findings.iter().all(|found| found.file != exception.file));
    let mut left: Vec<Finding> = needless
        .map(|exception| {
            let what = format!("the exception ({}) is unused: remove it from the list", exception.why);
            Finding::new(exception.file, 1, what)
        })
        .collect();
    left.extend(findings.into_iter().filter(|found| exceptions.iter().all(|exception| exception.file != found.file)));
    left
}

#[test]
fn an_exception_covers_its_file_and_becomes_a_finding_when_it_is_not_needed() {
    let found = vec![Finding::new("a.rs", 3, "long"), Finding::new("b.rs", 4, "long")];
    let exceptions = [Exception { file: "a.rs", why: "generated" }, Exception { file: "c.rs", why: "old" }];
    let left = apply_exceptions(found, &exceptions);
    assert_eq!(left.iter().map(|found| found.file.as_str()).collect::<Vec<_>>(), ["c.rs", "b.rs"]);
    assert!(left[0].to_string().starts_with("c.rs:1: the exception (old)"));
}
