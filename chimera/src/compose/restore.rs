//! Copies records into a backup and back, and opens a held store to resume it.

use super::database::require_plausible_clock;
use super::{
    Ambient, disagreement, facts, facts_during_restore, flow, marks, record_node_event, resolve_setting, secret,
    untraced_records,
};
use crate::ambient::ClockDisagreement;
use crate::backup::staging::{Staging, refuse_unfinished};
use crate::backup::{LaneHead, Manifest, StoreKind, TablePart, files};
use crate::config::Config;
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::ledger::{ChainHead, Digest32};
use chimera_core::record::Tx;
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_engine::flow::Flow;
use chimera_engine::port::{Hold, Records};
use chimera_storage::records::{
    self, AccessMode, CopiedTable, CopyManifest, DATA_FILE, DatabaseCopy, OpenError, PostgresOptions, PostgresRecords,
    SqliteRecords, TimedWaits,
};
use std::path::Path;
use std::sync::Arc;

/// The data file of a data folder.
pub(crate) const RECORDS_FILE: &str = "chimera.db";

/// Why the store is held, or would be once a server starts.
pub(crate) async fn store_hold(config: &Config, ambient: &Ambient) -> Outcome<Option<Hold>> {
    Ok(facts(config, ambient.clock.now()).await?.hold)
}

/// An engine on a store that is held, which may write to it.
pub(crate) struct Resumer {
    pub(crate) flow: Flow,
    records: Arc<dyn Records>,
    /// A data folder has one user; a database may have nodes that wait for this.
    _home: Option<DataFolder>,
}

impl Resumer {
    /// Closes the store.
    pub(crate) async fn close(self) {
        self.records.close().await;
    }
}

/// Opens a held store to resume it. Previous lane owners are fenced off.
pub(crate) async fn resumer(config: &Config, ambient: &Ambient) -> Outcome<Resumer> {
    require_plausible_clock(config, ambient).await?;
    let (home, records): (_, Arc<dyn Records>) = match &config.database_url {
        None => {
            let home = DataFolder::lock(&config.data_dir)?;
            let (marks, clock) = (marks(config), Arc::clone(&ambient.clock));
            (Some(home), Arc::new(SqliteRecords::open_marked(&config.data_dir, &marks, AccessMode::Resume, clock)?))
        }
        Some(url) => {
            let url = resolve_setting(config, "database_url", url).await?;
            let node = ambient.random.opaque_id();
            let options = PostgresOptions {
                lanes: 1,
                node,
                marks: Some(marks(config)),
                resume: true,
                ..PostgresOptions::new(url)
            };
            (None, Arc::new(PostgresRecords::open(options).await?))
        }
    };
    flow::ensure_default_tenant(ambient, &*records).await?;
    let flow = flow::resumer(config, ambient, &records)?;
    Ok(Resumer { flow, records, _home: home })
}

/// Accepts this machine's clock although the ledger has later entries, and records that: later comparisons use the
/// new entry. Returns the disagreement, and the steps that wait for future times: some may come from the wrong
/// clock, and there is no way to tell which.
pub(crate) async fn accept_clock(
    config: &Config,
    ambient: &Ambient,
) -> Outcome<(Option<ClockDisagreement>, TimedWaits)> {
    let home = DataFolder::lock(&config.data_dir)?;
    let found = disagreement(config, &*ambient.clock).await?;
    let Some(ClockDisagreement::BehindLedger { now, newest }) = found else {
        return Ok((found, TimedWaits::default()));
    };
    let node = ambient.random.opaque_id();
    let records = untraced_records(config, ambient, &node).await?;
    let data = serde_json::json!({"clock": now.to_string(), "newest_entry": newest.to_string()});
    let written = record_node_event(&*records, ambient, &node, Tx::default(), ("clock.accepted", data)).await;
    records.close().await;
    drop(home);
    written?;
    let waits = match &config.database_url {
        None => records::sqlite_waits(&config.data_dir, now)?,
        Some(url) => records::postgres_waits(&resolve_setting(config, "database_url", url).await?, now).await?,
    };
    Ok((found, waits))
}

/// Which store the configuration names.
pub(crate) const fn store_kind(config: &Config) -> StoreKind {
    if config.database_url.is_some() { StoreKind::Postgres } else { StoreKind::Sqlite }
}

/// The secret under which keys are sealed in a backup.
pub(crate) async fn backup_key(config: &Config, name: &str) -> Outcome<Secret> {
    secret(config, "--key", name).await
}

