//! Admits reads by the bytes that they may bring (A5), first come, first served.
//!
//! A subscription holds pages up to a limit. Admission reserves the bytes that a read is expected to bring. The
//! [`Grant`] then stands for the read's page until that page is delivered. The owner of the page owns the grant, so no
//! path can lose room.
//!
//! A read is admitted in one of two cases:
//!
//! - The bytes held and reserved leave room for it.
//! - No held page can be delivered and no read is under way. If all pages are [parked](Grant::park), only a read can
//!   bring a page that can be delivered, so waiting for room would never end.
//! - No held page can be delivered and all reads under way are [late](Grant::late). They may hang, and the other shards
//!   must be read. Only one such read, or its page, exists at a time, so a slow line costs one page beyond the limit.
//!
//! So the held bytes are bounded by the limit plus an excess: the bytes that reads under way bring beyond their
//! reservations, and the pages that were admitted without room. Those pages add up only while they are parked, to one
//! for each shard, since a parked shard does not read ahead. A [`Forecast`] says at admission how much to reserve.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{sync::oneshot, time::Instant};

use crate::{
    budget::estimate::{Experience, Forecast},
    util::mutex::lock,
};

/// The bytes that the shards of one subscription share. Clones share the same budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Mutex<BudgetState>>);

#[derive(Debug)]
struct BudgetState {
    limit: usize,
    /// The bytes of the held pages.
    held: usize,
    /// The bytes that reads under way may bring.
    reserved: usize,
    /// How many reads are under way and not late.
    under_way: usize,
    /// How many reads are late.
    late: usize,
    /// How many reads and pages there are for which there was no room because all reads were late: at most one.
    excess: usize,
    /// How many held pages can be delivered.
    ready: usize,
    /// The sizes of recent responses.
    experience: Experience,
    /// The waiters, by ticket.
    waiting: BTreeMap<u64, Waiter>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    forecast: Forecast,
    admitted: oneshot::Sender<Grant>,
}

/// The state of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantState {
    /// The read has not returned yet.
    UnderWay { reservation: usize },
    /// The read has not returned for long.
    Late { reservation: usize },
    /// The page can be delivered.
    Ready { bytes: usize },
    /// The page cannot be delivered now.
    Parked { bytes: usize },
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(BudgetState {
            limit,
            held: 0,
            reserved: 0,
            under_way: 0,
            late: 0,
            excess: 0,
            ready: 0,
            experience: Experience::new(limit),
            waiting: BTreeMap::new(),
            next_ticket: 0,
        })))
    }

    /// Waits until the read may start. One grant covers one read. A reader that found no records drops its grant
    /// before it pauses; otherwise idle shards would keep busy ones from reading.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the queue and gives back a grant that it got but did not return.
    pub(crate) async fn admit(&self, forecast: Forecast) -> Grant {
        let (admitted, turn) = oneshot::channel();
        let ticket = self.update(|state| state.queue(Waiter { forecast, admitted }));
        let _place = QueuePlace { budget: self, ticket };
        turn.await.expect("a waiter leaves the queue without a grant only when its place is dropped")
    }

    /// Admits a read now, if no other one waits and there is room.
    pub(crate) fn try_admit(&self, bytes: usize) -> Option<Grant> {
        let mut state = self.state();
        if !state.waiting.is_empty() || !state.has_room(bytes) {
            return None;
        }
        let read = GrantState::UnderWay { reservation: bytes };
        state.enter(read);
        drop(state);
        Some(Grant { budget: self.clone(), stage: read, is_excess: false })
    }

    /// Records how many bytes a read with this forecast brought.
    pub(crate) fn learn(&self, forecast: Forecast, bytes: usize) {
        self.state().experience.learn(forecast, bytes, Instant::now());
    }

    /// The bytes of all held pages.
    pub(crate) fn held(&self) -> usize {
        self.state().held
    }

    /// Changes the state, then admits the waiters that now have room.
    fn update<T>(&self, change: impl FnOnce(&mut BudgetState) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let admitted = state.admit_waiting();
        // Waking a task may drop it, and dropping its grants takes the lock.
        drop(state);
        for (waiter, stage, is_excess) in admitted {
            // If the waiter has left meanwhile, the send fails and the drop gives the grant back.
            drop(waiter.admitted.send(Grant { budget: self.clone(), stage, is_excess }));
        }
        result
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        lock(&self.0)
    }
}

