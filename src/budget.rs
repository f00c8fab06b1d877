//! Which read may start, by the bytes that it may bring (A5). First come, first served.
//!
//! A subscription holds pages up to a limit. A read is admitted with a reservation, the bytes it is expected to bring,
//! and the [`Grant`] then stands for its page until that is given away: whoever owns the one owns the other, so there
//! is no path on which room is lost.
//!
//! A read is admitted when what is held and reserved leaves room for it, or else when nothing that is held could be
//! handed out and no read is under way: with all pages [parked](Grant::park), only a read can bring anything to hand
//! out, and waiting for room would be waiting for ever. What is held is thus bounded by the limit and an excess: what
//! reads under way bring beyond their reservations, and the pages that were admitted without room. Those add up only
//! while they are parked, to one for each shard, since a parked shard does not read ahead. How much is reserved, a
//! [`Forecast`] says, at the moment of admission.
//!
//! A sink bounds what it has accepted in the same way: a record waits for its turn as a read, and is held as a page until it
//! is settled.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{sync::oneshot, time::Instant};

use crate::{budget::estimate::Experience, util::mutex::lock};

mod estimate;

pub(crate) use crate::budget::estimate::Forecast;

/// The bytes that the shards of one subscription share. Clones share them, too.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    limit: usize,
    /// The bytes of pages.
    held: usize,
    /// The bytes that reads under way may bring.
    reserved: usize,
    /// How many reads are under way.
    under_way: usize,
    /// How many pages could be handed out.
    ready: usize,
    /// What the reads have shown.
    experience: Experience,
    /// Those who wait, in order of their tickets.
    waiting: BTreeMap<u64, Waiter>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    forecast: Forecast,
    admitted: oneshot::Sender<Grant>,
}

/// Where the holder of a grant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    UnderWay { reservation: usize },
    Ready { bytes: usize },
    Parked { bytes: usize },
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            limit,
            held: 0,
            reserved: 0,
            under_way: 0,
            ready: 0,
            experience: Experience::new(limit),
            waiting: BTreeMap::new(),
            next_ticket: 0,
        })))
    }

    /// Waits for its turn. One grant is one read: a reader that found nothing drops it before it pauses, or else idle
    /// shards would keep busy ones from reading.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped leaves the queue, and gives back what it was granted in the meantime.
    pub(crate) async fn admit(&self, forecast: Forecast) -> Grant {
        let (admitted, turn) = oneshot::channel();
        let ticket = self.update(|state| state.queue(Waiter { forecast, admitted }));
        let _place = Place { budget: self, ticket };
        turn.await.expect("only the drop of its place takes a waiter out of the queue without a word")
    }

    /// Its turn, if that is now: nobody waits, and there is room.
    pub(crate) fn try_admit(&self, bytes: usize) -> Option<Grant> {
        let mut state = self.state();
        if !state.waiting.is_empty() || !state.has_room(bytes) {
            return None;
        }
        let read = Stage::UnderWay { reservation: bytes };
        state.enter(read);
        drop(state);
        Some(Grant { budget: self.clone(), stage: read })
    }

    /// Takes in what a read brought of which this was known.
    pub(crate) fn learn(&self, forecast: Forecast, bytes: usize) {
        self.state().experience.learn(forecast, bytes, Instant::now());
    }

    /// The bytes of all pages that are held.
    pub(crate) fn held(&self) -> usize {
        self.state().held
    }

    /// Changes the state, then admits whom that gives room.
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let admitted = state.admit_waiting();
        // To wake a task may be to drop it, with grants in it that want the lock.
        drop(state);
        for (waiter, stage) in admitted {
            // Whoever has gone meanwhile does not take it, and it is given back.
            drop(waiter.admitted.send(Grant { budget: self.clone(), stage }));
        }
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    fn queue(&mut self, waiter: Waiter) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, waiter);
        ticket
    }

    fn admit_waiting(&mut self) -> Vec<(Waiter, Stage)> {
        let mut admitted = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            let reservation = first.get().forecast.bytes(self.experience, Instant::now());
            if !self.has_room(reservation) && (self.ready > 0 || self.under_way > 0) {
                break;
            }
            let read = Stage::UnderWay { reservation };
            admitted.extend(self.waiting.pop_first().map(|(_, first)| (first, read)));
            self.enter(read);
        }
        admitted
    }

    fn has_room(&self, reservation: usize) -> bool {
        self.limit.checked_sub(self.held + self.reserved).is_some_and(|room| reservation <= room)
    }

    fn enter(&mut self, stage: Stage) {
        match stage {
            Stage::UnderWay { reservation } => {
                self.reserved += reservation;
                self.under_way += 1;
            }
            Stage::Ready { bytes } => {
                self.held += bytes;
                self.ready += 1;
            }
            Stage::Parked { bytes } => self.held += bytes,
        }
    }

    fn leave(&mut self, stage: Stage) {
        match stage {
            Stage::UnderWay { reservation } => {
                self.reserved -= reservation;
                self.under_way -= 1;
            }
            Stage::Ready { bytes } => {
                self.held -= bytes;
                self.ready -= 1;
            }
            Stage::Parked { bytes } => self.held -= bytes,
        }
    }
}

/// A place in the queue.
struct Place<'a> {
    budget: &'a Budget,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.budget.update(|state| state.waiting.remove(&self.ticket));
    }
}

