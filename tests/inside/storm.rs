//! Instances on one stream and one lease table while everything goes wrong that can: the stream is split and merged and
//! loses its oldest records, calls fail, hang, and lose their answers, listings are late, and instances come and go. What
//! has to hold is in [`World`]. One seed is one run, exactly.
//!
//! `KINESIS_STREAM_SEEDS=7` plays one seed, `KINESIS_STREAM_SEEDS=0..10000` a range.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt,
    ops::Range,
    sync::{Arc, Mutex},
    thread,
};

use futures::StreamExt;
use tokio::{
    runtime::Builder,
    task::JoinHandle,
    time::{Duration, Instant, sleep, timeout},
};

use super::{
    ground::{Ground, Instance, horizon, millis, seconds},
    kinesis::OnTrimmed,
    script::{Fault, Rule},
    table::Ask,
    wire::Op,
    world::{Counts, Watched, World, which},
};
use crate::{
    close::Closer,
    delivery::Delivery,
    error::{ErrorClass, KinesisError},
    failure::{FailureKind, StoreError},
    lock::lock,
    subscription::Subscription,
};

const SHARDS: [&str; 3] = ["a.", "b.", "c."];
const KEYS: usize = 12;
const STEPS: usize = 80;

/// Nothing stands still for longer once nothing fails and nobody gives records back any more: a lease runs out, a reader
/// that gave up drains and is replaced, a record that was given back often comes once more.
const CALM: Duration = Duration::from_mins(2);

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

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).unwrap()
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }
}

/// Settles what comes, in its own way.
struct Worker {
    dice: Dice,
    world: Arc<Mutex<World>>,
    start: Instant,
    /// It never gives anything back.
    keen: bool,
}

impl Worker {
    async fn work(mut self, mut subscription: Subscription) {
        let mut held: Vec<Delivery> = Vec::new();
        loop {
            match timeout(seconds(5), subscription.next()).await {
                Ok(None) => return,
                Ok(Some(Ok(delivery))) => {
                    let (record, at) = (record(&delivery), self.start.elapsed().as_millis());
                    lock(&self.world).delivered(&record, delivery.epoch(), delivery.attempt(), at);
                    held.push(delivery);
                }
                Ok(Some(Err(error))) => self.check(&error),
                Err(_) => {}
            }
            while !held.is_empty() && (held.len() > 8 || !self.dice.one_in(3)) {
                let delivery = held.remove(self.dice.index(held.len()));
                self.settle(delivery).await;
            }
            let pause = self.dice.roll(4) * self.dice.roll(200);
            sleep(millis(pause)).await;
        }
    }

    fn check(&self, error: &KinesisError) {
        let gone = matches!(error, KinesisError::ShardGone { .. } | KinesisError::StreamRecreated { .. });
        if gone || error.class() != ErrorClass::Transient {
            lock(&self.world).violation(error.to_string());
        }
    }

    async fn settle(&mut self, delivery: Delivery) {
        let (record, epoch) = (record(&delivery), delivery.epoch());
        match self.dice.roll(10) {
            n @ 0..2 if !self.keen && !lock(&self.world).is_calm => {
                lock(&self.world).given_back(&record, epoch);
                if n == 0 { delivery.nack() } else { drop(delivery) }
            }
            2 => {
                lock(&self.world).settled(&record, epoch);
                drop(delivery.commit().await);
            }
            3 => {
                lock(&self.world).settled(&record, epoch);
                drop(tokio::spawn(delivery.commit()));
            }
            _ => {
                lock(&self.world).settled(&record, epoch);
                delivery.ack();
            }
        }
    }
}

fn record(delivery: &Delivery) -> super::world::Which {
    which(delivery.shard(), delivery.sequence_number().as_str())
}

struct Member {
    instance: Instance,
    closer: Closer,
    worker: JoinHandle<()>,
}

struct Storm {
    ground: Ground,
    world: Arc<Mutex<World>>,
    dice: Dice,
    members: Vec<Member>,
    born: usize,
    /// Shards that listings have hidden.
    hidden: BTreeSet<String>,
    trimmed: BTreeMap<String, usize>,
    /// Shards whose end was seen to be stored, and those that are gone.
    finished: BTreeMap<String, Instant>,
    forgotten: BTreeSet<String>,
    start: Instant,
}

