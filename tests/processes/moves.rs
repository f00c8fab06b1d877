//! One action at a time, and its exact outcome.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::time::Duration;

use crate::{
    checker::{Verdict, check},
    fleet::Fleet,
    history::History,
    takeover::{Cause, Takeover},
};

/// How much a loaded machine may add to a time limit that has no margin.
const SLACK: Duration = Duration::from_secs(1);

/// Whether the takeover met its target. A stalled machine excuses a late one.
fn in_time(takeover: &Takeover, slack: Duration) -> bool {
    takeover.stalled || takeover.took <= takeover.cause.target().map(|target| target + slack)
}

/// Waits until every record is settled, and checks the history. It must have no violation.
async fn verdict(fleet: &Fleet) -> Verdict {
    fleet.settled().await;
    let puts = fleet.source.puts.lock().unwrap().clone();
    let verdict = check(&fleet.entries(), &puts);
    assert_eq!(verdict.violations, Vec::<String>::new());
    verdict
}

/// Waits until these workers hold these numbers of shards.
async fn share(fleet: &Fleet, owners: &[&str], shares: &[usize]) {
    let matches = |history: &History| {
        let of = |owner: &&str| history.rows.values().filter(|row| row.owner.as_deref() == Some(owner)).count();
        (owners.iter().map(of).eq(shares.iter().copied())).then_some(())
    };
    fleet.recorder.find("the shares", matches).await;
}

/// Two workers hold two shards each, and one of them ends while records are put. Returns the verdict.
async fn one_ends(signal: Signal) -> Verdict {
    let mut fleet = Fleet::new("goes", 4).await;
    let (first, second) = (fleet.joined().await, fleet.joined().await);
    share(&fleet, &[&first, &second], &[2, 2]).await;
    let source = Arc::clone(&fleet.source);
    let producer = tokio::spawn(async move { source.put_steadily(200, 10, Duration::from_millis(10)).await });
    fleet.signal(&first, signal);
    share(&fleet, &[&first, &second], &[0, 4]).await;
    producer.await.unwrap();
    let status = fleet.worker(&first).end().await;
    assert_eq!(status.success(), signal == Signal::TERM, "{status}");
    let verdict = verdict(&fleet).await;
    fleet.signal(&second, Signal::TERM);
    assert!(fleet.worker(&second).end().await.success());
    verdict
}

// L6, L9
#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_closing_worker_are_taken_within_a_renewal_interval_and_a_second() {
    let verdict = one_ends(Signal::TERM).await;
    let [one, other] = &verdict.takeovers[2..] else { panic!("{:?}", verdict.takeovers) };
    assert_eq!((one.cause, other.cause, verdict.again, verdict.late), (Cause::Closed, Cause::Closed, 0, 0));
    assert!(in_time(one, Duration::ZERO) && in_time(other, Duration::ZERO), "{one:?}, {other:?}");
}

// E3, E5
#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_killed_worker_are_taken_within_the_ttl_and_two_renewal_intervals() {
    let verdict = one_ends(Signal::KILL).await;
    let [one, other] = &verdict.takeovers[2..] else { panic!("{:?}", verdict.takeovers) };
    assert_eq!((one.cause, other.cause), (Cause::Killed, Cause::Killed));
    assert!(in_time(one, SLACK) && in_time(other, SLACK), "{one:?}, {other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_gets_four_of_eight_shards_and_then_no_shard_moves() {
    let mut fleet = Fleet::new("joins", 8).await;
    let first = fleet.joined().await;
    share(&fleet, &[&first], &[8]).await;
    let second = fleet.joined().await;
    share(&fleet, &[&first, &second], &[4, 4]).await;
    // Ten more renewals of each lease mean ten more chances to rebalance.
    let before = fleet.recorder.history().rows.clone();
    let renewed = |history: &History| {
        before.iter().all(|(shard, row)| history.rows[shard].counter >= row.counter + 10).then_some(())
    };
    fleet.recorder.find("renewals", renewed).await;
    let epochs = |history: &History| history.rows.values().map(|row| row.epoch).sum::<u64>();
    assert_eq!(epochs(&fleet.recorder.history()), 8 + 4);
    share(&fleet, &[&first, &second], &[4, 4]).await;
}

// E4
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_workers_with_the_same_owner_id_ends_with_an_error_that_says_so_and_the_other_continues() {
    let mut fleet = Fleet::new("twins", 4).await;
    fleet.join_as("w1", "twin");
    share(&fleet, &["twin"], &[4]).await;
    fleet.join_as("w2", "twin");
    let error = fleet.recorder.event("error", "twin").await;
    assert!(error.text("error").contains("another live process uses the owner id twin"), "{}", error.line);
    assert_eq!(fleet.worker("w1").end().await.code(), Some(1));
    fleet.source.put_steadily(20, 10, Duration::from_millis(10)).await;
    fleet.settled().await;
    assert_eq!(fleet.worker("w2").ended(), None);
    let history = fleet.recorder.history();
    assert!(history.rows.values().all(|row| row.epoch == 2), "every shard has moved once: {:?}", history.rows);
}

// A3, E3
#[tokio::test(flavor = "multi_thread")]
async fn settlements_of_a_worker_that_was_stopped_past_its_ttl_change_nothing() {
    let mut fleet = Fleet::new("stands-still", 1).await;
    fleet.work = Duration::from_secs(1);
    let first = fleet.joined().await;
    fleet.source.put("key").await;
    fleet.recorder.event("begun", &first).await;
    fleet.signal(&first, Signal::STOP);
    fleet.work = Duration::ZERO;
    let second = fleet.joined().await;
    fleet.source.put("key").await;
    fleet.settled().await;
    let row = |history: &History| history.rows.values().next().cloned().unwrap();
    let before = row(&fleet.recorder.history());
    assert_eq!((before.owner.as_ref(), before.epoch), (Some(&second), 2));
    fleet.signal(&first, Signal::CONT);
    let settled = fleet.recorder.event("settled", &first).await;
    assert_eq!((settled.text("commit"), settled.epoch()), ("superseded", 1));
    let after = row(&fleet.recorder.history());
    assert_eq!((after.owner, after.epoch, after.place), (before.owner, before.epoch, before.place));
    let verdict = verdict(&fleet).await;
    assert_eq!((verdict.begun, verdict.again), (3, 1), "only the unstored record was redelivered");
}

// A4
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_settle_each_of_three_hundred_records_once_if_the_second_joins_half_way() {
    let mut fleet = Fleet::new("half-way", 4).await;
    let first = fleet.joined().await;
    let source = Arc::clone(&fleet.source);
    let producer = tokio::spawn(async move { source.put_steadily(300, 10, Duration::from_millis(15)).await });
    let half = |history: &History| {
        (history.entries.iter().filter(|entry| entry.event() == "settled").count() >= 150).then_some(())
    };
    fleet.recorder.find("half of the records", half).await;
    let second = fleet.joined().await;
    share(&fleet, &[&first, &second], &[2, 2]).await;
    producer.await.unwrap();
    let verdict = verdict(&fleet).await;
    assert_eq!((verdict.begun, verdict.takeovers.len()), (300, 2), "{:?}", verdict.takeovers);
}
