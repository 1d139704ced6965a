//! Looks once a second whether the database is held, so that every node knows soon; and brings the
//! marks to the disk.
//!
//! Nothing depends on how soon: whoever holds a database takes every lane from its node.

use super::super::hold::HoldCell;
use super::super::mark::MarkFile;
use super::connect::Server;
use super::state;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks until the other end of `stop` is gone.
pub(super) async fn watch(
    server: Server,
    hold: HoldCell,
    marks: Option<Arc<MarkFile>>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut client = None;
    loop {
        tokio::select! {
            biased;
            _ = &mut stop => break,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        sync(marks.as_ref()).await;
        if client.is_none() {
            client = server.connect().await.ok();
        }
        let Some(open) = &client else { continue };
        match state::held(open).await {
            Ok(found) => hold.set(found),
            // A database that can't be reached is asked again; nobody can commit to it meanwhile.
            Err(_) => client = None,
        }
    }
    sync(marks.as_ref()).await;
}

async fn sync(marks: Option<&Arc<MarkFile>>) {
    let Some(marks) = marks.cloned() else { return };
    // A disk that is slow must not keep others waiting.
    let _ = tokio::task::spawn_blocking(move || marks.sync()).await;
}
