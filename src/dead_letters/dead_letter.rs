//! A dead letter: a record that was given up, and why. A value that both formats write, and that `parse` reads.

use std::sync::Arc;

use crate::{
    config::redelivery::Wish,
    error::KinesisError,
    state::{context::SubscriptionContext, events::Returned},
    types::record::Record,
};

/// A record that was given up, where it came from, and why: what the library writes to a
/// [`dead_letter`](crate::KinesisStream::dead_letter) stream.
///
/// Make one from a delivery or a record of that stream with `DeadLetter::try_from`, or from the bytes that another
/// program read with [`parse`](Self::parse). Each [format](crate::DeadLetterFormat) is recognized.
/// [`original`](Self::original) is the record to publish again:
///
/// ```
/// use kinesis_stream::{DeadLetter, prelude::*};
///
/// /// Publishes the records of one reason again, to the streams from which they came.
/// async fn redrive(letters: Subscription, publisher: Publisher) -> Result<(), KinesisError> {
///     let mut letters = letters.tolerant();
///     while let Some(delivery) = letters.try_next().await? {
///         let letter = DeadLetter::try_from(&delivery)?;
///         if letter.reason().contains("timed out") {
///             publisher.publish(letter.record().stream(), letter.original()).await?;
///         }
///         delivery.ack();
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub(crate) record: Record,
    pub(crate) consumer: Arc<str>,
    pub(crate) attempts: u32,
    pub(crate) rejected: bool,
    pub(crate) reason: Arc<str>,
}

impl DeadLetter {
    /// The original record: its payload, headers and partition key, and where it stood.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The consumer that gave it up.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// How often that consumer's instance delivered it. 0 if it was [too old](crate::KinesisStream::max_age) from the
    /// beginning.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether it was [rejected](crate::Delivery::reject). False if it used up its attempts, or was
    /// [too old](crate::KinesisStream::max_age).
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.rejected
    }

    /// Why it was given back the last time: the text of [`nack_because`](crate::Delivery::nack_because) or
    /// [`reject`](crate::Delivery::reject), or `given back`, `dropped`, `dropped by a panic`.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The dead letter of a record whose attempts are spent.
    pub(super) fn of(context: &SubscriptionContext, spent: &Returned) -> Self {
        Self {
            record: spent.record.clone().into_record(Arc::clone(&context.stream), spent.shard.clone()),
            consumer: Arc::clone(&context.consumer),
            attempts: spent.attempts,
            rejected: spent.wish == Wish::Reject,
            reason: spent.reason.to_string().into(),
        }
    }
}

/// The error for a record that is no dead letter.
pub(super) fn no_dead_letter(problem: impl Into<String>) -> KinesisError {
    KinesisError::invalid("dead letter", problem)
}
