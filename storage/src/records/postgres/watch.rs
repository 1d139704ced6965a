//! Looks once a second whether the database is held and whether it is behind the marks, writes down how
//! far every lane has come, and brings the marks to the disk. Looks less often whether its guards are there.
//!
//! A node marks the lanes of the others, too: the server that takes over from one that failed may lack
//! only what they wrote, and none of them may be left to miss it. How soon a node hears of a hold does
//! not matter: whoever holds a database takes every lane from its node.

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

/// Looks until the other end of `stop` is gone.
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
        // A database that can't be reached is asked again; nobody can commit to it meanwhile.
        let blind = look(open, &hold, marks.as_deref()).await.err();
        if blind.is_some() {
            client = None;
        }
        hold.set_sight(blind.filter(|why| why.outage == Outage::Unusable));
        if guards.check().is_err() || guarded.elapsed() >= limits::GUARD_CHECK_INTERVAL {
            look_at_guards(&server, &guards).await;
            guarded = Instant::now();
        }
    }
    sync(marks.as_ref()).await;
}

/// On a session of its own: it is set up as whoever connects next is, and names lead where theirs do.
async fn look_at_guards(server: &Server, guards: &GuardWatch) {
    let Ok(client) = server.connect().await else { return };
    // What was seen is known to everybody by now; what could not be seen is looked at again.
    let _ = guards.look(&client).await;
}

/// Compares before it marks: what is marked now is what the next look compares with.
async fn look(client: &Client, hold: &HoldCell, marks: Option<&MarkFile>) -> Result<(), Unavailable> {
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
    // A disk that is slow must not keep others waiting.
    let _ = tokio::task::spawn_blocking(move || marks.sync()).await;
}
