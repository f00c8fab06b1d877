//! Bad input and bad environments: each yields one typed error, as early as possible, that says what to do.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{error::Error, net::TcpListener};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::{SharedCredentialsProvider, future::ProvideCredentials as Providing};
use aws_sdk_kinesis::{
    error::{ProvideErrorMetadata, SdkError},
    operation::describe_stream_summary::DescribeStreamSummaryError,
};
use kinesis_stream::{
    Action, ConnectedKinesisBroker, ErrorClass, FailureKind, KinesisBroker, KinesisError, KinesisPosition,
    KinesisStream, Outgoing, Subscription,
};
use kinesis_stream_support::{AwsError, Emulator, Harness, Op, chain};
use tokio::time::{Duration, timeout};

const STREAM: &str = "stream";

async fn kinesis() -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    kinesis
}

fn broker(harness: &Harness) -> KinesisBroker {
    KinesisBroker::new().endpoint(harness.endpoint()).test_credentials()
}

async fn connected(harness: &Harness) -> ConnectedKinesisBroker {
    broker(harness).connect().await.unwrap()
}

/// The error of a failing subscribe.
async fn refusal(broker: &ConnectedKinesisBroker, stream: impl Into<KinesisStream>) -> KinesisError {
    match broker.subscribe(stream).await {
        Ok(_) => panic!("subscribe must fail"),
        Err(error) => error,
    }
}

/// Asserts that the error can be cloned, sent to other threads and logged.
#[track_caller]
fn is_fit(error: &KinesisError) {
    fn is_cheap<T: Error + Clone + Send + Sync + 'static>(error: &T) -> String {
        error.clone().to_string()
    }
    let text = is_cheap(error);
    assert!(!text.contains('\n') && text.len() < 400, "{text}");
}

/// What an `Invalid` error rejected, and why.
#[track_caller]
fn invalid(error: &KinesisError) -> (&'static str, &str) {
    is_fit(error);
    assert_eq!(error.class(), ErrorClass::Fatal);
    match error {
        KinesisError::Invalid { what, problem, .. } => (what, problem),
        other => panic!("{other}"),
    }
}

// L3
#[tokio::test]
async fn wrong_credentials_fail_the_start_with_an_error_that_names_the_call_and_the_stream() {
    for code in ["AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException"] {
        let kinesis = kinesis().await;
        kinesis.faults().on(Op::DescribeStreamSummary).fail(AwsError::rejected(code));
        let error = refusal(&connected(&kinesis).await, STREAM).await;
        is_fit(&error);
        let text = error.to_string();
        let KinesisError::Denied { action, stream, source, .. } = error else { panic!("{error}") };
        assert_eq!((action, &*stream, source.kind()), (Action::DescribeStreamSummary, STREAM, FailureKind::Denied));
        assert_eq!(text, "access denied: kinesis:DescribeStreamSummary on stream stream");
        assert_eq!(
            source.to_string(),
            format!("kinesis:DescribeStreamSummary failed: {code}: injected by the fault layer")
        );
        assert_eq!(kinesis.faults().count(Op::ListShards), 0);
    }
}

// L3, P1
#[tokio::test]
async fn a_publisher_without_permission_gets_an_access_denied_error() {
    let kinesis = kinesis().await;
    kinesis.faults().on(Op::PutRecord).fail(AwsError::ACCESS_DENIED);
    let publisher = connected(&kinesis).await.publisher();
    let error = publisher.publish(STREAM, Outgoing::new("key", "payload")).await.unwrap_err();
    is_fit(&error);
    assert!(matches!(error, KinesisError::Denied { action: Action::PutRecord, .. }), "{error}");
}

fn config(endpoint: &str) -> aws_types::sdk_config::Builder {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint)
}

// L3
#[tokio::test]
async fn connecting_fails_without_credentials() {
    let error = KinesisBroker::from_config(config("http://127.0.0.1:1").build()).connect().await.unwrap_err();
    assert_eq!(invalid(&error), ("credentials", "the SdkConfig holds no credentials provider"));
}

