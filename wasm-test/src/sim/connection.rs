//! Connections of one server, and how they end when it is killed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::sim::instance::Instance;
use crate::sim::routes::router;

/// Serves until `killed` resolves, then resets all connections and returns.
pub async fn serve(
    listener: TcpListener,
    instance: Arc<Instance>,
    mut killed: oneshot::Receiver<()>,
) {
    let reset = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    tasks.spawn(instance.engine.clone().run());
    let keep_alive = instance.config.keep_alive();
    let router = router(instance);
    loop {
        tokio::select! {
            _ = &mut killed => break,
            _ = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let stream = Connection { stream, reset: Arc::clone(&reset) };
                    tasks.spawn(connection(stream, router.clone(), keep_alive));
                }
                // Out of descriptors: others have to end before another can begin.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
    drop(listener);
    reset.store(true, Ordering::Relaxed);
    tasks.shutdown().await;
}

/// HTTP/1.1 only, as vLLM's web server. An idle connection is closed after `keep_alive`.
async fn connection(stream: Connection, router: Router, keep_alive: Duration) {
    // A client's reset is how some requests are meant to end.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(keep_alive)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
}

/// A TCP stream that is reset, not closed, when its server is killed: a client must not take half
/// an answer for a whole one.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // A socket that is already dead needs no reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
