//! One deed at a time, and what exactly comes of it.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::time::Duration;

use crate::{
    checker::{Verdict, judge},
    fleet::Fleet,
    history::Book,
    takeover::{Cause, Takeover},
};

/// What a loaded machine may add to a time that the library promises and that has no room in itself.
const SLACK: Duration = Duration::from_secs(1);

/// Whether it took as long as it may, or the machine is to blame.
fn in_time(takeover: &Takeover, slack: Duration) -> bool {
    takeover.stalled || takeover.took <= takeover.cause.target().map(|target| target + slack)
}

/// All is settled and closed: the verdict on what happened until then, which is without a fault.
async fn verdict(fleet: &Fleet) -> Verdict {
    fleet.settled().await;
    let puts = fleet.source.puts.lock().unwrap().clone();
    let verdict = judge(&fleet.entries(), &puts);
    assert_eq!(verdict.violations, Vec::<String>::new());
    verdict
}

/// Waits until these workers hold so many shards each.
async fn share(fleet: &Fleet, owners: &[&str], shares: &[usize]) {
    let is_so = |book: &Book| {
        let of = |owner: &&str| book.rows.values().filter(|row| row.owner.as_deref() == Some(owner)).count();
        (owners.iter().map(of).eq(shares.iter().copied())).then_some(())
    };
    fleet.journal.find("the shares", is_so).await;
}

/// Two workers with two shards each, of which one goes while records are put: the verdict.
async fn one_goes(signal: Signal) -> Verdict {
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

// D4, L9
#[tokio::test(flavor = "multi_thread")]
async fn the_shards_of_one_that_closes_are_read_within_a_renewal_interval_and_a_second() {
    let verdict = one_goes(Signal::TERM).await;
    let [one, other] = &verdict.takeovers[2..] else { panic!("{:?}", verdict.takeovers) };
    assert_eq!((one.cause, other.cause, verdict.again, verdict.late), (Cause::Closed, Cause::Closed, 0, 0));
    assert!(in_time(one, Duration::ZERO) && in_time(other, Duration::ZERO), "{one:?}, {other:?}");
}

// E3, E5
#[tokio::test(flavor = "multi_thread")]
async fn the_shards_of_one_that_is_killed_are_read_within_its_time_to_live_and_two_renewal_intervals() {
    let verdict = one_goes(Signal::KILL).await;
    let [one, other] = &verdict.takeovers[2..] else { panic!("{:?}", verdict.takeovers) };
    assert_eq!((one.cause, other.cause), (Cause::Killed, Cause::Killed));
    assert!(in_time(one, SLACK) && in_time(other, SLACK), "{one:?}, {other:?}");
}

// D14
#[tokio::test(flavor = "multi_thread")]
async fn one_that_joins_another_with_eight_shards_gets_four_and_nothing_moves_after_that() {
    let mut fleet = Fleet::new("joins", 8).await;
    let first = fleet.joined().await;
    share(&fleet, &[&first], &[8]).await;
    let second = fleet.joined().await;
    share(&fleet, &[&first, &second], &[4, 4]).await;
    // Ten more renewals of each are ten more looks at the shares.
    let before = fleet.journal.book().rows.clone();
    let look =
        |book: &Book| before.iter().all(|(shard, row)| book.rows[shard].counter >= row.counter + 10).then_some(());
    fleet.journal.find("renewals", look).await;
    let epochs = |book: &Book| book.rows.values().map(|row| row.epoch).sum::<u64>();
    assert_eq!(epochs(&fleet.journal.book()), 8 + 4);
    share(&fleet, &[&first, &second], &[4, 4]).await;
}

// D20, E4
#[tokio::test(flavor = "multi_thread")]
async fn of_two_with_one_owner_id_one_ends_with_an_error_that_says_so_and_the_other_goes_on() {
    let mut fleet = Fleet::new("twins", 4).await;
    fleet.join_as("w1", "twin");
    share(&fleet, &["twin"], &[4]).await;
    fleet.join_as("w2", "twin");
    let error = fleet.journal.event("error", "twin").await;
    assert!(error.text("error").contains("another live process uses the owner id twin"), "{}", error.line);
    assert_eq!(fleet.worker("w1").end().await.code(), Some(1));
    fleet.source.put_steadily(20, 10, Duration::from_millis(10)).await;
    fleet.settled().await;
    assert_eq!(fleet.worker("w2").ended(), None);
    let book = fleet.journal.book();
    assert!(book.rows.values().all(|row| row.epoch == 2), "every shard has moved once: {:?}", book.rows);
}

// A12, B8, E3
#[tokio::test(flavor = "multi_thread")]
async fn what_one_settles_after_it_stood_still_for_longer_than_a_lease_lives_changes_nothing() {
    let mut fleet = Fleet::new("stands-still", 1).await;
    fleet.work = Duration::from_secs(1);
    let first = fleet.joined().await;
    fleet.source.put("key").await;
    fleet.journal.event("begun", &first).await;
    fleet.signal(&first, Signal::STOP);
    fleet.work = Duration::ZERO;
    let second = fleet.joined().await;
    fleet.source.put("key").await;
    fleet.settled().await;
    let row = |book: &Book| book.rows.values().next().cloned().unwrap();
    let before = row(&fleet.journal.book());
    assert_eq!((before.owner.as_ref(), before.epoch), (Some(&second), 2));
    fleet.signal(&first, Signal::CONT);
    let settled = fleet.journal.event("settled", &first).await;
    assert_eq!((settled.text("commit"), settled.epoch()), ("superseded", 1));
    let after = row(&fleet.journal.book());
    assert_eq!((after.owner, after.epoch, after.place), (before.owner, before.epoch, before.place));
    let verdict = verdict(&fleet).await;
    assert_eq!((verdict.begun, verdict.again), (3, 1), "only what was not stored came again");
}

// A14, B1
#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_records_are_settled_once_each_by_one_and_another_that_joins_half_way() {
    let mut fleet = Fleet::new("half-way", 4).await;
    let first = fleet.joined().await;
    let source = Arc::clone(&fleet.source);
    let producer = tokio::spawn(async move { source.put_steadily(300, 10, Duration::from_millis(15)).await });
    let half =
        |book: &Book| (book.entries.iter().filter(|entry| entry.event() == "settled").count() >= 150).then_some(());
    fleet.journal.find("half of the records", half).await;
    let second = fleet.joined().await;
    share(&fleet, &[&first, &second], &[2, 2]).await;
    producer.await.unwrap();
    let verdict = verdict(&fleet).await;
    assert_eq!((verdict.begun, verdict.takeovers.len()), (300, 2), "{:?}", verdict.takeovers);
}
