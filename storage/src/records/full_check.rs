//! Checks everything in a record store for damage.

use super::OpenError;
use super::postgres::connect::Server;
use super::postgres::{damage_check, guards};
use super::sqlite::file::DataFile;
use super::sqlite::read_errors;
use std::path::Path;

/// Checks every page, index, constraint, reference and guard of the data in `folder`. Takes as long as reading
/// all of it; writers continue.
pub fn check_sqlite(folder: &Path) -> Result<(), OpenError> {
    let check = || {
        let conn = DataFile::find(folder)?.ok_or(OpenError::Absent)?.open_reader()?;
        super::sqlite::damage_check::full_check(&conn)?;
        Ok(super::sqlite::guards::check_guards(&conn)?)
    };
    read_errors::explain(folder, check())
}

/// Reads every table of the schema completely and checks or walks its indexes, then checks its guards. `begins`
/// is called with the name of each table, its number and the total. Returns the number of tables.
pub async fn check_postgres(url: &str, mut begins: impl FnMut(&str, usize, usize)) -> Result<usize, OpenError> {
    let client = Server::parse(url)?.connect().await?;
    let tables = damage_check::tables(&client).await?;
    for (at, table) in tables.iter().enumerate() {
        begins(table, at + 1, tables.len());
        damage_check::check_table(&client, table).await?;
    }
    guards::check_guards(&client).await?;
    Ok(tables.len())
}
