//! Custom lease stores: one as a user would write it, and one whose calls fail.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, StreamExt, future};
use kinesis_stream::{
    Checkpoint, Commit, Delivery, ErrorClass, Held, KinesisBroker, KinesisError, KinesisPosition, KinesisStream, Lease,
    LeaseKey, LeaseStore, MemoryLeaseStore, Seen, ShardId, StoreError, StoreFuture, Subscription, Take, Write,
    contract::{self, LostAnswer},
};
use kinesis_stream_support::Emulator;
use tokio::time::{Duration, sleep, timeout};

const STREAM: &str = "stream";
const PATIENCE: Duration = Duration::from_mins(1);

/// A store as a user would write one over a database: a table of text columns.
#[derive(Clone, Debug, Default)]
struct Table {
    rows: Arc<tokio::sync::Mutex<BTreeMap<LeaseKey, Columns>>>,
}

#[derive(Clone, Debug)]
struct Columns {
    owner: String,
    epoch: u64,
    counter: u64,
    checkpoint: String,
    parents: String,
    created: Option<i64>,
    wanted_by: String,
}

fn to_text(checkpoint: &Checkpoint) -> Result<String, StoreError> {
    match checkpoint {
        Checkpoint::Since(unix_millis) => Ok(format!("since {unix_millis}")),
        Checkpoint::At(number) => Ok(format!("at {number}")),
        Checkpoint::After(number) => Ok(format!("after {number}")),
        Checkpoint::ShardEnd => Ok("SHARD_END".into()),
        other => Err(StoreError::new(format!("this table cannot hold a checkpoint {other}"))),
    }
}

fn from_text(text: &str) -> Result<Option<Checkpoint>, StoreError> {
    match text.split_once(' ') {
        Some(("since", unix_millis)) => {
            let moment = unix_millis.parse().map_err(|_| StoreError::new(format!("not a time: {text}")))?;
            Ok(Some(Checkpoint::Since(moment)))
        }
        Some(("at", number)) => Ok(Some(Checkpoint::At(number.into()))),
        Some(("after", number)) => Ok(Some(Checkpoint::After(number.into()))),
        None if text == "SHARD_END" => Ok(Some(Checkpoint::ShardEnd)),
        None if text.is_empty() => Ok(None),
        _ => Err(StoreError::new(format!("not a checkpoint: {text}"))),
    }
}

fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

impl Columns {
    fn lease(&self, key: &LeaseKey) -> Result<Lease, StoreError> {
        Ok(Lease::new(key.clone(), self.seen())
            .with_owner(name(&self.owner))
            .with_checkpoint(from_text(&self.checkpoint)?)
            .with_parents(self.parents.split_whitespace().map(Into::into).collect())
            .with_stream_created(self.created)
            .with_wanted_by(name(&self.wanted_by)))
    }

    fn seen(&self) -> Seen {
        Seen::new(self.epoch, self.counter)
    }
}

impl Table {
    /// `UPDATE .. SET .. WHERE ..`. Returns the current row if it updated nothing.
    async fn update(
        &self,
        key: &LeaseKey,
        condition: impl Fn(&Columns) -> bool,
        set: impl FnOnce(&mut Columns),
    ) -> Result<Write, StoreError> {
        let mut rows = self.rows.lock().await;
        match rows.get_mut(key) {
            Some(row) if condition(row) => {
                set(row);
                row.counter += 1;
                Ok(Write::Applied(()))
            }
            Some(row) => Ok(Write::Refused(Some(row.lease(key)?))),
            None => Ok(Write::Refused(None)),
        }
    }

    /// An operator's mistake.
    async fn delete_everything(&self) {
        self.rows.lock().await.clear();
    }
}

fn holds(held: &Held) -> impl Fn(&Columns) -> bool {
    move |row| row.owner == *held.owner && row.epoch == held.epoch
}

