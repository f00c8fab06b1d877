//! The recipes of the cookbook inside `tokio::spawn`, with state that their closures borrow or own. The compiler checks
//! that they are `Send` and `'static`; the emulator, that they do what the recipe says.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::sync::{Arc, Mutex};

use kinesis_stream::prelude::*;
use tokio::{
    task::JoinHandle,
    time::{Duration, timeout},
};

/// What a handler works with: not `Clone`, and changed through a reference.
#[derive(Default)]
struct Database {
    rows: Mutex<Vec<String>>,
}

impl Database {
    async fn insert(&self, row: &[u8]) -> Result<(), KinesisError> {
        tokio::task::yield_now().await;
        self.rows.lock().unwrap().push(String::from_utf8(row.to_vec()).unwrap());
        Ok(())
    }

    async fn insert_all<T: AsRef<[u8]>>(&self, rows: &[Delivery<T>]) -> Result<(), KinesisError> {
        for row in rows {
            self.insert(row.payload().as_ref()).await?;
        }
        Ok(())
    }
}

type Work = JoinHandle<Result<(), KinesisError>>;

fn chunks_behind_a_plain_map(quakes: Subscription, database: Arc<Database>) -> Work {
    tokio::spawn(async move {
        let database = &*database;
        quakes
            .tolerant()
            .map_ok(|quake| quake.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
            .chunks_timeout(500, Duration::from_millis(50))
            .map(|chunk| chunk.into_iter().collect::<Result<Vec<_>, KinesisError>>())
            .try_for_each(async |chunk| {
                database.insert_all(&chunk).await?;
                commit_all(chunk).await.map(drop)
            })
            .await
    })
}

fn chunks_behind_an_async_closure(quakes: Subscription, database: Arc<Database>) -> Work {
    tokio::spawn(async move {
        let database = &*database;
        quakes
            .tolerant()
            .and_then(async |quake| {
                database.insert(quake.payload()).await?;
                Ok(quake)
            })
            .chunks_timeout(500, Duration::from_millis(50))
            .map(|chunk| chunk.into_iter().collect::<Result<Vec<_>, KinesisError>>())
            .try_for_each(async |chunk| {
                database.insert_all(&chunk).await?;
                commit_all(chunk).await.map(drop)
            })
            .await
    })
}

fn try_chunks_behind_buffer_by_key(quakes: Subscription, database: Arc<Database>) -> Work {
    tokio::spawn(async move {
        let database = &*database;
        quakes
            .tolerant()
            .buffer_by_key(8, async |quake| {
                database.insert(quake.payload()).await?;
                Ok(quake)
            })
            .try_chunks_timeout(500, Duration::from_millis(50))
            .try_for_each(async |chunk| {
                database.insert_all(&chunk).await?;
                commit_all(chunk).await.map(drop)
            })
            .await
    })
}

fn batches_with_a_handler(quakes: Subscription, database: Arc<Database>) -> Work {
    tokio::spawn(async move {
        quakes.tolerant().batches(500)?.process(8, async |batch| database.insert_all(batch.deliveries()).await).await
    })
}
