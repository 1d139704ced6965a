//! Types stay small: one file for the methods of a type, fifteen fields for a struct.
//!
//! A type whose methods are spread over files has several machines in it; there are no exceptions. A use case of a
//! facade is a function in its own file, with the facade as first argument. Rows, configuration and wire types may be
//! wide, because their shape is given; their list may only shrink. Clippy limits the arguments of a function.

use super::finding::{Finding, assert_none};
use super::rust_file::{RustFile, body_start, closing_brace, is_name};
use super::scan::Token;
use super::tree;
use std::collections::BTreeMap;

const FIELDS_MAX: usize = 15;

/// Structs with many fields, and why.
const WIDE: &[(&str, &str)] = &[
    ("ActArgs", "command line"),
    ("ActBody", "wire type"),
    ("ApprovalRecord", "row"),
    ("Config", "configuration"),
    ("RestoredRun", "row"),
    ("Review", "wire type"),
    ("RunHead", "row"),
    ("RunDetails", "read model of a row"),
    ("RunDocument", "wire type"),
    ("RunSummary", "wire type"),
    ("ScheduleArgs", "command line"),
];

/// The position after the group that opens at `at`: brackets, or the angle brackets of generics.
fn group_end(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (position, token) in tokens.iter().enumerate().skip(at) {
        match token.word.as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            // The arrow of a function type closes nothing.
            ">" if tokens[position - 1].word == "-" || tokens[position - 1].word == "=" => {}
            ")" | "]" | "}" | ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return position + 1;
        }
    }
    tokens.len()
}

/// The items between the brackets that open at `open`, separated by commas.
fn items(tokens: &[Token], open: usize) -> usize {
    let end = group_end(tokens, open) - 1;
    let (mut at, mut count, mut is_started) = (open + 1, 0, false);
    while at < end {
        match tokens[at].word.as_str() {
            "," => is_started = false,
            "(" | "[" | "{" | "<" => {
                at = group_end(tokens, at);
                continue;
            }
            _ => {
                count += usize::from(!is_started);
                is_started = true;
            }
        }
        at += 1;
    }
    count
}

/// Line and type of every block of methods outside tests.
fn method_blocks(file: &RustFile) -> Vec<(usize, String)> {
    let tokens = &file.tokens;
    let starts = (0..tokens.len()).filter(|at| tokens[*at].word == "impl" && !file.is_test(tokens[*at].line));
    let blocks = starts.filter_map(|at| {
        // `impl Trait` in a signature follows another token of the same item.
        let is_item = at == 0 || ["}", ";", "]"].contains(&tokens[at - 1].word.as_str());
        let open = body_start(tokens, at).filter(|_| is_item)?;
        let mut name = None;
        let mut position = at + 1;
        while position < open {
            match tokens[position].word.as_str() {
                "for" => return None,
                "where" => break,
                "<" | "(" => {
                    position = group_end(tokens, position);
                    continue;
                }
                word if is_name(word) => name = Some(word.to_owned()),
                _ => {}
            }
            position += 1;
        }
        Some((tokens[at].line, name?))
    });
    blocks.collect()
}

/// Blocks of methods of one type in more than one file of its layer.
fn spread(files: &[&RustFile]) -> Vec<Finding> {
    let mut homes: BTreeMap<(String, String), Vec<(String, usize)>> = BTreeMap::new();
    for file in files {
        for (line, name) in method_blocks(file) {
            homes.entry((file.layer().to_owned(), name)).or_default().push((file.path.clone(), line));
        }
    }
    let found = homes.iter().flat_map(|((_, name), blocks)| {
        let (home, _) = &blocks[0];
        let others = blocks.iter().filter(move |(path, _)| path != home);
        others.map(move |(path, line)| {
            let what =
                format!("{name} has methods in {home} too: make these functions that take it, or split the type");
            Finding::new(path, *line, what)
        })
    });
    found.collect()
}

/// Line, name and number of fields of every struct outside tests.
fn structs(file: &RustFile) -> Vec<(usize, String, usize)> {
    let tokens = &file.tokens;
    let starts = tokens.windows(2).enumerate().filter(|(_, pair)| pair[0].word == "struct" && is_name(&pair[1].word));
    let found = starts.filter(|(_, pair)| !file.is_test(pair[0].line)).filter_map(|(at, pair)| {
        let open = body_start(tokens, at)?;
        // Attributes are groups, so a field is a name and its type between commas.
        let end = closing_brace(tokens, open);
        let body: Vec<Token> = without_attributes(&tokens[open..=end]);
        Some((pair[0].line, pair[1].word.clone(), items(&body, 0)))
    });
    found.collect()
}

fn without_attributes(tokens: &[Token]) -> Vec<Token> {
    let (mut at, mut kept) = (0, Vec::new());
    while at < tokens.len() {
        if tokens[at].word == "#" {
            at = group_end(tokens, at + 1);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

fn wide(file: &RustFile) -> Vec<Finding> {
    let large = structs(file).into_iter().filter(|(_, _, fields)| *fields > FIELDS_MAX);
    let unlisted = large.filter(|(_, name, _)| WIDE.iter().all(|(listed, _)| listed != name));
    let what = |name: &str, fields: usize| {
        format!("{name} has {fields} fields, more than {FIELDS_MAX}: there are several machines in it")
    };
    unlisted.map(|(line, name, fields)| Finding::new(&file.path, line, what(&name, fields))).collect()
}

#[test]
fn the_methods_of_a_type_are_in_one_file() {
    let files: Vec<&RustFile> = tree::rust().iter().filter(|file| !file.is_test_file()).collect();
    assert_none(&spread(&files));
}

#[test]
fn no_struct_has_more_than_fifteen_fields_but_rows_configuration_and_wire_types() {
    assert_none(&tree::rust().iter().flat_map(wide).collect::<Vec<_>>());
    let large = |listed: &str| {
        let mut all = tree::rust().iter().flat_map(structs);
        all.any(|(_, name, fields)| name == listed && fields > FIELDS_MAX)
    };
    let unused: Vec<&str> = WIDE.iter().map(|(name, _)| *name).filter(|name| !large(name)).collect();
    assert!(unused.is_empty(), "remove from the list: {unused:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_in_two_files_are_found() {
        let one = RustFile::new("core/src/a.rs", "struct A;\nimpl A { fn x() {} }\nimpl Clone for A { }\n");
        let two = RustFile::new("core/src/b.rs", "use super::A;\nimpl<'a, T: Fn() -> A> A<'a> { fn y() {} }\n");
        let trait_only =
            RustFile::new("core/src/c.rs", "fn f() -> impl Iterator<Item = A> { g() }\nimpl Drop for A { }\n");
        let found = spread(&[&one, &two, &trait_only]);
        assert_eq!(
            found.iter().map(|found| (found.file.as_str(), found.line)).collect::<Vec<_>>(),
            [("core/src/b.rs", 2)]
        );
        assert_eq!(spread(&[&one, &trait_only]), []);
    }

    #[test]
    fn fields_are_counted_with_their_attributes_and_types() {
        let text = "struct A {\n    /// One, two.\n    #[serde(default, rename = \"x\")]\n    pub a: Map<u8, u8>,\n    b: (u8, u8),\n}\nstruct B(u8, u8);\n";
        assert_eq!(structs(&RustFile::new("core/src/a.rs", text)), [(1, "A".to_owned(), 2)]);
    }
}
