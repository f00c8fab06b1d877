//! An HTTP client that serves fixed responses in order and records the requests, for tests of how the SDK reads and
//! writes bytes.

use std::{
    collections::VecDeque,
    future,
    sync::{Arc, Mutex},
};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_sdk_kinesis::config::http::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::body::SdkBody;
use aws_types::sdk_config;

/// The `Date` header of every response, and the same time in Unix milliseconds.
pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
pub(crate) const DATE_MILLIS: i64 = 784_111_777_000;

/// The client. Clones share the responses and the recorded requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Canned(Arc<Mutex<Tape>>);

#[derive(Debug, Default)]
struct Tape {
    answers: VecDeque<(u16, String)>,
    requests: Vec<String>,
}

impl Canned {
    /// Serves these responses, as status and body. A request after the last one hangs.
    pub(crate) fn new<'a>(answers: impl IntoIterator<Item = (u16, &'a str)>) -> Self {
        let answers = answers.into_iter().map(|(status, body)| (status, body.to_owned())).collect();
        Self(Arc::new(Mutex::new(Tape { answers, requests: Vec::new() })))
    }

    /// A complete configuration that uses this client.
    pub(crate) fn config(&self) -> sdk_config::Builder {
        let keys = Credentials::new("key", "secret", None, None, "test");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .http_client(self.clone())
    }

    /// The requests so far, each as operation and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().requests.clone()
    }
}

impl HttpConnector for Canned {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default();
        let body = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned();
        let mut tape = self.0.lock().unwrap();
        tape.requests.push(format!("{operation} {body}"));
        let Some((status, body)) = tape.answers.pop_front() else {
            return HttpConnectorFuture::new(future::pending());
        };
        let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
        response.headers_mut().insert("date", DATE);
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl HttpClient for Canned {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
