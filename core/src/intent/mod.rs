//! The intent room: signed intents. Tables only so far.

pub mod tables;
