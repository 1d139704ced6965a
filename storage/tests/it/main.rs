//! Storage against the real things: files, PostgreSQL, Redis, S3.
