//! Notices a server that answers nothing any more, such as one that was stopped in the middle.
//!
//! A statement may take as long as it takes, so its own silence says nothing. A second session is
//! asked something trivial now and then: while that is answered, the server works.

use super::super::PostgresRecords;
use super::connect::{Server, passing};
use chimera_engine::port::Unavailable;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::Client;

impl PostgresRecords {
    /// Ends when the server has answered nothing for so long; a server that refuses has answered.
    pub async fn until_silent(url: &str, silence: Duration) -> Unavailable {
        let Ok(server) = Server::parse(url) else { return std::future::pending().await };
        let mut session = None;
        loop {
            let mut asked = Box::pin(ask(&server, session.take()));
            // A thread that was held up may find the time over and the answer there.
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
}

/// Asks, in a new session if need be; gives the session if it can be asked again.
async fn ask(server: &Server, session: Option<Client>) -> Option<Client> {
    let session = match session {
        Some(session) => session,
        None => server.session().await.ok()?,
    };
    session.batch_execute("SELECT 1").await.is_ok().then_some(session)
}