// L3
#[tokio::test]
async fn connecting_fails_with_a_call_timeout_out_of_range() {
    for limit in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(3_601), Duration::MAX] {
        let broker = KinesisBroker::new().endpoint("http://127.0.0.1:1").test_credentials().call_timeout(limit);
        let error = broker.connect().await.unwrap_err();
        assert_eq!(invalid(&error), ("call_timeout", format!("1 ms to 1 h; given: {limit:?}").as_str()));
    }
}

// L3
#[tokio::test]
async fn connecting_with_an_empty_configuration_fails_without_a_panic() {
    let error = KinesisBroker::from_config(SdkConfig::builder().build()).connect().await.unwrap_err();
    assert_eq!(invalid(&error).0, "region");
}

// L3
#[tokio::test]
async fn connecting_fails_with_an_endpoint_that_is_not_a_url() {
    let error = KinesisBroker::new().endpoint("localhost:4566").test_credentials().connect().await.unwrap_err();
    let (what, problem) = invalid(&error);
    assert!(what == "endpoint" && problem.contains("localhost:4566"), "{error}");
}

/// A provider without credentials, as on a machine without a profile.
#[derive(Debug)]
struct Empty;

impl aws_credential_types::provider::ProvideCredentials for Empty {
    fn provide_credentials<'a>(&'a self) -> Providing<'a>
    where
        Self: 'a,
    {
        let none = aws_credential_types::provider::error::CredentialsError::not_loaded("no profile, no environment");
        Providing::ready(Err(none))
    }
}

// L3
#[tokio::test]
async fn unavailable_credentials_fail_the_start_before_any_call_is_sent() {
    let kinesis = kinesis().await;
    kinesis.faults().clear();
    let config = config(&kinesis.endpoint()).credentials_provider(SharedCredentialsProvider::new(Empty)).build();
    let broker = KinesisBroker::from_config(config).connect().await.unwrap();
    // The start waits for credentials for a minute.
    tokio::time::pause();
    let error = refusal(&broker, STREAM).await;
    is_fit(&error);
    assert!(matches!(error, KinesisError::Denied { .. }), "{error}");
    assert!(chain(&error).contains("no profile, no environment"), "{}", chain(&error));
    assert_eq!(kinesis.faults().count(Op::DescribeStreamSummary), 0);
}

// L4
#[tokio::test]
async fn the_error_for_a_missing_stream_names_it() {
    let kinesis = kinesis().await;
    let broker = connected(&kinesis).await;
    let error = refusal(&broker, "nowhere").await;
    is_fit(&error);
    let KinesisError::Stream { stream, source, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (&**stream, source.kind(), source.action()),
        ("nowhere", FailureKind::NotFound, Action::DescribeStreamSummary)
    );
    let error = broker.publisher().publish("nowhere", Outgoing::new("key", "payload")).await.unwrap_err();
    assert!(matches!(&error, KinesisError::Stream { stream, .. } if &**stream == "nowhere"), "{error}");
    // A failed start leaves no trace.
    refusal(&broker, "nowhere").await;
    drop(broker.subscribe(STREAM).await.unwrap());
}

// L4
#[tokio::test]
async fn a_denied_create_stream_is_reported_as_a_denial_of_that_call() {
    let kinesis = kinesis().await;
    kinesis.faults().on(Op::CreateStream).fail(AwsError::ACCESS_DENIED);
    let error = refusal(&connected(&kinesis).await, KinesisStream::new("nowhere").create_if_missing(1)).await;
    is_fit(&error);
    assert!(matches!(error, KinesisError::Denied { action: Action::CreateStream, .. }), "{error}");
}

// L4
#[tokio::test]
async fn an_unreachable_endpoint_fails_the_start_in_bounded_time() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let broker = KinesisBroker::new().endpoint(endpoint).test_credentials().connect().await.unwrap();
    let error = timeout(Duration::from_secs(30), refusal(&broker, STREAM)).await.expect("subscribe gives up in time");
    is_fit(&error);
    let KinesisError::Service { stream, source, .. } = &error else { panic!("{error}") };
    assert_eq!((&**stream, source.kind()), (STREAM, FailureKind::Unreachable));
    assert!(chain(&error).contains("Connection refused"), "{}", chain(&error));
}

