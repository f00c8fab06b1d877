//! A proxy in front of a DynamoDB that reports every write, in the order in which DynamoDB applies the writes.

use std::{fmt, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::sync::Mutex;

use super::DynamoDb;
use crate::{
    op::Op,
    server::Server,
    wire::{WireRequest, WireResponse},
};

/// A write to one item, and its outcome.
#[derive(Clone, Debug)]
pub struct Written {
    /// The path of the endpoint that the writer used, without slashes. Give each writer its own path to tell them
    /// apart.
    pub path: String,
    /// `UpdateItem` or `DeleteItem`.
    pub op: Op,
    /// The request.
    pub request: Value,
    /// `Ok`: the item after the write, null if it was deleted. `Err`: the response of the service if the write failed.
    pub outcome: Result<Value, Value>,
}

impl DynamoDb {
    /// Starts a proxy in front of this server. It accepts every path and forwards every call. It applies updates and
    /// deletes one item at a time, and calls `see` with each of them before the writer gets the response, even if the
    /// writer is gone by then.
    ///
    /// # Panics
    /// The system gives no port or no thread.
    #[must_use]
    pub fn watched(&self, see: impl Fn(Written) + Send + Sync + 'static) -> Server {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let uri = self.endpoint.parse().expect("an endpoint is a URI");
        let watch = Arc::new(Watch { client, uri, turn: Mutex::new(()), see: Box::new(see) });
        let router = Router::new().fallback(pass).with_state(watch);
        Server::start("dynamodb-watch", router).expect("a server needs a port")
    }
}

struct Watch {
    client: Client<HttpConnector, Body>,
    /// The server to forward to.
    uri: Uri,
    turn: Mutex<()>,
    see: Box<dyn Fn(Written) + Send + Sync>,
}

/// Forwards in a separate task, as on a real network: killing the caller does not recall its request.
async fn pass(State(watch): State<Arc<Watch>>, request: Request) -> Response {
    let passed = tokio::spawn(async move { watch.pass(request).await });
    passed.await.unwrap_or(Err(StatusCode::INTERNAL_SERVER_ERROR)).into_response()
}

impl Watch {
    async fn pass(&self, request: Request) -> Result<Response, StatusCode> {
        let path = request.uri().path().trim_matches('/').to_owned();
        let mut asked = WireRequest::read(request).await?;
        let op = asked.op;
        if !matches!(op, Op::UpdateItem | Op::DeleteItem) {
            return self.send(asked).await;
        }
        let mut request_json = asked.json();
        if op == Op::UpdateItem {
            // A caller that asked for less ignores the rest.
            request_json["ReturnValues"] = "ALL_NEW".into();
            asked.rewrite(&request_json);
        }
        let _turn = self.turn.lock().await;
        let answer = WireResponse::read(self.send(asked).await?).await?;
        let mut body = answer.json();
        let outcome = if answer.succeeded() { Ok(body["Attributes"].take()) } else { Err(body) };
        (self.see)(Written { path, op, request: request_json, outcome });
        Ok(answer.into_response())
    }

    async fn send(&self, asked: WireRequest) -> Result<Response, StatusCode> {
        let mut request = asked.into_request();
        *request.uri_mut() = self.uri.clone();
        let answer = self.client.request(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(answer.map(Body::new))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("uri", &self.uri).finish_non_exhaustive()
    }
}
