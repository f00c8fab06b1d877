//! Where reading begins.
//!
//! A user asks for a [`KinesisPosition`]. A lease stores a [`Checkpoint`]. A reader starts at an [`Origin`]. The table
//! at [`Plan::origin`] derives the origin from the other two.
//!
//! **LATEST is remembered as a time.** A shard that was opened at LATEST and has read no record is reopened at the time
//! of opening (see `kinesis/date_header.rs`), never at a later tip.
//!
//! **An expired iterator resumes after the last record that was read,** not after the checkpoint. So the reader does
//! not have to read, recognise and discard the records in between, and cannot discard one by mistake. A new reader
//! starts at the checkpoint.

use std::fmt;

use crate::types::{
    id::{SequenceNumber, ShardId},
    record::Record,
};

/// A position in a stream to read from.
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

    /// After the newest record of each shard at the time of opening.
    #[must_use]
    pub fn latest() -> Self {
        Self(Position::Latest)
    }

    /// The first record of each shard that arrived at or after this time, in milliseconds since 1970 (UTC). A time
    /// before the oldest kept record selects that record. A time that is ahead of the service's clock by less than a
    /// minute stands for the service's present, since the clocks of hosts differ; a later one is refused when the
    /// position is used.
    #[must_use]
    pub fn timestamp(unix_millis: i64) -> Self {
        Self(Position::Timestamp(unix_millis))
    }

    /// At one record of one shard. The position has no effect on other shards.
    pub fn sequence(shard: impl Into<ShardId>, sequence_number: impl Into<SequenceNumber>) -> Self {
        Self(Position::Sequence(shard.into(), sequence_number.into()))
    }
}

impl<T> Record<T> {
    /// The position of this record. Reading from it starts *at* the record.
    pub fn position(&self) -> KinesisPosition {
        KinesisPosition::sequence(self.shard.clone(), self.sequence_number.clone())
    }
}

/// How far a consumer has read one shard.
///
/// Non-exhaustive: a position inside an aggregated record may become a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checkpoint {
    /// No record was delivered yet. Reading begins at the first record that arrived at or after this time, in Unix
    /// milliseconds by the service's clock; 0 is before every kept record. With it, an instance that opened a shard at
    /// `LATEST` can hand the shard over before any record arrived.
    Since(i64),
    /// No record is settled yet. Reading begins *at* this record, the first that the consumer ever read in this shard.
    At(SequenceNumber),
    /// This record and all before it are settled. Reading resumes after it.
    After(SequenceNumber),
    /// The shard was read to its end and all its records are settled. Stores that keep text store `SHARD_END`.
    ShardEnd,
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Since(unix_millis) => write!(f, "since {unix_millis} ms"),
            Self::At(number) => write!(f, "at {number}"),
            Self::After(number) => write!(f, "after {number}"),
            Self::ShardEnd => f.write_str("SHARD_END"),
        }
    }
}

/// Where a shard iterator starts: the five iterator types of Kinesis.
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

impl Origin {
    /// The checkpoint that opens at this origin. LATEST has none, because its position changes all the time.
    pub(crate) fn as_checkpoint(&self) -> Option<Checkpoint> {
        match self {
            Self::Horizon => Some(Checkpoint::Since(0)),
            Self::Latest => None,
            Self::Timestamp(unix_millis) => Some(Checkpoint::Since(*unix_millis)),
            Self::At(number) => Some(Checkpoint::At(number.clone())),
            Self::After(number) => Some(Checkpoint::After(number.clone())),
        }
    }
}

/// Where shards open, as the descriptor of a subscription says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// `start_at`: takes precedence over checkpoints, for the shards with which the subscription opens.
    pub(crate) forced: Option<Position>,
    /// `initial_position`: for shards without a checkpoint.
    pub(crate) initial: Option<Position>,
    /// The time that stands for LATEST, in Unix milliseconds. None while LATEST is the tip.
    pub(crate) latest: Option<i64>,
}

/// The facts about a shard that decide where it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// The shard belongs to the opening: it existed, ready to be read, when the subscription began.
    pub(crate) opening: bool,
    /// This consumer read its parent to the end, or the shard appeared after the subscription began.
    pub(crate) child: bool,
}

impl Position {
    /// Where this position opens the shard; none if it names a record of another shard.
    pub(crate) fn within(&self, shard: &ShardId) -> Option<Origin> {
        match self {
            Self::Horizon => Some(Origin::Horizon),
            Self::Latest => Some(Origin::Latest),
            Self::Timestamp(millis) => Some(Origin::Timestamp(*millis)),
            Self::Sequence(named, number) => (named == shard).then(|| Origin::At(number.clone())),
        }
    }
}

