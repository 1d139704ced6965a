//! `chimera doctor`: checks everything a server needs.

use super::{CommandContext, EXIT_FOUND_WRONG, print};
use crate::compose::Ambient;
use crate::doctor::deep::Progress;
use crate::doctor::report::examine_within_limit;
use crate::doctor::{Verdict, render};
use crate::failure::Outcome;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, deep: bool) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let mut findings = examine_within_limit(config).await;
    if deep {
        let ambient = Ambient::new();
        let mut progress = Progress { shown: scene.terminal.attached && !scene.json };
        findings.extend(crate::doctor::deep::examine(config, &ambient, &mut progress).await);
    }
    for finding in &mut findings {
        finding.message = config.mask.text(&finding.message).into_owned();
    }
    print(&render(&findings, scene.json))?;
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    Ok(if failed { ExitCode::from(EXIT_FOUND_WRONG) } else { ExitCode::SUCCESS })
}
