//! What an operator wants to know about a store before anything runs on it.

use super::postgres::connect::{Server, check};
use super::sqlite::file;
use super::{OpenError, PostgresRecords, SqliteRecords, unavailable_sqlite};
use crate::migrate::{self, Applied, Status};
use chimera_core::time::Timestamp;
use chimera_engine::port::Unavailable;
use std::path::Path;

/// A store at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How far its schema is.
    pub schema: Status,
    /// Whether a commit waits for the disk.
    pub durable: bool,
    /// Whether this user may change it.
    pub writable: bool,
    /// Its clock, if it has one of its own.
    pub clock: Option<Timestamp>,
}

impl SqliteRecords {
    /// Looks at the data in `folder` without changing it; no file yet means an empty schema.
    pub fn facts(folder: &Path) -> Result<Facts, OpenError> {
        let path = file::path_in(folder);
        let none = Status { version: 0, pending: migrate::MIGRATIONS.iter().map(|migration| migration.name).collect() };
        let (schema, writable) = match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (none, true),
            Err(error) => return Err(OpenError::Folder(error)),
            Ok(_) => {
                let conn = file::open_reader(&path).map_err(|error| unavailable_sqlite(&error))?;
                let read_only = conn.is_readonly(rusqlite::MAIN_DB).map_err(|error| unavailable_sqlite(&error))?;
                (migrate::sqlite_status(&conn)?, !read_only)
            }
        };
        Ok(Facts { schema, durable: true, writable, clock: None })
    }

    /// Brings the schema in `folder` up to date.
    pub fn migrate(folder: &Path) -> Result<Applied, OpenError> {
        std::fs::create_dir_all(folder).map_err(OpenError::Folder)?;
        let opened = file::open_writer(&file::path_in(folder));
        let mut conn = opened.map_err(|error| unavailable_sqlite(&error))?;
        Ok(migrate::sqlite(&mut conn)?)
    }
}

impl PostgresRecords {
    /// Looks at the database without changing it.
    pub async fn facts(url: &str) -> Result<Facts, OpenError> {
        let client = Server::parse(url)?.connect().await?;
        check(&client).await?;
        let schema = migrate::postgres_status(&client).await?;
        let text = "SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on', \
                    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let row = client.query_one(text, &[]).await;
        let row = row.map_err(|_| Unavailable { reason: "the database does not answer".to_owned() })?;
        Ok(Facts { schema, durable: row.get(0), writable: true, clock: Some(Timestamp::from_micros(row.get(1))) })
    }

    /// Brings the database's schema up to date.
    pub async fn migrate(url: &str) -> Result<Applied, OpenError> {
        let mut client = Server::parse(url)?.connect().await?;
        check(&client).await?;
        Ok(migrate::postgres(&mut client).await?)
    }
}
