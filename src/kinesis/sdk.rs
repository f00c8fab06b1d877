//! The calls, made with the AWS SDK.
//!
//! **Who retries.** The SDK never retries GetRecords or PutRecords. The reader paces and repeats its own reads. The
//! accumulator knows which entries of a PutRecords call failed; the SDK would resend all of them.
//!
//! **Timeouts.** Each attempt of a call has a timeout (`call_timeout`, 30 s by default) unless the user's configuration
//! sets another one. A call waits for credentials before its first attempt begins.

use std::{env, error::Error, time::Duration};

use aws_config::SdkConfig;
use aws_sdk_kinesis::{
    Client,
    config::{Builder, Config, http::HttpResponse, retry::RetryConfig},
    error::{BuildError, ProvideErrorMetadata, SdkError},
    operation::{get_shard_iterator::builders::GetShardIteratorFluentBuilder, put_records::PutRecordsError},
    primitives::{Blob, DateTime},
    types::{self, ShardIteratorType},
};

use crate::{
    aws::{
        classify::{failure, of_answer},
        config::{self, timeouts},
        credentials::{self, BackgroundCredentials, LoadError},
        proxy,
    },
    config::position::Origin,
    error::service::{Action, FailureKind, ServiceFailure},
    kinesis::{
        Call, Described, Fetched, ListedPage, ListedShard, Listing, Placed, Put, PutEntry, RawRecord, Service,
        StreamStatus, date_header::ResponseTime,
    },
    types::id::ShardId,
};

/// How long one attempt of a call may take, unless the user set another timeout. The SDK has no such limit by default,
/// and a connection whose peer is gone can hang without an end. A page of 10 MiB takes 5 seconds at the rate of a
/// shard.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a call waits for credentials that are being loaded.
const CREDENTIALS_WAIT: Duration = Duration::from_secs(30);

/// The most shards that `ListShards` puts on a page.
const LIST_LIMIT: i32 = 1_000;

/// The service by the SDK. All calls share one client, and with it one connection pool and one credentials cache.
#[derive(Debug)]
pub(crate) struct SdkService {
    client: Client,
    /// Overrides for GetRecords and PutRecords: no retries.
    once: Builder,
    /// Loaded in a task of their own; none if the configuration has no provider.
    credentials: Option<BackgroundCredentials>,
    /// The proxy on the way to the service.
    proxy: Option<String>,
}

impl SdkService {
    /// Creates the client; does no I/O. The configuration must have passed [`check`](crate::aws::config::check), so
    /// that this does not panic.
    pub(crate) fn new(config: &SdkConfig) -> Self {
        let endpoint = config::endpoint(config, config::KINESIS);
        let is_ours = config.http_client().is_none();
        let proxy = proxy::on_the_way(endpoint.as_deref(), |name| env::var(name).ok()).filter(|_| is_ours);
        let config = proxy::past_for_this_host(config.clone(), endpoint.as_deref());
        let (config, credentials) = credentials::in_background(&config);
        let timeouts = timeouts(&config, ATTEMPT_TIMEOUT);
        let client = Client::from_conf(Builder::from(&config).timeout_config(timeouts).build());
        Self { client, once: Config::builder().retry_config(RetryConfig::disabled()), credentials, proxy }
    }

    /// A failed call. If no response came, it names the proxy.
    fn failed<E>(&self, action: Action, error: SdkError<E, HttpResponse>) -> ServiceFailure
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let failure = failure(action, error);
        match &self.proxy {
            Some(proxy) if failure.kind() == FailureKind::Unreachable => failure.through(proxy),
            _ => failure,
        }
    }

    /// Waits for credentials, outside of the timeouts of the call.
    async fn ready(&self, action: Action) -> Result<(), ServiceFailure> {
        let Some(credentials) = &self.credentials else { return Ok(()) };
        let unready = |error: LoadError| {
            ServiceFailure::new(action, FailureKind::Credentials, "no credentials").caused_by(error.cause())
        };
        credentials.ready(CREDENTIALS_WAIT).await.map_err(unready)
    }
}

