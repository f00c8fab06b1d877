//! Where reading begins: [`KinesisPosition`] is what a user asks for, [`Checkpoint`] what a lease remembers, [`Origin`]
//! where one reader is placed, and [`Plan::origin`] the table between them.

use std::fmt;

use crate::id::{SequenceNumber, ShardId};

/// A place in a stream from which to read.
///
/// ```
/// use kinesis_stream::KinesisPosition;
///
/// let from_the_oldest = KinesisPosition::horizon();
/// let from_now_on = KinesisPosition::latest();
/// let from_new_year = KinesisPosition::timestamp(1_767_225_600_000);
/// let from_this_record = KinesisPosition::sequence("shardId-000000000000", "4959033827149025660855969253836");
/// assert_ne!(from_the_oldest, from_now_on);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KinesisPosition(pub(crate) Position);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Horizon,
    Latest,
    Timestamp(i64),
    Sequence(ShardId, SequenceNumber),
}

impl KinesisPosition {
    /// The oldest record that each shard still keeps.
    #[must_use]
    pub fn horizon() -> Self {
        Self(Position::Horizon)
    }

    /// After the newest record of each shard, at the moment of opening.
    #[must_use]
    pub fn latest() -> Self {
        Self(Position::Latest)
    }

    /// The first record of each shard that arrived at or after this time, in milliseconds since 1970 (UTC). A time
    /// before the oldest kept record means that record; a time in the future is refused when it is used.
    #[must_use]
    pub fn timestamp(unix_millis: i64) -> Self {
        Self(Position::Timestamp(unix_millis))
    }

    /// One record of one shard. Other shards are not moved by it.
    pub fn sequence(shard: impl Into<ShardId>, sequence_number: impl Into<SequenceNumber>) -> Self {
        Self(Position::Sequence(shard.into(), sequence_number.into()))
    }
}

/// How far a consumer has come in one shard.
///
/// Non-exhaustive: a place inside an aggregated record is a variant to come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checkpoint {
    /// Nothing is settled yet. Reading begins *at* this record, the first that was ever read here.
    At(SequenceNumber),
    /// This record and all before it are settled. Reading goes on after it.
    After(SequenceNumber),
    /// The shard was read to its end and everything in it is settled. Stored as `SHARD_END` where a store keeps text.
    ShardEnd,
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(number) => write!(f, "at {number}"),
            Self::After(number) => write!(f, "after {number}"),
            Self::ShardEnd => f.write_str("SHARD_END"),
        }
    }
}

/// Where a shard iterator is placed: the five iterator types of Kinesis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `TRIM_HORIZON`
    Horizon,
    /// `LATEST`
    Latest,
    /// `AT_TIMESTAMP`, in Unix milliseconds
    Timestamp(i64),
    /// `AT_SEQUENCE_NUMBER`
    At(SequenceNumber),
    /// `AFTER_SEQUENCE_NUMBER`
    After(SequenceNumber),
}

/// What the descriptor of a subscription says about where shards open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// `start_at`: goes before checkpoints, on the shards with which the subscription opens.
    pub(crate) forced: Option<Position>,
    /// `initial_position`: for shards without a checkpoint.
    pub(crate) initial: Option<Position>,
}

/// What a shard is to the subscription that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// It belongs to the opening: it was there when the subscription began, ready to be read.
    pub(crate) opening: bool,
    /// Its parent was read to its end under this consumer, or it appeared after the subscription began.
    pub(crate) child: bool,
}

impl Plan {
    /// Where this shard opens (R4, R5, R6).
    pub(crate) fn origin(&self, shard: &ShardId, checkpoint: Option<&Checkpoint>, role: Role) -> Origin {
        todo!("{shard}{checkpoint:?}{role:?}")
    }

    /// Whether this opening goes before the checkpoints of all shards, ended ones too (R6).
    pub(crate) fn replays(&self) -> bool {
        matches!(self.forced, Some(Position::Horizon | Position::Timestamp(_)))
    }
}
