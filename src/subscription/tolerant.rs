//! A subscription that hides the errors the library handles.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{Stream, stream::FusedStream};

use super::{close::Closer, seek::Seeker, stats_handle::StatsHandle, stream::Subscription};
use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError},
    state::stats::SubscriptionStats,
};

/// A subscription without the errors that the library handles: see [`Subscription::tolerant`].
///
/// It yields the same deliveries as the [`Subscription`] and ends when that ends. The errors that remain are of the
/// classes [`Record`](crate::ErrorClass::Record), [`Lasting`](crate::ErrorClass::Lasting) and
/// [`Fatal`](crate::ErrorClass::Fatal).
#[must_use = "streams do nothing unless polled"]
pub struct Tolerant<F = fn(&KinesisError)> {
    subscription: Subscription,
    hidden: F,
}

impl Subscription {
    /// Hides the errors that the library handles ([`Transient`](crate::ErrorClass::Transient) and
    /// [`Loss`](crate::ErrorClass::Loss)) and logs each as a warning, so that a `try_` pipeline ends only on errors
    /// that need you. [`SubscriptionStats::errors`](crate::SubscriptionStats::errors) counts them.
    pub fn tolerant(self) -> Tolerant {
        Tolerant { subscription: self, hidden: |_| () }
    }

    /// Like [`tolerant`](Self::tolerant), and `hidden` sees each error that it hides: to count, to alert, to take note
    /// of a loss. It is called while the stream is polled, so it must not block.
    ///
    /// ```
    /// use kinesis_stream::prelude::*;
    ///
    /// async fn consume(quakes: Subscription) -> Result<(), KinesisError> {
    ///     let note = |error: &KinesisError| {
    ///         if error.class() == ErrorClass::Loss {
    ///             eprintln!("read the records again from the archive: {error}");
    ///         }
    ///     };
    ///     quakes.tolerant_with(note).try_for_each_concurrent(64, async |quake| quake.commit().await.map(drop)).await
    /// }
    /// ```
    pub fn tolerant_with<F: FnMut(&KinesisError)>(self, hidden: F) -> Tolerant<F> {
        Tolerant { subscription: self, hidden }
    }
}

impl<F> Tolerant<F> {
    /// The subscription inside.
    pub fn get_ref(&self) -> &Subscription {
        &self.subscription
    }

    /// The subscription, which yields all its errors again.
    pub fn into_inner(self) -> Subscription {
        self.subscription
    }

    /// See [`Subscription::stats`].
    #[must_use]
    pub fn stats(&self) -> SubscriptionStats {
        self.subscription.stats()
    }

    /// See [`Subscription::stats_handle`].
    #[must_use]
    pub fn stats_handle(&self) -> StatsHandle {
        self.subscription.stats_handle()
    }

    /// See [`Subscription::seeker`].
    #[must_use]
    pub fn seeker(&self) -> Seeker {
        self.subscription.seeker()
    }

    /// See [`Subscription::closer`].
    #[must_use]
    pub fn closer(&self) -> Closer {
        self.subscription.closer()
    }
}

/// Nothing in it is pinned.
impl<F> Unpin for Tolerant<F> {}

impl<F: FnMut(&KinesisError)> Stream for Tolerant<F> {
    type Item = Result<Delivery, KinesisError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { subscription, hidden } = self.get_mut();
        subscription.poll_item(cx, |error| {
            let hides = matches!(error.class(), ErrorClass::Transient | ErrorClass::Loss);
            if hides {
                hidden(error);
            }
            hides
        })
    }
}

impl<F: FnMut(&KinesisError)> FusedStream for Tolerant<F> {
    fn is_terminated(&self) -> bool {
        self.subscription.is_terminated()
    }
}

impl<F> fmt::Debug for Tolerant<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tolerant").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}
