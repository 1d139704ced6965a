//! A separate schema for the benchmark in a PostgreSQL database.
//!
//! The ledger is append-only, so a benchmark must never write to the real one. A benchmark that is killed leaves its
//! schema behind; nothing reads it.

use super::BenchError;
use crate::records::OpenError;
use crate::records::postgres::connect::Server;

/// A schema that the benchmark creates and drops.
#[derive(Clone, Debug)]
pub struct ScratchSchema {
    outer: String,
    name: String,
}

impl ScratchSchema {
    /// Creates the schema `chimera_bench_ID` in the database at `url`.
    pub async fn create(url: &str, id: &str) -> Result<Self, BenchError> {
        let name = format!("chimera_bench_{}", id.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
        let client = Server::parse(url)?.connect().await.map_err(OpenError::from)?;
        client.batch_execute(&format!("CREATE SCHEMA {name}")).await?;
        Ok(Self { outer: url.to_owned(), name })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A URL whose sessions see only this schema.
    #[must_use]
    pub fn url(&self) -> String {
        let sign = if self.outer.contains('?') { '&' } else { '?' };
        format!("{}{sign}options=-csearch_path%3D{}", self.outer, self.name)
    }

    pub async fn remove(&self) -> Result<(), BenchError> {
        let client = Server::parse(&self.outer)?.connect().await.map_err(OpenError::from)?;
        Ok(client.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.name)).await?)
    }
}
