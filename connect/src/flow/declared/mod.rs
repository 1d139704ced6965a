//! Tools that are declared in a file: method, address, schemas, rollback, lookup and paging.
//!
//! [`load`] reads and checks a file; [`HttpTool`] makes its calls. A file contains no code: a tool that needs code is
//! written in Rust.

mod auth;
mod exchange;
mod file;
mod load;
mod mapping;
mod paging;
mod plan;
mod template;
mod tool;

pub use load::{DeclareError, load};
pub use plan::Declaration;
pub use tool::{HttpTool, restore, tools};