impl LeaseStore for Table {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        Box::pin(async move {
            let rows = self.rows.lock().await;
            let of = rows.iter().filter(|(key, _)| *key.consumer == *consumer && *key.stream == *stream);
            of.map(|(key, row)| row.lease(key)).collect()
        })
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        Box::pin(async move {
            let mut rows = self.rows.lock().await;
            let old = rows.get(&take.key);
            if old.map(Columns::seen) != take.seen {
                return Ok(Write::Refused(old.map(|row| row.lease(&take.key)).transpose()?));
            }
            let parents: Vec<&str> = take.parents.iter().map(ShardId::as_str).collect();
            let row = Columns {
                owner: take.owner.to_string(),
                epoch: old.map_or(0, |row| row.epoch) + 1,
                counter: old.map_or(0, |row| row.counter) + 1,
                checkpoint: old
                    .filter(|_| !take.forget_checkpoint)
                    .map(|row| row.checkpoint.clone())
                    .unwrap_or_default(),
                parents: parents.join(" "),
                created: take.stream_created,
                wanted_by: String::new(),
            };
            let lease = row.lease(&take.key)?;
            rows.insert(take.key.clone(), row);
            Ok(Write::Applied(lease))
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        Box::pin(self.update(&held.key, holds(held), |_| ()))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        Box::pin(async move {
            let text = to_text(checkpoint)?;
            let ends = *checkpoint == Checkpoint::ShardEnd;
            let change = |row: &mut Columns| {
                row.checkpoint = text;
                if ends {
                    row.wanted_by.clear();
                }
            };
            self.update(&held.key, holds(held), change).await
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        Box::pin(self.update(&held.key, holds(held), |row| row.owner.clear()))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        Box::pin(self.update(key, move |row| row.seen() == seen, |row| by.clone_into(&mut row.wanted_by)))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        Box::pin(async move {
            let mut rows = self.rows.lock().await;
            match rows.get(key) {
                Some(row) if row.seen() == seen => {
                    rows.remove(key);
                    Ok(Write::Applied(()))
                }
                row => Ok(Write::Refused(row.map(|row| row.lease(key)).transpose()?)),
            }
        })
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallOutcome {
    Passes,
    Fails,
    Hangs,
}

type Decide = dyn Fn(&str, &str) -> CallOutcome + Send + Sync;

/// A store that logs its calls, and fails some of them.
#[derive(Clone)]
struct FaultyStore {
    store: MemoryLeaseStore,
    log: Arc<Mutex<Vec<String>>>,
    decide: Arc<Mutex<Box<Decide>>>,
}

impl FaultyStore {
    fn new() -> Self {
        let passes: Box<Decide> = Box::new(|_, _| CallOutcome::Passes);
        Self { store: MemoryLeaseStore::new(), log: Arc::default(), decide: Arc::new(Mutex::new(passes)) }
    }

    /// From now on, `decide` chooses the outcome of each call by method name and shard.
    fn decide(&self, decide: impl Fn(&str, &str) -> CallOutcome + Send + Sync + 'static) {
        *self.decide.lock().unwrap() = Box::new(decide);
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn meets<'a, T: Send + 'a>(
        &'a self,
        method: &'static str,
        shard: &str,
        call: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match (self.decide.lock().unwrap())(method, shard) {
            CallOutcome::Passes => {
                self.log.lock().unwrap().push(method.to_owned());
                call
            }
            CallOutcome::Fails => future::err(StoreError::new("the table is too busy")).boxed(),
            CallOutcome::Hangs => future::pending().boxed(),
        }
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl LeaseStore for FaultyStore {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        self.meets("leases", "", self.store.leases(consumer, stream))
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.meets("take", take.key.shard.as_str(), self.store.take(take))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.meets("renew", held.key.shard.as_str(), self.store.renew(held))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.meets("checkpoint", held.key.shard.as_str(), self.store.checkpoint(held, checkpoint))
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.meets("release", held.key.shard.as_str(), self.store.release(held))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.meets("ask", key.shard.as_str(), self.store.ask(key, seen, by))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.meets("delete", key.shard.as_str(), self.store.delete(key, seen))
    }
}

const SHARDS: [&str; 2] = ["shardId-000000000000", "shardId-000000000001"];

async fn kinesis(shards: u32) -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, shards).await;
    kinesis
}

async fn fill(kinesis: &Emulator, shard: &str, n: usize) {
    for i in 0..n {
        kinesis.put_to_shard(STREAM, shard, "key", i.to_string()).await;
    }
}

fn quick() -> KinesisStream {
    KinesisStream::new(STREAM)
        .initial_position(KinesisPosition::horizon())
        .poll_interval(Duration::from_millis(20))
        .reads_per_second(1_000)
        .checkpoint_interval(Duration::from_millis(50))
        .renew_interval(Duration::from_millis(200))
        .lease_ttl(Duration::from_secs(1))
        .list_interval(Duration::from_millis(500))
}

async fn reading(kinesis: &Emulator, store: impl LeaseStore, stream: KinesisStream) -> Subscription {
    let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials().lease_store(store);
    broker.connect().await.unwrap().subscribe(stream).await.unwrap()
}

type Item = Result<Delivery, KinesisError>;

async fn item(subscription: &mut (impl futures::Stream<Item = Item> + Unpin)) -> Item {
    timeout(PATIENCE, subscription.next()).await.expect("an item arrives in time").expect("the stream has not ended")
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).unwrap()
}

#[expect(clippy::future_not_send, reason = "callers await it in place")]
async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let waits = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waits).await.expect(what);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_store_can_fulfil_the_contract() {
    contract::run(Arc::new(Table::default())).await;
}

// A3, R4
#[tokio::test]
async fn a_consumer_resumes_from_the_checkpoints_of_a_custom_store() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 6).await;
    let table = Table::default();
    for from in [0, 3] {
        let mut subscription = reading(&kinesis, table.clone(), quick()).await;
        for i in from..from + 3 {
            let delivery = item(&mut subscription).await.unwrap();
            assert_eq!(text(&delivery), i.to_string());
            assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
        }
        assert!(subscription.close().await.is_clean());
    }
}

// E2, X1
#[tokio::test]
async fn an_emptied_table_is_reported_and_filled_again() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 3).await;
    let table = Table::default();
    let mut subscription = reading(&kinesis, table.clone(), quick()).await;
    let held = item(&mut subscription).await.unwrap();
    table.delete_everything().await;
    let error = loop {
        match item(&mut subscription).await {
            Ok(delivery) => delivery.ack(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.class(), ErrorClass::Transient);
    assert!(matches!(error, KinesisError::LeaseLost { owner: None, epoch: 1, .. }), "{error}");
    assert_eq!(held.commit().await.unwrap(), Commit::Superseded);
    // No row tells how far it had read: every record since the opening is redelivered.
    for i in 0..3 {
        let delivery = item(&mut subscription).await.unwrap();
        assert_eq!(text(&delivery), i.to_string());
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
}

// E2, R13, A4
#[tokio::test]
async fn a_lost_answer_of_any_write_neither_loses_nor_repeats_a_record() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 6).await;
    for lost in 1..=8 {
        let memory = MemoryLeaseStore::new();
        let store = LostAnswer::new(Arc::new(memory.clone()), lost);
        let mut first = reading(&kinesis, store, quick()).await.tolerant();
        for i in 0..3 {
            let delivery = item(&mut first).await.unwrap();
            assert_eq!(text(&delivery), i.to_string(), "with the answer of write {lost} lost");
            assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
        }
        assert!(first.into_inner().close().await.is_clean());
        let mut second = reading(&kinesis, memory, quick()).await;
        for i in 3..6 {
            let delivery = item(&mut second).await.unwrap();
            assert_eq!(text(&delivery), i.to_string(), "with the answer of write {lost} lost");
            delivery.ack();
        }
    }
}

