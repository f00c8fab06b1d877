//! A storm on a whole Kinesis: the stream is split and merged at random while records are put, five of a hundred calls
//! fail, some lose their answers or are late, iterators live for a second, and the consumer dies and comes back. What is
//! decided, a seed decides; how long things take, the machine.
//!
//! `KINESIS_STREAM_STORMS=7` plays one seed, `KINESIS_STREAM_STORMS=0..100` a range.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    future::pending,
    ops::Range,
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
use kinesis_stream_support::{AwsError, Emulator, Op, Shard, chain};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Duration, Instant, sleep, timeout},
};

/// How long it may take until nothing is left to do once nothing fails any more.
const PATIENCE: Duration = Duration::from_mins(1);

const STREAM: &str = "stream";
const KEYS: usize = 8;

/// How long there is trouble.
const STORM: Duration = Duration::from_secs(4);

/// A generator of numbers that look random (splitmix64).
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).unwrap()
    }
}

/// What is true of the stream and its consumer, and what is not.
#[derive(Debug, Default)]
struct World {
    put: [usize; KEYS],
    /// How many of each key were delivered for the first time.
    seen: [usize; KEYS],
    settled: BTreeSet<(usize, usize)>,
    shards: BTreeMap<String, Book>,
    violations: Vec<String>,
    deliveries: usize,
    repeats: usize,
    redeliveries: usize,
    takes: usize,
}

/// What is known of one shard.
#[derive(Debug, Default)]
struct Book {
    /// Its records, in the order in which they were delivered first.
    numbers: Vec<String>,
    settled: BTreeSet<usize>,
    /// So many are covered by the row.
    covered: usize,
    ended: bool,
    /// By epoch: what was covered at its beginning, and the records that it delivered and how often.
    epochs: BTreeMap<u64, (usize, BTreeMap<usize, u32>)>,
}

impl World {
    fn delivered(&mut self, delivery: &Delivery) {
        let (shard, number) = (delivery.shard().to_string(), delivery.sequence_number().to_string());
        let what = format!("{}, {shard}, epoch {}, attempt {}", text(delivery), delivery.epoch(), delivery.attempt());
        self.deliveries += 1;
        let book = self.shards.entry(shard).or_default();
        let place = book.numbers.iter().position(|known| *known == number).unwrap_or_else(|| {
            let (key, n) = key_and_number(delivery);
            if self.seen[key] != n {
                self.violations.push(format!("{what}: after {} of its key", self.seen[key]));
            }
            self.seen[key] = n + 1;
            book.numbers.push(number);
            book.numbers.len() - 1
        });
        let Some((start, delivered)) = book.epochs.get_mut(&delivery.epoch()) else {
            return self.violations.push(format!("{what}: no such lease"));
        };
        let before = delivered.insert(place, delivery.attempt());
        let is_next = before.map_or(0, |attempt| attempt) + 1 == delivery.attempt();
        if place < *start || !is_next || book.ended {
            self.violations.push(format!("{what}: {start} were covered, delivered before: {before:?}, {}", book.ended));
        }
        self.redeliveries += usize::from(delivery.attempt() > 1);
        self.repeats += usize::from(delivery.attempt() == 1 && place + 1 < book.numbers.len());
    }

    fn settled(&mut self, delivery: &Delivery) {
        self.settled.insert(key_and_number(delivery));
        let book = self.shards.get_mut(delivery.shard().as_str()).unwrap();
        let place = book.numbers.iter().position(|number| *number == delivery.sequence_number().as_str()).unwrap();
        book.settled.insert(place);
    }

    fn taken(&mut self, lease: &Lease) {
        self.takes += 1;
        let book = self.shards.entry(lease.key.shard.to_string()).or_default();
        book.epochs.insert(lease.epoch, (book.covered, BTreeMap::new()));
    }

    fn stored(&mut self, held: &Held, checkpoint: &Checkpoint) {
        let what = format!("{}, epoch {}: {checkpoint}", held.key.shard, held.epoch);
        let book = self.shards.entry(held.key.shard.to_string()).or_default();
        let place = |number: &str| book.numbers.iter().position(|known| known == number);
        let upto = match checkpoint {
            Checkpoint::At(number) => place(number.as_str()).unwrap_or(book.numbers.len()),
            Checkpoint::After(number) => place(number.as_str()).map_or(usize::MAX, |place| place + 1),
            _ => book.numbers.len(),
        };
        let unsettled = (0..book.numbers.len()).find(|place| !book.settled.contains(place));
        if unsettled.is_some_and(|place| place < upto) || upto < book.covered || upto == usize::MAX {
            let covered = book.covered;
            self.violations.push(format!("{what} is {upto}, after {covered}, and {unsettled:?} is not settled"));
        }
        book.covered = upto;
        book.ended |= *checkpoint == Checkpoint::ShardEnd;
    }

