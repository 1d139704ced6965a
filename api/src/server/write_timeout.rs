//! A write timeout for connections.
//!
//! Without it, a client that requests much and reads nothing would hold a connection slot, a file
//! descriptor and a response in memory indefinitely. Only time without any progress counts: a slow
//! reader may take as long as it needs.
//!
//! On shutdown the stream lingers: it reads what the client still sends, for a moment. Closing a socket
//! with unread bytes resets it, and the client might lose the response.

use chimera_core::limits::{LINGER_BYTES_MAX, LINGER_TIME_MAX};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Fails with `TimedOut` when nothing can be written for `limit`.
pub(super) struct WriteTimeoutStream<S> {
    stream: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    is_shut: bool,
    /// Bytes read after shutdown.
    lingered: usize,
}

impl<S> WriteTimeoutStream<S> {
    pub(super) const fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, waiting: None, is_shut: false, lingered: 0 }
    }

    /// Applies the timeout to the result of a write.
    fn apply_timeout(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if wrote.is_ready() {
            self.waiting = None;
            return wrote;
        }
        let limit = self.limit;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> WriteTimeoutStream<S> {
    /// Reads what the client still sends, up to `LINGER_BYTES_MAX` and `LINGER_TIME_MAX`.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 4_096];
        while self.lingered < LINGER_BYTES_MAX {
            let mut into = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) if !into.filled().is_empty() => self.lingered += into.filled().len(),
                Poll::Pending if self.lingered > 0 => {
                    return self.waiting.get_or_insert_with(|| Box::pin(sleep(LINGER_TIME_MAX))).as_mut().poll(cx);
                }
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.apply_timeout(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.apply_timeout(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            (self.is_shut, self.waiting) = (true, None);
        }
        self.poll_linger(cx).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}
