//! The floor of every `ext_proc` endpoint picker: a service that reads nothing and always names the
//! same endpoint. Envoy sends it headers and the whole body, as pickers need it.
//!
//! Only the few messages of `envoy.service.ext_proc.v3` that it sends and gets are here; gRPC is
//! HTTP/2 with five bytes before each message.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::http::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;

/// Largest message taken.
const LARGEST: usize = 64 << 20;
/// HTTP/2 windows large enough that a body of 1 MB does not wait for an update.
const WINDOW: u32 = 8 << 20;

/// What Envoy says, as far as it matters which.
#[derive(Clone, PartialEq, Message)]
struct ProcessingRequest {
    #[prost(bytes = "bytes", optional, tag = "2")]
    request_headers: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    request_body: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessingResponse {
    #[prost(message, optional, tag = "1")]
    request_headers: Option<Answer>,
    #[prost(message, optional, tag = "3")]
    request_body: Option<Answer>,
}

/// `HeadersResponse` and `BodyResponse` look alike.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    header_mutation: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, Message)]
struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    set_headers: Vec<HeaderValueOption>,
}

#[derive(Clone, PartialEq, Message)]
struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "3")]
    raw_value: Vec<u8>,
}

/// The whole process: prints where it listens and serves until it is killed.
///
/// # Errors
/// When no port is free.
pub async fn run(header: &str, endpoint: &str) -> io::Result<Infallible> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    let answers = Answers::new(header, endpoint);
    loop {
        let (connection, _) = listener.accept().await?;
        let _ = connection.set_nodelay(true);
        let answers = answers.clone();
        let service = service_fn(move |request| {
            let answers = answers.clone();
            async move { Ok::<_, Infallible>(process(request, answers)) }
        });
        let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .serve_connection(TokioIo::new(connection), service);
        tokio::spawn(served);
    }
}

/// The two answers it has, ready to send.
#[derive(Debug, Clone)]
struct Answers {
    to_headers: Bytes,
    to_body: Bytes,
}

impl Answers {
    fn new(header: &str, endpoint: &str) -> Self {
        let mutation = HeaderMutation {
            set_headers: vec![HeaderValueOption {
                header: Some(Header {
                    key: header.to_owned(),
                    raw_value: endpoint.into(),
                }),
            }],
        };
        let to_headers = ProcessingResponse {
            request_headers: Some(Answer { response: None }),
            request_body: None,
        };
        let to_body = ProcessingResponse {
            request_headers: None,
            request_body: Some(Answer {
                response: Some(CommonResponse {
                    header_mutation: Some(mutation),
                }),
            }),
        };
        Self {
            to_headers: framed(&to_headers),
            to_body: framed(&to_body),
        }
    }

    /// What is said to `message`; `None` where nothing is asked.
    fn to(&self, message: &ProcessingRequest) -> Option<Bytes> {
        if message.request_body.is_some() {
            Some(self.to_body.clone())
        } else {
            message.request_headers.as_ref()?;
            Some(self.to_headers.clone())
        }
    }
}

/// `message` with gRPC's five bytes before it.
fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

type Stream = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// One stream: an answer to each message of Envoy's.
fn process(request: Request<Incoming>, answers: Answers) -> Response<Stream> {
    let state = (request.into_body(), BytesMut::new(), answers, false);
    let frames = stream::unfold(state, async |(mut body, mut got, answers, is_over)| {
        if is_over {
            return None;
        }
        loop {
            if let Some(message) = next(&mut got) {
                let Some(answer) = answers.to(&message) else {
                    continue;
                };
                return Some((Ok(Frame::data(answer)), (body, got, answers, false)));
            }
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        got.extend_from_slice(&data);
                    }
                }
                _ => return Some((Ok(Frame::trailers(ok())), (body, got, answers, true))),
            }
        }
    });
    let mut response = Response::new(StreamBody::new(
        Box::pin(frames) as stream::BoxStream<'static, _>
    ));
    let content_type = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", content_type);
    response
}

/// Takes the next whole message out of `got`.
fn next(got: &mut BytesMut) -> Option<ProcessingRequest> {
    let head = got.first_chunk::<5>()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > LARGEST || got.len() < 5 + length {
        return None;
    }
    got.advance(5);
    ProcessingRequest::decode(got.split_to(length)).ok()
}

/// gRPC's trailers of success.
fn ok() -> HeaderMap {
    HeaderMap::from_iter([(
        hyper::http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )])
}

/// Where the service at `address` is, as Envoy's configuration says it.
pub fn cluster(address: SocketAddr) -> serde_json::Value {
    serde_json::json!({
        "name": "picker",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
        "load_assignment": {"cluster_name": "picker", "endpoints": [{"lb_endpoints": [{"endpoint": {
            "address": {"socket_address": {
                "address": address.ip().to_string(), "port_value": address.port(),
            }},
        }}]}]},
    })
}

/// The filter that asks it, with headers and the whole body of the request.
pub fn filter() -> serde_json::Value {
    serde_json::json!({
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "5s"},
            "message_timeout": "5s",
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "BUFFERED",
                "response_header_mode": "SKIP",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_one_by_one_however_they_arrive() {
        let message = ProcessingRequest {
            request_headers: None,
            request_body: Some(Bytes::from_static(b"\x0a\x03abc")),
        };
        let two = [framed(&message), framed(&message)].concat();
        let mut got = BytesMut::new();
        let mut taken = 0;
        for byte in two {
            got.put_u8(byte);
            while let Some(found) = next(&mut got) {
                assert_eq!(found, message);
                taken += 1;
            }
        }
        assert_eq!((taken, got.len()), (2, 0));
    }

    #[test]
    fn the_body_is_answered_with_the_endpoint_and_the_headers_with_go_on() {
        let answers = Answers::new("x-to", "127.0.0.1:80");
        let body = ProcessingRequest {
            request_headers: None,
            request_body: Some(Bytes::new()),
        };
        let answer = answers.to(&body).expect("an answer");
        let decoded = ProcessingResponse::decode(answer.slice(5..)).expect("a message");
        let mutation = decoded
            .request_body
            .and_then(|answer| answer.response?.header_mutation)
            .expect("a mutation");
        let header = mutation.set_headers[0].header.clone().expect("a header");
        assert_eq!(
            (header.key.as_str(), header.raw_value.as_slice()),
            ("x-to", b"127.0.0.1:80".as_slice())
        );
        assert_eq!(answers.to(&ProcessingRequest::default()), None);
    }
}