impl Checkpoint {
    /// Where reading resumes. A shard at its end is not opened. If it ever is, it opens at its oldest record, since a
    /// duplicate does less harm than a lost record.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Since(..=0) | Self::ShardEnd => Origin::Horizon,
            Self::Since(unix_millis) => Origin::Timestamp(*unix_millis),
            Self::At(number) => Origin::At(number.clone()),
            Self::After(number) => Origin::After(number.clone()),
        }
    }
}

impl Plan {
    /// Where this shard opens.
    ///
    /// | checkpoint | in the opening, under a forced position | otherwise |
    /// |---|---|---|
    /// | any | the forced position (R6) | after, or at, the record of the checkpoint (R4, R13) |
    /// | none | the forced position (R6) | the forced or else the initial position, or else `LATEST` (R5) |
    /// | none, a child | the forced position (R6) | the same, but never `LATEST`: `TRIM_HORIZON` instead (R6) |
    ///
    /// A position that names a record applies to its shard alone: other shards open as if it were not set.
    pub(crate) fn origin(&self, shard: &ShardId, checkpoint: Option<&Checkpoint>, role: Role) -> Origin {
        let within = |position: &Option<Position>| position.as_ref().and_then(|position| position.within(shard));
        let forced = within(&self.forced);
        match (forced, checkpoint) {
            (Some(forced), _) if role.opening => forced,
            (_, Some(checkpoint)) => checkpoint.origin(),
            (forced, None) => {
                let mut asked = forced.into_iter().chain(within(&self.initial));
                if role.child {
                    asked.find(|origin| *origin != Origin::Latest).unwrap_or(Origin::Horizon)
                } else {
                    asked.next().unwrap_or(Origin::Latest)
                }
            }
        }
    }

    /// Replaces LATEST by this time, for shards that a listing shows only later.
    pub(crate) fn begin_at(&mut self, time: &Origin) {
        let Origin::Timestamp(millis) = time else { return };
        self.latest = Some(*millis);
        let time = Position::Timestamp(*millis);
        if self.forced == Some(Position::Latest) {
            self.forced = Some(time.clone());
        }
        if self.initial.as_ref().is_none_or(|initial| *initial == Position::Latest) {
            self.initial = Some(time);
        }
    }

    /// Whether a shard without a checkpoint opens at LATEST, or at the time that stands for it.
    pub(crate) fn opens_at_latest(&self, shard: &ShardId, role: Role) -> bool {
        match self.origin(shard, None, role) {
            Origin::Latest => true,
            Origin::Timestamp(unix_millis) => self.latest == Some(unix_millis),
            _ => false,
        }
    }

    /// Whether a shard that was never read opens at `LATEST`. Such a shard is skipped if it was already closed, because
    /// it has no record to deliver (H5).
    pub(crate) fn skips_unread(&self, shard: &ShardId) -> bool {
        self.origin(shard, None, Role { opening: true, child: false }) == Origin::Latest
    }

