//! How often each thing happened.

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) records: usize,
    pub(crate) deliveries: usize,
    /// Deliveries under a new lease.
    pub(crate) repeats: usize,
    /// Deliveries of records that were given back.
    pub(crate) redeliveries: usize,
    pub(crate) takes: usize,
    /// Takes of leases of others that expired.
    pub(crate) takeovers: usize,
    /// Takes of leases that others released for the taker.
    pub(crate) hand_overs: usize,
    /// Repeats under handed-over leases.
    pub(crate) handed_over_twice: usize,
    pub(crate) asks: usize,
    pub(crate) writes: usize,
    pub(crate) shards: usize,
    pub(crate) swept: usize,
    /// Instances that ended because another one ran under their owner id, and how often the other one had ended for the
    /// same reason before, without having died or left.
    pub(crate) duplicates_ended: usize,
    pub(crate) both_ended: usize,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            deliveries: self.deliveries + other.deliveries,
            repeats: self.repeats + other.repeats,
            redeliveries: self.redeliveries + other.redeliveries,
            takes: self.takes + other.takes,
            takeovers: self.takeovers + other.takeovers,
            hand_overs: self.hand_overs + other.hand_overs,
            handed_over_twice: self.handed_over_twice + other.handed_over_twice,
            asks: self.asks + other.asks,
            writes: self.writes + other.writes,
            shards: self.shards + other.shards,
            swept: self.swept + other.swept,
            duplicates_ended: self.duplicates_ended + other.duplicates_ended,
            both_ended: self.both_ended + other.both_ended,
        }
    }
}
