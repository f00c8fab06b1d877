//! The consumer in this process. With `--restart-after` it drops its subscription again and again.

use std::{future::pending, sync::Arc};

use kinesis_stream::{CloseReport, ConnectedKinesisBroker, prelude::*};
use tokio::select;
use tokio_util::sync::CancellationToken;

use crate::{
    archive::Archive,
    consumer::{self, PATIENCE, caught_up},
    failure::Failure,
    options::Options,
    summary::Consumed,
    tracker::EventTracker,
};

/// A consuming job, and what it needs.
pub(crate) struct Job<'a> {
    pub(crate) broker: &'a ConnectedKinesisBroker,
    pub(crate) options: &'a Options,
    pub(crate) archive: &'a Arc<Archive>,
    pub(crate) tracker: &'a EventTracker,
    pub(crate) run: &'a Arc<str>,
    pub(crate) interrupted: &'a CancellationToken,
}

/// How a subscription ended.
enum Ended {
    /// Gracefully.
    Closed(CloseReport),
    /// Dropped in the middle of its work.
    Dropped,
}

impl Job<'_> {
    pub(crate) async fn subscribe(&self) -> Result<Subscription, KinesisError> {
        self.broker.subscribe(self.options.descriptor()).await
    }

    /// Consumes until every event is settled, with as many subscriptions as that takes. The leases stay with the
    /// broker, so each subscription resumes at the checkpoint of the previous one.
    pub(crate) async fn consume(&self, mut subscription: Subscription) -> Result<Consumed, Failure> {
        let mut restarts = 0;
        loop {
            match self.archive_all(subscription).await? {
                Ended::Closed(report) => return Ok(Consumed::closed(&report, restarts)),
                Ended::Dropped => self.tracker.dropped(),
            }
            restarts += 1;
            subscription = self.subscribe().await?;
        }
    }

    async fn archive_all(&self, subscription: Subscription) -> Result<Ended, Failure> {
        let stats = subscription.stats_handle();
        let closing = async {
            select! {
                () = self.tracker.complete().then(|()| caught_up(&stats)) => {}
                () = self.tracker.idle(PATIENCE) => {}
                () = self.interrupted.cancelled() => {}
            }
        };
        select! {
            biased;
            ended = consumer::archive_all(subscription, self.run, self.archive, closing) => ended.map(Ended::Closed),
            () = self.restart() => Ok(Ended::Dropped),
        }
    }

    /// Waits until this subscription has settled `--restart-after` records.
    async fn restart(&self) {
        let Some(after) = self.options.restart_after else { return pending().await };
        self.tracker.settled_since_start(after.get()).await;
        if self.interrupted.is_cancelled() {
            pending::<()>().await;
        }
    }
}
