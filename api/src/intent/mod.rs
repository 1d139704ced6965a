//! Endpoints of signed intents, their catalog and their schemas.

pub(crate) mod intent_catalog;
pub(crate) mod intent_post;
pub(crate) mod intent_validate;
pub(crate) mod schema_get;
