//! Runs a read as a separate task.
//!
//! Connections are shared, and a future that nobody polls keeps what it holds: a caller that starts several reads and
//! awaits another one first could block everybody, itself included. A task is always polled. It ends with its caller.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::{JoinError, JoinHandle};

/// A task that is aborted on drop.
pub(super) struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(super) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