// L9
#[tokio::test]
async fn closing_writes_the_checkpoint_before_it_releases_the_lease() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 3).await;
    let store = FaultyStore::new();
    let never = Duration::from_hours(1);
    let mut subscription = reading(&kinesis, store.clone(), quick().checkpoint_interval(never)).await;
    for _ in 0..3 {
        item(&mut subscription).await.unwrap().ack();
    }
    subscription.close().await;
    let mut log = store.log();
    log.retain(|method| method != "renew" && method != "leases");
    // The first checkpoint is the position where the shard was opened.
    assert_eq!(log, ["take", "checkpoint", "checkpoint", "release"]);
}

// A4
#[tokio::test]
async fn concurrent_commits_share_one_write() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 100).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick()).await;
    let mut taken = Vec::new();
    while taken.len() < 100 {
        taken.push(item(&mut subscription).await.unwrap());
    }
    let commits = future::join_all(taken.into_iter().map(Delivery::commit)).await;
    assert!(commits.iter().all(|commit| matches!(commit, Ok(Commit::Stored))), "{commits:?}");
    let writes = store.log().iter().filter(|method| *method == "checkpoint").count();
    // The position of opening, the records settled at the first commit, and the rest.
    assert!(writes <= 3, "{writes}");
}

// A1, X1
#[tokio::test]
async fn failing_checkpoint_writes_of_one_shard_do_not_block_another_shard() {
    let kinesis = kinesis(2).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick().lease_ttl(PATIENCE)).await;
    for shard in SHARDS {
        fill(&kinesis, shard, 1).await;
        assert_eq!(item(&mut subscription).await.unwrap().commit().await.unwrap(), Commit::Stored);
    }
    store.decide(
        |method, shard| {
            if (method, shard) == ("checkpoint", SHARDS[0]) { CallOutcome::Fails } else { CallOutcome::Passes }
        },
    );
    fill(&kinesis, SHARDS[0], 1).await;
    let stuck = item(&mut subscription).await.unwrap();
    let covered = Some(Checkpoint::After(stuck.sequence_number().clone()));
    // The commit returns the error, and the stream yields it.
    let error = stuck.commit().await.unwrap_err();
    assert!(matches!(&error, KinesisError::Store { shard: Some(shard), .. } if shard.as_str() == SHARDS[0]), "{error}");
    let error = item(&mut subscription).await.unwrap_err();
    assert!(matches!(error, KinesisError::Store { .. }) && error.class() == ErrorClass::Transient, "{error}");
    let mut moving = subscription.tolerant();
    for _ in 0..3 {
        fill(&kinesis, SHARDS[1], 1).await;
        let delivery = item(&mut moving).await.unwrap();
        assert_eq!(delivery.shard().as_str(), SHARDS[1]);
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    // The library does not give up: the write succeeds once the store accepts it.
    store.decide(|_, _| CallOutcome::Passes);
    eventually("the checkpoint is written", async || {
        let rows = store.store.leases("default", STREAM).await.unwrap();
        rows.iter().any(|row| row.key.shard.as_str() == SHARDS[0] && row.checkpoint == covered)
    })
    .await;
}