impl Service for SdkService {
    fn describe<'a>(&'a self, stream: &'a str) -> Call<'a, Described> {
        Box::pin(async move {
            self.ready(Action::DescribeStreamSummary).await?;
            let time = ResponseTime::default();
            let call = self.client.describe_stream_summary().stream_name(stream).customize().interceptor(time.clone());
            let output = call.send().await.map_err(|error| self.failed(Action::DescribeStreamSummary, error))?;
            let Some(summary) = output.stream_description_summary else {
                return Err(incomplete(Action::DescribeStreamSummary, "stream description"));
            };
            // The SDK reports a missing time as zero.
            let created = millis(&summary.stream_creation_timestamp).filter(|created| *created > 0);
            let hours = u64::try_from(summary.retention_period_hours).ok().filter(|hours| *hours > 0);
            let (status, retention) = (status(&summary.stream_status), hours.map(Duration::from_hours));
            Ok(Described { status, created, retention, now: time.get() })
        })
    }

    fn create<'a>(&'a self, stream: &'a str, shards: u32) -> Call<'a, ()> {
        Box::pin(async move {
            self.ready(Action::CreateStream).await?;
            let call = self.client.create_stream().stream_name(stream).shard_count(saturated(shards));
            call.send().await.map_err(|error| self.failed(Action::CreateStream, error))?;
            Ok(())
        })
    }

    fn list<'a>(&'a self, from: Listing<'a>) -> Call<'a, ListedPage> {
        Box::pin(async move {
            self.ready(Action::ListShards).await?;
            let call = self.client.list_shards().max_results(LIST_LIMIT);
            let call = match from {
                Listing::Stream(stream) => call.stream_name(stream),
                Listing::Token(token) => call.next_token(token),
            };
            let output = call.send().await.map_err(|error| self.failed(Action::ListShards, error))?;
            let shards = output.shards.unwrap_or_default().into_iter().map(listed).collect();
            Ok(ListedPage { shards, next: output.next_token })
        })
    }

    fn place<'a>(&'a self, stream: &'a str, shard: &'a ShardId, origin: &'a Origin) -> Call<'a, Placed> {
        Box::pin(async move {
            self.ready(Action::GetShardIterator).await?;
            let time = ResponseTime::default();
            let call = self.client.get_shard_iterator().stream_name(stream).shard_id(shard.as_str());
            let call = at(call, origin).customize().interceptor(time.clone());
            let output = call.send().await.map_err(|error| self.failed(Action::GetShardIterator, error))?;
            let Some(iterator) = output.shard_iterator else {
                return Err(incomplete(Action::GetShardIterator, "shard iterator"));
            };
            Ok(Placed { iterator, now: time.get() })
        })
    }

    fn read<'a>(&'a self, iterator: &'a str, limit: u32) -> Call<'a, Fetched> {
        Box::pin(async move {
            self.ready(Action::GetRecords).await?;
            let call = self.client.get_records().shard_iterator(iterator).limit(saturated(limit));
            let call = call.customize().config_override(self.once.clone());
            let output = call.send().await.map_err(|error| self.failed(Action::GetRecords, error))?;
            Ok(Fetched {
                records: output.records.into_iter().map(raw).collect(),
                next: output.next_shard_iterator,
                behind: output.millis_behind_latest.map(|behind| behind.max(0)),
                children: output.child_shards.unwrap_or_default().into_iter().map(child).collect(),
            })
        })
    }

    fn put<'a>(&'a self, stream: &'a str, entry: PutEntry) -> Call<'a, Put> {
        Box::pin(async move {
            self.ready(Action::PutRecord).await?;
            let PutEntry { partition_key, explicit_hash_key, data } = entry;
            let call = self.client.put_record().stream_name(stream).partition_key(partition_key);
            let call = call.data(Blob::from_maybe_shared(data));
            let call = call.set_explicit_hash_key(explicit_hash_key.map(|hash| hash.to_string()));
            let output = call.send().await.map_err(|error| self.failed(Action::PutRecord, error))?;
            Ok(Put { shard: output.shard_id.into(), sequence_number: output.sequence_number.into() })
        })
    }

    fn put_all<'a>(&'a self, stream: &'a str, entries: Vec<PutEntry>) -> Call<'a, Vec<Result<Put, ServiceFailure>>> {
        Box::pin(async move {
            self.ready(Action::PutRecords).await?;
            let count = entries.len();
            let entries = entries.into_iter().map(request_entry).collect::<Result<Vec<_>, _>>();
            let entries = entries.map_err(|error| failure(Action::PutRecords, invalid_request(error)))?;
            let call = self.client.put_records().stream_name(stream).set_records(Some(entries));
            let call = call.customize().config_override(self.once.clone());
            let output = call.send().await.map_err(|error| self.failed(Action::PutRecords, error))?;
            if output.records.len() != count {
                return Err(incomplete(Action::PutRecords, "result for each record"));
            }
            Ok(output.records.into_iter().map(result).collect())
        })
    }
}

