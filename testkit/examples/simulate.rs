//! Runs simulations until one fails, or a chosen one: `./simulate [SEED] [COUNT]`.
//!
//! With a seed alone it prints the trace of that simulation; with a count it runs that many seeds without traces.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a command-line program that prints and measures time"
)]

use chimera_testkit::simulate::{Report, simulate};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let mut given = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (seed, count) = (given.next(), given.next());
    match (seed, count) {
        (Some(seed), None) => one(seed),
        (seed, count) => {
            let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() * 1_000_000);
            many(seed.unwrap_or(nanos), count.unwrap_or(u64::MAX))
        }
    }
}

fn one(seed: u64) -> ExitCode {
    let report = simulate(seed, true);
    report.lines.iter().for_each(|line| println!("{line}"));
    println!(
        "{} commits, {} outside calls, {:?}, digest {:02x?}",
        report.commits,
        report.sent,
        report.ends,
        &report.digest[..8]
    );
    verdict(&report)
}

fn many(first: u64, count: u64) -> ExitCode {
    let began = Instant::now();
    println!("starting at seed {first}");
    let mut failed = ExitCode::SUCCESS;
    for (done, seed) in (first..first.saturating_add(count)).enumerate() {
        let report = simulate(seed, false);
        if !report.faults.is_empty() {
            failed = verdict(&report);
            if count == u64::MAX {
                return failed;
            }
        }
        if (done + 1) % 1_000 == 0 {
            println!("{} simulations in {:?}", done + 1, began.elapsed());
        }
    }
    println!("{count} simulations in {:?}", began.elapsed());
    failed
}

fn verdict(report: &Report) -> ExitCode {
    if report.faults.is_empty() {
        println!("seed {}: no violations", report.seed);
        return ExitCode::SUCCESS;
    }
    println!(
        "seed {}: {} violations; run `./simulate {}` for its trace",
        report.seed,
        report.faults.len(),
        report.seed
    );
    report.faults.iter().take(8).for_each(|fault| println!("  {fault}"));
    ExitCode::FAILURE
}