// E3
#[tokio::test]
async fn a_lease_survives_renewals_that_fail_for_less_than_its_ttl() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 1).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick().lease_ttl(PATIENCE)).await;
    let held = item(&mut subscription).await.unwrap();
    let failures = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&failures);
    store.decide(move |method, _| {
        let mut failures = counter.lock().unwrap();
        if method != "renew" || *failures == 3 {
            return CallOutcome::Passes;
        }
        *failures += 1;
        CallOutcome::Fails
    });
    let error = item(&mut subscription).await.unwrap_err();
    assert!(matches!(error, KinesisError::Store { action: "renewing the lease", .. }), "{error}");
    eventually("renewals continue", async || *failures.lock().unwrap() == 3).await;
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    fill(&kinesis, SHARDS[0], 1).await;
    assert_eq!(item(&mut subscription.tolerant()).await.unwrap().epoch(), 1);
}

// E3
#[tokio::test]
async fn no_record_is_delivered_past_the_ttl_of_a_lease_that_cannot_be_renewed() {
    let kinesis = kinesis(1).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick()).await;
    fill(&kinesis, SHARDS[0], 1).await;
    let held = item(&mut subscription).await.unwrap();
    store.decide(|method, _| if method == "leases" { CallOutcome::Passes } else { CallOutcome::Hangs });
    // Later than the last renewal plus the TTL.
    sleep(Duration::from_millis(1_500)).await;
    kinesis.put_to_shard(STREAM, SHARDS[0], "key", "late").await;
    let nothing = sleep(Duration::from_millis(500));
    tokio::pin!(nothing);
    loop {
        tokio::select! {
            item = subscription.next() => assert!(matches!(item, Some(Err(KinesisError::Store { .. }))), "{item:?}"),
            () = &mut nothing => break,
        }
    }
    // The store is back and no other instance took the shard, so delivery continues.
    store.decide(|_, _| CallOutcome::Passes);
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    assert_eq!(text(&item(&mut subscription.tolerant()).await.unwrap()), "late");
}

// L5, X1
#[tokio::test]
async fn a_hanging_store_does_not_block_the_start_and_is_reported() {
    let kinesis = kinesis(1).await;
    let store = FaultyStore::new();
    store.decide(|_, _| CallOutcome::Hangs);
    let at_tip = quick().initial_position(KinesisPosition::latest());
    let mut subscription = timeout(PATIENCE, reading(&kinesis, store.clone(), at_tip)).await.expect("it starts");
    fill(&kinesis, SHARDS[0], 2).await;
    let error = item(&mut subscription).await.unwrap_err();
    assert!(matches!(error, KinesisError::Store { shard: None, action: "reading the leases", .. }), "{error}");
    store.decide(|_, _| CallOutcome::Passes);
    let mut subscription = subscription.tolerant();
    for i in 0..2 {
        let delivery = item(&mut subscription).await.unwrap();
        assert_eq!(text(&delivery), i.to_string());
        delivery.ack();
    }
}