    /// Whether the forced position overrides the checkpoints of all shards, also of those read to the end (R6).
    pub(crate) fn replays(&self) -> bool {
        matches!(self.forced, Some(Position::Horizon | Position::Timestamp(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENING: Role = Role { opening: true, child: false };
    const OPENING_CHILD: Role = Role { opening: true, child: true };
    const LATER: Role = Role { opening: false, child: false };
    const LATER_CHILD: Role = Role { opening: false, child: true };

    /// The positions that a table names. Their times and records differ for `start_at` and `initial_position`.
    fn position(name: &str, setting: &str) -> Option<Position> {
        let position = match name {
            "-" => return None,
            "horizon" => KinesisPosition::horizon(),
            "latest" => KinesisPosition::latest(),
            "time" => KinesisPosition::timestamp(if setting == "forced" { 1 } else { 2 }),
            "record" => KinesisPosition::sequence("shard", setting),
            "elsewhere" => KinesisPosition::sequence("another shard", setting),
            _ => panic!("{name}"),
        };
        Some(position.0)
    }

    fn plan(forced: &str, initial: &str) -> Plan {
        Plan { forced: position(forced, "forced"), initial: position(initial, "initial"), latest: None }
    }

    /// The origins that a table names: `T` and `R` are the time and the record of `start_at`, `t` and `r` those of
    /// `initial_position`.
    fn symbol(origin: &Origin) -> &'static str {
        match origin {
            Origin::Horizon => "H",
            Origin::Latest => "L",
            Origin::Timestamp(1) => "T",
            Origin::Timestamp(_) => "t",
            Origin::At(number) if number.as_str() == "forced" => "R",
            Origin::At(number) if number.as_str() == "initial" => "r",
            Origin::At(_) => "at",
            Origin::After(_) => "after",
        }
    }

    fn opens(plan: &Plan, checkpoint: Option<&Checkpoint>, role: Role) -> &'static str {
        symbol(&plan.origin(&ShardId::new("shard"), checkpoint, role))
    }

    // R5, R6
    #[test]
    fn a_shard_without_a_checkpoint_opens_where_the_plan_says() {
        // start_at, initial_position: in the opening, a child in the opening, later, a child later
        let table = "
            -         -         L H L H
            -         horizon   H H H H
            -         latest    L H L H
            -         time      t t t t
            -         record    r r r r
            -         elsewhere L H L H
            horizon   -         H H H H
            horizon   horizon   H H H H
            horizon   latest    H H H H
            horizon   time      H H H H
            horizon   record    H H H H
            horizon   elsewhere H H H H
            latest    -         L L L H
            latest    horizon   L L L H
            latest    latest    L L L H
            latest    time      L L L t
            latest    record    L L L r
            latest    elsewhere L L L H
            time      -         T T T T
            time      horizon   T T T T
            time      latest    T T T T
            time      time      T T T T
            time      record    T T T T
            time      elsewhere T T T T
            record    -         R R R R
            record    horizon   R R R R
            record    latest    R R R R
            record    time      R R R R
            record    record    R R R R
            record    elsewhere R R R R
            elsewhere -         L H L H
            elsewhere horizon   H H H H
            elsewhere latest    L H L H
            elsewhere time      t t t t
            elsewhere record    r r r r
            elsewhere elsewhere L H L H
        ";
        let rows: Vec<Vec<_>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|row: &Vec<_>| !row.is_empty())
            .collect();
        assert_eq!(rows.len(), 36);
        for row in rows {
            let plan = plan(row[0], row[1]);
            let opened = [OPENING, OPENING_CHILD, LATER, LATER_CHILD].map(|role| opens(&plan, None, role));
            assert_eq!(opened, row[2..], "start_at {}, initial_position {}", row[0], row[1]);
        }
    }

    // R4, R6, R13
    #[test]
    fn a_checkpoint_yields_only_to_a_forced_position_and_only_in_the_opening() {
        let (at, after) = (Checkpoint::At("5".into()), Checkpoint::After("5".into()));
        // start_at: in the opening with a checkpoint at a record, after a record, at the end; the same, later
        let table = [
            ("-", ["at", "after", "H"], ["at", "after", "H"]),
            ("horizon", ["H", "H", "H"], ["at", "after", "H"]),
            ("latest", ["L", "L", "L"], ["at", "after", "H"]),
            ("time", ["T", "T", "T"], ["at", "after", "H"]),
            ("record", ["R", "R", "R"], ["at", "after", "H"]),
            ("elsewhere", ["at", "after", "H"], ["at", "after", "H"]),
        ];
        for (forced, opening, later) in table {
            for initial in ["-", "horizon", "latest", "time", "record", "elsewhere"] {
                let plan = plan(forced, initial);
                let opened = |role| [&at, &after, &Checkpoint::ShardEnd].map(|point| opens(&plan, Some(point), role));
                for (role, expected) in
                    [(OPENING, opening), (OPENING_CHILD, opening), (LATER, later), (LATER_CHILD, later)]
                {
                    assert_eq!(opened(role), expected, "start_at {forced}, initial_position {initial}, {role:?}");
                }
            }
        }
    }

    // H5
    #[test]
    fn unread_shards_are_skipped_only_if_they_would_open_at_the_tip() {
        let table = [
            ("-", "-", true),
            ("-", "horizon", false),
            ("-", "latest", true),
            ("-", "time", false),
            ("-", "record", false),
            ("-", "elsewhere", true),
            ("latest", "horizon", true),
            ("horizon", "-", false),
            ("elsewhere", "time", false),
        ];
        for (forced, initial, skips) in table {
            let plan = plan(forced, initial);
            assert_eq!(plan.skips_unread(&"shard".into()), skips, "start_at {forced}, initial_position {initial}");
        }
    }
}
