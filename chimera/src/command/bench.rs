//! `chimera bench store`: how fast the record store is, beside how fast it could be.

use super::{Scene, print};
use crate::bench::{Measured, WRITERS, share};
use crate::compose::{self, Ambient};
use crate::failure::Outcome;
use crate::home::Home;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

pub(crate) async fn store(scene: &Scene<'_>, transactions: usize) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let _home = Home::take(&config.data_dir)?;
    let subject = compose::bench_subject(config, &Ambient::new()).await?;
    let progress = progress(scene);
    let (mut store, mut bare) = (Vec::new(), Vec::new());
    for writers in WRITERS {
        progress.set_message(format!("{writers} writers"));
        let transactions = share(*writers, transactions);
        store.push(Measured::new(*writers, transactions, subject.store(*writers, transactions).await?));
        progress.inc(1);
        bare.push(Measured::new(*writers, transactions, subject.bare(*writers, transactions).await?));
        progress.inc(1);
    }
    progress.finish_and_clear();
    subject.close().await;
    print(&render(scene.json, &store, &bare))?;
    Ok(ExitCode::SUCCESS)
}

fn progress(scene: &Scene<'_>) -> ProgressBar {
    if !scene.terminal.attached {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(2 * WRITERS.len() as u64);
    match ProgressStyle::with_template("{bar:30} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn render(json: bool, store: &[Measured], bare: &[Measured]) -> String {
    if json {
        return json!({"store": store, "bare_loop": bare}).to_string() + "\n";
    }
    store.iter().zip(bare).fold(String::from("writers     tx/s   bare loop   share\n"), |mut text, (ours, theirs)| {
        let share = ours.per_second / theirs.per_second.max(1.0);
        let _ = writeln!(text, "{:>7} {:>8} {:>11} {share:>7.2}", ours.writers, ours.per_second, theirs.per_second);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn both_columns_and_their_share_are_shown() {
        let time = Duration::from_secs(2);
        let (store, bare) = (
            [Measured::new(1, 200, time), Measured::new(64, 8_000, time)],
            [Measured::new(1, 400, time), Measured::new(64, 9_000, time)],
        );
        insta::assert_snapshot!(render(false, &store, &bare));
        insta::assert_snapshot!(render(true, &store, &bare));
    }
}