// L9
#[tokio::test]
async fn closing_without_a_working_store_ends_in_bounded_time_and_reports_the_unsaved_shards() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 1).await;
    let store = FaultyStore::new();
    let descriptor = quick().drain_timeout(Duration::from_millis(100));
    let mut subscription = reading(&kinesis, store.clone(), descriptor).await;
    let delivery = item(&mut subscription).await.unwrap();
    store.decide(|_, _| CallOutcome::Fails);
    delivery.ack();
    let report = timeout(PATIENCE, subscription.close()).await.expect("it ends");
    assert_eq!(report.unsaved.iter().map(ShardId::as_str).collect::<Vec<_>>(), [SHARDS[0]]);
    assert!(!report.is_clean());
}

// E4
#[tokio::test]
async fn one_of_two_instances_with_the_same_owner_id_stops_with_an_error_that_says_why() {
    let kinesis = kinesis(1).await;
    let store = MemoryLeaseStore::new();
    let twin = async || {
        let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials();
        let broker = broker.lease_store(store.clone()).owner_id("twin").connect().await.unwrap();
        broker.subscribe(quick()).await.unwrap()
    };
    let mut first = twin().await;
    let mut second = twin().await;
    let error = item(&mut first).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Fatal);
    assert!(matches!(&error, KinesisError::DuplicateOwner { owner, epoch: 2, .. } if &**owner == "twin"), "{error}");
    assert!(timeout(PATIENCE, first.next()).await.unwrap().is_none());
    fill(&kinesis, SHARDS[0], 1).await;
    let delivery = item(&mut second).await.unwrap();
    assert_eq!((delivery.epoch(), delivery.commit().await.unwrap()), (2, Commit::Stored));
}

// A3, E2, E3
#[tokio::test]
async fn an_instance_that_lost_its_lease_while_cut_off_writes_nothing() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 10).await;
    let cut_off = FaultyStore::new();
    let memory = cut_off.store.clone();
    let mut old = reading(&kinesis, cut_off.clone(), quick()).await;
    let mut held = Vec::new();
    while held.len() < 5 {
        held.push(item(&mut old).await.unwrap());
    }
    cut_off.decide(|_, _| CallOutcome::Hangs);

    let mut new = reading(&kinesis, memory.clone(), quick()).await;
    let mut last = None;
    for i in 0..10 {
        let delivery = item(&mut new).await.unwrap();
        assert_eq!((text(&delivery), delivery.epoch()), (i.to_string(), 2));
        last = Some(Checkpoint::After(delivery.sequence_number().clone()));
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    cut_off.decide(|_, _| CallOutcome::Passes);
    for delivery in held {
        assert_eq!(delivery.commit().await.unwrap(), Commit::Superseded);
    }
    let row = memory.leases("default", STREAM).await.unwrap().remove(0);
    assert_eq!((row.checkpoint, row.epoch), (last, 2));
    // The stream reports the reason, and delivered no more records of this shard in the meantime.
    let error = loop {
        match item(&mut old).await.unwrap_err() {
            KinesisError::Store { .. } => {}
            other => break other,
        }
    };
    assert!(matches!(error, KinesisError::LeaseLost { epoch: 1, owner: Some(_), .. }), "{error}");
}

// L6
#[tokio::test]
async fn shards_of_a_closed_instance_are_taken_before_its_leases_would_expire() {
    let kinesis = kinesis(2).await;
    let store = MemoryLeaseStore::new();
    let lasting = || quick().lease_ttl(10 * PATIENCE);
    let first = reading(&kinesis, store.clone(), lasting()).await;
    let mut second = reading(&kinesis, store.clone(), lasting()).await;
    assert_eq!(second.stats().awaited, 2);
    assert!(first.close().await.is_clean());
    for shard in SHARDS {
        fill(&kinesis, shard, 1).await;
        let delivery = item(&mut second).await.unwrap();
        assert_eq!((delivery.shard().as_str(), delivery.epoch()), (shard, 2));
        delivery.ack();
    }
    assert_eq!(second.stats().awaited, 0);
}
