//! Moving a running subscription to another position (A6).
//!
//! **Why the coordinator does a seek.** A flag that the reader checks would do, but then a take, a hand-over or the end
//! of a shard could meet a seek halfway. The coordinator works between two passes: it fetches the iterators and starts
//! a new generation of each shard under the same lease. So nothing depends on the stream being polled.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream};
use tokio::{
    sync::oneshot,
    time::{Duration, Instant, sleep, timeout, timeout_at},
};

use super::{CALLS_AT_ONCE, Coordinator, Phase, opening::SubscriptionOpening};
use crate::{
    config::{
        position::{Origin, Position},
        present::Present,
    },
    coordination::lineage::{self, InitialShards, Verdict},
    error::{
        KinesisError,
        service::{Action, FailureKind, ServiceFailure},
    },
    kinesis::{Placed, ServiceTime},
    reading::{
        read_ahead::pages,
        reader::{Reader, since},
    },
    state::shard::Shard,
    types::id::ShardId,
    util::clock,
};

/// How many throttled calls for one iterator are retried before its shard stays where it is. All shards of the stream
/// ask at once.
const MOST_THROTTLES: u32 = 10;

/// How long a seek waits for the service's time.
const CLOCK_LIMIT: Duration = Duration::from_secs(2);

/// How long a seek waits for iterators. Meanwhile the instance takes no leases and hands none over.
const LIMIT: Duration = Duration::from_secs(30);

/// A position to move to, and the channel for the result.
#[derive(Debug)]
pub(crate) struct Seek {
    pub(crate) position: Position,
    pub(crate) done: oneshot::Sender<Result<(), KinesisError>>,
}

/// A shard to move, and where to.
struct Move {
    shard: Arc<Shard>,
    to: Origin,
}

impl Coordinator {
    /// Moves the shards that can be moved at once. The next pass opens those that must be taken first.
    pub(super) async fn seek(&mut self, Seek { position, done }: Seek) {
        let moved = match self.settled(position).await {
            Ok(position) => self.seek_to(position).await,
            Err(refused) => Err(refused),
        };
        // It fails only if the caller dropped its future.
        let _ = done.send(moved);
    }

    /// The position, with the service's present in place of a time that is slightly ahead (R6). Only a time that may
    /// be ahead is worth a call: a host that was suspended knows no more than a time that the service has passed.
    async fn settled(&self, position: Position) -> Result<Position, KinesisError> {
        if self.beginning.present().until(&position).is_zero() {
            return Ok(position);
        }
        let described = timeout(CLOCK_LIMIT, self.context.service.describe(&self.context.stream)).await;
        let told = described.ok().and_then(Result::ok).and_then(|described| described.now);
        let present =
            told.map_or_else(|| self.beginning.present(), |now| Present::new(Some(now.0), clock::unix_millis()));
        let position = present.settle("position", position)?;
        sleep(present.until(&position)).await;
        Ok(position)
    }

    async fn seek_to(&mut self, position: Position) -> Result<(), KinesisError> {
        self.context.events.finish(false);
        match &position {
            Position::Sequence(shard, number) => self.seek_one(shard, Origin::At(number.clone())).await,
            Position::Horizon | Position::Latest | Position::Timestamp(_) => self.seek_all(position).await,
        }
    }

    async fn seek_one(&mut self, shard_id: &ShardId, to: Origin) -> Result<(), KinesisError> {
        let shard = self.shards.get(shard_id).filter(|shard| shard.view().can_move());
        let (Some(shard), Phase::Open(opening)) = (shard, &mut self.phase) else {
            return Err(KinesisError::NotHeld { stream: Arc::clone(&self.context.stream), shard: shard_id.clone() });
        };
        opening.replay(shard_id.clone());
        self.apply_moves(vec![Move { shard, to }]).await
    }

