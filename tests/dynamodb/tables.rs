//! Tables that are missing, created, denied, unreachable or throttled.

use std::error::Error;

use aws_config::{Region, SdkConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_sdk_dynamodb::types::{BillingMode, KeyType, ScalarAttributeType};
use kinesis_stream::{DynamoDbLeaseStore, KinesisBroker, KinesisError, LeaseStore, StoreError, StoreErrorKind, Write};
use kinesis_stream_support::{AwsError, Faults, Op, chain};
use serde_json::json;
use tokio::time::Duration;

use crate::lease_table::{CONSUMER, LeaseTable, STREAM, held, lease, taken, taking};

async fn failed(store: &DynamoDbLeaseStore) -> StoreError {
    let error = store.leases(CONSUMER, STREAM).await.unwrap_err();
    assert!(error.source().is_some(), "the error keeps its cause: {error}");
    error
}

async fn failure(store: &DynamoDbLeaseStore) -> String {
    failed(store).await.to_string()
}

#[tokio::test]
async fn the_error_for_a_missing_table_names_it_and_says_what_to_do() {
    let table = LeaseTable::bare();
    assert_eq!(failed(&table.store()).await.kind(), StoreErrorKind::Unusable);
    let error = failure(&table.store()).await;
    assert!(error.starts_with(&format!("table {:?}, Scan failed: ResourceNotFoundException", table.name)), "{error}");
    assert!(error.contains("no such table in region \"us-east-1\": look at the region, create the table"), "{error}");
    assert!(error.ends_with("create_if_missing()"), "{error}");
    let error = table.store().renew(&held("one", 1)).await.unwrap_err().to_string();
    assert!(error.contains(", row \"default/orders/shardId-000000000002\": GetItem failed: "), "{error}");
}

#[tokio::test]
async fn errors_for_denied_throttled_and_unreachable_tables_say_what_to_do() {
    let table = LeaseTable::new().await;
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
        let error = failed(&table.once_through(&faults)).await;
        let is_unusable = fault == AwsError::ACCESS_DENIED;
        assert_eq!(error.kind() == StoreErrorKind::Unusable, is_unusable, "{error}");
        let error = error.to_string();
        assert!(error.starts_with(&format!("table {:?}, Scan failed: {code}", table.name)), "{error}");
        assert!(error.ends_with(end), "{error}");
    }
    let unreachable = DynamoDbLeaseStore::new("leases").unwrap().endpoint("http://127.0.0.1:1").test_credentials();
    let error = failed(&unreachable).await;
    assert!(error.to_string().ends_with("the endpoint and the region (us-east-1)"), "{error}");
    assert!(chain(&error).contains("Connection refused"), "{}", chain(&error));
}

