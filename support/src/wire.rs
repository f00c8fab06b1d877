//! Requests and responses of the Kinesis protocol (JSON 1.1 over HTTP), with buffered bodies.

use axum::{
    body::{Body, Bytes, to_bytes},
    http::{HeaderValue, StatusCode, header, request, response},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use crate::op::Op;

/// The maximum size of a request: above the 10 MiB of the service, with room for base64.
pub(crate) const BODY_LIMIT: usize = 16 << 20;

const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.1");

/// A request with its whole body.
#[derive(Debug)]
pub(crate) struct WireRequest {
    pub(crate) op: Op,
    pub(crate) body: Bytes,
    head: request::Parts,
}

impl WireRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// The status to respond with if the body is broken or longer than [`BODY_LIMIT`].
    pub(crate) async fn read(request: axum::extract::Request) -> Result<Self, StatusCode> {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, BODY_LIMIT).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        Ok(Self { op: Op::of(&head.headers), body, head })
    }

    /// The body as JSON. Null if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        json(&self.body)
    }

    /// Replaces the body of the request. The signature no longer matches, but no emulator checks it.
    pub(crate) fn rewrite(&mut self, body: &Value) {
        self.body = body.to_string().into();
        self.head.headers.remove(header::CONTENT_LENGTH);
    }

    /// The request, ready to be forwarded.
    pub(crate) fn into_request(self) -> axum::extract::Request {
        axum::extract::Request::from_parts(self.head, Body::from(self.body))
    }
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct WireResponse {
    pub(crate) body: Bytes,
    head: response::Parts,
}

impl WireResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// The status to respond with if the body is broken.
    pub(crate) async fn read(response: Response) -> Result<Self, StatusCode> {
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(Self { body, head })
    }

    /// Whether the call succeeded.
    pub(crate) fn succeeded(&self) -> bool {
        self.head.status.is_success()
    }

    /// The body as JSON. Null if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        json(&self.body)
    }

    /// Replaces the body of the response.
    pub(crate) fn rewrite(&mut self, body: &Value) {
        self.body = body.to_string().into();
        self.head.headers.remove(header::CONTENT_LENGTH);
    }
}

impl IntoResponse for WireResponse {
    fn into_response(self) -> Response {
        Response::from_parts(self.head, Body::from(self.body))
    }
}

/// Builds a response.
pub(crate) fn answer(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], body.into()).into_response()
}

fn json(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}
