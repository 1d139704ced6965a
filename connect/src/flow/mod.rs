//! The tools of the flow room, one file each.

pub mod http;
