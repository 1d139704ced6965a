//! Tools that are declared in a file: method, address, schemas, rollback, lookup and paging.
//!
//! [`load`] reads and checks a file; [`HttpTool`] makes its calls. A file contains no code: a tool that needs code is
//! written in Rust, or executed by workers outside ([`WorkerTool`]).

mod auth;
mod exchange;
mod file;
mod kind;
mod load;
mod mapping;
mod paging;
mod plan;
mod template;
mod tool;
mod worker;

pub use kind::{FileTool, file_tools, restore};
pub use load::{DeclareError, load};
pub use plan::Declaration;
pub use tool::{HttpTool, tools};
pub use worker::WorkerTool;
