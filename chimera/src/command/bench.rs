//! `chimera bench store`: measures the record store against a bare loop of the same statements.

use super::{CommandContext, print};
use crate::bench::{BenchConditions, BenchSubject, Measurement, Ratios, WRITERS, share};
use crate::compose::{self, Ambient};
use crate::data_folder::DataFolder;
use crate::failure::Outcome;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

pub(crate) async fn store(scene: &CommandContext<'_>, transactions: usize) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let home = DataFolder::lock(&config.data_dir)?;
    home.remove_scratch()?;
    let subject = compose::bench_subject(config, &Ambient::new()).await?;
    let measured = measure(scene, &*subject, transactions).await;
    subject.close().await;
    let (store, bare) = measured?;
    print(&render(scene.json, subject.setting(), &store, &bare))?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    scene: &CommandContext<'_>,
    subject: &dyn BenchSubject,
    transactions: usize,
) -> Outcome<(Vec<Measurement>, Vec<Measurement>)> {
    let progress = progress(scene);
    let (mut store, mut bare) = (Vec::new(), Vec::new());
    for writers in WRITERS {
        progress.set_message(format!("{writers} writers"));
        let transactions = share(*writers, transactions);
        store.push(Measurement::new(*writers, subject.store(*writers, transactions).await?));
        progress.inc(1);
        bare.push(Measurement::new(*writers, subject.bare(*writers, transactions).await?));
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok((store, bare))
}

fn progress(scene: &CommandContext<'_>) -> ProgressBar {
    if !scene.terminal.attached {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(2 * WRITERS.len() as u64);
    match ProgressStyle::with_template("{bar:30} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn render(json: bool, setting: BenchConditions, store: &[Measurement], bare: &[Measurement]) -> String {
    let ratios = Ratios::of(store, bare);
    let BenchConditions { record_store, fsync, lanes } = setting;
    if json {
        let report = json!({
            "record_store": record_store, "fsync": fsync, "lanes": lanes,
            "store": store, "bare_loop": bare, "ratios": ratios,
        });
        return report.to_string() + "\n";
    }
    let disk = if fsync { "each commit on the disk" } else { "COMMITS DO NOT WAIT FOR THE DISK" };
    let mut text = format!("{record_store}, {disk}, lanes: {lanes}\n");
    text.push_str("writers     tx/s  tx/commit   bare loop  of bare\n");
    for (ours, theirs) in store.iter().zip(bare) {
        let of_bare = ours.per_second / theirs.per_second.max(1.0);
        let _ = writeln!(
            text,
            "{:>7} {:>8} {:>10.1} {:>11} {of_bare:>8.2}",
            ours.writers, ours.per_second, ours.batch_average, theirs.per_second
        );
    }
    for (name, ratio) in [("64", ratios.writers_64_to_1), ("256", ratios.writers_256_to_1)] {
        if let Some(ratio) = ratio {
            let _ = writeln!(text, "{name} writers do {ratio:.2} times as much as one");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::BenchWork;
    use std::time::Duration;

    fn measured(writers: usize, transactions: usize, commits: usize) -> Measurement {
        Measurement::new(writers, BenchWork { transactions, commits, time: Duration::from_secs(2) })
    }

    #[test]
    fn both_columns_and_their_ratios_are_shown() {
        let setting = BenchConditions { record_store: "SQLite", fsync: true, lanes: 1 };
        let store = [measured(1, 200, 200), measured(64, 8_000, 130), measured(256, 12_000, 50)];
        let bare = [measured(1, 400, 400), measured(64, 9_000, 141), measured(256, 16_000, 63)];
        insta::assert_snapshot!(render(false, setting, &store, &bare));
        insta::assert_snapshot!(render(true, setting, &store, &bare));
    }
}
