//! Middleware that makes generations fail the way a test wants.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream;

use crate::sim::connection::Abort;
use crate::sim::faults::ResetPoint;
use crate::sim::instance::Instance;
use crate::sim::openai::error::ApiError;

/// Middleware around the routes that generate: errors first, then a model that is not there, then
/// resets.
pub async fn inject(
    State(instance): State<Arc<Instance>>,
    Extension(abort): Extension<Abort>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(status) = instance.faults.take_failure() {
        return ApiError::forced(status.code()).into_response();
    }
    if instance.faults.is_loading() {
        return ApiError::forced(StatusCode::SERVICE_UNAVAILABLE).into_response();
    }
    match instance.faults.take_reset() {
        None => next.run(request).await,
        Some(ResetPoint::BeforeResponse) => {
            abort.abort();
            // Nobody gets this: the connection ends first.
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        Some(ResetPoint::AfterChunks(chunks)) => {
            let (mut parts, body) = next.run(request).await.into_parts();
            // A client that knows the length takes the last byte for the end.
            parts.headers.remove(CONTENT_LENGTH);
            Response::from_parts(parts, broken_off(body, chunks, abort))
        }
    }
}

/// The first `chunks` of `body`, then a reset of the connection, unless the body ends before.
fn broken_off(body: Body, chunks: u32, abort: Abort) -> Body {
    let start = Some((body.into_data_stream(), chunks, abort));
    let stream = stream::unfold(start, |state| async {
        let (mut body, left, abort) = state?;
        let Some(left) = left.checked_sub(1) else {
            // Lets the connection write what it has: a reset discards what is not sent yet.
            tokio::task::yield_now().await;
            abort.abort();
            return Some((Err(io::Error::from(io::ErrorKind::ConnectionReset)), None));
        };
        let chunk = body.next().await?.map_err(io::Error::other);
        Some((chunk, Some((body, left, abort))))
    });
    Body::from_stream(stream)
}
