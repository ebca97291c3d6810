//! A client that decides frame by frame what it sends.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::client::conn::{http1, http2};
use hyper::ext::on_informational;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::Body;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use wasm_test::testbed::{Answer, COMPLETIONS, PATIENCE};

/// A request's way to the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Upload {
    pub version: Version,
    /// The body's length goes ahead, in `content-length`.
    pub announced: bool,
    /// Trailers end the body, not its last piece.
    pub trailers: bool,
    /// Nothing of the body is sent before `100 Continue` comes.
    pub expects_continue: bool,
    /// Bytes in a piece: a chunk, or a DATA frame.
    pub piece: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http1,
    /// Without TLS, known beforehand.
    H2c,
}

impl Upload {
    pub const fn new(version: Version) -> Self {
        Self {
            version,
            announced: false,
            trailers: false,
            expects_continue: false,
            piece: 1_000,
        }
    }

    pub const fn announced(self) -> Self {
        Self {
            announced: true,
            ..self
        }
    }

    pub const fn with_trailers(self) -> Self {
        Self {
            trailers: true,
            ..self
        }
    }

    pub const fn expecting_continue(self) -> Self {
        Self {
            expects_continue: true,
            ..self
        }
    }

    /// Asks the proxy at `address` for a completion with `body`, and reads the answer.
    ///
    /// # Panics
    /// When there is none, or no `100 Continue` came where one was waited for.
    pub async fn send(self, address: SocketAddr, body: &[u8]) -> Answer {
        let (at_once, start) = oneshot::channel();
        at_once.send(()).expect("it is waited for");
        self.send_from(address, body, start).await
    }

    /// The same, with nothing of the body sent before `start`.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn send_from(
        self,
        address: SocketAddr,
        body: &[u8],
        start: oneshot::Receiver<()>,
    ) -> Answer {
        let answer = timeout(PATIENCE, self.exchange(address, body, start)).await;
        answer.unwrap_or_else(|_| panic!("no answer to {self:?}"))
    }

    async fn exchange(
        self,
        address: SocketAddr,
        body: &[u8],
        start: oneshot::Receiver<()>,
    ) -> Answer {
        let go_on = Arc::new(Notify::new());
        if !self.expects_continue {
            go_on.notify_one();
        }
        let frames = self.frames(body, start, Arc::clone(&go_on));
        let mut request = self.request(body.len(), frames);
        on_informational(&mut request, move |response| {
            if response.status() == 100 {
                go_on.notify_one();
            }
        });
        let sent = Instant::now();
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("a TCP socket");
        let io = TokioIo::new(stream);
        let response = match self.version {
            Version::Http1 => {
                let (mut sender, connection) = http1::handshake(io).await.expect("a handshake");
                tokio::spawn(connection);
                sender.send_request(request).await
            }
            Version::H2c => {
                let executor = TokioExecutor::new();
                let (mut sender, connection) =
                    http2::handshake(executor, io).await.expect("a handshake");
                tokio::spawn(connection);
                sender.send_request(request).await
            }
        };
        let response: Response<_> = response.expect("an answer");
        Answer::read(response.map(Body::wrap).into(), sent).await
    }

    fn request(self, length: usize, body: Body) -> Request<Body> {
        let path = match self.version {
            Version::Http1 => COMPLETIONS.to_owned(),
            Version::H2c => format!("http://test{COMPLETIONS}"),
        };
        let mut request = Request::post(path).header("content-type", "application/json");
        if self.version == Version::Http1 {
            request = request.header("host", "test");
        }
        if self.announced {
            request = request.header("content-length", length);
        }
        if self.trailers && self.version == Version::Http1 {
            request = request.header("trailer", "x-checksum");
        }
        if self.expects_continue {
            request = request.header("expect", "100-continue");
        }
        request.body(body).expect("a request")
    }

    /// The body's frames, each sent by itself, the first once both `start` and `go_on` are given.
    fn frames(self, body: &[u8], start: oneshot::Receiver<()>, go_on: Arc<Notify>) -> Body {
        let pieces = body.chunks(self.piece);
        let pieces = pieces.map(|piece| Frame::data(Bytes::copy_from_slice(piece)));
        let trailers = self.trailers.then(|| {
            let name = HeaderName::from_static("x-checksum");
            let value = HeaderValue::from_static("1");
            Frame::trailers(HeaderMap::from_iter([(name, value)]))
        });
        let frames: Vec<_> = pieces.chain(trailers).collect();
        let wait = stream::once(async move {
            go_on.notified().await;
            start.await.expect("a start");
        });
        let wait = wait.filter_map(async |()| None);
        let each = |frame| async {
            // Lets the connection write the piece before.
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(frame)
        };
        let frames = wait.chain(stream::iter(frames).then(each));
        Body::wrap(StreamBody::new(Box::pin(frames)))
    }
}
