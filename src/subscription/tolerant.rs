//! A subscription that hides the errors the library handles.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;

use super::stream::{Subscription, Tolerance};
use crate::{delivery::Delivery, error::KinesisError};

/// A subscription without the errors that the library handles: see [`Subscription::tolerant`].
///
/// It yields the same deliveries as the [`Subscription`] and ends when that ends. The errors that remain are of the
/// classes [`Record`](crate::ErrorClass::Record), [`Lasting`](crate::ErrorClass::Lasting) and
/// [`Fatal`](crate::ErrorClass::Fatal).
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Tolerant {
    pub(super) subscription: Subscription,
}

impl Subscription {
    /// Hides the errors that the library handles ([`Transient`](crate::ErrorClass::Transient) and
    /// [`Loss`](crate::ErrorClass::Loss)) and logs each as a warning, so that a `try_` pipeline ends only on errors
    /// that need you. [`SubscriptionStats::losses`](crate::SubscriptionStats::losses) counts the losses.
    pub fn tolerant(self) -> Tolerant {
        Tolerant { subscription: self.with_tolerance(Tolerance::Handled) }
    }
}

impl Tolerant {
    /// The subscription inside, for its handles.
    pub fn get_ref(&self) -> &Subscription {
        &self.subscription
    }

    /// The subscription, which yields all its errors again.
    pub fn into_inner(self) -> Subscription {
        self.subscription.with_tolerance(Tolerance::None)
    }
}

impl Stream for Tolerant {
    type Item = Result<Delivery, KinesisError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().subscription.poll_item(cx)
    }
}
