//! Parallel work that keeps the order of each key (A7).

use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt};
use tokio::time::{Duration, sleep, timeout};

use crate::{
    delivery::Delivery,
    error::KinesisError,
    simulation::harness::{Harness, horizon, name, seconds},
    subscription::Subscription,
    util::mutex::lock,
};

mod interruptions;
mod order;
mod random;
mod redeliveries;

/// The events of a test, each with its time.
#[derive(Clone, Debug, Default)]
struct History(Arc<Mutex<Vec<String>>>);

impl History {
    fn note(&self, harness: &Harness, what: &str) {
        // The first reads take some milliseconds.
        lock(&self.0).push(format!("{what} at {}", harness.millis() / 100 * 100));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// Works on a record for a second, then acknowledges it.
async fn second(delivery: Delivery, harness: &Harness, history: &History) -> Result<String, KinesisError> {
    let what = format!("{}#{}", name(&delivery), delivery.attempt());
    history.note(harness, &what);
    sleep(seconds(1)).await;
    delivery.ack();
    Ok(what)
}

/// All results within this time. Fails on an error.
async fn results<R>(of: &mut (impl Stream<Item = Result<R, KinesisError>> + Unpin), time: Duration) -> Vec<R> {
    let mut results = Vec::new();
    let all = async {
        while let Some(result) = of.next().await {
            results.push(result.unwrap());
        }
    };
    let _ = timeout(time, all).await;
    results
}

async fn on(harness: &Harness) -> Subscription {
    harness.instance("me").subscribe(horizon()).await
}
