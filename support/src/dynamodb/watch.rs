//! A server in front of a DynamoDB that shows what is written, in the order in which it is applied.

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
    wire::{Answer, Asked},
};

/// A write to one item, and what came of it.
#[derive(Clone, Debug)]
pub struct Written {
    /// The path of the endpoint that was written to, without slashes: writers with paths of their own can be told apart.
    pub path: String,
    /// `UpdateItem` or `DeleteItem`.
    pub op: Op,
    /// The request.
    pub question: Value,
    /// The item as it is now, null if it was deleted; or the answer of the service, if it was not written.
    pub outcome: Result<Value, Value>,
}

impl DynamoDb {
    /// Starts a server in front of it. It does all that this one does, under every path, but updates and deletes one
    /// item at a time; `see` is shown each of these before its writer has the answer. A writer that is gone by then
    /// changes nothing about that.
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
    /// Where everything goes.
    uri: Uri,
    turn: Mutex<()>,
    see: Box<dyn Fn(Written) + Send + Sync>,
}

/// Goes on by itself, as on a real line: a caller that is killed does not call its request back.
async fn pass(State(watch): State<Arc<Watch>>, request: Request) -> Response {
    let passed = tokio::spawn(async move { watch.pass(request).await });
    passed.await.unwrap_or(Err(StatusCode::INTERNAL_SERVER_ERROR)).into_response()
}

impl Watch {
    async fn pass(&self, request: Request) -> Result<Response, StatusCode> {
        let path = request.uri().path().trim_matches('/').to_owned();
        let mut asked = Asked::read(request).await?;
        let op = asked.op;
        if !matches!(op, Op::UpdateItem | Op::DeleteItem) {
            return self.send(asked).await;
        }
        let mut question = asked.json();
        if op == Op::UpdateItem {
            // Whoever asked for less does not mind.
            question["ReturnValues"] = "ALL_NEW".into();
            asked.rewrite(&question);
        }
        let _turn = self.turn.lock().await;
        let answer = Answer::read(self.send(asked).await?).await?;
        let mut body = answer.json();
        let outcome = if answer.succeeded() { Ok(body["Attributes"].take()) } else { Err(body) };
        (self.see)(Written { path, op, question, outcome });
        Ok(answer.into_response())
    }

    async fn send(&self, asked: Asked) -> Result<Response, StatusCode> {
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