fn request_entry(entry: PutEntry) -> Result<types::PutRecordsRequestEntry, BuildError> {
    types::PutRecordsRequestEntry::builder()
        .partition_key(entry.partition_key)
        .set_explicit_hash_key(entry.explicit_hash_key.map(|hash| hash.to_string()))
        .data(Blob::from_maybe_shared(entry.data))
        .build()
}

fn invalid_request(error: BuildError) -> SdkError<PutRecordsError, HttpResponse> {
    SdkError::construction_failure(error)
}

/// The result of one entry. A failed entry has its error code in a response with status 200.
fn result(entry: types::PutRecordsResultEntry) -> Result<Put, ServiceFailure> {
    if let Some(code) = entry.error_code {
        let kind = of_answer(&code, entry.error_message.as_deref()).unwrap_or(FailureKind::Other);
        let detail = entry.error_message.map_or_else(|| code.clone(), |message| format!("{code}: {message}"));
        return Err(ServiceFailure::new(Action::PutRecords, kind, detail));
    }
    match (entry.shard_id, entry.sequence_number) {
        (Some(shard), Some(number)) => Ok(Put { shard: shard.into(), sequence_number: number.into() }),
        _ => Err(incomplete(Action::PutRecords, "sequence number")),
    }
}

fn status(status: &types::StreamStatus) -> StreamStatus {
    match status {
        types::StreamStatus::Creating => StreamStatus::Creating,
        types::StreamStatus::Deleting => StreamStatus::Deleting,
        _ => StreamStatus::Usable,
    }
}

fn listed(shard: types::Shard) -> ListedShard {
    ListedShard {
        id: shard.shard_id.into(),
        parents: shard.parent_shard_id.into_iter().chain(shard.adjacent_parent_shard_id).map(ShardId::from).collect(),
        closed: shard.sequence_number_range.is_some_and(|range| range.ending_sequence_number.is_some()),
    }
}

/// A shard that its parent's last page names is new, so it is open.
fn child(shard: types::ChildShard) -> ListedShard {
    let parents = shard.parent_shards.into_iter().map(ShardId::from).collect();
    ListedShard { id: shard.shard_id.into(), parents, closed: false }
}

fn at(call: GetShardIteratorFluentBuilder, origin: &Origin) -> GetShardIteratorFluentBuilder {
    match origin {
        Origin::Horizon => call.shard_iterator_type(ShardIteratorType::TrimHorizon),
        Origin::Latest => call.shard_iterator_type(ShardIteratorType::Latest),
        Origin::Timestamp(millis) => {
            call.shard_iterator_type(ShardIteratorType::AtTimestamp).timestamp(DateTime::from_millis(*millis))
        }
        Origin::At(number) => {
            call.shard_iterator_type(ShardIteratorType::AtSequenceNumber).starting_sequence_number(number.as_str())
        }
        Origin::After(number) => {
            call.shard_iterator_type(ShardIteratorType::AfterSequenceNumber).starting_sequence_number(number.as_str())
        }
    }
}

fn raw(record: types::Record) -> RawRecord {
    RawRecord {
        data: record.data.into_bytes(),
        partition_key: record.partition_key,
        sequence_number: record.sequence_number,
        arrived_at: record.approximate_arrival_timestamp.as_ref().and_then(millis),
    }
}

/// Rounds, because the SDK reads `1700000000.123` as the floating-point number just below it.
fn millis(time: &DateTime) -> Option<i64> {
    let millis = (i64::from(time.subsec_nanos()) + 500_000) / 1_000_000;
    time.secs().checked_mul(1_000)?.checked_add(millis)
}

