//! The embedded DynamoDB, and faults on the client side.

use std::{collections::HashMap, net::TcpStream};

use aws_sdk_dynamodb::{Client, config::retry::RetryConfig, error::ProvideErrorMetadata, types::AttributeValue};
use kinesis_stream_support::{AwsError, DynamoDb, Faults, Op};

const TABLE: &str = "leases";

async fn server() -> DynamoDb {
    let server = DynamoDb::start();
    server.create_table(TABLE, "leaseKey").await;
    server
}

fn client(server: &DynamoDb, faults: &Faults) -> Client {
    let config = server.config().http_client(faults.http_client()).retry_config(RetryConfig::disabled());
    Client::from_conf(config.build())
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// Sets an attribute. Returns the error code if that fails.
async fn set(client: &Client, key: &str, to: &str) -> Result<(), String> {
    let update = client.update_item().table_name(TABLE).key("leaseKey", s(key));
    let update = update.update_expression("SET a = :a").expression_attribute_values(":a", s(to));
    let updated = update.send().await;
    updated.map(drop).map_err(|error| error.code().unwrap_or("none").to_owned())
}

#[tokio::test]
async fn the_server_keeps_items_and_stops_when_its_last_clone_is_dropped() {
    let server = server().await;
    let item = HashMap::from([("leaseKey".to_owned(), s("x")), ("a".to_owned(), s("1"))]);
    server.put(TABLE, item.clone()).await;
    assert_eq!(server.item(TABLE, "leaseKey", "x").await, item);
    let address = server.endpoint().replace("http://", "");
    drop(server.clone());
    assert!(TcpStream::connect(&address).is_ok());
    drop(server);
    assert!(TcpStream::connect(&address).is_err());
}

#[tokio::test]
async fn rules_match_the_calls_of_a_client_by_row_and_by_text() {
    let (server, faults) = (server().await, Faults::default());
    let client = client(&server, &faults);
    faults.on(Op::UpdateItem).shard("y").first(1).fail(AwsError::THROTTLED);
    let lost = faults.on(Op::UpdateItem).saying("lost").apply_then_fail(AwsError::INTERNAL_FAILURE);
    assert_eq!(set(&client, "c/s/x", "1").await, Ok(()));
    assert_eq!(set(&client, "c/s/y", "1").await, Err(AwsError::THROTTLED.code().to_owned()));
    assert_eq!(set(&client, "c/s/y", "1").await, Ok(()));
    assert_eq!(set(&client, "c/s/x", "lost").await, Err("InternalFailure".to_owned()));
    assert_eq!(server.item(TABLE, "leaseKey", "c/s/x").await["a"], s("lost"));
    let calls = faults.calls(Op::UpdateItem);
    let shards: Vec<_> = calls.iter().map(|call| (call.stream(), call.shard())).collect();
    assert_eq!(shards, ["x", "y", "y", "x"].map(|shard| (Some(TABLE), Some(shard))));
    assert_eq!(lost.hits(), 1);
}

#[tokio::test]
async fn a_sent_call_arrives_even_if_its_caller_cancels_it() {
    let (server, faults) = (server().await, Faults::default());
    let held = faults.on(Op::UpdateItem).hold();
    let late = client(&server, &faults);
    let call = tokio::spawn(async move { set(&late, "x", "late").await });
    faults.called(Op::UpdateItem, 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    held.lift();
    faults.idle().await;
    assert_eq!(server.item(TABLE, "leaseKey", "x").await["a"], s("late"));
}