// L4, S2
#[tokio::test]
async fn a_descriptor_out_of_range_is_rejected_before_any_call() {
    let kinesis = kinesis().await;
    let broker = connected(&kinesis).await;
    kinesis.faults().clear();
    let stream = || KinesisStream::new(STREAM);
    let table = [
        (KinesisStream::new(""), "stream name"),
        (KinesisStream::new("no spaces"), "stream name"),
        (KinesisStream::new("x".repeat(129)), "stream name"),
        (stream().create_if_missing(0), "create_if_missing"),
        (stream().read_limit(10_001), "read_limit"),
        (stream().max_in_flight(0), "max_in_flight"),
        (stream().lease_ttl(Duration::from_secs(1)), "lease_ttl"),
    ];
    for (descriptor, what) in table {
        let error = refusal(&broker, descriptor).await;
        assert_eq!(invalid(&error).0, what);
    }
    assert_eq!(kinesis.faults().count(Op::DescribeStreamSummary), 0);
}

// R6
#[tokio::test]
async fn a_timestamp_in_the_future_of_the_service_is_rejected_before_any_shard_is_listed() {
    let kinesis = kinesis().await;
    let broker = connected(&kinesis).await;
    kinesis.faults().clear();
    let stream = || KinesisStream::new(STREAM);
    let table = [
        (stream().start_at(KinesisPosition::timestamp(i64::MAX)), "start_at"),
        (stream().initial_position(KinesisPosition::timestamp(32_503_680_000_000)), "initial_position"),
    ];
    for (descriptor, what) in table {
        let error = refusal(&broker, descriptor).await;
        assert_eq!(invalid(&error).0, what);
    }
    // The response of each describe tells the service's time.
    assert_eq!((kinesis.faults().count(Op::DescribeStreamSummary), kinesis.faults().count(Op::ListShards)), (2, 0));
}

// L4
#[tokio::test]
async fn connecting_fails_with_an_empty_owner_or_consumer_name() {
    let harness = Harness::at("http://127.0.0.1:1");
    let error = broker(&harness).owner_id("").connect().await.unwrap_err();
    assert_eq!(invalid(&error).0, "owner_id");
    let error = broker(&harness).consumer("").connect().await.unwrap_err();
    assert_eq!(invalid(&error).0, "consumer");
}

// L4
#[tokio::test]
async fn a_broker_subscribes_to_a_stream_once_at_a_time() {
    let kinesis = kinesis().await;
    let broker = connected(&kinesis).await;
    let first = broker.subscribe(STREAM).await.unwrap();
    let error = refusal(&broker, STREAM).await;
    is_fit(&error);
    assert!(matches!(&error, KinesisError::AlreadySubscribed { stream, .. } if &**stream == STREAM), "{error}");
    drop(first);
    let second = broker.subscribe(STREAM).await.unwrap();
    assert!(matches!(refusal(&broker, STREAM).await, KinesisError::AlreadySubscribed { .. }));
    second.close().await;
    let third = broker.subscribe(STREAM).await.unwrap();
    // Another broker is an independent reader.
    let _other: Subscription = connected(&kinesis).await.subscribe(STREAM).await.unwrap();
    drop(third);
}

// L4
#[tokio::test]
async fn a_cancelled_start_makes_room_for_another() {
    let kinesis = kinesis().await;
    let broker = connected(&kinesis).await;
    for op in [Op::DescribeStreamSummary, Op::ListShards, Op::GetShardIterator] {
        kinesis.faults().clear();
        let held = kinesis.faults().on(op).hold();
        tokio::select! {
            _ = broker.subscribe(STREAM) => panic!("{op:?} must not be answered"),
            () = kinesis.faults().called(op, 1) => {}
        }
        held.lift();
        let patience = Duration::from_secs(30);
        let again = timeout(patience, broker.subscribe(STREAM)).await.expect("the cancelled start made room");
        again.unwrap().close().await;
    }
}

// L7
#[tokio::test]
async fn shutting_down_does_not_wait_for_a_start_in_progress() {
    let kinesis = kinesis().await;
    let broker = broker(&kinesis);
    let (starting, other) = (broker.clone().connect().await.unwrap(), broker.connect().await.unwrap());
    let held = kinesis.faults().on(Op::DescribeStreamSummary).hold();
    let start = async {
        let error = refusal(&starting, KinesisStream::new("later").create_if_missing(1)).await;
        assert!(matches!(error, KinesisError::NotConnected), "{error}");
    };
    let stop = async {
        kinesis.faults().called(Op::DescribeStreamSummary, 1).await;
        other.shutdown().await;
    };
    timeout(Duration::from_secs(30), async { tokio::join!(start, stop) }).await.expect("both end in time");
    held.lift();
}

