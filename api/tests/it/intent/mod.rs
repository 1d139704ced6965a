//! Signed intents over a real socket: every check, and what accepted intents do.

mod accepted;
mod catalog;
mod given;
mod order;
mod patches;
mod runs;
mod signatures;
mod validate;
