//! Checks once a second whether the database is held or behind the marks, records the progress of every lane, and
//! syncs the marks. Checks the guards less often.
//!
//! A node also marks the lanes of other nodes: after a failover, the new primary may lack only what they wrote, and
//! some node must notice. How soon a node learns of a hold does not matter: holding a database takes over every lane.

use super::super::hold::HoldCell;
use super::super::mark::MarkFile;
use super::connect::Server;
use super::guards::GuardWatch;
use super::state;
use chimera_core::limits;
use chimera_engine::port::{Outage, Unavailable};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_postgres::Client;

/// Runs until the other end of `stop` is dropped.
pub(super) async fn watch(
    server: Server,
    hold: HoldCell,
    guards: GuardWatch,
    marks: Option<Arc<MarkFile>>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut client = None;
    let mut guarded = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = &mut stop => break,
            () = tokio::time::sleep(limits::HOLD_CHECK_INTERVAL) => {}
        }
        sync(marks.as_ref()).await;
        if client.is_none() {
            client = server.connect().await.ok();
        }
        let Some(open) = &client else { continue };
        // An unreachable database is checked again; nobody can commit to it meanwhile.
        let blind = check(open, &hold, marks.as_deref()).await.err();
        if blind.is_some() {
            client = None;
        }
        hold.set_unknown(blind.filter(|why| why.outage == Outage::Unusable));
        if guards.check().is_err() || guarded.elapsed() >= limits::GUARD_CHECK_INTERVAL {
            check_guards(&server, &guards).await;
            guarded = Instant::now();
        }
    }
    sync(marks.as_ref()).await;
}

/// On a new session, which has the same settings and name resolution as the next connection.
async fn check_guards(server: &Server, guards: &GuardWatch) {
    let Ok(client) = server.connect().await else { return };
    // The result is published; a failed check is repeated.
    let _ = guards.run_check(&client).await;
}

/// Compares before it writes marks: the next check compares with what is written now.
async fn check(client: &Client, hold: &HoldCell, marks: Option<&MarkFile>) -> Result<(), Unavailable> {
    let found = state::check(client, &marks.map(MarkFile::marks).unwrap_or_default()).await?;
    let marks = marks.filter(|_| found.hold.is_none());
    hold.set(found.hold);
    let Some(marks) = marks else { return Ok(()) };
    let heads = state::heads(client).await?;
    heads.into_iter().for_each(|mark| marks.write(mark));
    Ok(())
}

async fn sync(marks: Option<&Arc<MarkFile>>) {
    let Some(marks) = marks.cloned() else { return };
    // A slow disk must not block others.
    let _ = tokio::task::spawn_blocking(move || marks.sync()).await;
}
