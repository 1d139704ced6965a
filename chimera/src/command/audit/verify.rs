//! `chimera audit verify`: checks that the ledger was not changed.

use super::ledger::{self, LedgerReport};
use crate::command::{CommandContext, EXIT_FOUND_WRONG, print, say};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use std::path::Path;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, path: Option<&Path>, keys: &[String]) -> Outcome<ExitCode> {
    let (found, held) = match path {
        Some(path) => (ledger::verify_export(path, keys)?, None),
        None => verify_stored(scene, keys).await?,
    };
    report_result(scene.json, &found, held.as_deref())?;
    Ok(if held.is_some() { ExitCode::from(EXIT_FOUND_WRONG) } else { ExitCode::SUCCESS })
}

/// Verifies the store; also returns why it is held, if it is.
async fn verify_stored(scene: &CommandContext<'_>, keys: &[String]) -> Outcome<(LedgerReport, Option<String>)> {
    let config = &scene.loaded.config;
    let marked = compose::entries_marked(config)?;
    // The ledger may be intact although other data is damaged.
    let facts = compose::store_facts(config).await.ok();
    if marked > 0 && facts.as_ref().is_some_and(|facts| facts.schema_version == 0) {
        return Err(ledger::lost_ledger(marked));
    }
    let records = compose::records_to_read(config, &Ambient::new()).await?;
    let own = compose::existing_signer(config).await?;
    let found = ledger::verify_store(&*records, keys, own.as_ref(), &config.trusted_keys).await?;
    if found.entries == 0 && found.first_broken.is_none() && marked > 0 {
        return Err(ledger::lost_ledger(marked));
    }
    Ok((found, facts.and_then(|facts| facts.held)))
}

fn report_result(json: bool, found: &LedgerReport, held: Option<&str>) -> Outcome {
    if json {
        let mut report = serde_json::json!({"intact": found.first_broken.is_none(), "report": found});
        if let Some(reason) = held {
            report["held"] = reason.into();
        }
        print(&format!("{report}\n"))?;
    }
    if let Some(broken) = &found.first_broken {
        return Err(Failure::new(Code::LedgerBroken, format!("the ledger is broken: {broken}"))
            .hint("do not modify it; see docs/errors/LEDGER_BROKEN.md"));
    }
    if !json {
        say(&summary(found));
        if let Some(reason) = held {
            say(&format!("The store is held, so entries may be missing: {reason}"));
        }
    }
    Ok(())
}

fn summary(found: &LedgerReport) -> String {
    let whose = found.tenant.as_ref().map_or(String::new(), |tenant| format!(" of tenant {tenant}"));
    let keys = if found.trusted { "the keys you trust" } else { "the keys that it contains itself" };
    format!(
        "intact{whose}: entries: {} (under a checkpoint: {}), lanes: {}, checkpoints: {}, checked with {keys}",
        found.entries, found.covered, found.lanes, found.checkpoints
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_ledger_ends_with_status_three_and_names_the_place() {
        let found =
            LedgerReport { first_broken: Some("entry 7 of lane 1: hash".to_owned()), ..LedgerReport::default() };
        let failure = report_result(false, &found, None).unwrap_err();
        assert_eq!(failure.exit(), 3);
        insta::assert_snapshot!(failure.render(false));
        insta::assert_snapshot!(failure.render(true));
    }

    #[test]
    fn an_intact_ledger_is_summed_up() {
        let found =
            LedgerReport { entries: 3, lanes: 1, checkpoints: 2, covered: 3, trusted: true, ..LedgerReport::default() };
        insta::assert_snapshot!(summary(&found));
    }
}
