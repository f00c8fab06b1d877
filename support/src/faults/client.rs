//! The same faults on the client side: an HTTP client for the SDK whose requests pass through the fault layer first.
//!
//! Each request runs in a separate task, as on a real network: a caller that gives up does not recall its request.

use aws_smithy_http_client::Builder;
use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
    },
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::body::SdkBody;
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
};
use tower::ServiceExt;

use super::{Faults, layer};
use crate::wire::BODY_LIMIT;

impl Faults {
    /// An HTTP client without TLS that applies these faults. SDK clients that share it share faults and log.
    #[must_use]
    pub fn http_client(&self) -> SharedHttpClient {
        SharedHttpClient::new(FaultyClient { faults: self.clone(), client: Builder::new().build_http() })
    }
}

#[derive(Clone, Debug)]
struct FaultyClient {
    faults: Faults,
    client: SharedHttpClient,
}

impl HttpClient for FaultyClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, parts: &RuntimeComponents) -> SharedHttpConnector {
        let out = self.client.http_connector(settings, parts);
        SharedHttpConnector::new(FaultyConnector { faults: self.faults.clone(), out })
    }
}

#[derive(Clone, Debug)]
struct FaultyConnector {
    faults: Faults,
    out: SharedHttpConnector,
}

impl HttpConnector for FaultyConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let sent = tokio::spawn(self.clone().send(request));
        HttpConnectorFuture::new(async { sent.await.map_err(other)? })
    }
}

impl FaultyConnector {
    async fn send(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let request = request.try_into_http1x().map_err(other)?.map(Body::new);
        let out = self.out;
        let layered = Router::new()
            .fallback(|request: Request| async move { pass(&out, request).await.unwrap_or_else(broken) })
            .layer(from_fn_with_state(self.faults, layer));
        let response = layered.oneshot(request).await.unwrap_or_else(|never| match never {});
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.map_err(other)?;
        HttpResponse::try_from(Response::from_parts(head, SdkBody::from(body))).map_err(other)
    }
}

/// Sends a request to its destination.
async fn pass(out: &SharedHttpConnector, request: Request) -> Result<Response, ConnectorError> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, BODY_LIMIT).await.map_err(other)?;
    let request = HttpRequest::try_from(Request::from_parts(head, SdkBody::from(body))).map_err(other)?;
    let response = out.call(request).await?;
    Ok(response.try_into_http1x().map_err(other)?.map(Body::new))
}

/// Reports a broken connection as a gateway would.
#[expect(clippy::needless_pass_by_value, reason = "it is what maps an error")]
fn broken(error: ConnectorError) -> Response {
    (StatusCode::BAD_GATEWAY, error.to_string()).into_response()
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> ConnectorError {
    ConnectorError::other(error.into(), None)
}
