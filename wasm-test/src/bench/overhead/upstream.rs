//! The model servers: they read the whole request and answer at once, at next to no cost.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Request header: how many chunks the answer has.
pub const CHUNKS: &str = "x-bench-chunks";
/// Request header, with any value: the chunks come one a [`PACE`], else as fast as they are taken.
pub const PACED: &str = "x-bench-paced";
/// Time between two chunks of a stream.
pub const PACE: Duration = Duration::from_micros(60);

const ANSWER: &[u8] = br#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;
const CHUNK: &[u8] = b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Starts `count` servers on loopback addresses of their own; they end with the runtime. Each shows
/// `page` as its metrics.
///
/// # Errors
/// When no port is free.
pub async fn start(count: u16, page: &'static str) -> io::Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for number in 0..count {
        let [high, low] = number.to_be_bytes();
        let listener = TcpListener::bind((Ipv4Addr::new(127, 1, high, low.max(1)), 0)).await?;
        addresses.push(listener.local_addr()?);
        tokio::spawn(serve(listener, page));
    }
    Ok(addresses)
}

async fn serve(listener: TcpListener, page: &'static str) {
    while let Ok((connection, _)) = listener.accept().await {
        // Small writes go out as they come, as a streaming server's do.
        let _ = connection.set_nodelay(true);
        let service = service_fn(move |request| answer(request, page));
        let served = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(connection), service);
        tokio::spawn(served);
    }
}

async fn answer(
    request: Request<Incoming>,
    page: &'static str,
) -> Result<Response<Body>, hyper::Error> {
    if request.uri().path() == "/metrics" {
        return Ok(Response::new(whole(page.as_bytes())));
    }
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|one| one.to_str().ok())
    };
    let chunks: Option<u32> = header(CHUNKS).and_then(|count| count.parse().ok());
    let is_paced = header(PACED).is_some();
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(Response::new(match chunks {
        None => whole(ANSWER),
        Some(chunks) => in_chunks(chunks, is_paced),
    }))
}

fn whole(bytes: &'static [u8]) -> Body {
    Full::new(Bytes::from_static(bytes)).boxed_unsync()
}

fn in_chunks(count: u32, is_paced: bool) -> Body {
    let clock = is_paced.then(|| CLOCK.subscribe());
    let chunks = stream::unfold((count, clock), async |(left, mut clock)| {
        if let Some(clock) = &mut clock {
            // The sender is never dropped.
            let _ = clock.changed().await;
        } else {
            // Lets the connection write what it has: a chunk is a write of its own.
            tokio::task::yield_now().await;
        }
        let next = left.checked_sub(1)?;
        Some((Ok(Frame::data(Bytes::from_static(CHUNK))), (next, clock)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Ticks once a [`PACE`]; the runtime's own timer has milliseconds.
static CLOCK: LazyLock<watch::Sender<u64>> = LazyLock::new(|| {
    let (sender, _) = watch::channel(0_u64);
    let ticking = sender.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(PACE);
            ticking.send_modify(|tick| *tick += 1);
        }
    });
    sender
});
