//! The access room.

mod secret;
pub mod tables;
pub mod window;

pub use secret::{InvalidSecretName, Secret, SecretName};