impl BudgetState {
    fn queue(&mut self, waiter: Waiter) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, waiter);
        ticket
    }

    fn admit_waiting(&mut self) -> Vec<(Waiter, GrantState, bool)> {
        let mut admitted = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            let reservation = first.get().forecast.bytes(self.experience, Instant::now());
            let has_room = self.has_room(reservation);
            if !has_room && (self.ready > 0 || self.under_way > 0 || self.late > 0 && self.excess > 0) {
                break;
            }
            let is_excess = !has_room && self.late > 0;
            let read = GrantState::UnderWay { reservation };
            admitted.extend(self.waiting.pop_first().map(|(_, first)| (first, read, is_excess)));
            self.excess += usize::from(is_excess);
            self.enter(read);
        }
        admitted
    }

    fn has_room(&self, reservation: usize) -> bool {
        self.limit.checked_sub(self.held + self.reserved).is_some_and(|room| reservation <= room)
    }

    fn enter(&mut self, stage: GrantState) {
        match stage {
            GrantState::UnderWay { reservation } => {
                self.reserved += reservation;
                self.under_way += 1;
            }
            GrantState::Late { reservation } => {
                self.reserved += reservation;
                self.late += 1;
            }
            GrantState::Ready { bytes } => {
                self.held += bytes;
                self.ready += 1;
            }
            GrantState::Parked { bytes } => self.held += bytes,
        }
    }

    fn leave(&mut self, stage: GrantState) {
        match stage {
            GrantState::UnderWay { reservation } => {
                self.reserved -= reservation;
                self.under_way -= 1;
            }
            GrantState::Late { reservation } => {
                self.reserved -= reservation;
                self.late -= 1;
            }
            GrantState::Ready { bytes } => {
                self.held -= bytes;
                self.ready -= 1;
            }
            GrantState::Parked { bytes } => self.held -= bytes,
        }
    }
}

/// A place in the queue. Dropping it leaves the queue.
struct QueuePlace<'a> {
    budget: &'a Budget,
    ticket: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.budget.update(|state| state.waiting.remove(&self.ticket));
    }
}

/// The permission for one read, and then to hold its page. Dropping it gives the room back.
#[derive(Debug)]
#[must_use = "dropping a grant gives its room back at once"]
pub(crate) struct Grant {
    budget: Budget,
    stage: GrantState,
    /// There was no room for it, because all reads were late.
    is_excess: bool,
}

impl Grant {
    /// The read takes long. It keeps its room, but if all reads are late, one more may start.
    pub(crate) fn late(&mut self) {
        if let GrantState::UnderWay { reservation } = self.stage {
            self.shift(GrantState::Late { reservation });
        }
    }

    /// The read brought a page of this size, in bytes, which can be delivered. Called once more, with the bytes that
    /// are left, after a part of the page was delivered.
    pub(crate) fn ready(&mut self, bytes: usize) {
        self.shift(GrantState::Ready { bytes });
    }

    /// The page cannot be delivered now: its shard is at its bound.
    pub(crate) fn park(&mut self) {
        if let GrantState::Ready { bytes } = self.stage {
            self.shift(GrantState::Parked { bytes });
        }
    }

    /// The page can be delivered again.
    pub(crate) fn unpark(&mut self) {
        if let GrantState::Parked { bytes } = self.stage {
            self.shift(GrantState::Ready { bytes });
        }
    }

