//! Requests and answers of the Kinesis protocol (JSON 1.1 over HTTP), read whole and put together again.

use axum::{
    body::{Body, Bytes, to_bytes},
    http::{HeaderValue, StatusCode, header, request, response},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use crate::op::Op;

/// What one request or answer may hold: above the 10 MiB of the service, with room for base64.
pub(crate) const BODY_LIMIT: usize = 16 << 20;

const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.1");

/// A request that was read whole.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    pub(crate) body: Bytes,
    head: request::Parts,
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// The answer to give when the body is broken or longer than [`BODY_LIMIT`].
    pub(crate) async fn read(request: axum::extract::Request) -> Result<Self, StatusCode> {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, BODY_LIMIT).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        Ok(Self { op: Op::of(&head.headers), body, head })
    }

    /// The body as JSON; null where it is none.
    pub(crate) fn json(&self) -> Value {
        json(&self.body)
    }

    /// Puts another body into the request. Its signature no longer fits, which no emulator looks at.
    pub(crate) fn rewrite(&mut self, body: &Value) {
        self.body = body.to_string().into();
        self.head.headers.remove(header::CONTENT_LENGTH);
    }

    /// The request again, to be passed on.
    pub(crate) fn into_request(self) -> axum::extract::Request {
        axum::extract::Request::from_parts(self.head, Body::from(self.body))
    }
}

/// An answer that was read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    head: response::Parts,
}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    /// The answer to give when the body is broken.
    pub(crate) async fn read(response: Response) -> Result<Self, StatusCode> {
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(Self { body, head })
    }

    /// The service did what it was asked.
    pub(crate) fn succeeded(&self) -> bool {
        self.head.status.is_success()
    }

    /// The body as JSON; null where it is none.
    pub(crate) fn json(&self) -> Value {
        json(&self.body)
    }

    /// Puts another body into the answer.
    pub(crate) fn rewrite(&mut self, body: &Value) {
        self.body = body.to_string().into();
        self.head.headers.remove(header::CONTENT_LENGTH);
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        Response::from_parts(self.head, Body::from(self.body))
    }
}

/// An answer made here.
pub(crate) fn answer(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], body.into()).into_response()
}

fn json(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}
