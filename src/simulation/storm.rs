//! Instances on one stream and one lease table under all kinds of faults: the stream splits, merges and loses its
//! oldest records, calls fail, hang and lose their responses, listings lag, and instances come and go. [`Oracle`]
//! checks the invariants. A seed replays exactly.
//!
//! `KINESIS_STREAM_SEEDS=7` plays one seed, `KINESIS_STREAM_SEEDS=0..10000` a range.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio::{
    runtime::Builder,
    task::JoinHandle,
    time::{Duration, Instant, sleep},
};

use kinesis_stream_support::{ReplayHint, Rng, seeds};

use super::{
    clock::Clock,
    script::{Fault, Rule},
    spoilable_table::{SpoilableTable, SpoiltRows},
    worker::Worker,
};
use crate::{
    simulation::{
        churn::Churn,
        harness::{Harness, Instance, horizon, latest, millis, seconds},
        nemesis::{inject_faults, inject_outage},
        oracle::{Counts, Oracle, RecordedTable},
    },
    subscription::close::Closer,
    util::mutex::lock,
};

const SHARDS: [&str; 3] = ["a.", "b.", "c."];
const KEYS: usize = 12;
const STEPS: usize = 80;

const SEEDS: &str = "KINESIS_STREAM_SEEDS";

/// Without faults, nothing makes no progress for longer than this: a lease expires, a reader that gave up drains and is
/// replaced, and a record with many attempts is redelivered once more.
const STUCK_AFTER: Duration = Duration::from_mins(2);

struct Node {
    instance: Instance,
    closer: Closer,
    worker: JoinHandle<()>,
}

struct Storm {
    harness: Harness,
    spoilt: SpoiltRows,
    churn: Churn,
    oracle: Arc<Mutex<Oracle>>,
    rng: Rng,
    nodes: Vec<Node>,
    started: usize,
    start: Instant,
    /// Every instance starts at LATEST, also after all others died. The records come after the first start, so none may
    /// be lost.
    from_the_tip: bool,
}

impl Storm {
    async fn begin(seed: u64) -> Self {
        let (clock, mut rng) = (Clock::of_the_runtime(), Rng(seed));
        let oracle = Arc::new(Mutex::new(Oracle::new(clock.clone(), &SHARDS, KEYS)));
        let table = SpoilableTable::new(RecordedTable::new(&oracle));
        let spoilt = table.spoilt();
        let harness = Harness::on(&SHARDS, table);
        let churn = Churn::new(&harness.kinesis, &oracle, clock, &mut rng);
        let (nodes, start, from_the_tip) = (Vec::new(), Instant::now(), rng.one_in(3));
        let mut storm = Self { harness, spoilt, churn, oracle, rng, nodes, started: 0, start, from_the_tip };
        for _ in 0..=storm.rng.index(3) {
            storm.join().await;
        }
        if storm.from_the_tip {
            storm.restart_while_idle().await;
        }
        storm
    }

    async fn join(&mut self) {
        self.started += 1;
        self.churn.show_unread();
        let instance = self.harness.instance(&format!("i{}", self.started));
        let stream = if self.from_the_tip { latest() } else { horizon() };
        let stream = stream
            .read_limit(1 + u32::try_from(self.rng.below(20)).unwrap())
            .max_in_flight(*self.rng.pick(&[2, 12, 100]))
            .checkpoint_interval(*self.rng.pick(&[millis(100), seconds(1), seconds(20)]));
        let subscription = instance.subscribe(stream).await;
        let worker = Worker {
            rng: Rng(self.rng.below(u64::MAX)),
            oracle: Arc::clone(&self.oracle),
            table: None,
            never_gives_back: self.rng.one_in(3),
            max_pause: 0,
        };
        let closer = subscription.closer();
        self.nodes.push(Node { instance, closer, worker: tokio::spawn(worker.work(subscription)) });
    }

    /// Makes an instance die, drop or close its subscription, and starts another one.
    async fn replace(&mut self) {
        let node = self.nodes.remove(self.rng.index(self.nodes.len()));
        match self.rng.below(3) {
            0 => node.instance.table.script.plan_first(Rule::everything(), Fault::Hang),
            1 => {
                let report = tokio::spawn(async move { node.closer.close().await });
                sleep(millis(self.rng.below(3_000))).await;
                drop(report);
            }
            _ => {}
        }
        node.worker.abort();
        assert!(!node.worker.await.is_err_and(|error| error.is_panic()), "a worker has panicked");
        self.join().await;
    }

