//! Taking a lease, and starting to read under it.
//!
//! **A take is one conditional write** on the row as it was last seen; it raises the epoch. From the sending time of
//! each successful write, the lease is valid for its time to live. After that the instance delivers nothing of the
//! shard until a renewal succeeds.
//!
//! **The first iterator is fetched before `subscribe` returns,** so the tip of a shard is the time of subscribing.
//! The take stores that time (`Checkpoint::Since`, R5): the next reader of a shard without records opens there and not
//! at a later tip.
//!
//! Before the first record of a shard without a checkpoint is delivered, the row holds that record's position
//! (`Checkpoint::At`, R13).

use std::sync::Arc;

use tokio::{
    select,
    time::{Instant, timeout_at},
};

use super::{Coordinator, candidates::Candidate, unconfirmed::Unconfirmed};
use crate::{
    config::position::{Checkpoint, Origin, Role},
    error::work::Work,
    lease::{Held, Take, Write},
    reading::{
        read_ahead::pages,
        reader::{Reader, since},
    },
    state::shard::Shard,
    util::clock::BothClocks,
};

/// What became of a take that was sent.
pub(super) enum TakeOutcome {
    /// This instance held the lease, even if it left the shard again at once.
    Applied(Take),
    Refused(Take),
    /// The call failed or was abandoned, so the store may have applied it.
    Unconfirmed(Unconfirmed),
}

impl Coordinator {
    /// Takes a lease and starts to read under it. During the first pass it fetches the first iterator, too, and waits
    /// for it until `opens_until`. Returns none if no take was sent, because the subscription closes.
    pub(super) async fn take(&self, candidate: Candidate, opens_until: Option<Instant>) -> Option<TakeOutcome> {
        if !self.context.lifecycle.is_running() {
            return None;
        }
        let Candidate { shard, take, role, replays, .. } = candidate;
        let sent = BothClocks::now();
        let lease = match self.context.answer("take", self.context.store.take(&take)).await {
            Ok(Write::Applied(lease)) => lease,
            Ok(Write::Refused(row)) => {
                tracing::debug!(shard = %shard.id, "another instance wrote to the row first");
                // If the epoch did not change, it only requested, renewed or released the lease, which may still be
                // free.
                if row.is_some_and(|row| take.seen.is_some_and(|seen| seen.epoch == row.epoch)) {
                    self.context.wakeups.pass_now();
                }
                return Some(TakeOutcome::Refused(take));
            }
            Err(error) => {
                shard.report_store("taking the lease", error);
                return Some(TakeOutcome::Unconfirmed((shard, take)));
            }
        };
        self.context.succeeded(Work::WriteLeases);
        let held = Held { key: take.key.clone(), owner: Arc::clone(&take.owner), epoch: lease.epoch };
        // The take may have stored the time of this opening, which is no progress of an earlier one.
        let stored_before = lease.checkpoint.clone().filter(|_| take.since.is_none());
        let opening = shard.begin(&lease, held, stored_before.is_some(), sent.with_suspension());
        let ended_meanwhile = lease.is_ended() && !replays;
        if ended_meanwhile || !self.context.lifecycle.is_running() {
            shard.leave(Instant::now());
            return Some(TakeOutcome::Applied(take));
        }
        let opens_until = opens_until.filter(|until| Instant::now() < *until);
        let origin = self.origin(&shard, stored_before.as_ref(), role, opens_until.is_some());
        tracing::info!(
            shard = %shard.id, epoch = opening.epoch, ?origin, "opened the shard"
        );
        let mut reader = Reader::new(shard, opening, origin.clone());
        if let Some(until) = opens_until {
            if !self.fetch_first_iterator(&mut reader, until).await {
                return Some(TakeOutcome::Applied(take));
            }
        } else {
            // The origin is known, so the reader's own task fetches the iterator. A slow call delays no other shard.
            reader.shard().set_first_opening(origin);
        }
        // It fails only if the subscription was dropped, and then no one needs the pages.
        let _ = self.opened.send(pages(reader));
        Some(TakeOutcome::Applied(take))
    }

    /// Waits for the first iterator until this time. False if the subscription closes meanwhile.
    async fn fetch_first_iterator(&self, reader: &mut Reader, until: Instant) -> bool {
        let opened_at = self.beginning.moment;
        select! {
            biased;
            _ = self.context.lifecycle.closing() => return false,
            opened = timeout_at(until, reader.open(opened_at)) => {
                if opened.is_ok() {
                    return true;
                }
            }
        }
        tracing::warn!(shard = %reader.shard().id, "the first iterator takes long, so the shard opens later");
        reader.open_later(opened_at);
        true
    }

    /// Enters what became of a take. No row is judged while takes are in flight, so this may follow all of them.
    pub(super) fn enter(&mut self, outcome: TakeOutcome) {
        match outcome {
            TakeOutcome::Applied(take) => self.ownership.take_sent(&take),
            TakeOutcome::Refused(take) => {
                self.ownership.take_sent(&take);
                self.ownership.take_refused(&take);
            }
            TakeOutcome::Unconfirmed((shard, take)) => {
                self.ownership.take_sent(&take);
                self.unconfirmed.push((shard, take));
            }
        }
    }

    fn origin(&self, shard: &Shard, stored: Option<&Checkpoint>, role: Role, is_first_pass: bool) -> Origin {
        if let Some(began) = shard.reopens_at(stored) {
            return began;
        }
        match self.plan.origin(&shard.id, stored, role) {
            Origin::Latest if !is_first_pass => since(self.beginning.moment),
            origin => origin,
        }
    }
}
