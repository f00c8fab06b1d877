//! Taking a lease, and starting to read under it.
//!
//! **A take is one conditional write** on the row as it was last seen; it raises the epoch. From the sending time of
//! each successful write, the lease is valid for its time to live. After that the instance delivers nothing of the
//! shard until a renewal succeeds.
//!
//! **The first iterator is fetched before `subscribe` returns,** so the tip of a shard is the time of subscribing.
//! Before the first record of a shard without a checkpoint is delivered, the row holds that record's position
//! (`Checkpoint::At`, R13).

use tokio::{select, time::Instant};

use super::{candidates::Candidate, task::Coordinator};
use crate::{
    config::position::{Origin, Role},
    lease::{Held, Lease, Write},
    reading::{
        read_ahead::pages,
        reader::{Reader, since},
    },
    state::shard::Shard,
    util::mutex::lock,
};

impl Coordinator {
    /// Takes a lease and starts to read under it.
    pub(super) async fn take(&self, candidate: Candidate) {
        if !self.context.lifecycle.is_running() {
            return;
        }
        let Candidate { shard, take, role, replays, .. } = candidate;
        let sent_at = Instant::now();
        lock(&self.ownership).take_sent(&take);
        let lease = match self.context.answer(self.context.store.take(&take)).await {
            Ok(Write::Applied(lease)) => lease,
            Ok(Write::Refused(row)) => {
                lock(&self.ownership).take_refused(&take);
                tracing::debug!(shard = %shard.id, "another instance wrote to the row first");
                // If the epoch did not change, it only requested, renewed or released the lease, which may still be
                // free.
                if row.is_some_and(|row| take.seen.is_some_and(|seen| seen.epoch == row.epoch)) {
                    self.context.wakeups.pass_now();
                }
                return;
            }
            Err(error) => return self.note_unconfirmed(shard, take, error),
        };
        let held = Held { key: take.key, owner: take.owner, epoch: lease.epoch };
        let opening = shard.begin(&lease, held, sent_at);
        let ended_meanwhile = lease.is_ended() && !replays;
        if ended_meanwhile || !self.context.lifecycle.is_running() {
            return shard.leave(Instant::now());
        }
        let origin = self.origin(&shard, &lease, role);
        tracing::info!(
            shard = %shard.id, epoch = opening.epoch, ?origin, "opened the shard"
        );
        let mut reader = Reader::new(shard, opening, origin.clone(), self.beginning.retention);
        if self.first_pass {
            select! {
                biased;
                _ = self.context.lifecycle.closing() => return,
                () = reader.open(self.beginning.moment) => {}
            }
        } else {
            // The origin is known, so the reader's own task fetches the iterator. A slow call delays no other shard.
            reader.shard().set_first_opening(origin);
        }
        // It fails only if the subscription was dropped, and then no one needs the pages.
        let _ = self.opened.send(pages(reader));
    }

    fn origin(&self, shard: &Shard, lease: &Lease, role: Role) -> Origin {
        if let Some(began) = shard.reopens_at(lease.checkpoint.as_ref()) {
            return began;
        }
        match self.plan.origin(&shard.id, lease.checkpoint.as_ref(), role) {
            Origin::Latest if !self.first_pass => since(self.beginning.moment),
            origin => origin,
        }
    }
}
