//! Messages to a lane's worker.

use chimera_core::record::Tx;
use chimera_engine::commit::{CommitEvent, PreparedTx};
use chimera_engine::port::{CommitError, Receipt};
use tokio::sync::oneshot;

/// Waits for a commit. The transaction is sent back, to be freed by its creator.
pub(super) type Waiter = oneshot::Sender<(Result<Receipt, CommitError>, Tx)>;

/// A message to a lane.
pub(super) enum Message {
    /// Commit this and answer the waiter.
    Commit(PreparedTx, Waiter),
    /// Finish what is queued and stop.
    Close,
}

impl From<Message> for CommitEvent<Waiter> {
    fn from(message: Message) -> Self {
        match message {
            Message::Commit(tx, waiter) => Self::Submitted { tx, waiter },
            Message::Close => Self::Closing,
        }
    }
}