/// Copies the records into a backup while a server may be writing; calls `table` before each table.
pub(crate) async fn copy_records(
    config: &Config,
    ambient: &Ambient,
    to: &Path,
    manifest: &mut Manifest,
    table: impl FnMut(&str),
) -> Outcome {
    refuse_unfinished(&config.data_dir)?;
    let now = ambient.clock.now();
    let reason = format!("it is a backup of {now}; run chimera resume --after-restore");
    let copied = match &config.database_url {
        None => records::copy_sqlite(&config.data_dir, to, &Hold { reason, since: now })?,
        Some(url) => records::copy_postgres(&resolve_setting(config, "database_url", url).await?, to, table).await?,
    };
    fill_manifest(manifest, &copied);
    Ok(())
}

/// Writes down what was copied.
fn fill_manifest(manifest: &mut Manifest, copied: &CopyManifest) {
    (manifest.schema_version, manifest.generation) = (copied.schema_version, copied.generation);
    let lane = |(lane, epoch, head): &(i64, i64, ChainHead)| LaneHead {
        lane: *lane,
        epoch: *epoch,
        entries: head.seq,
        hash: head.hash.to_string(),
    };
    manifest.lanes = copied.lanes.iter().map(lane).collect();
    let table = |table: &CopiedTable| {
        let CopiedTable { name, columns, rows } = table.clone();
        TablePart { name, columns, rows }
    };
    manifest.tables = copied.tables.iter().map(table).collect();
}

/// What a manifest says was copied.
fn manifest_to_copied(manifest: &Manifest) -> Outcome<CopyManifest> {
    let lane = |lane: &LaneHead| match Digest32::from_hex(&lane.hash) {
        Some(hash) => Ok((lane.lane, lane.epoch, ChainHead { seq: lane.entries, hash })),
        None => {
            let message = format!("the backup manifest has no head hash for lane {}", lane.lane);
            Err(Failure::new(Code::LedgerBroken, message).hint("use another one; nothing was changed"))
        }
    };
    let table = |part: &TablePart| {
        let TablePart { name, columns, rows } = part.clone();
        CopiedTable { name, columns, rows }
    };
    Ok(CopyManifest {
        schema_version: manifest.schema_version,
        generation: manifest.generation,
        lanes: manifest.lanes.iter().map(lane).collect::<Outcome<_>>()?,
        tables: manifest.tables.iter().map(table).collect(),
    })
}

/// Checks that the records of a backup match its manifest.
pub(crate) fn inspect_records(manifest: &Manifest, from: &Path) -> Outcome {
    let described = manifest_to_copied(manifest)?;
    if manifest.store == StoreKind::Postgres {
        return Ok(());
    }
    if records::inspect_sqlite_copy(from)? != described {
        return Err(Failure::new(Code::LedgerBroken, "the records of the backup do not match its manifest")
            .hint("use another one; nothing was changed"));
    }
    Ok(())
}

/// Copies the data file of a backup to the staging folder, held.
pub(crate) fn stage_data(config: &Config, from: &Path, staging: &Staging, hold: &Hold) -> Outcome {
    files::copy(&from.join(DATA_FILE), &staging.path(RECORDS_FILE))?;
    Ok(records::hold_sqlite(&staging.path(""), &marks(config), hold)?)
}

/// Rejects a database that has data, before anything is copied. An attempt that was interrupted just after filling
/// the database leaves it held, and can be repeated.
pub(crate) async fn check_database_empty(config: &Config, ambient: &Ambient, begun: bool) -> Outcome<bool> {
    let facts = facts_during_restore(config, ambient.clock.now()).await?;
    match (facts.schema.version, begun && facts.hold.is_some()) {
        (0, _) => Ok(false),
        (_, true) => Ok(true),
        (_, false) => Err(OpenError::NotEmpty.into()),
    }
}

/// Loads a backup into the database, held. Returns where the existing tables were moved.
pub(crate) async fn fill_database(
    config: &Config,
    from: &Path,
    manifest: &Manifest,
    hold: &Hold,
    aside: Option<Timestamp>,
) -> Outcome<Option<String>> {
    let Some(url) = &config.database_url else { return Ok(None) };
    let url = resolve_setting(config, "database_url", url).await?;
    let copied = manifest_to_copied(manifest)?;
    let copy = DatabaseCopy { folder: from, manifest: &copied };
    let kept = records::fill_postgres(&url, copy, &marks(config), hold, aside).await?;
    Ok(kept.map(|kept| format!("schema {kept}")))
}
