//! Taking a lease, and starting to read under it.

use tokio::{select, time::Instant};

use super::{Coordinator, candidates::Candidate};
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
        lock(&self.ownership).sent(&take);
        let lease = match self.context.answer(self.context.store.take(&take)).await {
            Ok(Write::Applied(lease)) => lease,
            Ok(Write::Refused(row)) => {
                lock(&self.ownership).refused(&take);
                tracing::debug!(stream = %self.context.stream, shard = %shard.id, "another instance was faster");
                // If that one asked for the shard, or let it go, the lease is still to be had.
                if row.is_some_and(|row| take.seen.is_some_and(|seen| seen.epoch == row.epoch)) {
                    self.context.wakeups.pass_now();
                }
                return;
            }
            Err(error) => return self.went_astray(shard, take, error),
        };
        let held = Held { key: take.key, owner: take.owner, epoch: lease.epoch };
        let opening = shard.begin(&lease, held, sent_at);
        let ended_meanwhile = lease.is_ended() && !replays;
        if ended_meanwhile || !self.context.lifecycle.is_running() {
            return shard.leave(Instant::now());
        }
        let origin = self.origin(&shard, &lease, role);
        tracing::info!(
            stream = %self.context.stream, shard = %shard.id, epoch = opening.epoch, ?origin, "the shard is opened"
        );
        let mut reader = Reader::new(shard, opening, origin.clone(), self.beginning.retention);
        if self.first_pass {
            select! {
                biased;
                _ = self.context.lifecycle.closing() => return,
                () = reader.open(self.beginning.moment) => {}
            }
        } else {
            // Its place is known, and it gets there by itself: a call that is slow holds up no other shard.
            reader.shard().set_first_opening(origin);
        }
        // Without a receiver the subscription is gone, and the pages go with it.
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
