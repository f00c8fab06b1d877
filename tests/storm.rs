//! A consumer under random faults, on an emulator: the stream is split and merged while records are put. Five of a
//! hundred calls fail, some calls lose their answers or are late, iterators live for one second, and the consumer
//! crashes and restarts. The seed makes all decisions, the machine decides the timing.
//!
//! `KINESIS_STREAM_STORMS=7` runs one seed, `KINESIS_STREAM_STORMS=0..100` a range.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{FutureExt, StreamExt};
use kinesis_stream::{
    Checkpoint, Delivery, ErrorClass, Held, KinesisBroker, KinesisPosition, KinesisStream, Lease, LeaseKey, LeaseStore,
    MemoryLeaseStore, Seen, StoreFuture, Subscription, Take, Write,
};
use kinesis_stream_support::{AwsError, Emulator, Op, Rng, Shard, chain, seeds};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Duration, Instant, sleep, timeout},
};

/// How long settling the rest may take once the faults are over.
const PATIENCE: Duration = Duration::from_mins(1);

/// The environment variable with the seeds to run.
const SEEDS: &str = "KINESIS_STREAM_STORMS";

const STREAM: &str = "stream";
const KEYS: usize = 8;

/// How long the faults last.
const FAULTS_LAST: Duration = Duration::from_secs(4);

/// Checks what the consumer delivers and stores, and collects the violations.
#[derive(Debug, Default)]
struct Checker {
    put: [usize; KEYS],
    /// How many records of each key were delivered for the first time.
    seen: [usize; KEYS],
    settled: BTreeSet<(usize, usize)>,
    shards: BTreeMap<String, CheckedShard>,
    violations: Vec<String>,
    deliveries: usize,
    repeats: usize,
    redeliveries: usize,
    takes: usize,
}

/// The state of one shard.
#[derive(Debug, Default)]
struct CheckedShard {
    /// Its records, in the order of their first delivery.
    numbers: Vec<String>,
    settled: BTreeSet<usize>,
    /// How many records the row covers.
    covered: usize,
    ended: bool,
    /// By epoch: how many records were covered at its start, and which records it delivered at which attempt.
    epochs: BTreeMap<u64, (usize, BTreeMap<usize, u32>)>,
}

impl Checker {
    fn delivered(&mut self, delivery: &Delivery) {
        let (shard, number) = (delivery.shard().to_string(), delivery.sequence_number().to_string());
        let what = format!("{}, {shard}, epoch {}, attempt {}", text(delivery), delivery.epoch(), delivery.attempt());
        self.deliveries += 1;
        let shard = self.shards.entry(shard).or_default();
        let place = shard.numbers.iter().position(|known| *known == number).unwrap_or_else(|| {
            let (key, n) = key_and_number(delivery);
            if self.seen[key] != n {
                self.violations.push(format!("{what}: after {} of its key", self.seen[key]));
            }
            self.seen[key] = n + 1;
            shard.numbers.push(number);
            shard.numbers.len() - 1
        });
        let Some((start, delivered)) = shard.epochs.get_mut(&delivery.epoch()) else {
            return self.violations.push(format!("{what}: no such lease"));
        };
        let before = delivered.insert(place, delivery.attempt());
        let is_next = before.map_or(0, |attempt| attempt) + 1 == delivery.attempt();
        if place < *start || !is_next || shard.ended {
            self.violations
                .push(format!("{what}: {start} were covered, delivered before: {before:?}, {}", shard.ended));
        }
        self.redeliveries += usize::from(delivery.attempt() > 1);
        self.repeats += usize::from(delivery.attempt() == 1 && place + 1 < shard.numbers.len());
    }

    fn settled(&mut self, delivery: &Delivery) {
        self.settled.insert(key_and_number(delivery));
        let shard = self.shards.get_mut(delivery.shard().as_str()).unwrap();
        let place = shard.numbers.iter().position(|number| *number == delivery.sequence_number().as_str()).unwrap();
        shard.settled.insert(place);
    }

    fn taken(&mut self, lease: &Lease) {
        self.takes += 1;
        let shard = self.shards.entry(lease.key.shard.to_string()).or_default();
        shard.epochs.insert(lease.epoch, (shard.covered, BTreeMap::new()));
    }