// S2, P1
#[tokio::test]
async fn a_record_over_the_limits_is_rejected_before_any_call() {
    let kinesis = kinesis().await;
    let publisher = connected(&kinesis).await.publisher();
    kinesis.faults().clear();
    let ten_mib = vec![0; 10 << 20];
    let table = [
        ("no such name", Outgoing::new("key", "payload"), "stream name"),
        ("", Outgoing::new("key", "payload"), "stream name"),
        (STREAM, Outgoing::new("", "payload"), "partition key"),
        (STREAM, Outgoing::new("k".repeat(257), "payload"), "partition key"),
        (STREAM, Outgoing::new("k", ten_mib.clone()), "record size"),
        (STREAM, Outgoing::new("k", ten_mib[..ten_mib.len() - 1].to_vec()).header("h", "v"), "record size"),
    ];
    for (stream, record, what) in table {
        let error = publisher.publish(stream, record).await.unwrap_err();
        assert_eq!(invalid(&error).0, what);
    }
    assert_eq!(kinesis.faults().count(Op::PutRecord), 0);
}

// L2, L7
#[tokio::test]
async fn a_publisher_works_only_between_connect_and_shutdown_and_says_so() {
    let kinesis = kinesis().await;
    let broker = broker(&kinesis);
    let early = broker.publisher();
    let error = early.publish(STREAM, Outgoing::new("key", "payload")).await.unwrap_err();
    is_fit(&error);
    assert!(matches!(error, KinesisError::NotConnected), "{error}");
    assert_eq!(kinesis.faults().count(Op::PutRecord), 0);

    let clone = broker.clone();
    let connected = broker.connect().await.unwrap();
    early.publish(STREAM, Outgoing::new("key", "payload")).await.unwrap();
    clone.publisher().publish(STREAM, Outgoing::new("key", "payload")).await.unwrap();

    connected.shutdown().await;
    for publisher in [early, clone.publisher()] {
        let error = publisher.publish(STREAM, Outgoing::new("key", "payload")).await.unwrap_err();
        assert!(matches!(error, KinesisError::NotConnected), "{error}");
    }
    assert!(matches!(clone.connect().await, Err(KinesisError::NotConnected)));
    assert_eq!(kinesis.faults().count(Op::PutRecord), 2);
}

// L7
#[tokio::test]
async fn a_connected_clone_cannot_subscribe_after_shutdown() {
    let kinesis = kinesis().await;
    let broker = broker(&kinesis);
    let (one, other) = (broker.clone().connect().await.unwrap(), broker.connect().await.unwrap());
    one.shutdown().await;
    assert!(matches!(refusal(&other, STREAM).await, KinesisError::NotConnected));
}

// X3
#[tokio::test]
async fn the_source_chain_of_an_error_leads_to_the_sdk_error() {
    let kinesis = kinesis().await;
    let error = refusal(&connected(&kinesis).await, "nowhere").await;
    let failure = error.source().expect("what failed");
    let sdk = failure.source().expect("the error of the SDK");
    let sdk = sdk.downcast_ref::<SdkError<DescribeStreamSummaryError, aws_sdk_kinesis::config::http::HttpResponse>>();
    let sdk = sdk.expect("the error of this call");
    assert!(sdk.as_service_error().unwrap().is_resource_not_found_exception());
    assert_eq!(sdk.code(), Some("ResourceNotFoundException"));
    // A clone has the same source.
    assert!(error.clone().source().and_then(Error::source).is_some());
}

// L3
#[tokio::test]
async fn an_endpoint_takes_precedence_over_the_one_of_an_sdk_config() {
    let kinesis = kinesis().await;
    let broker = KinesisBroker::from_config(config("http://127.0.0.1:1").build()).endpoint(kinesis.endpoint());
    let broker = broker.test_credentials().connect().await.unwrap();
    broker.publisher().publish(STREAM, Outgoing::new("key", "payload")).await.unwrap();
    assert_eq!(kinesis.faults().count(Op::PutRecord), 1);
}
