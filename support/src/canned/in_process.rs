//! The same without sockets: an HTTP client for the SDK that answers every request at once.

use std::sync::Arc;

use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
    },
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::body::SdkBody;
use axum::body::Bytes;

use super::{Canned, page::Template, service::Service};
use crate::op::Op;

/// The date of every response.
const DATE: &str = "Tue, 30 Jan 2018 23:09:59 GMT";

impl Canned {
    /// The same stream, served in this process.
    ///
    /// Each shard repeats one prepared page endlessly, with the same sequence numbers. A response therefore costs only
    /// a lookup, and never changes. `pages` has no effect here.
    #[must_use]
    pub fn in_process(self) -> InProcess {
        InProcess { canned: Self { pages: None, ..self }, busy: usize::MAX, keys: usize::MAX, data: None }
    }
}

/// A canned service in this process, before it runs.
///
/// ```
/// use kinesis_stream_support::canned::Canned;
///
/// let client = Canned { shards: 1000, ..Canned::default() }.in_process().busy(10).http_client();
/// ```
#[derive(Clone, Debug)]
pub struct InProcess {
    canned: Canned,
    busy: usize,
    keys: usize,
    data: Option<Vec<u8>>,
}

impl InProcess {
    /// Only the first `shards` shards have records. The pages of all others are empty.
    #[must_use]
    pub fn busy(self, shards: usize) -> Self {
        Self { busy: shards, ..self }
    }

    /// The records of a page take turns with `keys` partition keys (at least one), instead of one key each.
    #[must_use]
    pub fn keys(self, keys: usize) -> Self {
        Self { keys: keys.max(1), ..self }
    }

    /// Every record holds this data instead of zeros.
    #[must_use]
    pub fn data(self, data: impl Into<Vec<u8>>) -> Self {
        Self { data: Some(data.into()), ..self }
    }

    /// How many records a page of a busy shard holds.
    #[must_use]
    pub fn records_per_page(&self) -> usize {
        self.canned.records_per_page
    }

    /// How many shards have records.
    #[must_use]
    pub fn busy_shards(&self) -> usize {
        self.busy.min(self.canned.shards)
    }

    /// An HTTP client that answers requests itself, for any endpoint.
    #[must_use]
    pub fn http_client(&self) -> SharedHttpClient {
        let canned = self.canned;
        let data = self.data.clone().unwrap_or_else(|| vec![0; canned.record_bytes]);
        let template = Template::new(canned.records_per_page, &data, self.keys);
        let empty = Template::new(0, &[], 1);
        let page = |shard| {
            let template = if shard < self.busy { &template } else { &empty };
            template.fill(shard, 0, Some(format!("{shard}/0"))).into()
        };
        let pages = (0..canned.shards).map(page).collect();
        SharedHttpClient::new(Answers(Arc::new(InProcessService { pages, service: Service::new(canned, template) })))
    }
}

#[derive(Clone, Debug)]
struct Answers(Arc<InProcessService>);

#[derive(Debug)]
struct InProcessService {
    /// The one page of each shard.
    pages: Vec<Bytes>,
    /// Answers everything else.
    service: Service,
}

impl InProcessService {
    fn answer(&self, op: Op, body: &[u8]) -> Option<SdkBody> {
        if op == Op::GetRecords {
            return self.pages.get(shard(body)?).cloned().map(SdkBody::from);
        }
        self.service.answer(op, body).map(SdkBody::from)
    }
}

/// The shard of a `GetRecords` request: the quoted iterator begins with the shard's number.
fn shard(body: &[u8]) -> Option<usize> {
    let text = str::from_utf8(body).ok()?;
    let (_, iterator) = text.split_once(r#""ShardIterator":""#)?;
    iterator.split_once('/')?.0.parse().ok()
}

impl HttpClient for Answers {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Answers {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let op = Op::named(request.headers().get("x-amz-target").unwrap_or_default());
        let answer = self.0.answer(op, request.body().bytes().unwrap_or_default());
        let (status, body) = answer.map_or((400, SdkBody::empty()), |body| (200, body));
        let response = status.try_into().map(|status| {
            let mut response = HttpResponse::new(status, body);
            response.headers_mut().insert("date", DATE);
            response
        });
        HttpConnectorFuture::ready(response.map_err(|error| ConnectorError::other(Box::new(error), None)))
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::{
        Client,
        config::{BehaviorVersion, Config, Credentials, Region},
    };

    use super::*;

    #[test]
    fn the_iterator_of_a_read_names_the_shard() {
        assert_eq!(shard(br#"{"Limit":1000,"ShardIterator":"17/0"}"#), Some(17));
        assert_eq!(shard(br#"{"Limit":1000}"#), None);
    }

    #[tokio::test]
    async fn a_busy_shard_repeats_its_page_and_the_other_shards_are_empty() {
        let kinesis =
            Canned { shards: 2, records_per_page: 3, ..Canned::default() }.in_process().busy(1).keys(2).data("hi");
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .http_client(kinesis.http_client())
            .build();
        let client = Client::from_conf(config);
        let mut iterators = ["0/0".to_owned(), "1/0".to_owned()];
        for _ in 0..2 {
            let [busy, idle] = iterators.map(|iterator| client.get_records().shard_iterator(iterator).send());
            let (busy, idle) = (busy.await.unwrap(), idle.await.unwrap());
            let records: Vec<_> =
                busy.records.iter().map(|r| (r.partition_key.as_deref().unwrap(), r.data.as_ref())).collect();
            assert_eq!(records, [("key-000000", b"hi".as_slice()), ("key-000001", b"hi"), ("key-000000", b"hi")]);
            assert!(idle.records.is_empty());
            iterators = [busy, idle].map(|page| page.next_shard_iterator.unwrap());
        }
    }
}