// L4
#[tokio::test]
async fn a_table_with_another_key_is_unusable_and_the_error_names_the_key_that_is_needed() {
    let table = LeaseTable::bare();
    table.server.create_table(&table.name, "id").await;
    let needed = "the table has another key: give the leases a table whose only key is \"leaseKey\", a string (HASH), \
                  as the documentation of DynamoDbLeaseStore shows";
    // A scan succeeds on a table with any key, so the first take tells.
    let error = table.store().take(&taking("one", None)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    let start =
        format!("table {:?}, row \"default/orders/shardId-000000000002\": UpdateItem failed: Validation", table.name);
    assert!(error.to_string().starts_with(&start), "{error}");
    assert!(error.to_string().ends_with(needed), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_stores_at_once_create_the_table_with_the_kcls_schema() {
    let table = LeaseTable::bare();
    let stores: Vec<_> = (0..10).map(|_| table.store().create_if_missing()).collect();
    let taken = futures::future::join_all(stores.iter().map(async |store| {
        let rows = store.leases(CONSUMER, STREAM).await.unwrap().rows;
        assert!(rows.len() <= 1);
        store.take(&taking("one", None)).await.unwrap()
    }));
    let applied = taken.await.into_iter().filter(|answer| matches!(answer, Write::Applied(_))).count();
    assert_eq!(applied, 1);
    let made = table.server.client().describe_table().table_name(&table.name).send().await.unwrap().table.unwrap();
    let keys: Vec<_> = made.key_schema().iter().map(|key| (key.attribute_name(), key.key_type().clone())).collect();
    assert_eq!(keys, [("leaseKey", KeyType::Hash)]);
    let types: Vec<_> =
        made.attribute_definitions().iter().map(|key| (key.attribute_name(), key.attribute_type().clone())).collect();
    assert_eq!(types, [("leaseKey", ScalarAttributeType::S)]);
    assert_eq!(made.billing_mode_summary().and_then(|mode| mode.billing_mode()), Some(&BillingMode::PayPerRequest));
}

#[tokio::test]
async fn create_if_missing_costs_no_call_if_the_table_exists() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.through(&faults).create_if_missing();
    store.leases(CONSUMER, STREAM).await.unwrap();
    assert_eq!((faults.count(Op::DescribeTable), faults.count(Op::CreateTable), faults.count(Op::Scan)), (0, 0, 1));
}

#[tokio::test]
async fn creation_survives_cancelled_and_failed_calls() {
    let table = LeaseTable::bare();
    let faults = Faults::default();
    let creating = faults.on(Op::DescribeTable).edit(|answer| answer["Table"]["TableStatus"] = "CREATING".into());
    // Other calls do not find a table that is not active.
    let unseen = faults.on(Op::Scan).fail(AwsError::NOT_FOUND);
    let store = table.through(&faults).create_if_missing();
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
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap().rows, []);
    taken(&store, "one").await;
    assert_eq!(lease(&store).await.epoch, 1);
}

#[tokio::test]
async fn a_table_that_is_deleted_in_use_is_not_created_again() {
    let table = LeaseTable::bare();
    let store = table.store().create_if_missing();
    let one = taken(&store, "one").await;
    table.server.client().delete_table().table_name(&table.name).send().await.unwrap();
    let error = store.renew(&one).await.unwrap_err().to_string();
    assert!(error.contains("no such table"), "{error}");
}

// L2, L3
#[tokio::test]
async fn a_store_is_built_without_io_and_connects_at_the_first_call() {
    let table = LeaseTable::bare();
    let store = DynamoDbLeaseStore::new(table.name.as_str())
        .unwrap()
        .endpoint(table.server.endpoint())
        .test_credentials()
        .region("eu-central-1")
        .create_if_missing();
    drop(KinesisBroker::new().lease_store(store.clone()));
    // The emulator shares tables between regions, other servers do not.
    taken(&store, "one").await;
    assert_eq!(lease(&store).await.owner.as_deref(), Some("one"));
    assert!(format!("{store:?}").contains(&table.name));
}

#[tokio::test]
async fn a_configuration_error_is_retried_at_the_next_call() {
    let store = DynamoDbLeaseStore::new("leases").unwrap().endpoint("not a url").test_credentials();
    for _ in 0..2 {
        let error = chain(&failed(&store).await);
        assert!(error.starts_with("the configuration for DynamoDB cannot be used: invalid endpoint: "), "{error}");
    }
}

// L3
#[tokio::test]
async fn an_unusable_configuration_is_rejected_before_any_call() {
    let invalid = |made: Result<DynamoDbLeaseStore, KinesisError>| match made {
        Err(KinesisError::Invalid { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(invalid(DynamoDbLeaseStore::new("a/b")), "lease table");
    assert_eq!(invalid(DynamoDbLeaseStore::from_config("leases", SdkConfig::builder().build())), "region");
    let regional = || SdkConfig::builder().region(Region::from_static("us-east-1"));
    assert_eq!(invalid(DynamoDbLeaseStore::from_config("leases", regional().build())), "credentials");

    let table = LeaseTable::new().await;
    let keys = Credentials::new("test", "test", None, None, "test");
    let enough = regional().credentials_provider(SharedCredentialsProvider::new(keys));
    let enough = enough.endpoint_url(table.server.endpoint()).build();
    let store = DynamoDbLeaseStore::from_config(table.name.as_str(), enough).unwrap();
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap().rows, []);
}

#[tokio::test]
async fn a_hanging_call_is_retried_after_a_second() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    faults.on(Op::Scan).first(1).hang();
    let keys = Credentials::new("test", "test", None, None, "test");
    let config = SdkConfig::builder()
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .endpoint_url(table.server.endpoint())
        .http_client(faults.http_client())
        .build();
    let store = DynamoDbLeaseStore::from_config(table.name.as_str(), config).unwrap();
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap().rows, []);
    let calls = faults.calls(Op::Scan);
    assert!(calls[1].at() - calls[0].at() >= Duration::from_secs(1));
}

// E1
#[tokio::test]
async fn a_scan_that_repeats_its_place_is_an_error() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.once_through(&faults);
    faults.on(Op::Scan).edit(|answer| answer["LastEvaluatedKey"] = json!({ "leaseKey": { "S": "x" } }));
    let error = store.leases(CONSUMER, STREAM).await.unwrap_err().to_string();
    assert!(error.ends_with("Scan failed: it has no end, since page 2 ends where it began"), "{error}");
}

// E1
#[tokio::test]
async fn a_page_of_the_scan_that_fails_is_repeated_and_the_pages_before_it_are_kept() {
    let table = LeaseTable::new().await;
    taken(&table.store(), "one").await;
    let faults = Faults::default();
    let store = table.once_through(&faults);
    let last = "default/orders/shardId-000000000002";
    faults.on(Op::Scan).nth(1).edit(move |answer| answer["LastEvaluatedKey"] = json!({ "leaseKey": { "S": last } }));
    faults.on(Op::Scan).nth(2).fail(AwsError::THROTTLED);
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap().rows.len(), 1);
    let starts: Vec<_> = faults.calls(Op::Scan).iter().map(|call| call.body()["ExclusiveStartKey"].clone()).collect();
    let from = json!({ "leaseKey": { "S": last } });
    assert_eq!(starts, [json!(null), from.clone(), from]);
}
