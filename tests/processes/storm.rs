//! Runs one seed: starts, kills, stops (for longer than the TTL) and closes workers, and splits and merges the stream,
//! at random. Then it stops all that, and waits until the fleet is balanced and every record is settled.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rustix::process::Signal;
use tokio::{
    task::JoinHandle,
    time::{Duration, Instant, sleep, sleep_until, timeout},
};

use kinesis_stream_support::{ReplayHint, Rng};

use crate::{
    SEEDS,
    checker::{Verdict, check},
    fleet::{Fleet, RENEW, TTL},
    source::Source,
};

const SHARDS: u32 = 6;
const KEYS: u64 = 16;
const ACTIONS: usize = 10;
const MOST: usize = 4;

/// The time limit of one seed.
const LONGEST: Duration = Duration::from_mins(2);

/// How long rebalancing may take after the last action. With its defaults the library must need at most 30 s. The times
/// here are a fifth of the defaults or less: that makes 6 s, and the rest is for a busy machine.
const EVEN_WITHIN: Duration = Duration::from_secs(10);

/// The outcome of a seed.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) verdict: Verdict,
    pub(crate) log: Vec<String>,
    pub(crate) records: usize,
    /// The time from the last action until the shards were balanced for good.
    pub(crate) even_after: Duration,
    /// The last messages of workers that did not close cleanly.
    pub(crate) unclean: Vec<String>,
}

struct Storm {
    fleet: Fleet,
    rng: Rng,
    log: Vec<String>,
    /// Workers that run.
    running: Vec<String>,
    /// Workers that are stopped, and until when.
    stopped: Vec<(String, Instant)>,
    closing: Vec<String>,
}

/// Runs a seed to its end.
pub(crate) async fn play(seed: u64) -> Outcome {
    let _names = ReplayHint(SEEDS, seed);
    let mut fleet = Fleet::new(&format!("seed-{seed}"), SHARDS).await;
    let mut rng = Rng(seed);
    fleet.work = Duration::from_millis(10 + rng.below(70));
    let (source, done) = (Arc::clone(&fleet.source), Arc::new(AtomicBool::new(false)));
    let producer = tokio::spawn(produce(source, Rng(seed ^ 0x5eed), Arc::clone(&done)));
    let mut storm =
        Storm { fleet, rng, log: Vec::new(), running: Vec::new(), stopped: Vec::new(), closing: Vec::new() };
    let played = timeout(LONGEST, async {
        storm.rage().await;
        let even_after = storm.calm().await;
        done.store(true, Ordering::Relaxed);
        storm.end(seed, even_after, producer).await
    });
    let outcome = played.await;
    outcome.unwrap_or_else(|_| panic!("seed {seed} does not end: {:?}", storm.log))
}

/// Puts about sixty records a second.
async fn produce(source: Arc<Source>, mut rng: Rng, done: Arc<AtomicBool>) {
    while !done.load(Ordering::Relaxed) {
        source.put(&format!("key{}", rng.below(KEYS))).await;
        sleep(Duration::from_millis(5 + rng.below(20))).await;
    }
}

impl Storm {
    async fn rage(&mut self) {
        for _ in 0..3 {
            let name = self.fleet.joined().await;
            self.running.push(name);
        }
        for _ in 0..ACTIONS {
            let pause = Duration::from_millis(500 + self.rng.below(2_500));
            self.wait(pause).await;
            let action = self.action().await;
            self.log.push(action);
        }
    }

    /// Waits, and meanwhile continues each stopped worker when its time is over.
    async fn wait(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        loop {
            let next = self.stopped.iter().map(|(_, until)| *until).min().map_or(end, |until| until.min(end));
            sleep_until(next).await;
            let due = self.stopped.extract_if(.., |(_, until)| *until <= next);
            for name in due.map(|(name, _)| name).collect::<Vec<_>>() {
                self.fleet.signal(&name, Signal::CONT);
                self.running.push(name);
            }
            if next == end {
                return;
            }
        }
    }

    /// Performs one random action. At least one worker always keeps running.
    async fn action(&mut self) -> String {
        let crowded = self.running.len() + self.stopped.len() >= MOST;
        match self.rng.below(12) {
            _ if self.running.len() < 2 => self.join().await,
            0..3 => self.kill(),
            3..6 => self.stop(),
            6..8 => self.close(),
            8..10 if !crowded => self.join().await,
            _ => {
                self.fleet.source.reshard(&mut self.rng).await;
                "reshard".to_owned()
            }
        }
    }

    async fn join(&mut self) -> String {
        let name = self.fleet.joined().await;
        self.running.push(name.clone());
        format!("start {name}")
    }

    fn kill(&mut self) -> String {
        let all: Vec<&String> = self.running.iter().chain(self.stopped.iter().map(|(name, _)| name)).collect();
        let name = (*self.rng.pick(&all)).clone();
        self.fleet.signal(&name, Signal::KILL);
        self.running.retain(|running| *running != name);
        self.stopped.retain(|(stopped, _)| *stopped != name);
        format!("kill {name}")
    }

    fn stop(&mut self) -> String {
        let name = self.running.swap_remove(self.rng.index(self.running.len()));
        self.fleet.signal(&name, Signal::STOP);
        let time = TTL + Duration::from_millis(500 + self.rng.below(2_000));
        self.stopped.push((name.clone(), Instant::now() + time));
        format!("stop {name}")
    }

    fn close(&mut self) -> String {
        let name = self.running.swap_remove(self.rng.index(self.running.len()));
        self.fleet.signal(&name, Signal::TERM);
        self.closing.push(name.clone());
        format!("close {name}")
    }

    /// Performs no more actions. Returns how long it takes until the shards are balanced.
    async fn calm(&mut self) -> Duration {
        self.wait(Duration::ZERO).await;
        while let Some((name, _)) = self.stopped.pop() {
            self.fleet.signal(&name, Signal::CONT);
            self.running.push(name);
        }
        while self.running.len() < 2 {
            self.join().await;
        }
        let (begun, mut even_since) = (Instant::now(), None);
        loop {
            let now = Instant::now();
            let shares = self.fleet.shares(&self.running);
            let is_even = self.fleet.unowned(&self.running) == 0
                && shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1;
            let since = *even_since.get_or_insert(now);
            if !is_even {
                even_since = None;
                assert!(now < begun + EVEN_WITHIN, "the shards of {:?} are not balanced: {shares:?}", self.running);
            } else if now >= since + 4 * RENEW {
                return since - begun;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(&mut self, seed: u64, even_after: Duration, producer: JoinHandle<()>) -> Outcome {
        producer.await.unwrap();
        self.fleet.settled().await;
        while let Some(name) = self.running.pop() {
            self.fleet.signal(&name, Signal::TERM);
            self.closing.push(name);
        }
        let mut unclean = Vec::new();
        for name in &self.closing {
            let status = self.fleet.worker(name).end().await;
            let message =
                self.fleet.recorder.find("the last message", |history| history.last_message(name).cloned()).await;
            if !status.success() {
                unclean.push(message.line.to_string());
            }
        }
        let puts = self.fleet.source.puts.lock().unwrap().clone();
        let verdict = check(&self.fleet.entries(), &puts);
        let log = &self.log;
        assert!(verdict.violations.is_empty(), "seed {seed}, {log:?}: {:#?}", verdict.violations);
        Outcome { seed, verdict, log: self.log.clone(), records: puts.count(), even_after, unclean }
    }
}
