//! Feeds arbitrary bytes to the parser of workflow documents.
#![no_main]

#[path = "../../core/tests/it/flow/properties.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::air(bytes));
