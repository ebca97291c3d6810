//! Connections of one server, and how they end when it is killed.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::sim::instance::Instance;
use crate::sim::routes::router;

/// Lets a handler end its connection with a reset.
#[derive(Debug, Clone, Default)]
pub struct Abort(Arc<AtomicBool>);

impl Abort {
    /// Ends the connection once the handler's answer, or its body, gives control back.
    pub fn abort(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves until `killed` resolves, then resets all connections and returns. While connections are
/// to be refused, the port is bound and nobody listens on it.
pub async fn serve(
    mut listener: TcpListener,
    instance: Arc<Instance>,
    mut killed: oneshot::Receiver<()>,
) {
    let address = instance.address;
    let mut server = Server::new(Arc::clone(&instance));
    loop {
        tokio::select! {
            _ = &mut killed => break,
            () = server.accept(&listener) => {}
            () = instance.faults.until_refusing() => {
                drop(listener);
                let reserved = reserve(address);
                tokio::select! {
                    _ = &mut killed => return server.end().await,
                    () = instance.faults.until_accepting() => {}
                }
                drop(reserved);
                tokio::select! {
                    _ = &mut killed => return server.end().await,
                    bound = bind(address) => listener = bound,
                }
            }
        }
    }
    drop(listener);
    server.end().await;
}

/// A bound socket that refuses connections; `None` when somebody was faster.
pub fn reserve(address: SocketAddr) -> Option<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.ok()?;
    socket.set_reuseaddr(true).ok()?;
    socket.bind(address).ok()?;
    Some(socket)
}

/// Listens on `address`, as soon as whoever may have it leaves it.
async fn bind(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Between two attempts at something that others have to make room for.
const RETRY: Duration = Duration::from_millis(10);

/// Connections and engines of one life.
struct Server {
    router: Router,
    keep_alive: Duration,
    reset: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Server {
    fn new(instance: Arc<Instance>) -> Self {
        let mut tasks = JoinSet::new();
        for engine in instance.engines.all() {
            tasks.spawn(engine.clone().run());
        }
        Self {
            keep_alive: instance.config.keep_alive(),
            router: router(instance),
            reset: Arc::default(),
            tasks,
        }
    }

    /// Waits for one event: a connection, or the end of one.
    async fn accept(&mut self, listener: &TcpListener) {
        tokio::select! {
            _ = self.tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => self.begin(stream),
                // Out of descriptors: others have to end before another can begin.
                Err(_) => tokio::time::sleep(RETRY).await,
            },
        }
    }

    fn begin(&mut self, stream: TcpStream) {
        let abort = Abort::default();
        let stream = Connection {
            stream,
            reset: Arc::clone(&self.reset),
            abort: abort.clone(),
        };
        let router = self.router.clone();
        self.tasks
            .spawn(connection(stream, abort, router, self.keep_alive));
    }

    /// Resets all connections.
    async fn end(mut self) {
        self.reset.store(true, Ordering::Relaxed);
        self.tasks.shutdown().await;
    }
}

/// HTTP/1.1 only, as vLLM's web server. An idle connection is closed after `keep_alive`.
async fn connection(stream: Connection, abort: Abort, router: Router, keep_alive: Duration) {
    let handler = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(abort.clone());
        let answer = handler.call(request);
        let abort = abort.clone();
        async move {
            match answer.await {
                Ok(answer) if abort.is_aborted() => {
                    drop(answer);
                    Err(io::Error::from(io::ErrorKind::ConnectionReset))
                }
                Ok(answer) => Ok(answer),
                Err(never) => match never {},
            }
        }
    });
    // A client's reset is how some requests are meant to end.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(keep_alive)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// A TCP stream that is reset, not closed, when its server is killed or a handler aborts it: a
/// client must not take half an answer for a whole one.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
    abort: Abort,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) || self.abort.is_aborted() {
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