    /// Does what a forced start does: it replays ended shards, and a child waits until its parents are replayed.
    async fn seek_all(&mut self, position: Position) -> Result<(), KinesisError> {
        let context = Arc::clone(&self.context);
        let leases = context.leases().await;
        let leases = leases.map_err(|source| KinesisError::Store {
            stream: Arc::clone(&context.stream),
            shard: None,
            action: "reading the leases",
            source,
        })?;
        self.plan.forced = Some(position);
        if self.phase.opening().is_none() {
            // No shard is open yet. The opening will use the new plan.
            return Ok(());
        }
        let rows_of_this: Vec<_> = leases.rows.iter().filter(|row| self.is_of_this_stream(row)).collect();
        let shards = self.shards.all();
        let own = shards.iter().filter(|shard| shard.view().is_own()).map(|shard| shard.id.clone()).collect();
        let initial = InitialShards::new(&self.plan, self.shard_list.shards());
        let opening =
            SubscriptionOpening::new(&self.plan, initial, &self.shard_list, (&rows_of_this, &own), Instant::now());
        let verdicts =
            lineage::verdicts(self.shard_list.shards(), &self.progress(&leases, &opening), opening.initial());
        self.phase = Phase::Open(opening);
        self.apply_moves(self.moves(&verdicts, shards)).await
    }

    /// Which shards move at once. The others forget their position, and are opened anew when they are ready.
    fn moves(&self, verdicts: &BTreeMap<ShardId, Verdict>, shards: Vec<Arc<Shard>>) -> Vec<Move> {
        let mut moves = Vec::new();
        for shard in shards {
            let is_ready = matches!(verdicts.get(&shard.id), Some(Verdict::Ready { .. }));
            match self.plan.forced.as_ref().and_then(|position| position.within(&shard.id)) {
                Some(to) if is_ready && shard.view().can_move() => moves.push(Move { shard, to }),
                _ => shard.forget(),
            }
        }
        moves
    }

    /// Fetches the iterators, and moves each shard whose iterator came.
    async fn apply_moves(&mut self, moves: Vec<Move>) -> Result<(), KinesisError> {
        let this = &*self;
        let until = Instant::now() + LIMIT;
        let outcomes = stream::iter(moves).map(|Move { shard, to }| async move {
            let placed = timeout_at(until, this.fetch_iterator(&shard, &to)).await.unwrap_or_else(|_| {
                let detail = format!("no iterator within {LIMIT:?}");
                Err(ServiceFailure::new(Action::GetShardIterator, FailureKind::Unreachable, detail))
            });
            (shard, to, placed)
        });
        let mut failed: Vec<(ShardId, ServiceFailure)> = Vec::new();
        let mut moment = this.beginning.moment;
        let mut outcomes = outcomes.buffer_unordered(CALLS_AT_ONCE);
        while let Some((shard, to, placed)) = outcomes.next().await {
            match placed {
                Ok(placed) => {
                    moment = moment.max(placed.now.unwrap_or(moment));
                    this.move_to(shard, to, placed, moment);
                }
                Err(failure) => failed.push((shard.id.clone(), failure)),
            }
        }
        drop(outcomes);
        // From now on, LATEST means this time for a shard that opens.
        self.beginning.moment = moment;
        failed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let Some((_, source)) = failed.first().cloned() else { return Ok(()) };
        let shards = failed.into_iter().map(|(shard_id, _)| shard_id).collect();
        Err(KinesisError::Seek { stream: Arc::clone(&self.context.stream), shards, source })
    }

    async fn fetch_iterator(&self, shard: &Shard, to: &Origin) -> Result<Placed, ServiceFailure> {
        let mut throttles = 0;
        loop {
            match self.context.service.place(&self.context.stream, &shard.id, to).await {
                Err(failure) if failure.kind() == FailureKind::Throttled && throttles < MOST_THROTTLES => {
                    throttles += 1;
                    sleep(Duration::from_secs(1)).await;
                }
                placed => return placed,
            }
        }
    }

    fn move_to(&self, shard: Arc<Shard>, to: Origin, placed: Placed, moment: ServiceTime) {
        let origin = match to {
            Origin::Latest => since(placed.now.unwrap_or(moment)),
            origin => origin,
        };
        // None if the shard was lost meanwhile. The instance that takes it next opens it.
        let Some(opening) = shard.seek(&origin) else { return };
        tracing::info!(shard = %shard.id, epoch = opening.epoch, ?origin, "moved the shard to another position");
        let reader = Reader::new(shard, opening, origin).at(placed.iterator);
        // It fails only if the subscription was dropped, and then no one needs the pages.
        let _ = self.opened.send(pages(reader));
    }
}
