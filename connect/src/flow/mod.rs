//! The tools of the flow room, one file each.

mod artifact;
pub mod declared;
mod exchange_log;
mod http;
mod input;
pub mod local;
pub mod mail;
pub mod notify;
pub mod s3;
pub mod slack;
mod toolbox;
pub mod vendor;
pub mod webhook;

pub use http::HttpRequest;
pub use local::local_tools;
pub use mail::{InvalidMailSettings, MailSettings, MailTls, mail_tool};
pub use s3::s3_tool;
pub use toolbox::{BuildToolsError, ToolDependencies, http_tools};
