//! Tables that are missing, made, forbidden, elsewhere or overrun.

use std::error::Error;

use aws_config::{Region, SdkConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_sdk_dynamodb::types::{BillingMode, KeyType, ScalarAttributeType};
use kinesis_stream::{DynamoDbLeaseStore, KinesisBroker, KinesisError, LeaseStore, StoreError, Write};
use kinesis_stream_support::{AwsError, Faults, Op, chain};
use tokio::time::Duration;

use crate::ground::{CONSUMER, Ground, STREAM, held, lease, taken, taking};

async fn failed(store: &DynamoDbLeaseStore) -> StoreError {
    let error = store.leases(CONSUMER, STREAM).await.unwrap_err();
    assert!(error.source().is_some(), "the cause is kept: {error}");
    error
}

async fn failure(store: &DynamoDbLeaseStore) -> String {
    failed(store).await.to_string()
}

#[tokio::test]
async fn a_missing_table_is_named_with_what_to_do() {
    let ground = Ground::bare();
    let error = failure(&ground.store()).await;
    assert!(error.starts_with(&format!("table {:?}, Scan failed: ResourceNotFoundException", ground.table)), "{error}");
    assert!(error.contains("no such table in region \"us-east-1\": look at the region, create the table"), "{error}");
    assert!(error.ends_with("create_if_missing()"), "{error}");
    let error = ground.store().renew(&held("one", 1)).await.unwrap_err().to_string();
    assert!(error.contains(", row \"default/orders/shardId-000000000002\": GetItem failed: "), "{error}");
}

#[tokio::test]
async fn what_is_forbidden_throttled_or_unreachable_is_said_with_what_to_do() {
    let ground = Ground::new().await;
    let cases = [
        (
            AwsError::ACCESS_DENIED,
            "AccessDeniedException",
            "it needs credentials that allow dynamodb:Scan on this table",
        ),
        (AwsError::THROTTLED, "ProvisionedThroughputExceededException", "bill it on demand, or provision more"),
        (AwsError::INTERNAL_FAILURE, "InternalFailure", "injected by the fault layer"),
    ];
    for (fault, code, end) in cases {
        let faults = Faults::default();
        faults.on(Op::Scan).fail(fault);
        let error = failure(&ground.once_through(&faults)).await;
        assert!(error.starts_with(&format!("table {:?}, Scan failed: {code}", ground.table)), "{error}");
        assert!(error.ends_with(end), "{error}");
    }
    let nobody = DynamoDbLeaseStore::new("leases").unwrap().endpoint("http://127.0.0.1:1").test_credentials();
    let error = failed(&nobody).await;
    assert!(error.to_string().ends_with("the endpoint and the region (us-east-1)"), "{error}");
    assert!(chain(&error).contains("Connection refused"), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_created_as_the_kcl_has_it_by_many_at_once() {
    let ground = Ground::bare();
    let stores: Vec<_> = (0..10).map(|_| ground.store().create_if_missing()).collect();
    let taken = futures::future::join_all(stores.iter().map(async |store| {
        let rows = store.leases(CONSUMER, STREAM).await.unwrap();
        assert!(rows.len() <= 1);
        store.take(&taking("one", None)).await.unwrap()
    }));
    let applied = taken.await.into_iter().filter(|answer| matches!(answer, Write::Applied(_))).count();
    assert_eq!(applied, 1);
    let made = ground.server.client().describe_table().table_name(&ground.table).send().await.unwrap().table.unwrap();
    let keys: Vec<_> = made.key_schema().iter().map(|key| (key.attribute_name(), key.key_type().clone())).collect();
    assert_eq!(keys, [("leaseKey", KeyType::Hash)]);
    let types: Vec<_> =
        made.attribute_definitions().iter().map(|key| (key.attribute_name(), key.attribute_type().clone())).collect();
    assert_eq!(types, [("leaseKey", ScalarAttributeType::S)]);
    assert_eq!(made.billing_mode_summary().and_then(|mode| mode.billing_mode()), Some(&BillingMode::PayPerRequest));
}

#[tokio::test]
async fn a_table_that_is_there_costs_no_call() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    let store = ground.through(&faults).create_if_missing();
    store.leases(CONSUMER, STREAM).await.unwrap();
    assert_eq!((faults.count(Op::DescribeTable), faults.count(Op::CreateTable), faults.count(Op::Scan)), (0, 0, 1));
}

#[tokio::test]
async fn creation_goes_on_through_calls_that_are_given_up_or_end_too_soon() {
    let ground = Ground::bare();
    let faults = Faults::default();
    let creating = faults.on(Op::DescribeTable).edit(|answer| answer["Table"]["TableStatus"] = "CREATING".into());
    // A table that is not active is not found by anything else.
    let unseen = faults.on(Op::Scan).fail(AwsError::NOT_FOUND);
    let store = ground.through(&faults).create_if_missing();
    let call = tokio::spawn({
        let store = store.clone();
        async move { store.leases(CONSUMER, STREAM).await }
    });
    faults.called(Op::DescribeTable, 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());

    let error = store.leases(CONSUMER, STREAM).await.unwrap_err().to_string();
    assert!(error.contains("is being created and not active yet"), "{error}");
    creating.lift();
    unseen.lift();
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap(), []);
    taken(&store, "one").await;
    assert_eq!(lease(&store).await.epoch, 1);
}

#[tokio::test]
async fn a_table_that_was_deleted_on_purpose_stays_deleted() {
    let ground = Ground::bare();
    let store = ground.store().create_if_missing();
    let one = taken(&store, "one").await;
    ground.server.client().delete_table().table_name(&ground.table).send().await.unwrap();
    let error = store.renew(&one).await.unwrap_err().to_string();
    assert!(error.contains("no such table"), "{error}");
}

// L2, L3
#[tokio::test]
async fn a_store_is_made_without_io_and_finds_its_way_at_the_first_call() {
    let ground = Ground::bare();
    let store = DynamoDbLeaseStore::new(ground.table.as_str())
        .unwrap()
        .endpoint(ground.server.endpoint())
        .test_credentials()
        .region("eu-central-1")
        .create_if_missing();
    drop(KinesisBroker::new().lease_store(store.clone()));
    // The emulator keeps the tables of all regions in one, others do not.
    taken(&store, "one").await;
    assert_eq!(lease(&store).await.owner.as_deref(), Some("one"));
    assert!(format!("{store:?}").contains(&ground.table));
}

#[tokio::test]
async fn a_chain_that_leads_nowhere_is_an_error_that_is_tried_again() {
    let store = DynamoDbLeaseStore::new("leases").unwrap().endpoint("not a url").test_credentials();
    for _ in 0..2 {
        let error = chain(&failed(&store).await);
        assert!(error.starts_with("the configuration for DynamoDB cannot be used: invalid endpoint: "), "{error}");
    }
}

// L3
#[tokio::test]
async fn what_cannot_be_used_is_refused_before_any_call() {
    let invalid = |made: Result<DynamoDbLeaseStore, KinesisError>| match made {
        Err(KinesisError::Invalid { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(invalid(DynamoDbLeaseStore::new("a/b")), "lease table");
    assert_eq!(invalid(DynamoDbLeaseStore::from_config("leases", SdkConfig::builder().build())), "region");
    let regional = || SdkConfig::builder().region(Region::from_static("us-east-1"));
    assert_eq!(invalid(DynamoDbLeaseStore::from_config("leases", regional().build())), "credentials");

    let ground = Ground::new().await;
    let keys = Credentials::new("test", "test", None, None, "test");
    let enough = regional().credentials_provider(SharedCredentialsProvider::new(keys));
    let enough = enough.endpoint_url(ground.server.endpoint()).build();
    let store = DynamoDbLeaseStore::from_config(ground.table.as_str(), enough).unwrap();
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap(), []);
}

#[tokio::test]
async fn a_call_that_hangs_is_tried_again_after_a_second() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    faults.on(Op::Scan).first(1).hang();
    let keys = Credentials::new("test", "test", None, None, "test");
    let config = SdkConfig::builder()
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .endpoint_url(ground.server.endpoint())
        .http_client(faults.http_client())
        .build();
    let store = DynamoDbLeaseStore::from_config(ground.table.as_str(), config).unwrap();
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap(), []);
    let calls = faults.calls(Op::Scan);
    assert!(calls[1].at() - calls[0].at() >= Duration::from_secs(1));
}
