//! A private S3 server over a folder, with the real protocol and signature checks.
//!
//! It runs on its own thread and runtime, so stopping it cuts every connection, like a lost server.

use crate::net::free_port;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const TRIES: usize = 20;

/// An S3 server of one test, with one bucket.
pub struct PrivateS3 {
    folder: TempDir,
    port: u16,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl PrivateS3 {
    pub const BUCKET: &'static str = "chimera-test";
    /// The public half of its credentials.
    pub const ACCESS_KEY_ID: &'static str = "test-access-key";
    /// The secret half of its credentials.
    pub const SECRET_ACCESS_KEY: &'static str = "test-secret-key-0123456789";

    /// Starts a server and waits until it takes connections.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(Self::BUCKET)).expect("a bucket");
        for _ in 0..TRIES {
            let port = free_port();
            if let Some(running) = launch(folder.path(), port) {
                return Self { folder, port, running: Some(running) };
            }
        }
        panic!("the S3 server does not start");
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The URL of its bucket, in the form of the configuration.
    #[must_use]
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{}/{prefix}?endpoint={}&region=us-east-1", Self::BUCKET, self.endpoint())
    }

    /// The folder that holds the objects of its bucket as files.
    #[must_use]
    pub fn bucket_folder(&self) -> PathBuf {
        self.folder.path().join(Self::BUCKET)
    }

    /// The folder of the whole server: buckets, and parts of unfinished uploads.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops it and cuts all connections; its objects stay.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }

    /// Restarts it with the same objects on the same port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.stop();
        self.running = launch(self.folder.path(), self.port);
        assert!(self.running.is_some(), "the S3 server does not start again");
    }
}

impl Drop for PrivateS3 {
    fn drop(&mut self) {
        self.stop();
    }
}

fn launch(folder: &Path, port: u16) -> Option<(oneshot::Sender<()>, JoinHandle<()>)> {
    let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).expect("a folder"));
    service.set_auth(SimpleAuth::from_single(PrivateS3::ACCESS_KEY_ID, PrivateS3::SECRET_ACCESS_KEY));
    let service = service.build();
    let (stop, stopped) = oneshot::channel();
    let (announce, ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind(("127.0.0.1", port)).await;
            let _ = announce.send(listener.is_ok());
            if let Ok(listener) = listener {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, service) => {}
                }
            }
        });
        // Dropping the runtime closes its connections.
    });
    ready.recv().unwrap_or(false).then_some((stop, thread))
}

async fn serve(listener: TcpListener, service: S3Service) {
    while let Ok((socket, _)) = listener.accept().await {
        let service = service.clone();
        tokio::spawn(async move {
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
