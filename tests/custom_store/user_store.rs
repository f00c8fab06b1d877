//! The store of a user: the contract, checkpoints, an emptied table, lost answers.

use std::sync::Arc;

use kinesis_stream::{
    Commit, ErrorClass, KinesisError, MemoryLeaseStore,
    contract::{self, LostAnswer},
};

use crate::{SHARDS, fill, item, kinesis, quick, reading, table::Table, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_store_can_fulfil_the_contract() {
    contract::run(Arc::new(Table::default())).await;
}

// A3, R4
#[tokio::test]
async fn a_consumer_resumes_from_the_checkpoints_of_a_custom_store() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 6).await;
    let table = Table::default();
    for from in [0, 3] {
        let mut subscription = reading(&kinesis, table.clone(), quick()).await;
        for i in from..from + 3 {
            let delivery = item(&mut subscription).await.unwrap();
            assert_eq!(text(&delivery), i.to_string());
            assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
        }
        assert!(subscription.close().await.is_clean());
    }
}

// E2, X1
#[tokio::test]
async fn an_emptied_table_is_reported_and_filled_again() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 3).await;
    let table = Table::default();
    let mut subscription = reading(&kinesis, table.clone(), quick()).await;
    let held = item(&mut subscription).await.unwrap();
    table.delete_everything().await;
    let error = loop {
        match item(&mut subscription).await {
            Ok(delivery) => delivery.ack(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.class(), ErrorClass::Transient);
    assert!(matches!(error, KinesisError::LeaseLost { owner: None, epoch: 1, .. }), "{error}");
    assert_eq!(held.commit().await.unwrap(), Commit::Superseded);
    // No row tells how far it had read: every record since the opening is redelivered.
    for i in 0..3 {
        let delivery = item(&mut subscription).await.unwrap();
        assert_eq!(text(&delivery), i.to_string());
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
}

// E2, R13, A4
#[tokio::test]
async fn a_lost_answer_of_any_write_neither_loses_nor_repeats_a_record() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 6).await;
    for lost in 1..=8 {
        let memory = MemoryLeaseStore::new();
        let store = LostAnswer::new(Arc::new(memory.clone()), lost);
        let mut first = reading(&kinesis, store, quick()).await.tolerant();
        for i in 0..3 {
            let delivery = item(&mut first).await.unwrap();
            assert_eq!(text(&delivery), i.to_string(), "with the answer of write {lost} lost");
            assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
        }
        assert!(first.into_inner().close().await.is_clean());
        let mut second = reading(&kinesis, memory, quick()).await;
        for i in 3..6 {
            let delivery = item(&mut second).await.unwrap();
            assert_eq!(text(&delivery), i.to_string(), "with the answer of write {lost} lost");
            delivery.ack();
        }
    }
}
