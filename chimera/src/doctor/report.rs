//! The findings so far and the check in progress: a check that hangs is reported, and does not hide the others.

use super::{DAMAGE_HINT, Finding, Verdict, examine, fail};
use crate::compose::Ambient;
use crate::config::Config;
use crate::failure::Outcome;
use chimera_core::error::Code;
use chimera_core::limits;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Filled by the checks, read by the task that waits for them.
#[derive(Default)]
pub(crate) struct Report(Mutex<ReportState>);

#[derive(Default)]
struct ReportState {
    findings: Vec<Finding>,
    looking_at: &'static str,
}

impl Report {
    fn state(&self) -> MutexGuard<'_, ReportState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the check in progress.
    pub(super) fn begin_check(&self, name: &'static str) {
        self.state().looking_at = name;
    }

    pub(super) fn push(&self, finding: Finding) {
        self.state().findings.push(finding);
    }

    pub(super) fn extend(&self, findings: impl IntoIterator<Item = Finding>) {
        self.state().findings.extend(findings);
    }

    /// Replaces the finding of the same name.
    pub(super) fn replace(&self, finding: Finding) {
        let mut state = self.state();
        state.findings.retain(|known| known.name != finding.name);
        state.findings.push(finding);
    }

    /// Fails the store if a check met damage, whatever it looked for: only some damage is found without looking.
    pub(super) fn report_damage<T>(&self, met: &Outcome<T>) {
        let Err(failure) = met else { return };
        let known = self.state().findings.iter().any(|known| known.name == "store" && known.verdict == Verdict::Fail);
        if failure.code == Code::StoreDamaged && !known {
            self.replace(fail("store", failure.message.clone(), DAMAGE_HINT));
        }
    }

    /// The findings so far, plus a failure for the check in progress.
    fn end(&self, limit: Duration) -> Vec<Finding> {
        let mut state = self.state();
        let message = format!("no answer within {} s; later checks were skipped", limit.as_secs());
        let hint = "check what this depends on: a disk, a lock, a DNS server or a service that does not respond";
        let silent = fail(state.looking_at, message, hint);
        state.findings.push(silent);
        std::mem::take(&mut state.findings)
    }
}

/// Runs all checks with a time limit, on another task: a blocked system call blocks only that one.
pub(crate) async fn examine_within_limit(config: &Config) -> Vec<Finding> {
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
    use crate::failure::Failure;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_check_that_never_ends_is_named_beside_what_was_found_before_it() {
        let report = Arc::new(Report::default());
        let hangs = {
            let report = Arc::clone(&report);
            async move {
                report.push(ok("disk", "is there".to_owned()));
                report.begin_check("store");
                std::future::pending::<()>().await;
            }
        };
        let found = within(Duration::from_millis(10), report, hangs).await;
        assert_eq!(found.iter().map(|finding| finding.name).collect::<Vec<_>>(), ["disk", "store"]);
        assert!(found[1].message.starts_with("no answer within"), "{found:?}");
    }

    #[test]
    fn damage_that_any_check_met_fails_the_store_once() {
        let report = Report::default();
        report.push(ok("store", "SQLite answers".to_owned()));
        let met = |words: &str| -> Outcome { Err(Failure::new(Code::StoreDamaged, words)) };
        let findings = || report.state().findings.iter().map(|it| (it.verdict, it.message.clone())).collect::<Vec<_>>();
        report.report_damage(&Outcome::Ok(()));
        report.report_damage::<()>(&Err(Failure::new(Code::StoreUnavailable, "it is down")));
        assert_eq!(findings(), [(Verdict::Ok, "SQLite answers".to_owned())]);
        report.report_damage(&met("damaged: actors"));
        report.report_damage(&met("damaged"));
        assert_eq!(findings(), [(Verdict::Fail, "damaged: actors".to_owned())], "the first one says the most");
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
