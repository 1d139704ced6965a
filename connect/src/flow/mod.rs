//! The tools of the flow room, one file each.

pub mod declared;
pub mod http;
pub mod slack;
mod toolbox;
pub mod vendor;
pub mod webhook;

pub use toolbox::{Toolbox, ToolboxError, http_tools};