/// The right to one read, and then to hold its page. Dropping it gives the room back.
#[derive(Debug)]
#[must_use = "dropping a grant gives its room back at once"]
pub(crate) struct Grant {
    budget: Budget,
    stage: Stage,
}

impl Grant {
    /// The read takes long: it keeps no room from others, and what it brings comes on top.
    pub(crate) fn late(&mut self) {
        if let Stage::UnderWay { .. } = self.stage {
            self.shift(Stage::UnderWay { reservation: 0 });
        }
    }

    /// The read brought a page of so many bytes, which can be handed out. Called again, with what is left of the page.
    pub(crate) fn ready(&mut self, bytes: usize) {
        self.shift(Stage::Ready { bytes });
    }

    /// The page cannot be handed out now: its shard is at its bound.
    pub(crate) fn park(&mut self) {
        if let Stage::Ready { bytes } = self.stage {
            self.shift(Stage::Parked { bytes });
        }
    }

    /// The page can be handed out again.
    pub(crate) fn unpark(&mut self) {
        if let Stage::Parked { bytes } = self.stage {
            self.shift(Stage::Ready { bytes });
        }
    }

    fn shift(&mut self, stage: Stage) {
        let before = mem::replace(&mut self.stage, stage);
        self.budget.update(|state| {
            state.leave(before);
            state.enter(stage);
        });
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.update(|state| state.leave(self.stage));
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

    /// A grant that has to be there.
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
    fn nobody_is_admitted_at_once_before_those_who_wait_or_without_room() {
        let budget = Budget::new(10);
        let grant = budget.try_admit(7).unwrap();
        assert!(budget.try_admit(4).is_none(), "there is no room");
        let _waiter = queue(&budget, 4);
        assert!(budget.try_admit(1).is_none(), "somebody waits");
        drop(grant);
        drop(budget.try_admit(6).unwrap());
    }

    // A5
    #[test]
    fn whoever_gives_up_makes_way_and_keeps_nothing() {
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
    fn giving_up_what_was_granted_unseen_gives_it_back() {
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
    fn a_page_counts_as_large_as_it_is_from_when_it_is_there() {
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
    fn one_read_at_a_time_is_admitted_without_room_while_nothing_could_be_handed_out() {
        let budget = Budget::new(10);
        let mut first = admit(&budget, 11);
        let (mut second, mut third) = (queue(&budget, 1), queue(&budget, 1));
        assert!(waits(&mut second), "a read is under way");
        first.ready(11);
        assert!(waits(&mut second), "a page can be handed out");
        first.park();
        let mut second = take(&mut second);
        assert!(waits(&mut third), "a read is under way");
        second.ready(1);
        first.unpark();
        second.park();
        assert!(waits(&mut third), "a page can be handed out");
        first.park();
        let _third = take(&mut third);
        assert_eq!(budget.held(), 12);
    }

    // A5
    #[test]
    fn parking_twice_or_before_the_page_is_there_changes_nothing() {
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
    async fn what_a_read_may_bring_is_asked_when_it_is_admitted() {
        let budget = Budget::new(10 << 20);
        let mut page = page(&budget, 10 << 20);
        let tip = || Forecast::AtTip { since: Instant::now(), answer: 1 };
        let mut turns = [tip(), tip()].map(|tip| {
            let budget = budget.clone();
            async move { budget.admit(tip).await }.boxed()
        });
        assert!(turns.iter_mut().all(waits));
        tokio::time::advance(std::time::Duration::from_secs(6)).await;
        page.ready(0);
        let [first, second] = &mut turns;
        let mut first = take(first);
        assert!(waits(second), "each may bring six MiB by now");
        first.late();
        let _second = take(second);
    }

    // A5
    #[test]
    fn a_read_that_is_late_keeps_no_room_and_its_page_counts() {
        let budget = Budget::new(10);
        let mut late = admit(&budget, 10);
        let mut waiter = queue(&budget, 10);
        assert!(waits(&mut waiter));
        late.late();
        let _read = take(&mut waiter);
        late.ready(7);
        late.late();
        assert_eq!(budget.held(), 7);
    }

    // A5
    #[test]
    fn reads_of_which_nothing_is_known_are_few_until_they_show_how_large_they_are() {
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
    async fn freed_room_wakes_the_one_that_waits_for_it() {
        let budget = Budget::new(10);
        let page = page(&budget, 10);
        let (read, ()) = tokio::join!(budget.admit(Forecast::Exactly(10)), async { drop(page) });
        drop(read);
        assert_eq!(budget.held(), 0);
    }

    // A5
    #[test]
    fn threads_that_take_park_and_give_up_never_lock_each_other_out() {
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
        assert_eq!(admit(&budget, 3).stage, Stage::UnderWay { reservation: 3 });
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

    /// The rule, told from the grants that are out.
    fn may_start(limit: usize, grants: &[Grant], reservation: usize) -> bool {
        let taken = |grant: &Grant| match grant.stage {
            Stage::UnderWay { reservation } => reservation,
            Stage::Ready { bytes } | Stage::Parked { bytes } => bytes,
        };
        let nothing_to_hand_out = grants.iter().all(|grant| matches!(grant.stage, Stage::Parked { .. }));
        grants.iter().map(taken).sum::<usize>() + reservation <= limit || nothing_to_hand_out
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
        fn exactly_those_start_that_may_and_in_order(limit in 0..16_usize, steps in vec(step(), 0..60)) {
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