    fn stored(&mut self, held: &Held, checkpoint: &Checkpoint) {
        let what = format!("{}, epoch {}: {checkpoint}", held.key.shard, held.epoch);
        let shard = self.shards.entry(held.key.shard.to_string()).or_default();
        let place = |number: &str| shard.numbers.iter().position(|known| known == number);
        let upto = match checkpoint {
            Checkpoint::At(number) => place(number.as_str()).unwrap_or(shard.numbers.len()),
            Checkpoint::After(number) => place(number.as_str()).map_or(usize::MAX, |place| place + 1),
            _ => shard.numbers.len(),
        };
        let unsettled = (0..shard.numbers.len()).find(|place| !shard.settled.contains(place));
        if unsettled.is_some_and(|place| place < upto) || upto < shard.covered || upto == usize::MAX {
            let covered = shard.covered;
            self.violations.push(format!("{what} is {upto}, after {covered}, and {unsettled:?} is not settled"));
        }
        shard.covered = upto;
        shard.ended |= *checkpoint == Checkpoint::ShardEnd;
    }

    fn is_done(&self) -> bool {
        self.settled.len() == self.put.iter().sum::<usize>()
    }
}

/// Short intervals: a local server has no limits, and the leases of a dead consumer must expire soon.
fn descriptor() -> KinesisStream {
    KinesisStream::new(STREAM)
        .initial_position(KinesisPosition::horizon())
        .poll_interval(Duration::from_millis(20))
        .reads_per_second(1_000)
        .checkpoint_interval(Duration::from_millis(50))
        .renew_interval(Duration::from_millis(200))
        .lease_ttl(Duration::from_secs(1))
        .list_interval(Duration::from_millis(500))
        .read_limit(7)
        .max_in_flight(20)
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).unwrap()
}

/// The payload of a record is `key number`.
fn key_and_number(delivery: &Delivery) -> (usize, usize) {
    let text = text(delivery);
    let (key, number) = text.split_once(' ').unwrap();
    (key.parse().unwrap(), number.parse().unwrap())
}

type Shared = Arc<Mutex<Checker>>;

/// The lease table of one instance. It reports every write to the checker, and answers nothing once the instance is
/// dead.
#[derive(Debug)]
struct Table {
    rows: MemoryLeaseStore,
    checker: Shared,
    dead: Arc<AtomicBool>,
}

impl Table {
    fn call<'a, T: Send + 'a>(
        &'a self,
        answer: StoreFuture<'a, T>,
        show: impl FnOnce(&mut Checker, &T) + Send + 'a,
    ) -> StoreFuture<'a, T> {
        async move {
            if self.dead.load(Ordering::SeqCst) {
                return pending().await;
            }
            // The lock makes the checker see writes in the order in which the table applies them.
            let mut checker = self.checker.lock().unwrap();
            let answer = answer.now_or_never().expect("a store in memory answers at once")?;
            show(&mut checker, &answer);
            Ok(answer)
        }
        .boxed()
    }
}

