//! The live schema.
