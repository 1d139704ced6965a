//! The tools of the flow room, one file each.

pub mod http;
pub mod slack;
pub mod webhook;