    fn shift(&mut self, stage: GrantState) {
        let before = mem::replace(&mut self.stage, stage);
        self.budget.update(|state| {
            state.leave(before);
            state.enter(stage);
        });
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.update(|state| {
            state.leave(self.stage);
            state.excess -= usize::from(self.is_excess);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, executor::block_on, future::BoxFuture};
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    type Turn = BoxFuture<'static, Grant>;

    fn queue(budget: &Budget, reservation: usize) -> Turn {
        let budget = budget.clone();
        let mut turn = async move { budget.admit(Forecast::Exactly(reservation)).await }.boxed();
        match (&mut turn).now_or_never() {
            Some(grant) => async { grant }.boxed(),
            None => turn,
        }
    }

    /// The grant of a turn that must have been admitted.
    fn take(turn: &mut Turn) -> Grant {
        turn.now_or_never().expect("it was admitted")
    }

    fn waits(turn: &mut Turn) -> bool {
        turn.now_or_never().is_none()
    }

    fn admit(budget: &Budget, reservation: usize) -> Grant {
        take(&mut queue(budget, reservation))
    }

    fn page(budget: &Budget, bytes: usize) -> Grant {
        let mut grant = admit(budget, bytes);
        grant.ready(bytes);
        grant
    }

    // A5
    #[test]
    fn reads_are_admitted_while_held_and_reserved_bytes_leave_room() {
        let budget = Budget::new(10);
        let _page = page(&budget, 4);
        let _read = admit(&budget, 3);
        assert_eq!(budget.held(), 4);
        let _last = admit(&budget, 3);
        assert!(waits(&mut queue(&budget, 1)));
        assert_eq!(budget.held(), 4);
    }

    // A5
    #[test]
    fn a_small_read_does_not_overtake_a_large_one() {
        let budget = Budget::new(10);
        let page = page(&budget, 8);
        let (mut large, mut small) = (queue(&budget, 5), queue(&budget, 1));
        assert!(waits(&mut large) && waits(&mut small));
        drop(page);
        let (_large, _small) = (take(&mut large), take(&mut small));
    }

    // P3
    #[test]
    fn try_admit_refuses_if_another_read_waits_or_there_is_no_room() {
        let budget = Budget::new(10);
        let grant = budget.try_admit(7).unwrap();
        assert!(budget.try_admit(4).is_none(), "there is no room");
        let _waiter = queue(&budget, 4);
        assert!(budget.try_admit(1).is_none(), "another read waits");
        drop(grant);
        drop(budget.try_admit(6).unwrap());
    }

    // A5
    #[test]
    fn a_waiter_that_gives_up_leaves_the_queue_and_keeps_no_room() {
        let budget = Budget::new(10);
        let _page = page(&budget, 8);
        let (large, mut small) = (queue(&budget, 5), queue(&budget, 1));
        drop(large);
        let _small = take(&mut small);
        let mut rest = queue(&budget, 2);
        assert!(waits(&mut rest));
    }

    // A5
    #[test]
    fn dropping_a_future_that_was_admitted_gives_its_grant_back() {
        let budget = Budget::new(10);
        let page = page(&budget, 10);
        let (unseen, mut next) = (queue(&budget, 10), queue(&budget, 10));
        drop(page);
        assert!(waits(&mut next));
        drop(unseen);
        drop(take(&mut next));
        drop(admit(&budget, 10));
    }

    // A5
    #[test]
    fn a_page_counts_with_its_actual_size_once_it_was_read() {
        let budget = Budget::new(10);
        let (mut more, mut less) = (admit(&budget, 2), admit(&budget, 8));
        more.ready(5);
        assert_eq!(budget.held(), 5);
        let mut waiter = queue(&budget, 1);
        assert!(waits(&mut waiter));
        less.ready(4);
        assert_eq!(budget.held(), 9);
        let _read = take(&mut waiter);
        more.ready(2);
        assert_eq!(budget.held(), 6);
        let _read = admit(&budget, 3);
    }

    // A5
    #[test]
    fn without_room_one_read_at_a_time_is_admitted_while_no_page_can_be_delivered() {
        let budget = Budget::new(10);
        let mut first = admit(&budget, 11);
        let (mut second, mut third) = (queue(&budget, 1), queue(&budget, 1));
        assert!(waits(&mut second), "a read is under way");
        first.ready(11);
        assert!(waits(&mut second), "a page can be delivered");
        first.park();
        let mut second = take(&mut second);
        assert!(waits(&mut third), "a read is under way");
        second.ready(1);
        first.unpark();
        second.park();
        assert!(waits(&mut third), "a page can be delivered");
        first.park();
        let _third = take(&mut third);
        assert_eq!(budget.held(), 12);
    }

    // A5
    #[test]
    fn parking_twice_or_before_the_page_arrives_changes_nothing() {
        let budget = Budget::new(10);
        let mut grant = admit(&budget, 10);
        grant.park();
        grant.unpark();
        assert!(waits(&mut queue(&budget, 1)), "the read is under way");
        grant.ready(10);
        grant.unpark();
        grant.park();
        grant.park();
        assert_eq!(budget.held(), 10);
        drop(admit(&budget, 1));
        drop(grant);
        assert_eq!(budget.held(), 0);
    }

    // A5
    #[tokio::test(start_paused = true)]
    async fn the_forecast_is_evaluated_at_admission() {
        let budget = Budget::new(10 << 20);
        let page = page(&budget, 10 << 20);
        let tip = || Forecast::AtTip { since: Instant::now(), answer: 1 };
        let mut turns = [tip(), tip()].map(|tip| {
            let budget = budget.clone();
            async move { budget.admit(tip).await }.boxed()
        });
        assert!(turns.iter_mut().all(waits));
        tokio::time::advance(std::time::Duration::from_secs(6)).await;
        drop(page);
        let [first, second] = &mut turns;
        let mut first = take(first);
        assert!(waits(second), "each may bring six MiB by now");
        first.late();
        let _second = take(second);
    }

    // A5
    #[test]
    fn while_all_reads_are_late_one_more_at_a_time_is_admitted_without_room() {
        let budget = Budget::new(10);
        let mut late = admit(&budget, 10);
        let (mut second, mut third) = (queue(&budget, 10), queue(&budget, 10));
        assert!(waits(&mut second));
        late.late();
        let mut excess = take(&mut second);
        assert!(waits(&mut third), "a read is under way");
        excess.late();
        assert!(waits(&mut third), "one beyond the limit is enough");
        excess.ready(7);
        excess.park();
        assert!(waits(&mut third), "its page counts, too");
        late.ready(5);
        assert_eq!(budget.held(), 12);
        drop(excess);
        assert!(waits(&mut third), "a page can be delivered");
        drop(late);
        let _third = take(&mut third);
    }

    // A5
    #[test]
    fn few_first_reads_run_at_once_until_responses_show_their_size() {
        let budget = Budget::new(64 << 20);
        let unknown = || {
            let budget = budget.clone();
            async move { budget.admit(Forecast::Unknown).await }.boxed().now_or_never()
        };
        let first: Vec<Grant> = std::iter::from_fn(unknown).collect();
        assert_eq!(first.len(), 6);
        for read in first {
            budget.learn(Forecast::Unknown, 10);
            drop(read);
        }
        assert_eq!(std::iter::from_fn(unknown).collect::<Vec<_>>().len(), 9);
        for _ in 0..30 {
            budget.learn(Forecast::Unknown, 10);
        }
        assert_eq!(std::iter::from_fn(unknown).collect::<Vec<_>>().len(), 64);
    }

    // A5
    #[tokio::test]
    async fn freed_room_wakes_its_waiter() {
        let budget = Budget::new(10);
        let page = page(&budget, 10);
        let (read, ()) = tokio::join!(budget.admit(Forecast::Exactly(10)), async { drop(page) });
        drop(read);
        assert_eq!(budget.held(), 0);
    }

    // A5
    #[test]
    fn threads_that_take_park_and_give_up_never_deadlock() {
        let budget = Budget::new(3);
        std::thread::scope(|scope| {
            for reservation in 1..=4 {
                let budget = &budget;
                scope.spawn(move || {
                    for round in 0..500 {
                        drop(queue(budget, reservation));
                        let mut grant = block_on(budget.admit(Forecast::Exactly(reservation)));
                        grant.ready(round % 3);
                        grant.park();
                    }
                });
            }
        });
        assert_eq!(budget.held(), 0);
        assert_eq!(admit(&budget, 3).stage, GrantState::UnderWay { reservation: 3 });
    }

    #[derive(Clone, Debug)]
    enum Step {
        Queue(usize),
        GiveUp(Index),
        Ready(Index, usize),
        Park(Index),
        Unpark(Index),
        Drop(Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..8_usize).prop_map(Step::Queue),
            1 => any::<Index>().prop_map(Step::GiveUp),
            3 => (any::<Index>(), 0..10_usize).prop_map(|(of, bytes)| Step::Ready(of, bytes)),
            2 => any::<Index>().prop_map(Step::Park),
            1 => any::<Index>().prop_map(Step::Unpark),
            2 => any::<Index>().prop_map(Step::Drop),
        ]
    }

    /// The admission rule, computed from the grants that exist.
    fn may_start(limit: usize, grants: &[Grant], reservation: usize) -> bool {
        let taken = |grant: &Grant| match grant.stage {
            GrantState::UnderWay { reservation } | GrantState::Late { reservation } => reservation,
            GrantState::Ready { bytes } | GrantState::Parked { bytes } => bytes,
        };
        let none_deliverable = grants.iter().all(|grant| matches!(grant.stage, GrantState::Parked { .. }));
        grants.iter().map(taken).sum::<usize>() + reservation <= limit || none_deliverable
    }

    fn act(step: &Step, budget: &Budget, queued: &mut Vec<(usize, Turn)>, grants: &mut Vec<Grant>) {
        let pick = |of: &Index, len: usize| (len > 0).then(|| of.index(len));
        match step {
            Step::Queue(reservation) => queued.push((*reservation, queue(budget, *reservation))),
            Step::GiveUp(of) => drop(pick(of, queued.len()).map(|n| queued.remove(n))),
            Step::Ready(of, bytes) => pick(of, grants.len()).into_iter().for_each(|n| grants[n].ready(*bytes)),
            Step::Park(of) => pick(of, grants.len()).into_iter().for_each(|n| grants[n].park()),
            Step::Unpark(of) => pick(of, grants.len()).into_iter().for_each(|n| grants[n].unpark()),
            Step::Drop(of) => drop(pick(of, grants.len()).map(|n| grants.remove(n))),
        }
    }

    proptest! {
        // A5
        #[test]
        fn reads_start_in_order_exactly_when_the_rule_allows(limit in 0..16_usize, steps in vec(step(), 0..60)) {
            let budget = Budget::new(limit);
            let (mut queued, mut grants) = (Vec::<(usize, Turn)>::new(), Vec::new());
            for step in steps {
                act(&step, &budget, &mut queued, &mut grants);
                while let Some((reservation, turn)) = queued.first_mut() {
                    let may_start = may_start(limit, &grants, *reservation);
                    let grant = turn.now_or_never();
                    prop_assert_eq!(grant.is_some(), may_start);
                    let Some(grant) = grant else { break };
                    grants.push(grant);
                    drop(queued.remove(0));
                }
                prop_assert!(queued.iter_mut().all(|(_, turn)| waits(turn)));
            }
            drop(grants);
            drop(queued);
            prop_assert_eq!(budget.held(), 0);
            drop(admit(&budget, limit));
        }
    }
}
