//! Records that the stream does not hand out, because they are too old (A8).
//!
//! **Old is decided at the hand-out,** not when a record is read: it may wait in its page, or for a redelivery, until
//! it is too old.

use std::fmt::Display;

use tokio::time::Instant;

use super::stream::Subscription;
use crate::{
    config::{
        max_age::TooOld,
        redelivery::{Reason, Wish},
    },
    state::{events::Returned, shard::Shard, tracker::Ticket},
    types::record::Kept,
};

impl Subscription {
    /// What becomes of a record that is too old. None if it is to be handed out.
    pub(super) fn too_old(&self, record: &Kept, now: Instant) -> Option<TooOld> {
        self.context().too_old(record.arrived_at, now)
    }

    /// Disposes of a record that was never handed out.
    pub(super) fn pass_over_new(&self, shard: &Shard, ticket: Ticket, record: Kept, becomes: TooOld) {
        let reason = self.reason(None::<&str>);
        let (shard_id, wish) = (shard.id.clone(), Wish::Retry);
        self.pass_over(
            shard,
            Returned { ticket, shard: shard_id, record, attempts: 0, wish, reason, settlement: None },
            becomes,
        );
    }

    /// Disposes of a record that was given back before.
    pub(super) fn pass_over_returned(&self, shard: &Shard, returned: Returned, becomes: TooOld) {
        let reason = self.reason(Some(&returned.reason));
        self.pass_over(shard, Returned { reason, ..returned }, becomes);
    }

    fn pass_over(&self, shard: &Shard, old: Returned, becomes: TooOld) {
        self.context().warn_of_old(&shard.id, becomes);
        shard.dispose_of_old(old, becomes);
    }

    /// Why a record is given up, with the reason of its last attempt.
    fn reason(&self, before: Option<impl Display>) -> Reason {
        let limit = self.context().settings.max_age.limit.unwrap_or_default();
        match before {
            None => Reason::because(format_args!("older than {limit:?}")),
            Some(before) => Reason::because(format_args!("older than {limit:?}; the reason before: {before}")),
        }
    }
}
