//! A snapshot of a shard's state, taken under one lock. A caller with several questions takes one view, so that the
//! answers fit together.

use tokio::time::Instant;

use crate::state::shard::{
    inner::{ServiceStatus, Shard},
    lease_term::LeaseTerm,
    reading_state::TermView,
};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardView {
    term: Option<TermView>,
    /// The epoch under which another instance holds the shard.
    elsewhere: Option<u64>,
    service: ServiceStatus,
    was_opened: bool,
    gave_up: bool,
    ended_here: bool,
}

impl Shard {
    /// A snapshot of the state. Costs one short lock.
    pub(crate) fn view(&self) -> ShardView {
        self.write(|inner| {
            self.notice_suspension(inner, Instant::now());
            ShardView {
                term: inner.term.as_ref().map(LeaseTerm::view),
                elsewhere: inner.elsewhere.as_ref().map(|(_, epoch)| *epoch),
                service: inner.service,
                was_opened: inner.first_opening.is_some(),
                gave_up: inner.gave_up,
                ended_here: inner.ended_here,
            }
        })
    }
}

impl ShardView {
    /// Whether this subscription holds the lease, also while it is giving the lease up.
    pub(crate) fn is_held(&self) -> bool {
        self.term.is_some()
    }

    /// When the lease of this epoch expires unless it is renewed. None if it is over.
    pub(crate) fn held_until(&self, epoch: u64) -> Option<Instant> {
        self.term.filter(|term| term.epoch == epoch).map(|term| term.deadline)
    }

    /// Whether the shard counts towards this instance's share: the lease is held, and records of it are still to be
    /// read or settled.
    pub(crate) fn is_share(&self) -> bool {
        self.term.is_some_and(|term| term.reading.is_open())
    }

    /// Whether the lease counts towards this instance's maximum number of leases: at its tip and after its end nothing
    /// more is read of the shard.
    pub(crate) fn is_working(&self) -> bool {
        self.term.is_some_and(|term| term.reading.is_working())
    }

    /// Whether the shard is held and its last page was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.term.is_some_and(|term| term.reading.is_at_end())
    }

    /// Whether the shard is held and reading has stopped at its tip.
    pub(crate) fn is_at_tip(&self) -> bool {
        self.term.is_some_and(|term| term.reading.is_at_tip())
    }

    /// Whether a seek can move the shard: its end is not stored, and this instance keeps the lease.
    pub(crate) fn can_move(&self) -> bool {
        self.term.is_some_and(|term| term.can_move())
    }

    /// Whether this instance reads or has read the shard, and no other instance has it or is about to get it.
    pub(crate) fn is_own(&self) -> bool {
        match self.term {
            Some(term) => !term.is_handed_over,
            None => self.elsewhere.is_none(),
        }
    }

    /// Whether the last reader gave up.
    pub(crate) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Whether this subscription read the shard to its end and stored that.
    pub(crate) fn ended_here(&self) -> bool {
        self.ended_here
    }

    /// Whether this subscription has opened the shard before.
    pub(crate) fn was_opened(&self) -> bool {
        self.was_opened
    }

    /// Whether the shard accepts no more records, according to its last listing, so that it has an end.
    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_closed
    }

    /// Whether the service says that the shard does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.service.is_not_found
    }
}
