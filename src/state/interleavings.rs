//! No wake-up is lost between an atomic that stands outside a lock and the lock. Shuttle plays many interleavings of
//! the threads; a lost wake-up shows as a deadlock. `.ci/run interleavings` compiles these tests with `--cfg shuttle`.

use std::{future::poll_fn, sync::Arc, task::Poll};

use shuttle::{check_pct, check_random, future::block_on, thread};
use tokio::time::Instant;

use crate::{
    error::KinesisError,
    state::{
        events::{Event, Events},
        settlement::{Outcome, OutcomeWatch, RecordKey, Settlement},
        tracker::Ticket,
    },
};

const RUNS: usize = 20_000;

/// Plays random interleavings, and those with few switches at the worst places.
fn check(test: impl Fn() + Clone + Send + Sync + 'static) {
    check_random(test.clone(), RUNS);
    check_pct(test, RUNS, 3);
}

/// Waits for the next event in the steps in which a subscription polls.
fn next_event(events: &Events) -> Event {
    let mut is_to_take = true;
    block_on(poll_fn(move |cx| {
        loop {
            is_to_take |= events.has_news();
            if is_to_take {
                match events.take(Instant::now()) {
                    Some(event) => return Poll::Ready(event),
                    None => is_to_take = false,
                }
            }
            events.register(cx.waker());
            if events.is_empty_handed() {
                return Poll::Pending;
            }
        }
    }))
}

// R10
#[test]
fn every_error_wakes_the_subscription() {
    check(|| {
        let events = Arc::new(Events::default());
        let workers = ["a", "b"].map(|shard| {
            let events = Arc::clone(&events);
            thread::spawn(move || events.error(Some(shard.into()), KinesisError::NotConnected))
        });
        for _ in 0..2 {
            assert!(matches!(next_event(&events), Event::Error(KinesisError::NotConnected)));
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

// A7
#[test]
fn a_record_that_is_settled_elsewhere_wakes_its_watch() {
    check(|| {
        let watch = OutcomeWatch::default();
        let returned = |offset| {
            let mut settlement = None;
            Settlement::attach(&mut settlement, &watch, offset, RecordKey { shard: 1, ticket: Ticket::of(1, offset) });
            let settlement = settlement.unwrap();
            settlement.returned();
            settlement
        };
        let workers = [returned(0), returned(1)].map(|settlement| thread::spawn(move || settlement.settled()));
        let mut outcomes = Vec::new();
        while outcomes.len() < 2 {
            let ended = block_on(poll_fn(|cx| {
                watch.register(cx.waker());
                let ended = watch.take();
                if ended.is_empty() { Poll::Pending } else { Poll::Ready(ended) }
            }));
            outcomes.extend(ended.iter().map(|record| record.outcome()));
        }
        assert_eq!(outcomes, [Outcome::Settled; 2]);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
