//! Functions stay small: at most one in a hundred has more than 70 lines, and none more than 120.
//!
//! An HTTP handler has at most 30: it parses the request, calls the engine, and answers.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::rust_file::RustFile;
use super::tree;

const LINES_MAX: usize = 70;
const LINES_HARD_MAX: usize = 120;
const HANDLER_LINES_MAX: usize = 30;

const EXCEPTIONS: &[Exception] = &[];

fn longer_than(lines_max: usize, file: &RustFile) -> Vec<Finding> {
    let long = file.functions().into_iter().filter(|function| function.lines > lines_max);
    long.map(|function| {
        let what = format!("{} has {} lines, more than {lines_max}: extract functions", function.name, function.lines);
        Finding::new(&file.path, function.line, what)
    })
    .collect()
}

/// The long functions if they are more than one percent of all, else none.
fn over_quota(long: Vec<Finding>, all: usize) -> Vec<Finding> {
    if long.len() * 100 <= all { Vec::new() } else { long }
}

/// Long async functions in the folders of `api`. Functions at the top level of `api` are not handlers.
fn long_handlers(file: &RustFile) -> Vec<Finding> {
    let in_folder = file.path.strip_prefix("api/src/").is_some_and(|rest| rest.contains('/'));
    if !in_folder {
        return Vec::new();
    }
    let handlers: Vec<usize> = file.find("async fn").iter().map(|at| file.tokens[at + 1].line).collect();
    let long = longer_than(HANDLER_LINES_MAX, file).into_iter();
    long.filter(|found| handlers.contains(&found.line) && !file.is_test(found.line)).collect()
}

#[test]
fn handlers_fit_on_a_screen() {
    assert_none(&tree::rust().iter().flat_map(long_handlers).collect::<Vec<_>>());
}

#[test]
fn no_function_is_far_too_long() {
    let found = tree::rust().iter().flat_map(|file| longer_than(LINES_HARD_MAX, file)).collect();
    assert_none(&apply_exceptions(found, EXCEPTIONS));
}

#[test]
fn at_most_one_function_in_a_hundred_is_long() {
    let all: usize = tree::rust().iter().map(|file| file.functions().len()).sum();
    let long: Vec<Finding> = tree::rust().iter().flat_map(|file| longer_than(LINES_MAX, file)).collect();
    println!("{all} functions: {} over {LINES_MAX} lines", long.len());
    assert_none(&over_quota(long, all));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_function_is_found_where_it_starts() {
        let text = format!("\nfn long() {{\n{}}}\nfn short() {{}}\n", "    x();\n".repeat(69));
        let found = longer_than(70, &RustFile::new("core/src/x.rs", &text));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "core/src/x.rs:2: long has 71 lines, more than 70: extract functions");
        assert_eq!(longer_than(71, &RustFile::new("core/src/x.rs", &text)), []);
    }

    #[test]
    fn a_long_handler_is_found() {
        let text =
            format!("async fn get() {{\n{}}}\nfn table() {{\n{}}}\n", "    x();\n".repeat(29), "    x();\n".repeat(40));
        let lines =
            |path| long_handlers(&RustFile::new(path, &text)).iter().map(|found| found.line).collect::<Vec<_>>();
        assert_eq!(lines("api/src/flow/get_run.rs"), [1]);
        assert_eq!(lines("api/src/server.rs"), [0_usize; 0]);
        assert_eq!(lines("engine/src/flow/get_run.rs"), [0_usize; 0]);
    }

    #[test]
    fn the_quota_is_one_in_a_hundred() {
        let long = || vec![Finding::new("a.rs", 1, "long")];
        assert_eq!(over_quota(long(), 100), []);
        assert_eq!(over_quota(long(), 99).len(), 1);
    }
}
