//! Endpoints of intents and of what they produce.

pub(crate) mod artifact;
