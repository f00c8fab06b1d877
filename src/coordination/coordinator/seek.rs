//! Moving a running subscription to another place (A6).
//!
//! The coordinator does it between two passes, so no shard is taken, handed over or found gone at the same time, and
//! nothing depends on the stream being polled.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream};
use tokio::{
    sync::oneshot,
    time::{Duration, sleep},
};

use super::{CALLS_AT_ONCE, Coordinator, opening::Opening};
use crate::{
    config::position::{Origin, Position},
    coordination::lineage::{self, Verdict},
    error::{
        KinesisError,
        service::{FailureKind, ServiceFailure},
    },
    kinesis::{Placed, ServiceTime},
    reading::{
        read_ahead::pages,
        reader::{Reader, since},
    },
    state::shard::Shard,
    types::id::ShardId,
};

/// Throttled calls for one iterator, before its shard stays where it is. All shards of an account ask at once.
const MOST_THROTTLES: u32 = 10;

/// A place to go to, and whom to tell how it went.
#[derive(Debug)]
pub(crate) struct Seek {
    pub(crate) position: Position,
    pub(crate) done: oneshot::Sender<Result<(), KinesisError>>,
}

/// A shard that is to be moved, and to where.
struct Move {
    shard: Arc<Shard>,
    to: Origin,
}

impl Coordinator {
    /// Moves what can be moved at once. What has to be taken first, the next pass opens.
    pub(super) async fn seek(&mut self, Seek { position, done }: Seek) {
        self.context.events.finish(false);
        let moved = match &position {
            Position::Sequence(shard, number) => self.seek_one(shard, Origin::At(number.clone())).await,
            Position::Horizon | Position::Latest | Position::Timestamp(_) => self.seek_all(position).await,
        };
        // Nobody waits any more if the future was dropped.
        let _ = done.send(moved);
    }

    async fn seek_one(&mut self, shard_id: &ShardId, to: Origin) -> Result<(), KinesisError> {
        let shard = self.shards.get(shard_id).filter(|shard| shard.view().can_move());
        let (Some(shard), Some(opening)) = (shard, &mut self.opening) else {
            return Err(KinesisError::NotHeld { stream: Arc::clone(&self.context.stream), shard: shard_id.clone() });
        };
        opening.replay(shard_id.clone());
        self.set_out(vec![Move { shard, to }]).await
    }

    /// As a forced start does: ended shards are read once more, and a child waits until its parents were.
    async fn seek_all(&mut self, position: Position) -> Result<(), KinesisError> {
        let context = Arc::clone(&self.context);
        let rows = context.answer(context.store.leases(&context.consumer, &context.stream)).await;
        let rows = rows.map_err(|source| KinesisError::Store {
            stream: Arc::clone(&context.stream),
            shard: None,
            action: "reading the leases",
            source,
        })?;
        self.plan.forced = Some(position);
        if self.opening.is_none() {
            // Nothing is read yet: it opens there.
            return Ok(());
        }
        let rows_of_this: Vec<_> = rows.iter().filter(|row| self.is_of_this_stream(row)).collect();
        let shards = self.shards.all();
        let own = shards.iter().filter(|shard| shard.view().is_own()).map(|shard| shard.id.clone()).collect();
        let opening = Opening::after_seek(&self.plan, &self.shard_list, &rows_of_this, &own);
        let verdicts = lineage::judge(self.shard_list.shards(), &self.known(&rows, &opening), opening.lineage());
        self.opening = Some(opening);
        self.set_out(self.moves(&verdicts, shards)).await
    }

    /// Which shards move at once. The others forget where they were: they are opened anew, once it is their turn.
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

    /// Fetches the iterators, and moves each shard that gets one.
    async fn set_out(&mut self, moves: Vec<Move>) -> Result<(), KinesisError> {
        let this = &*self;
        let outcomes = stream::iter(moves).map(|Move { shard, to }| async move {
            let placed = this.place(&shard, &to).await;
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
        // What opens at LATEST from now on is not older than this.
        self.beginning.moment = moment;
        failed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let Some((_, source)) = failed.first().cloned() else { return Ok(()) };
        let shards = failed.into_iter().map(|(shard_id, _)| shard_id).collect();
        Err(KinesisError::Seek { stream: Arc::clone(&self.context.stream), shards, source })
    }

    async fn place(&self, shard: &Shard, to: &Origin) -> Result<Placed, ServiceFailure> {
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
        // It is none if the shard was lost meanwhile: whoever takes it next opens it.
        let Some(opening) = shard.seek(&origin) else { return };
        tracing::info!(stream = %self.context.stream, shard = %shard.id, epoch = opening.epoch, ?origin, "the shard is moved");
        let reader = Reader::new(shard, opening, origin, self.beginning.retention).at(placed.iterator);
        // Without a receiver the subscription is gone, and the pages go with it.
        let _ = self.opened.send(pages(reader));
    }
}
