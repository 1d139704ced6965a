//! What the doctor has found so far, and what it is looking at: a check that never ends is named, and does not hide the others.

use super::{Finding, examine, fail};
use crate::compose::Ambient;
use crate::config::Config;
use chimera_core::limits;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Filled by whoever examines, read by whoever waits for that.
#[derive(Default)]
pub(crate) struct Report(Mutex<State>);

#[derive(Default)]
struct State {
    findings: Vec<Finding>,
    looking_at: &'static str,
}

impl Report {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is looked at from now on.
    pub(super) fn looks_at(&self, name: &'static str) {
        self.state().looking_at = name;
    }

    pub(super) fn push(&self, finding: Finding) {
        self.state().findings.push(finding);
    }

    pub(super) fn extend(&self, findings: impl IntoIterator<Item = Finding>) {
        self.state().findings.extend(findings);
    }

    /// Puts a finding in the place of another of the same name.
    pub(super) fn replace(&self, finding: Finding) {
        let mut state = self.state();
        state.findings.retain(|known| known.name != finding.name);
        state.findings.push(finding);
    }

    /// What was found; what did not answer last.
    fn end(&self, limit: Duration) -> Vec<Finding> {
        let mut state = self.state();
        let told = format!("no answer within {} s; what comes after it was not looked at", limit.as_secs());
        let hint = "look at what this check needs: a disk, a lock, a name server or a service that does not answer";
        let silent = fail(state.looking_at, told, hint);
        state.findings.push(silent);
        std::mem::take(&mut state.findings)
    }
}

/// Looks at everything, for a limited time. It is done on another thread: what hangs in the system keeps that one alone.
pub(crate) async fn in_time(config: &Config) -> Vec<Finding> {
    let limit = limits::DOCTOR_TIMEOUT;
    let (report, config) = (Arc::new(Report::default()), config.clone());
    let examined = {
        let report = Arc::clone(&report);
        async move { examine(&config, &Ambient::new(), &report).await }
    };
    within(limit, report, examined).await
}

async fn within(
    limit: Duration,
    report: Arc<Report>,
    examined: impl Future<Output = ()> + Send + 'static,
) -> Vec<Finding> {
    match tokio::time::timeout(limit, tokio::spawn(examined)).await {
        Ok(Ok(())) => std::mem::take(&mut report.state().findings),
        _ => report.end(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ok;
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_check_that_never_ends_is_named_beside_what_was_found_before_it() {
        let report = Arc::new(Report::default());
        let hangs = {
            let report = Arc::clone(&report);
            async move {
                report.push(ok("disk", "is there".to_owned()));
                report.looks_at("store");
                std::future::pending::<()>().await;
            }
        };
        let found = within(Duration::from_millis(10), report, hangs).await;
        assert_eq!(found.iter().map(|finding| finding.name).collect::<Vec<_>>(), ["disk", "store"]);
        assert!(found[1].message.starts_with("no answer within"), "{found:?}");
    }

    #[tokio::test]
    async fn what_ends_in_time_is_told_as_it_is() {
        let report = Arc::new(Report::default());
        let ends = {
            let report = Arc::clone(&report);
            async move {
                report.push(ok("disk", "is there".to_owned()));
                report.replace(ok("disk", "is full".to_owned()));
            }
        };
        assert_eq!(within(Duration::from_secs(5), report, ends).await, [ok("disk", "is full".to_owned())]);
    }
}
