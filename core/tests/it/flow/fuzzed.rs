//! A short run of the fuzz targets: the same properties on seeds with deterministic mutations, so that a failure is
//! reproducible.

use super::properties;
use std::path::Path;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % below.max(1)
    }
}

/// Fragments that are meaningful to one of the parsers.
const PIECES: &[&str] = &[
    "${",
    "}",
    "$",
    "{",
    "[",
    "]",
    "(",
    ")",
    "'",
    "\"",
    "\\",
    "'''",
    "//",
    ",",
    ":",
    ".",
    "?",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "<",
    "&&",
    "||",
    " in ",
    "inputs",
    "nodes.a.outputs",
    "nodes.b.outputs",
    "nodes",
    "item",
    "index",
    "run_id",
    "true",
    "null",
    "1",
    "0.5",
    "9007199254740993",
    "1e999",
    "x",
    ".map(x, ",
    ".filter(x, x)",
    ".all(x, ",
    "has(",
    "size(",
    "CURRENT_NODE",
    "\"id\"",
    "\"to\"",
    "\"type\"",
    "\"agent\"",
    "\"hitl\"",
    "{}",
    "[]",
    "é",
    "\u{10ffff}",
];

/// One mutation: a changed byte, an inserted fragment, or a removed or repeated range.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = dice.roll(bytes.len() + 1);
    let end = (at + dice.roll(24)).min(bytes.len());
    match dice.roll(6) {
        0 if at < bytes.len() => bytes[at] = u8::try_from(dice.roll(256)).unwrap_or_default(),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let repeated: Vec<u8> = bytes[at..end].repeat(1 + dice.roll(40));
            bytes.splice(at..at, repeated);
        }
        3 => {
            let from = dice.roll(other.len() + 1);
            let to = (from + dice.roll(60)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        _ => drop(bytes.splice(at..at, PIECES[dice.roll(PIECES.len())].bytes())),
    }
    bytes.truncate(4_000);
}

fn seeds(folder: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn slice(folders: &[&str], rounds: u64, property: fn(&[u8])) {
    let seeds: Vec<Vec<u8>> = folders.iter().flat_map(|folder| seeds(folder)).collect();
    seeds.iter().for_each(|seed| property(seed));
    for round in 0..rounds {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (round + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut bytes = seeds[dice.roll(seeds.len())].clone();
        let other = &seeds[dice.roll(seeds.len())];
        for _ in 0..=dice.roll(4) {
            mutate(&mut bytes, other, &mut dice);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let held = std::panic::catch_unwind(|| property(text.as_bytes()));
        assert!(held.is_ok(), "round {round}: {text}");
    }
}

#[test]
fn mutated_workflows_are_read_or_refused() {
    slice(&["fuzz/seeds/air", "examples/workflows"], 1_500, properties::air);
}

#[test]
fn mutated_templates_are_rendered_or_refused() {
    slice(&["fuzz/seeds/template"], 1_500, properties::template);
}

#[test]
fn mutated_patches_are_applied_or_refused() {
    slice(&["fuzz/seeds/patch"], 1_500, properties::patch);
}
