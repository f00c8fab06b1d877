//! The consumer in this process, whose subscription is dropped again and again if that is asked for.

use std::{future::pending, sync::Arc};

use kinesis_stream::{CloseReport, ConnectedKinesisBroker, prelude::*};
use tokio::select;
use tokio_util::sync::CancellationToken;

use crate::{
    archive::Archive,
    books::Books,
    consumer::{self, PATIENCE, caught_up},
    failure::Failure,
    options::Options,
    summary::Consumed,
};

/// What is to be done, and with what.
pub(crate) struct Job<'a> {
    pub(crate) broker: &'a ConnectedKinesisBroker,
    pub(crate) options: &'a Options,
    pub(crate) archive: &'a Arc<Archive>,
    pub(crate) books: &'a Books,
    pub(crate) run: &'a Arc<str>,
    pub(crate) interrupted: &'a CancellationToken,
}

/// How a subscription ended.
enum Ended {
    /// In good order.
    Closed(CloseReport),
    /// It was dropped in the middle of its work.
    Dropped,
}

impl Job<'_> {
    pub(crate) async fn subscribe(&self) -> Result<Subscription, KinesisError> {
        self.broker.subscribe(self.options.descriptor()).await
    }

    /// Consumes until every event is settled, over as many subscriptions as that takes. The leases stay with the broker,
    /// so each goes on where the one before it had come to.
    pub(crate) async fn consume(&self, mut subscription: Subscription) -> Result<Consumed, Failure> {
        let mut restarts = 0;
        loop {
            match self.archive_all(subscription).await? {
                Ended::Closed(report) => return Ok(Consumed::closed(&report, restarts)),
                Ended::Dropped => self.books.dropped(),
            }
            restarts += 1;
            subscription = self.subscribe().await?;
        }
    }

    async fn archive_all(&self, subscription: Subscription) -> Result<Ended, Failure> {
        let stats = subscription.stats_handle();
        let closing = async {
            select! {
                () = self.books.complete().then(|()| caught_up(&stats)) => {}
                () = self.books.idle(PATIENCE) => {}
                () = self.interrupted.cancelled() => {}
            }
        };
        select! {
            biased;
            ended = consumer::archive_all(subscription, self.run, self.archive, closing) => ended.map(Ended::Closed),
            () = self.restart() => Ok(Ended::Dropped),
        }
    }

    /// Waits until this subscription has settled its share.
    async fn restart(&self) {
        let Some(after) = self.options.restart_after else { return pending().await };
        self.books.settled_since_start(after.get()).await;
        if self.interrupted.is_cancelled() {
            pending::<()>().await;
        }
    }
}
