//! Files stay small, and each has a header that says what it is.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::tree;

const LINES_MAX: usize = 600;
const MEDIAN_MAX: usize = 150;
const P90_MAX: usize = 350;
const HEADER_LINES_MAX: usize = 15;

/// Files with a stricter limit of lines.
const PAGES: &[(&str, usize)] = &[("chimera/src/main.rs", 100)];

const EXCEPTIONS: &[Exception] = &[];

fn too_long(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    let lines_max = PAGES.iter().find(|(page, _)| *page == path).map_or(LINES_MAX, |(_, lines_max)| *lines_max);
    let what = || format!("{lines} lines, more than {lines_max}: split the file by idea, not by number");
    (lines > lines_max).then(|| Finding::new(path, lines_max + 1, what()))
}

/// Lines of a table in the header do not count.
fn header(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().take_while(|line| line.starts_with("//!"));
    let lines = lines.filter(|line| !line.starts_with("//! |")).count();
    let what = match lines {
        0 => "no `//!` header: say what this is, what it is not, and the one surprising thing",
        1..=HEADER_LINES_MAX => return None,
        _ => "the `//!` header has more than 15 lines: move details to ARCHITECTURE.md",
    };
    Some(Finding::new(path, 1, what))
}

/// The given percentile of sorted values.
fn percentile(sorted: &[usize], percent: usize) -> usize {
    sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1)]
}

#[test]
fn no_file_is_too_long() {
    let found = tree::rust().iter().filter_map(|file| too_long(&file.path, &file.text)).collect();
    assert_none(&apply_exceptions(found, EXCEPTIONS));
}

#[test]
fn half_of_the_files_fit_on_three_screens_and_most_on_seven() {
    let mut lines: Vec<usize> = tree::rust().iter().map(|file| file.text.lines().count()).collect();
    lines.sort_unstable();
    let (median, p90) = (percentile(&lines, 50), percentile(&lines, 90));
    println!("{} files: median {median} lines, p90 {p90}", lines.len());
    assert!(median <= MEDIAN_MAX, "the median file has {median} lines, at most {MEDIAN_MAX}: split the longest ones");
    assert!(p90 <= P90_MAX, "one file in ten has more than {p90} lines, at most {P90_MAX}: split the longest ones");
}

#[test]
fn every_file_says_at_its_head_what_it_is() {
    let found: Vec<Finding> = tree::rust().iter().filter_map(|file| header(&file.path, &file.text)).collect();
    assert_none(&found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_past_the_limit_is_found() {
        assert_eq!(too_long("a.rs", &"x\n".repeat(601)).map(|found| found.line), Some(601));
        assert_eq!(too_long("a.rs", &"x\n".repeat(600)), None);
        assert!(too_long("chimera/src/main.rs", &"x\n".repeat(101)).is_some());
    }

    #[test]
    fn a_missing_or_endless_header_is_found() {
        assert!(header("a.rs", "use std::fmt;\n//! late\n").is_some());
        assert!(header("a.rs", &"//! x\n".repeat(16)).is_some());
        assert!(header("a.rs", "//! What it is.\n").is_none());
        assert!(header("a.rs", &format!("//! States.\n{}", "//! | a | b |\n".repeat(20))).is_none());
    }

    #[test]
    fn percentiles_are_values_of_the_list() {
        let values: Vec<usize> = (1..=10).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 90), percentile(&[7], 90)), (5, 9, 7));
    }
}