impl Storm {
    async fn begin(seed: u64) -> Self {
        let world = Arc::new(Mutex::new(World::new(&SHARDS, KEYS)));
        let ground = Ground::on(&SHARDS, Watched::new(&world));
        let mut storm = Self {
            ground,
            world,
            dice: Dice(seed),
            members: Vec::new(),
            born: 0,
            hidden: BTreeSet::new(),
            trimmed: BTreeMap::new(),
            finished: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            start: Instant::now(),
        };
        let kinesis = &storm.ground.kinesis;
        kinesis.list_by(1 + storm.dice.index(8));
        kinesis.iterators_live(*storm.dice.one(&[millis(900), seconds(4), seconds(300)]));
        kinesis.keeps(Duration::from_hours(24), *storm.dice.one(&[OnTrimmed::Reject, OnTrimmed::Land]));
        if storm.dice.one_in(2) {
            kinesis.name_children();
        }
        for _ in 0..=storm.dice.index(3) {
            storm.join().await;
        }
        storm
    }

    async fn join(&mut self) {
        self.born += 1;
        // A first listing that lacks a shard of which there is no row either is beyond recognition.
        for shard in self.hidden.iter().filter(|shard| !lock(&self.world).is_known(shard)) {
            self.ground.kinesis.show(shard);
        }
        let instance = self.ground.instance(&format!("i{}", self.born));
        let stream = horizon()
            .read_limit(1 + u32::try_from(self.dice.roll(20)).unwrap())
            .max_in_flight(*self.dice.one(&[2, 12, 100]))
            .checkpoint_interval(*self.dice.one(&[millis(100), seconds(1), seconds(20)]));
        let subscription = instance.subscribe(stream).await;
        let worker = Worker {
            dice: Dice(self.dice.roll(u64::MAX)),
            world: Arc::clone(&self.world),
            start: self.start,
            keen: self.dice.one_in(3),
        };
        let closer = subscription.closer();
        self.members.push(Member { instance, closer, worker: tokio::spawn(worker.work(subscription)) });
    }

    fn put(&mut self) {
        for _ in 0..self.dice.index(30) {
            let shard = lock(&self.world).put(self.dice.index(KEYS));
            self.ground.kinesis.put(&shard, 1);
        }
    }

    fn reshard(&mut self) {
        let open = lock(&self.world).open_shards();
        let (parent, other) = (self.dice.one(&open).clone(), self.dice.one(&open).clone());
        let [low, high] = [0, 1].map(|offset| lock(&self.world).new_shard(offset));
        if open.len() < 6 && self.dice.one_in(2) {
            self.ground.kinesis.split(&parent, [&low, &high]);
            lock(&self.world).reshard(&[parent], &[low.clone(), high]);
        } else if parent != other {
            self.ground.kinesis.merge([&parent, &other], &low);
            lock(&self.world).reshard(&[parent, other], std::slice::from_ref(&low));
        } else {
            return;
        }
        if self.dice.one_in(2) {
            self.hide(&low);
        }
    }

    /// Listings do not show a shard, once and for less than the time after which it would count as gone.
    fn hide(&mut self, shard: &str) {
        if !self.hidden.insert(shard.to_owned()) {
            return;
        }
        self.ground.kinesis.hide(shard);
        let (kinesis, shard) = (Arc::clone(&self.ground.kinesis), shard.to_owned());
        let pause = millis(1 + self.dice.roll(9_000));
        tokio::spawn(async move {
            sleep(pause).await;
            kinesis.show(&shard);
        });
    }

    /// Records and shards that were read come to the end of their retention.
    fn trim(&mut self) {
        let open = lock(&self.world).open_shards();
        let shard = self.dice.one(&open).clone();
        let covered = lock(&self.world).covered(&shard);
        let trimmed = self.trimmed.entry(shard.clone()).or_default();
        self.ground.kinesis.trim(&shard, covered - *trimmed);
        *trimmed = covered;
        let now = Instant::now();
        for shard in lock(&self.world).finished() {
            self.finished.entry(shard).or_insert(now);
        }
        // The retention is long; listings are late by less.
        let old = self.finished.iter().filter(|(_, since)| now >= **since + seconds(20));
        if let Some(oldest) = old.map(|(shard, _)| shard.clone()).find(|shard| self.forgotten.insert(shard.clone())) {
            self.ground.kinesis.forget(&oldest);
        }
    }

    fn break_something(&mut self) {
        let (times, skip) = (1 + self.dice.index(12), self.dice.index(10));
        let pause = millis(self.dice.roll(6_000));
        let instance = &self.members[self.dice.index(self.members.len())].instance;
        if self.dice.one_in(2) {
            let op = *self.dice.one(&[Op::GetRecords, Op::GetRecords, Op::GetShardIterator, Op::ListShards]);
            let kinds = [
                FailureKind::Throttled,
                FailureKind::IteratorExpired,
                FailureKind::Other,
                FailureKind::Denied,
                FailureKind::Unreachable,
            ];
            let kind = *self.dice.one(&kinds);
            let late = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
            let faults =
                [Fault::Fail(kind), Fault::FailAfter(pause, kind), Fault::Delay(pause), Fault::LoseAnswer(kind), late];
            instance.wire.script.plan(Rule::on(op).after(skip).times(times), self.dice.one(&faults).clone());
        } else {
            let asks = [Ask::Take, Ask::Renew, Ask::Checkpoint, Ask::Release, Ask::Leases, Ask::Delete];
            let error = StoreError::new("scripted");
            let faults = [Fault::Fail(error.clone()), Fault::LoseAnswer(error), Fault::Delay(pause), Fault::Hang];
            let rule = Rule::on(*self.dice.one(&asks)).after(skip).times(times);
            instance.table.script.plan(rule, self.dice.one(&faults).clone());
        }
    }