    fn is_done(&self) -> bool {
        self.settled.len() == self.put.iter().sum::<usize>()
    }
}

/// With haste: a local server has no limits, and a dead consumer's leases have to run out.
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

/// Records say `key number`.
fn key_and_number(delivery: &Delivery) -> (usize, usize) {
    let text = text(delivery);
    let (key, number) = text.split_once(' ').unwrap();
    (key.parse().unwrap(), number.parse().unwrap())
}

type Shared = Arc<Mutex<World>>;

/// The lease table as one instance sees it: it shows the world what is written, and a dead instance reaches nothing.
#[derive(Debug)]
struct Table {
    rows: MemoryLeaseStore,
    world: Shared,
    dead: Arc<AtomicBool>,
}

impl Table {
    fn call<'a, T: Send + 'a>(
        &'a self,
        answer: StoreFuture<'a, T>,
        show: impl FnOnce(&mut World, &T) + Send + 'a,
    ) -> StoreFuture<'a, T> {
        async move {
            if self.dead.load(Ordering::SeqCst) {
                return pending().await;
            }
            // The world sees writes in the order in which the table takes them.
            let mut world = self.world.lock().unwrap();
            let answer = answer.now_or_never().expect("memory answers at once")?;
            show(&mut world, &answer);
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
        self.call(self.rows.take(take), |world, answer| {
            if let Write::Applied(lease) = answer {
                world.taken(lease);
            }
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.call(self.rows.renew(held), |_, _| ())
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.call(self.rows.checkpoint(held, checkpoint), move |world, answer| {
            if let Write::Applied(()) = answer {
                world.stored(held, checkpoint);
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

/// One life of the consumer.
struct Consumer {
    dead: Arc<AtomicBool>,
    worker: JoinHandle<()>,
}

impl Consumer {
    async fn start(kinesis: &Emulator, rows: &MemoryLeaseStore, world: &Shared, mut dice: Dice) -> Self {
        let dead = Arc::new(AtomicBool::new(false));
        let table = Table { rows: rows.clone(), world: Arc::clone(world), dead: Arc::clone(&dead) };
        let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials();
        let broker = broker.lease_store(table).call_timeout(Duration::from_secs(2)).connect().await.unwrap();
        let subscription = loop {
            // The start gives up on the first call that fails for good.
            match broker.subscribe(descriptor()).await {
                Ok(subscription) => break subscription,
                Err(error) => assert_eq!(error.class(), ErrorClass::Fatal),
            }
        };
        let dice = Dice(dice.roll(u64::MAX));
        Self { dead, worker: tokio::spawn(work(subscription, dice, Arc::clone(world))) }
    }

    /// Ends it: without a word, or by dropping it.
    async fn end(self, crashes: bool) {
        self.dead.store(crashes, Ordering::SeqCst);
        self.worker.abort();
        assert!(!self.worker.await.is_err_and(|error| error.is_panic()), "the consumer has panicked");
    }
}

async fn work(mut subscription: Subscription, mut dice: Dice, world: Shared) {
    let mut held: Vec<Delivery> = Vec::new();
    loop {
        match timeout(Duration::from_millis(50), subscription.next()).await {
            Ok(Some(Ok(delivery))) => {
                world.lock().unwrap().delivered(&delivery);
                held.push(delivery);
            }
            Ok(Some(Err(error))) if error.class() == ErrorClass::Transient => {}
            Ok(Some(Err(error))) => world.lock().unwrap().violations.push(chain(&error)),
            Ok(None) => world.lock().unwrap().violations.push("the stream has ended".into()),
            Err(_) => {}
        }
        while !held.is_empty() && (held.len() > 8 || dice.roll(3) > 0) {
            let delivery = held.remove(dice.index(held.len()));
            match dice.roll(20) {
                0 => delivery.nack(),
                1 => drop(delivery),
                n => {
                    world.lock().unwrap().settled(&delivery);
                    if n == 2 { drop(delivery.commit().await) } else { delivery.ack() }
                }
            }
        }
        if dice.roll(8) == 0 {
            sleep(Duration::from_millis(dice.roll(30))).await;
        }
    }
}

/// The faults of a seed.
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

/// Asks until there is an answer: the faults meet the test itself, too.
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
async fn reshard(kinesis: &Emulator, dice: &mut Dice) {
    let open = open_shards(kinesis).await;
    let n = dice.index(open.len());
    let client = kinesis.client();
    // A refusal is that the stream is still being changed.
    if open.len() > 4 || dice.roll(2) == 0 && n + 1 < open.len() {
        let n = n.min(open.len() - 2);
        let merge = client.merge_shards().stream_name(STREAM).shard_to_merge(&open[n].id);
        drop(merge.adjacent_shard_to_merge(&open[n + 1].id).send().await);
    } else {
        let (first, last) = open[n].hash_keys;
        let split = client.split_shard().stream_name(STREAM).shard_to_split(&open[n].id);
        drop(split.new_starting_hash_key((first + (last - first) / 2 + 1).to_string()).send().await);
    }
}

async fn produce(kinesis: &Emulator, world: &Shared, mut dice: Dice, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        for _ in 0..dice.roll(12) {
            let key = dice.index(KEYS);
            let number = world.lock().unwrap().put[key];
            kinesis.put(STREAM, &format!("key {key}"), format!("{key} {number}")).await;
            world.lock().unwrap().put[key] += 1;
        }
        sleep(Duration::from_millis(dice.roll(40))).await;
    }
}

async fn play(seed: u64) -> String {
    let kinesis = Emulator::builder().iterator_seconds(1).start();
    kinesis.create_stream(STREAM, 2).await;
    let (world, rows, mut dice) = (Shared::default(), MemoryLeaseStore::new(), Dice(seed));
    let done = AtomicBool::new(false);
    break_calls(&kinesis, seed);
    let end = Instant::now() + STORM;
    let mut consumer = Consumer::start(&kinesis, &rows, &world, dice.clone()).await;
    let trouble = async {
        while Instant::now() < end {
            sleep(Duration::from_millis(100 + dice.roll(400))).await;
            match dice.roll(4) {
                0..2 => reshard(&kinesis, &mut dice).await,
                2 => {
                    let crashes = dice.roll(2) == 0;
                    let life = Dice(dice.roll(u64::MAX));
                    let next = Consumer::start(&kinesis, &rows, &world, life);
                    std::mem::replace(&mut consumer, next.await).end(crashes).await;
                }
                _ => {}
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(trouble, produce(&kinesis, &world, Dice(seed ^ 0x5eed), &done));
    kinesis.faults().lift_all();
    calm(seed, &kinesis, &world, &rows).await;
    consumer.end(false).await;
    let world = world.lock().unwrap();
    format!(
        "seed {seed}: {} records, {} shards, {} takes, {} deliveries, {} again under a new lease, {} given back",
        world.settled.len(),
        world.shards.len(),
        world.takes,
        world.deliveries,
        world.repeats,
        world.redeliveries
    )
}

/// Nothing fails any more: everything is settled in time, and every closed shard has its end stored.
async fn calm(seed: u64, kinesis: &Emulator, world: &Shared, rows: &MemoryLeaseStore) {
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
            let world = world.lock().unwrap();
            assert_eq!(world.violations, Vec::<String>::new(), "replay with KINESIS_STREAM_STORMS={seed}");
            if world.is_done() && unended.is_empty() {
                assert_eq!(world.seen, world.put);
                return;
            }
            let left = world.put.iter().sum::<usize>() - world.settled.len();
            assert!(
                Instant::now() < end,
                "seed {seed} is stuck: {left} records, no end of {unended:?}: {:?}",
                world.shards
            );
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn seeds() -> Range<u64> {
    let Ok(seeds) = env::var("KINESIS_STREAM_STORMS") else { return 0..3 };
    let number = |text: &str| text.parse::<u64>().expect("KINESIS_STREAM_STORMS is a number or a range, as in 0..100");
    match seeds.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&seeds)..number(&seeds) + 1,
    }
}

// A1, A7, C1, C3, D7, E5, H1 to H4, R8 to R10, R13
#[tokio::test]
async fn a_storm_loses_nothing_repeats_only_what_was_not_covered_and_keeps_every_order() {
    let (mut seeds, mut running) = (seeds(), JoinSet::new());
    loop {
        while running.len() < 3
            && let Some(seed) = seeds.next()
        {
            running.spawn(play(seed));
        }
        match running.join_next().await {
            Some(outcome) => println!("{}", outcome.expect("the storm is survived")),
            None => return,
        }
    }
}
