//! The tools of the flow room, one file each.

mod artifact;
mod input;
pub mod local;
pub mod mail;
pub mod s3;

pub use local::local_tools;
pub use mail::{InvalidMail, MailSettings, MailTls, mail_tool};
pub use s3::s3_tool;