/// A number too large for the wire becomes the largest one. The service refuses it, like other numbers that are too
/// large.
fn saturated(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The response reports success but lacks the requested value.
fn incomplete(action: Action, missing: &str) -> ServiceFailure {
    ServiceFailure::new(action, FailureKind::Unreadable, format!("the answer holds no {missing}"))
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use aws_sdk_kinesis::config::timeout::TimeoutConfig;
    use bytes::Bytes;
    use tokio::time::Instant;

    use super::*;
    use crate::error::chain::Chain;
    use crate::{
        aws::canned::{Canned, DATE_MILLIS},
        kinesis::ServiceTime,
    };

    const NOW: Option<ServiceTime> = Some(ServiceTime(DATE_MILLIS));
    const THROTTLED: (u16, &str) = (400, r#"{"__type":"ProvisionedThroughputExceededException","message":"slow"}"#);

    fn service(canned: &Canned) -> SdkService {
        SdkService::new(&canned.config().build())
    }

    #[tokio::test]
    async fn a_stream_is_described_with_its_age_and_the_time_of_the_service() {
        let summary = |fields: &str| {
            let required = r#""StreamName":"s","StreamARN":"a","RetentionPeriodHours":24,"EnhancedMonitoring":[],"OpenShardCount":1"#;
            format!(r#"{{"StreamDescriptionSummary":{{{required},{fields}}}}}"#)
        };
        let table = [
            (r#""StreamStatus":"CREATING","StreamCreationTimestamp":1.5"#, StreamStatus::Creating, Some(1_500)),
            (
                r#""StreamStatus":"ACTIVE","StreamCreationTimestamp":1700000000.123"#,
                StreamStatus::Usable,
                Some(1_700_000_000_123),
            ),
            (r#""StreamStatus":"UPDATING","StreamCreationTimestamp":1.5"#, StreamStatus::Usable, Some(1_500)),
            (r#""StreamStatus":"DELETING""#, StreamStatus::Deleting, None),
        ];
        for (fields, status, created) in table {
            let canned = Canned::new([(200, summary(fields).as_str())]);
            let described = service(&canned).describe("orders").await.unwrap();
            assert_eq!((described.status, described.created, described.now), (status, created, NOW));
            assert_eq!(canned.requests(), [r#"DescribeStreamSummary {"StreamName":"orders"}"#]);
        }
    }

    #[tokio::test]
    async fn a_stream_is_created_with_the_given_number_of_shards() {
        let canned = Canned::new([(200, "")]);
        service(&canned).create("orders", 3).await.unwrap();
        assert_eq!(canned.requests(), [r#"CreateStream {"StreamName":"orders","ShardCount":3}"#]);
    }

    #[tokio::test]
    async fn a_listing_has_parents_and_closed_shards_and_its_token_is_sent_without_a_stream() {
        let shards = r#"{"NextToken":"more","Shards":[
            {"ShardId":"a","HashKeyRange":{"StartingHashKey":"0","EndingHashKey":"9"},"SequenceNumberRange":{"StartingSequenceNumber":"1"}},
            {"ShardId":"b","ParentShardId":"x","HashKeyRange":{"StartingHashKey":"0","EndingHashKey":"9"},
             "SequenceNumberRange":{"StartingSequenceNumber":"1","EndingSequenceNumber":"2"}},
            {"ShardId":"c","ParentShardId":"x","AdjacentParentShardId":"y","HashKeyRange":{"StartingHashKey":"0","EndingHashKey":"9"},
             "SequenceNumberRange":{"StartingSequenceNumber":"3"}}]}"#;
        let canned = Canned::new([(200, shards), (200, "{}")]);
        let service = service(&canned);

        let first = service.list(Listing::Stream("orders")).await.unwrap();
        let shard = |id: &str, parents: &[&str], closed| {
            let parents = parents.iter().map(|parent| ShardId::from(*parent)).collect();
            ListedShard { id: id.into(), parents, closed }
        };
        assert_eq!(first.shards, [shard("a", &[], false), shard("b", &["x"], true), shard("c", &["x", "y"], false)]);
        assert_eq!(first.next.as_deref(), Some("more"));

        let last = service.list(Listing::Token("more")).await.unwrap();
        assert_eq!((last.shards, last.next), (Vec::new(), None));
        let asked = [
            r#"ListShards {"StreamName":"orders","MaxResults":1000}"#,
            r#"ListShards {"NextToken":"more","MaxResults":1000}"#,
        ];
        assert_eq!(canned.requests(), asked);
    }

    // R2
    #[tokio::test]
    async fn each_origin_is_one_iterator_type() {
        let table = [
            (Origin::Horizon, r#""ShardIteratorType":"TRIM_HORIZON""#),
            (Origin::Latest, r#""ShardIteratorType":"LATEST""#),
            (Origin::Timestamp(1_700_000_000_123), r#""ShardIteratorType":"AT_TIMESTAMP","Timestamp":1700000000.123"#),
            (Origin::At("7".into()), r#""ShardIteratorType":"AT_SEQUENCE_NUMBER","StartingSequenceNumber":"7""#),
            (Origin::After("7".into()), r#""ShardIteratorType":"AFTER_SEQUENCE_NUMBER","StartingSequenceNumber":"7""#),
        ];
        for (origin, asked) in table {
            let canned = Canned::new([(200, r#"{"ShardIterator":"i"}"#)]);
            let placed = service(&canned).place("orders", &"shard".into(), &origin).await.unwrap();
            assert_eq!((placed.iterator.as_str(), placed.now), ("i", NOW));
            let asked = format!(r#"GetShardIterator {{"StreamName":"orders","ShardId":"shard",{asked}}}"#);
            assert_eq!(canned.requests(), [asked]);
        }
    }

    #[tokio::test]
    async fn a_response_without_the_requested_value_is_a_failure() {
        let canned = Canned::new([(200, "{}")]);
        let failed = service(&canned).place("orders", &"shard".into(), &Origin::Latest).await.unwrap_err();
        assert_eq!(failed.kind(), FailureKind::Unreadable);
        assert_eq!(failed.to_string(), "kinesis:GetShardIterator failed: the answer holds no shard iterator");
    }

    #[tokio::test]
    async fn a_page_is_read_even_if_optional_fields_are_missing() {
        let page = r#"{"MillisBehindLatest":-5,"NextShardIterator":"next","Records":[
            {"SequenceNumber":"1","Data":"YWJj","PartitionKey":"k","ApproximateArrivalTimestamp":1700000000.123},
            {"SequenceNumber":"2","Data":""}]}"#;
        let canned = Canned::new([(200, page), (200, r#"{"Records":[]}"#)]);
        let service = service(&canned);

        let fetched = service.read("i", 500).await.unwrap();
        assert_eq!((fetched.next.as_deref(), fetched.behind), (Some("next"), Some(0)));
        let [first, second] = <[RawRecord; 2]>::try_from(fetched.records).unwrap();
        assert_eq!((first.data.as_ref(), first.sequence_number), (&b"abc"[..], "1".into()));
        assert_eq!((first.partition_key.as_deref(), first.arrived_at), (Some("k"), Some(1_700_000_000_123)));
        assert_eq!((second.data.len(), second.partition_key, second.arrived_at), (0, None, None));

        let end = service.read("next", u32::MAX).await.unwrap();
        assert_eq!((end.records.len(), end.next, end.behind), (0, None, None));
        let asked = [
            r#"GetRecords {"ShardIterator":"i","Limit":500}"#,
            r#"GetRecords {"ShardIterator":"next","Limit":2147483647}"#,
        ];
        assert_eq!(canned.requests(), asked);
    }

    #[test]
    fn the_data_of_a_record_is_not_copied() {
        let data = vec![7; 1_000];
        let at = data.as_ptr();
        let record = types::Record::builder().data(Blob::new(data)).sequence_number("1").build().unwrap();
        assert!(ptr::eq(raw(record).data.as_ptr(), at));
    }

    // P1
    #[tokio::test]
    async fn a_record_is_put_and_its_position_returned() {
        let canned = Canned::new([(200, r#"{"ShardId":"shard","SequenceNumber":"7"}"#)]);
        let put = service(&canned).put("orders", entry("k", None)).await.unwrap();
        assert_eq!((put.shard, put.sequence_number), ("shard".into(), "7".into()));
        let asked = r#"PutRecord {"StreamName":"orders","Data":"YWJj","PartitionKey":"k"}"#;
        assert_eq!(canned.requests(), [asked]);
    }

    fn entry(key: &str, explicit_hash_key: Option<u128>) -> PutEntry {
        PutEntry { partition_key: key.to_owned(), explicit_hash_key, data: Bytes::from_static(b"abc") }
    }

    // P3, L1
    #[tokio::test]
    async fn many_records_are_put_and_each_has_its_own_result() {
        let answer = r#"{"FailedRecordCount":3,"Records":[
            {"ShardId":"shard","SequenceNumber":"7"},
            {"ErrorCode":"ProvisionedThroughputExceededException","ErrorMessage":"slow"},
            {"ErrorCode":"InternalFailure"},
            {"ShardId":"shard"}]}"#;
        let canned = Canned::new([(200, answer)]);
        let entries = vec![entry("a", None), entry("b", Some(u128::MAX)), entry("c", Some(0)), entry("d", None)];
        let results = service(&canned).put_all("orders", entries).await.unwrap();
        let told = results.into_iter().map(|result| match result {
            Ok(put) => format!("{} {}", put.shard, put.sequence_number),
            Err(failed) => format!("{:?} {failed}", failed.kind()),
        });
        let told: Vec<_> = told.collect();
        assert_eq!(
            told,
            [
                "shard 7",
                "Throttled kinesis:PutRecords failed: ProvisionedThroughputExceededException: slow",
                "Unavailable kinesis:PutRecords failed: InternalFailure",
                "Unreadable kinesis:PutRecords failed: the answer holds no sequence number; the records may be stored",
            ]
        );
        let asked = r#"PutRecords {"Records":[{"Data":"YWJj","PartitionKey":"a"},{"Data":"YWJj","ExplicitHashKey":"340282366920938463463374607431768211455","PartitionKey":"b"},{"Data":"YWJj","ExplicitHashKey":"0","PartitionKey":"c"},{"Data":"YWJj","PartitionKey":"d"}],"StreamName":"orders"}"#;
        assert_eq!(canned.requests(), [asked]);
    }

    // P4
    #[tokio::test(start_paused = true)]
    async fn a_success_that_cannot_be_read_says_that_records_may_be_stored() {
        let canned = Canned::new([(200, "<html>"), (200, "<html>"), (200, "<html>")]);
        let service = service(&canned);
        let many = service.put_all("orders", vec![entry("k", None)]).await.unwrap_err();
        let one = service.put("orders", entry("k", None)).await.unwrap_err();
        let read = service.place("orders", &"shard".into(), &Origin::Latest).await.unwrap_err();
        let unreadable = "failed: HTTP 200 with an answer that cannot be read";
        for (failure, text) in [
            (many, format!("kinesis:PutRecords {unreadable}; the records may be stored")),
            (one, format!("kinesis:PutRecord {unreadable}; the records may be stored")),
            (read, format!("kinesis:GetShardIterator {unreadable}")),
        ] {
            assert_eq!((failure.kind(), failure.to_string()), (FailureKind::Unreadable, text));
        }
        assert_eq!(canned.requests().len(), 3, "nothing is repeated");
    }

    // P3
    #[tokio::test(start_paused = true)]
    async fn records_are_put_once_and_a_response_that_lacks_results_is_a_failure() {
        let short = r#"{"FailedRecordCount":0,"Records":[]}"#;
        let canned = Canned::new([THROTTLED, (500, "{}"), (200, short)]);
        let service = service(&canned);
        let mut kinds = Vec::new();
        for _ in 0..3 {
            kinds.push(service.put_all("orders", vec![entry("k", None)]).await.unwrap_err().kind());
        }
        assert_eq!(kinds, [FailureKind::Throttled, FailureKind::Unavailable, FailureKind::Unreadable]);
        assert_eq!(canned.requests().len(), 3);
    }

    // R9
    #[tokio::test(start_paused = true)]
    async fn a_throttled_read_is_sent_once_and_other_calls_as_often_as_the_user_configured() {
        let canned = Canned::new([THROTTLED; 9]);
        let service =
            SdkService::new(&canned.config().retry_config(RetryConfig::standard().with_max_attempts(5)).build());
        assert_eq!(service.read("i", 1).await.unwrap_err().kind(), FailureKind::Throttled);
        assert_eq!(canned.requests().len(), 1);
        service.list(Listing::Stream("orders")).await.unwrap_err();
        assert_eq!(canned.requests().len(), 1 + 5);
    }

    // A connection can hang without an end.
    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_response_fails_after_the_attempt_timeout() {
        let canned = Canned::new([]);
        let start = Instant::now();
        let failed = service(&canned).read("i", 1).await.unwrap_err();
        assert_eq!(failed.kind(), FailureKind::Unreachable);
        assert_eq!(start.elapsed().as_secs(), ATTEMPT_TIMEOUT.as_secs());
        assert!(Chain(&failed).to_string().contains("timeout"), "{}", Chain(&failed));
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_of_the_user_are_respected() {
        let theirs = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(90)).build();
        let canned = Canned::new([]);
        let service = SdkService::new(&canned.config().timeout_config(theirs).build());
        let start = Instant::now();
        service.read("i", 1).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 90);

        let connect = TimeoutConfig::builder().connect_timeout(Duration::from_secs(1)).build();
        let merged = timeouts(&canned.config().timeout_config(connect).build(), ATTEMPT_TIMEOUT);
        assert_eq!(merged.connect_timeout(), Some(Duration::from_secs(1)));
        assert_eq!(merged.operation_attempt_timeout(), Some(ATTEMPT_TIMEOUT));
        let disabled = timeouts(&canned.config().timeout_config(TimeoutConfig::disabled()).build(), ATTEMPT_TIMEOUT);
        assert_eq!(disabled.operation_attempt_timeout(), None);
    }
}