impl LeaseStore for Table {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        self.call(self.rows.leases(consumer, stream), |_, _| ())
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.call(self.rows.take(take), |checker, answer| {
            if let Write::Applied(lease) = answer {
                checker.taken(lease);
            }
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.call(self.rows.renew(held), |_, _| ())
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.call(self.rows.checkpoint(held, checkpoint), move |checker, answer| {
            if let Write::Applied(()) = answer {
                checker.stored(held, checkpoint);
            }
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.call(self.rows.release(held), |_, _| ())
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.call(self.rows.ask(key, seen, by), |_, _| ())
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.call(self.rows.delete(key, seen), |_, _| ())
    }
}

/// One run of the consumer.
struct Consumer {
    dead: Arc<AtomicBool>,
    worker: JoinHandle<()>,
}

impl Consumer {
    async fn start(kinesis: &Emulator, rows: &MemoryLeaseStore, checker: &Shared, mut rng: Rng) -> Self {
        let dead = Arc::new(AtomicBool::new(false));
        let table = Table { rows: rows.clone(), checker: Arc::clone(checker), dead: Arc::clone(&dead) };
        let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials();
        let broker = broker.lease_store(table).call_timeout(Duration::from_secs(2)).connect().await.unwrap();
        let subscription = loop {
            // `subscribe` fails at the first call that fails permanently.
            match broker.subscribe(descriptor()).await {
                Ok(subscription) => break subscription,
                Err(error) => assert_eq!(error.class(), ErrorClass::Fatal),
            }
        };
        let rng = Rng(rng.below(u64::MAX));
        Self { dead, worker: tokio::spawn(work(subscription, rng, Arc::clone(checker))) }
    }

    /// Ends it with a crash, or by dropping it.
    async fn end(self, crashes: bool) {
        self.dead.store(crashes, Ordering::SeqCst);
        self.worker.abort();
        assert!(!self.worker.await.is_err_and(|error| error.is_panic()), "the consumer has panicked");
    }
}

async fn work(mut subscription: Subscription, mut rng: Rng, checker: Shared) {
    let mut held: Vec<Delivery> = Vec::new();
    loop {
        match timeout(Duration::from_millis(50), subscription.next()).await {
            Ok(Some(Ok(delivery))) => {
                checker.lock().unwrap().delivered(&delivery);
                held.push(delivery);
            }
            Ok(Some(Err(error))) if error.class() == ErrorClass::Transient => {}
            Ok(Some(Err(error))) => checker.lock().unwrap().violations.push(chain(&error)),
            Ok(None) => checker.lock().unwrap().violations.push("the stream has ended".into()),
            Err(_) => {}
        }
        while !held.is_empty() && (held.len() > 8 || rng.below(3) > 0) {
            let delivery = held.remove(rng.index(held.len()));
            match rng.below(20) {
                0 => delivery.nack(),
                1 => drop(delivery),
                n => {
                    checker.lock().unwrap().settled(&delivery);
                    if n == 2 { drop(delivery.commit().await) } else { delivery.ack() }
                }
            }
        }
        if rng.below(8) == 0 {
            sleep(Duration::from_millis(rng.below(30))).await;
        }
    }
}

/// Injects the faults of a seed.
fn break_calls(kinesis: &Emulator, seed: u64) {
    let faults = kinesis.faults();
    for op in [Op::GetRecords, Op::GetShardIterator, Op::ListShards, Op::DescribeStreamSummary] {
        faults.on(op).some(20, seed).fail(AwsError::INTERNAL_FAILURE);
        faults.on(op).some(10, seed + 1).fail(AwsError::LIMIT_EXCEEDED);
        faults.on(op).some(10, seed + 2).apply_then_fail(AwsError::UNAVAILABLE);
        faults.on(op).some(10, seed + 3).fail(AwsError::rejected("ExpiredTokenException"));
        faults.on(op).some(30, seed + 4).delay(Duration::from_millis(150));
    }
    faults.on(Op::GetRecords).some(20, seed + 5).fail(AwsError::EXPIRED_ITERATOR);
    faults.on(Op::GetRecords).some(2, seed + 6).delay(Duration::from_secs(3));
}

/// Retries until it gets an answer: the faults also affect the test's own calls.
async fn open_shards(kinesis: &Emulator) -> Vec<Shard> {
    loop {
        if let Ok(listed) = kinesis.client().list_shards().stream_name(STREAM).send().await {
            let mut shards: Vec<Shard> = listed.shards.into_iter().flatten().map(Shard::from).collect();
            shards.retain(|shard| !shard.closed);
            shards.sort_by_key(|shard| shard.hash_keys);
            return shards;
        }
    }
}

/// Splits a shard or merges two, if the stream is ready for that.
async fn reshard(kinesis: &Emulator, rng: &mut Rng) {
    let open = open_shards(kinesis).await;
    let n = rng.index(open.len());
    let client = kinesis.client();
    // An error means that the stream is still changing.
    if open.len() > 4 || rng.below(2) == 0 && n + 1 < open.len() {
        let n = n.min(open.len() - 2);
        let merge = client.merge_shards().stream_name(STREAM).shard_to_merge(&open[n].id);
        drop(merge.adjacent_shard_to_merge(&open[n + 1].id).send().await);
    } else {
        let (first, last) = open[n].hash_keys;
        let split = client.split_shard().stream_name(STREAM).shard_to_split(&open[n].id);
        drop(split.new_starting_hash_key((first + (last - first) / 2 + 1).to_string()).send().await);
    }
}

async fn produce(kinesis: &Emulator, checker: &Shared, mut rng: Rng, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        for _ in 0..rng.below(12) {
            let key = rng.index(KEYS);
            let number = checker.lock().unwrap().put[key];
            kinesis.put(STREAM, &format!("key {key}"), format!("{key} {number}")).await;
            checker.lock().unwrap().put[key] += 1;
        }
        sleep(Duration::from_millis(rng.below(40))).await;
    }
}

async fn run(seed: u64) -> String {
    let kinesis = Emulator::builder().iterator_seconds(1).start();
    kinesis.create_stream(STREAM, 2).await;
    let (checker, rows, mut rng) = (Shared::default(), MemoryLeaseStore::new(), Rng(seed));
    let done = AtomicBool::new(false);
    break_calls(&kinesis, seed);
    let end = Instant::now() + FAULTS_LAST;
    let mut consumer = Consumer::start(&kinesis, &rows, &checker, rng.clone()).await;
    let nemesis = async {
        while Instant::now() < end {
            sleep(Duration::from_millis(100 + rng.below(400))).await;
            match rng.below(4) {
                0..2 => reshard(&kinesis, &mut rng).await,
                2 => {
                    let crashes = rng.below(2) == 0;
                    let life = Rng(rng.below(u64::MAX));
                    let next = Consumer::start(&kinesis, &rows, &checker, life);
                    std::mem::replace(&mut consumer, next.await).end(crashes).await;
                }
                _ => {}
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(nemesis, produce(&kinesis, &checker, Rng(seed ^ 0x5eed), &done));
    kinesis.faults().lift_all();
    settle_all(seed, &kinesis, &checker, &rows).await;
    consumer.end(false).await;
    let checker = checker.lock().unwrap();
    format!(
        "seed {seed}: {} records, {} shards, {} takes, {} deliveries, {} repeated under a new lease, {} redelivered",
        checker.settled.len(),
        checker.shards.len(),
        checker.takes,
        checker.deliveries,
        checker.repeats,
        checker.redeliveries
    )
}

/// Without faults, waits until every record is settled and every closed shard has its end stored.
async fn settle_all(seed: u64, kinesis: &Emulator, checker: &Shared, rows: &MemoryLeaseStore) {
    let end = Instant::now() + PATIENCE;
    loop {
        let closed = kinesis.shards(STREAM).await.into_iter().filter(|shard| shard.closed);
        let rows: BTreeMap<String, Lease> = rows
            .leases("default", STREAM)
            .await
            .unwrap()
            .into_iter()
            .map(|row| (row.key.shard.to_string(), row))
            .collect();
        let unended: Vec<String> = closed
            .map(|shard| shard.id)
            .filter(|shard| rows.get(shard).is_none_or(|row| row.checkpoint != Some(Checkpoint::ShardEnd)))
            .collect();
        {
            let checker = checker.lock().unwrap();
            assert_eq!(checker.violations, Vec::<String>::new(), "replay with KINESIS_STREAM_STORMS={seed}");
            if checker.is_done() && unended.is_empty() {
                assert_eq!(checker.seen, checker.put);
                return;
            }
            let left = checker.put.iter().sum::<usize>() - checker.settled.len();
            assert!(
                Instant::now() < end,
                "seed {seed} is stuck: {left} records, no end of {unended:?}: {:?}",
                checker.shards
            );
        }
        sleep(Duration::from_millis(50)).await;
    }
}

// A1, A7, H1 to H4, R8 to R10, R13
#[tokio::test]
async fn under_random_faults_no_record_is_lost_only_uncovered_records_repeat_and_every_order_holds() {
    let (mut seeds, mut running) = (seeds(SEEDS, 3), JoinSet::new());
    loop {
        while running.len() < 3
            && let Some(seed) = seeds.next()
        {
            running.spawn(run(seed));
        }
        match running.join_next().await {
            Some(outcome) => println!("{}", outcome.expect("the run of a seed must not panic")),
            None => return,
        }
    }
}