    /// Replaces instances while most shards have no record yet.
    async fn restart_while_idle(&mut self) {
        for _ in 0..self.rng.index(8) {
            match self.rng.below(2) {
                0 => self.churn.put_one(&mut self.rng),
                _ => self.replace().await,
            }
            sleep(millis(self.rng.below(20_000))).await;
            self.check();
        }
    }

    async fn step(&mut self) {
        match self.rng.below(24) {
            0..8 => self.churn.put(&mut self.rng),
            8..10 => self.churn.reshard(&mut self.rng),
            10..15 => {
                let Instance { service, table, .. } = &self.nodes[self.rng.index(self.nodes.len())].instance;
                inject_faults(&mut self.rng, &service.script, &table.script);
            }
            15 => self.replace().await,
            16 => self.churn.hide_any(&mut self.rng),
            17..19 => self.churn.trim(&mut self.rng),
            20 => self.spoil_a_row(),
            19 => {
                let Instance { service, table, .. } = &self.nodes[self.rng.index(self.nodes.len())].instance;
                inject_outage(&mut self.rng, &service.script, &table.script);
            }
            _ => {}
        }
        sleep(millis(self.rng.below(3_000))).await;
        self.churn.show_due();
        self.check();
    }

    /// Makes a row of the lease table unreadable, or mends those that are.
    fn spoil_a_row(&mut self) {
        if self.rng.one_in(3) {
            self.spoilt.mend_all();
        } else {
            let open = lock(&self.oracle).open_shards();
            let shard = self.rng.pick(&open);
            self.spoilt.spoil(shard);
        }
    }

    fn check(&self) {
        assert_eq!(lock(&self.oracle).violations(), <&[String]>::default());
        assert!(!self.nodes.iter().any(|node| node.worker.is_finished()), "a worker has ended");
    }

    /// Ends all faults. Returns how long it takes until all work is done.
    async fn recover(&mut self) -> Duration {
        let begun = Instant::now();
        self.harness.kinesis.show_all();
        self.spoilt.mend_all();
        lock(&self.oracle).faults_are_over = true;
        for node in &self.nodes {
            node.instance.service.script.heal();
            node.instance.table.script.heal();
        }
        let (mut missing, mut since) = (lock(&self.oracle).missing(), begun);
        while !missing.is_empty() {
            assert!(since.elapsed() < STUCK_AFTER, "stuck: {missing:?}");
            sleep(millis(500)).await;
            self.check();
            let left = lock(&self.oracle).missing();
            if left != missing {
                (missing, since) = (left, Instant::now());
            }
        }
        begun.elapsed()
    }
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outcome {
    counts: Counts,
    recovery: Duration,
    /// The time that the run took, and a hash of all that happened.
    took: Duration,
    fingerprint: u64,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, recovered after {:?}, fingerprint {:x}", self.counts, self.recovery, self.fingerprint)
    }
}

async fn run(seed: u64) -> Outcome {
    let mut storm = Storm::begin(seed).await;
    for _ in 0..STEPS {
        storm.step().await;
    }
    let recovery = storm.recover().await;
    let oracle = lock(&storm.oracle);
    Outcome { counts: oracle.counts, recovery, took: storm.start.elapsed(), fingerprint: oracle.fingerprint() }
}

/// Plays a seed in a separate runtime.
fn play(seed: u64) -> Outcome {
    let _names = ReplayHint(SEEDS, seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run(seed))
}

// A1, A3, A7, E2, E3, H1 to H6, R8, R13
#[test]
fn a_storm_loses_no_record_repeats_only_uncovered_ones_and_keeps_order() {
    let (mut total, mut longest, mut played) = (Counts::default(), Duration::ZERO, 0);
    for seed in seeds(SEEDS, 25) {
        let outcome = play(seed);
        assert!(outcome.counts.deliveries > 0);
        total = total + outcome.counts;
        longest = longest.max(outcome.recovery);
        played += 1;
    }
    println!("{played} seeds: {total:?}, recovered after {longest:?} at most");
}

// A failed seed can be replayed.
#[test]
fn the_same_seed_replays_the_same_storm() {
    for seed in [7, 8] {
        assert_eq!(play(seed), play(seed));
    }
}
