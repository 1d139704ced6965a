//! A schema of the benchmark's own in a PostgreSQL database.
//!
//! The ledger can't be deleted from, so what a benchmark writes must never get into the real one. A
//! benchmark that is killed leaves its schema behind; nothing looks at it.

use super::BenchError;
use crate::records::OpenError;
use crate::records::postgres::connect::Server;

/// A schema in which everything is made anew.
#[derive(Clone, Debug)]
pub struct ScratchSchema {
    outer: String,
    name: String,
}

impl ScratchSchema {
    /// Makes the schema `chimera_bench_ID` in the database at `url`.
    pub async fn create(url: &str, id: &str) -> Result<Self, BenchError> {
        let name = format!("chimera_bench_{}", id.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
        let client = Server::parse(url)?.connect().await.map_err(OpenError::from)?;
        client.batch_execute(&format!("CREATE SCHEMA {name}")).await?;
        Ok(Self { outer: url.to_owned(), name })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A URL whose sessions see this schema alone.
    #[must_use]
    pub fn url(&self) -> String {
        let sign = if self.outer.contains('?') { '&' } else { '?' };
        format!("{}{sign}options=-csearch_path%3D{}", self.outer, self.name)
    }

    /// Removes the schema and everything in it.
    pub async fn remove(&self) -> Result<(), BenchError> {
        let client = Server::parse(&self.outer)?.connect().await.map_err(OpenError::from)?;
        Ok(client.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.name)).await?)
    }
}
