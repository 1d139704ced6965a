//! Detects a server that no longer answers, such as a suspended one.
//!
//! A statement may take any amount of time, so its own silence proves nothing. A second session sends a trivial query
//! from time to time: while that is answered, the server works.

use super::connect::{Server, passing};
use chimera_engine::port::Unavailable;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::Client;

/// Returns when the server has not answered for `silence`; an error is an answer too.
pub async fn until_postgres_silent(url: &str, silence: Duration) -> Unavailable {
    let Ok(server) = Server::parse(url) else { return std::future::pending().await };
    let mut session = None;
    loop {
        let mut asked = Box::pin(ask(&server, session.take()));
        // A delayed thread may find both the timeout and the answer.
        session = match (timeout(silence, &mut asked).await, silence / 4) {
            (Ok(session), _) => session,
            (Err(_), rest) => match timeout(rest, &mut asked).await {
                Ok(session) => session,
                Err(_) => return passing("the database does not answer"),
            },
        };
        tokio::time::sleep(silence / 4).await;
    }
}

/// Pings the server, in a new session if necessary; returns the session if it can be used again.
async fn ask(server: &Server, session: Option<Client>) -> Option<Client> {
    let session = match session {
        Some(session) => session,
        None => server.session().await.ok()?,
    };
    session.batch_execute("SELECT 1").await.is_ok().then_some(session)
}