    /// An instance dies without a word, is dropped, or is closed, and another one comes.
    async fn replace(&mut self) {
        let member = self.members.remove(self.dice.index(self.members.len()));
        match self.dice.roll(3) {
            0 => member.instance.table.script.plan_first(Rule::everything(), Fault::Hang),
            1 => {
                let report = tokio::spawn(async move { member.closer.close().await });
                sleep(millis(self.dice.roll(3_000))).await;
                drop(report);
            }
            _ => {}
        }
        member.worker.abort();
        assert!(!member.worker.await.is_err_and(|error| error.is_panic()), "a worker has panicked");
        self.join().await;
    }

    async fn step(&mut self) {
        match self.dice.roll(22) {
            0..8 => self.put(),
            8..10 => self.reshard(),
            10..15 => self.break_something(),
            15 => self.replace().await,
            16 => {
                let open = lock(&self.world).open_shards();
                let shard = self.dice.one(&open).clone();
                self.hide(&shard);
            }
            17..19 => self.trim(),
            _ => {}
        }
        sleep(millis(self.dice.roll(3_000))).await;
        self.check();
    }

    fn check(&self) {
        assert_eq!(lock(&self.world).violations(), <&[String]>::default());
        assert!(!self.members.iter().any(|member| member.worker.is_finished()), "a worker has ended");
    }

    /// Nothing fails any more: how long it takes until nothing is left to do.
    async fn calm(&mut self) -> Duration {
        let begun = Instant::now();
        self.ground.kinesis.show_all();
        lock(&self.world).is_calm = true;
        for member in &self.members {
            member.instance.wire.script.heal();
            member.instance.table.script.heal();
        }
        let (mut missing, mut since) = (lock(&self.world).missing(), begun);
        while !missing.is_empty() {
            assert!(since.elapsed() < CALM, "stuck: {missing:?}");
            sleep(millis(500)).await;
            self.check();
            let left = lock(&self.world).missing();
            if left != missing {
                (missing, since) = (left, Instant::now());
            }
        }
        begun.elapsed()
    }
}

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outcome {
    counts: Counts,
    calm: Duration,
    /// How long it took, and the whole story as one number.
    took: Duration,
    story: u64,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, calm after {:?}, story {:x}", self.counts, self.calm, self.story)
    }
}

async fn run(seed: u64) -> Outcome {
    let mut storm = Storm::begin(seed).await;
    for _ in 0..STEPS {
        storm.step().await;
    }
    let calm = storm.calm().await;
    let world = lock(&storm.world);
    Outcome { counts: world.counts, calm, took: storm.start.elapsed(), story: world.story() }
}

/// Names the seed of a run that fails.
struct Names(u64);

impl Drop for Names {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("replay with KINESIS_STREAM_SEEDS={}", self.0);
        }
    }
}

/// A runtime of its own for each seed.
fn play(seed: u64) -> Outcome {
    let _names = Names(seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run(seed))
}

fn seeds() -> Range<u64> {
    let Ok(seeds) = env::var("KINESIS_STREAM_SEEDS") else { return 0..25 };
    let number = |text: &str| text.parse::<u64>().expect("KINESIS_STREAM_SEEDS is a number or a range, as in 0..100");
    match seeds.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&seeds)..number(&seeds) + 1,
    }
}

// A1, A7, A14, B3, C1, C3, D5, E2, E3, H1 to H6, J3, R8, R13
#[test]
fn a_storm_loses_nothing_repeats_only_what_was_not_covered_and_keeps_every_order() {
    let (mut total, mut longest, mut played) = (Counts::default(), Duration::ZERO, 0);
    for seed in seeds() {
        let outcome = play(seed);
        assert!(outcome.counts.deliveries > 0);
        total = total + outcome.counts;
        longest = longest.max(outcome.calm);
        played += 1;
    }
    println!("{played} seeds: {total:?}, calm after {longest:?} at most");
}

// Decision 9
#[test]
fn the_same_seed_is_the_same_storm() {
    for seed in [7, 8] {
        assert_eq!(play(seed), play(seed));
    }
}
