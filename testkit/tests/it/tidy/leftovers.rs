//! Nothing unfinished is committed: no marks for later, no debug output, no ignored tests, no sleeping tests, and no
//! ticket numbers, which mean nothing to a reader of the code.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::rust_file::RustFile;
use super::tree;

const MARKS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

/// Forbidden code, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("dbg!", "debug output: remove it, or log it with tracing"),
    ("todo!", "unfinished code: finish it or remove it"),
    ("unimplemented!", "unfinished code: finish it or remove it"),
    ("#[ignore", "an ignored test proves nothing: fix it or remove it"),
];

const PRINTS: &[&str] = &["println!", "print!", "eprintln!", "eprint!"];

const PRINT_EXCEPTIONS: &[Exception] = &[];

/// Whether the code may print: the binary's output module and `main.rs`, tests, build scripts.
fn may_print(file: &RustFile, line: usize) -> bool {
    let speaks = file.path.starts_with("chimera/src/output") || file.path == "chimera/src/main.rs";
    speaks || file.is_test(line) || file.path.ends_with("/build.rs")
}

fn marks(path: &str, lines: &[(usize, &str)]) -> Vec<Finding> {
    let mark = |text: &str| {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.find(|word| MARKS.contains(word)).map(str::to_owned)
    };
    let found = lines.iter().filter_map(|(line, text)| Some((*line, mark(text)?)));
    found.map(|(line, mark)| Finding::new(path, line, format!("leftover {mark}: do it now or remove it"))).collect()
}

/// Comments with `#` and digits. An attribute or a `#` alone is no ticket number.
fn tickets(path: &str, comments: &[(usize, &str)]) -> Vec<Finding> {
    let names_ticket = |text: &str| text.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let found = comments.iter().filter(|(_, text)| names_ticket(text));
    found.map(|(line, _)| Finding::new(path, *line, "ticket number: state the reason itself")).collect()
}

fn forbidden(file: &RustFile) -> Vec<Finding> {
    let each = |(pattern, what): &(&str, &'static str)| {
        let lines = file.find(pattern).into_iter().map(|at| file.tokens[at].line);
        lines.map(|line| Finding::new(&file.path, line, *what)).collect::<Vec<_>>()
    };
    FORBIDDEN.iter().flat_map(each).collect()
}

fn prints(file: &RustFile) -> Vec<Finding> {
    let lines = PRINTS.iter().flat_map(|pattern| file.find(pattern)).map(|at| file.tokens[at].line);
    let lines = lines.filter(|line| !may_print(file, *line));
    lines
        .map(|line| Finding::new(&file.path, line, "prints: use the output module of the binary, or tracing"))
        .collect()
}

/// Tests wait for an event, not for a time. The helpers that wait live in `testkit/src`.
fn sleeps(file: &RustFile) -> Vec<Finding> {
    if file.path.starts_with("testkit/src/") {
        return Vec::new();
    }
    let calls = ["sleep(", "sleep_until(", "park_timeout("].iter().flat_map(|pattern| file.find(pattern));
    let lines = calls.map(|at| file.tokens[at].line).filter(|line| file.is_test(*line));
    lines.map(|line| Finding::new(&file.path, line, "sleep in a test: wait for the event itself")).collect()
}

#[test]
fn nothing_is_left_for_later() {
    let code = tree::rust().iter().flat_map(|file| {
        let words = file.tokens.iter().map(|token| (token.line, token.word.as_str()));
        let lines: Vec<_> = file.comments().into_iter().chain(words).collect();
        marks(&file.path, &lines)
    });
    let others = tree::files().iter().filter(|file| !file.path.ends_with(".rs"));
    let others = others.flat_map(|file| {
        let lines: Vec<_> = file.text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
        marks(&file.path, &lines)
    });
    assert_none(&code.chain(others).collect::<Vec<_>>());
}

#[test]
fn comments_give_reasons_and_not_ticket_numbers() {
    let found = tree::rust().iter().flat_map(|file| tickets(&file.path, &file.comments()));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn no_code_is_unfinished_and_no_test_is_switched_off() {
    assert_none(&tree::rust().iter().flat_map(forbidden).collect::<Vec<_>>());
}

#[test]
fn only_the_binary_prints() {
    assert_none(&apply_exceptions(tree::rust().iter().flat_map(prints).collect(), PRINT_EXCEPTIONS));
}

#[test]
fn no_test_sleeps() {
    assert_none(&tree::rust().iter().flat_map(sleeps).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_for_later_is_found_as_a_word() {
        let lines = [(1, "// TODO: later"), (2, "-- FIXME"), (3, "the METHODOLOGY of TODOS"), (4, "XXXL")];
        assert_eq!(marks("a.sql", &lines).iter().map(|found| found.line).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_ticket_number_is_found() {
        let comments = [(1, "// see #42"), (2, "/// `#[error]` and # alone"), (3, "// r#\"x\"#")];
        assert_eq!(tickets("a.rs", &comments).iter().map(|found| found.line).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn unfinished_code_and_switched_off_tests_are_found() {
        let text =
            "fn a() { todo!() }\n#[ignore = \"slow\"]\nfn b() { dbg!(1); }\n// todo!()\nfn c() { unimplemented!() }";
        let file = RustFile::new("core/tests/it/x.rs", text);
        let mut lines: Vec<usize> = forbidden(&file).iter().map(|found| found.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [1, 2, 3, 5]);
    }

    #[test]
    fn printing_is_for_the_binary_s_output_and_for_tests() {
        let text = "fn a() { println!(\"x\"); }";
        assert_eq!(prints(&RustFile::new("engine/src/flow/run.rs", text)).len(), 1);
        assert_eq!(prints(&RustFile::new("chimera/src/config.rs", text)).len(), 1);
        for path in ["chimera/src/output.rs", "chimera/src/main.rs", "core/tests/it/main.rs", "storage/build.rs"] {
            assert_eq!(prints(&RustFile::new(path, text)), [], "{path}");
        }
    }

    #[test]
    fn a_sleeping_test_is_found_and_a_sleeping_loop_is_not() {
        let text =
            "async fn f() { tokio::time::sleep(x).await }\n#[cfg(test)]\nmod tests { fn g() { thread::sleep(y) } }";
        let lines = |path| sleeps(&RustFile::new(path, text)).iter().map(|found| found.line).collect::<Vec<_>>();
        assert_eq!(lines("engine/src/commit/loop.rs"), [3]);
        assert_eq!(lines("engine/tests/it/x.rs"), [1, 3]);
        assert_eq!(lines("testkit/src/server.rs"), [0_usize; 0]);
    }
}
