//! A script of faults for calls, and a log of the calls.

use std::{future::pending, sync::Mutex};

use tokio::time::{Duration, Instant, sleep};

use crate::{types::id::ShardId, util::mutex::lock};

/// The fault of a call.
#[derive(Clone, Debug)]
pub(crate) enum Fault<E> {
    /// The call fails and has no effect.
    Fail(E),
    /// The call fails after this time.
    FailAfter(Duration, E),
    /// The call takes effect, and the caller gets an error.
    LoseAnswer(E),
    /// The call takes effect after this time.
    Delay(Duration),
    /// The call takes effect at once, and its response takes this time.
    DelayAnswer(Duration),
    /// The call has no effect and gets no response.
    Hang,
    /// The callee panics.
    Panic,
}

/// The calls that a fault applies to: by default the next one of its kind.
#[derive(Clone, Debug)]
pub(crate) struct Rule<Op> {
    op: Option<Op>,
    shard: Option<ShardId>,
    skip: usize,
    times: usize,
    /// How long it applies, and since when.
    lasts: Duration,
    began: Option<Instant>,
}

impl<Op> Rule<Op> {
    pub(crate) fn on(op: Op) -> Self {
        Self { op: Some(op), shard: None, skip: 0, times: 1, lasts: Duration::MAX, began: None }
    }

    /// Every call of every kind.
    pub(crate) fn everything() -> Self {
        Self { op: None, shard: None, skip: 0, times: usize::MAX, lasts: Duration::MAX, began: None }
    }

    /// It applies for this long after its first call.
    pub(crate) fn lasts(self, lasts: Duration) -> Self {
        Self { lasts, ..self }
    }

    pub(crate) fn of(self, shard: &str) -> Self {
        Self { shard: Some(shard.into()), ..self }
    }

    pub(crate) fn after(self, skip: usize) -> Self {
        Self { skip, ..self }
    }

    pub(crate) fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    pub(crate) fn always(self) -> Self {
        self.times(usize::MAX)
    }
}

/// A call in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedCall<Op> {
    /// The time since the start of the script.
    pub(crate) at: Duration,
    pub(crate) op: Op,
    pub(crate) shard: Option<ShardId>,
    pub(crate) what: String,
}

/// Faults for calls, and the log. The first rule that applies decides.
#[derive(Debug)]
pub(crate) struct Script<Op, E> {
    start: Instant,
    state: Mutex<State<Op, E>>,
}

#[derive(Debug)]
struct State<Op, E> {
    rules: Vec<(Rule<Op>, Fault<E>)>,
    calls: Vec<LoggedCall<Op>>,
}

impl<Op: Copy + PartialEq, E: Clone> Script<Op, E> {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), state: Mutex::new(State { rules: Vec::new(), calls: Vec::new() }) }
    }

    pub(crate) fn plan(&self, rule: Rule<Op>, fault: Fault<E>) {
        lock(&self.state).rules.push((rule, fault));
    }

    /// Like [`plan`](Self::plan), before all other rules.
    pub(crate) fn plan_first(&self, rule: Rule<Op>, fault: Fault<E>) {
        lock(&self.state).rules.insert(0, (rule, fault));
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        lock(&self.state).rules.clear();
    }

    /// The calls of one kind, on all shards.
    pub(crate) fn calls(&self, op: Op) -> Vec<LoggedCall<Op>> {
        lock(&self.state).calls.iter().filter(|call| call.op == op).cloned().collect()
    }

    /// How many calls of one kind were made at this time after the start of the script, or later.
    pub(crate) fn count(&self, op: Op, since: Duration) -> usize {
        lock(&self.state).calls.iter().filter(|call| call.op == op && call.at >= since).count()
    }

    /// When calls of one kind were call.
    pub(crate) fn times_of(&self, op: Op) -> Vec<Duration> {
        self.calls(op).into_iter().map(|call| call.at).collect()
    }

    /// When calls of one kind were made on one shard.
    pub(crate) fn times(&self, op: Op, shard: &str) -> Vec<Duration> {
        let shard = Some(ShardId::from(shard));
        self.calls(op).into_iter().filter(|call| call.shard == shard).map(|call| call.at).collect()
    }

    /// All calls on one shard, in order.
    pub(crate) fn of(&self, shard: &str) -> Vec<LoggedCall<Op>> {
        let shard = Some(ShardId::from(shard));
        lock(&self.state).calls.iter().filter(|call| call.shard == shard).cloned().collect()
    }

    /// Makes a call, with its fault if a rule applies.
    pub(crate) async fn play<T>(
        &self,
        (op, shard, what): (Op, Option<ShardId>, String),
        act: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        match self.enter(op, shard, what) {
            None => act.await,
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::FailAfter(pause, error)) => {
                sleep(pause).await;
                Err(error)
            }
            Some(Fault::LoseAnswer(error)) => {
                act.await?;
                Err(error)
            }
            Some(Fault::Delay(pause)) => {
                sleep(pause).await;
                act.await
            }
            Some(Fault::DelayAnswer(pause)) => {
                let answer = act.await;
                sleep(pause).await;
                answer
            }
            Some(Fault::Hang) => pending().await,
            Some(Fault::Panic) => panic!("scripted panic"),
        }
    }

    /// Logs a call and returns its fault.
    pub(crate) fn enter(&self, op: Op, shard: Option<ShardId>, what: String) -> Option<Fault<E>> {
        let mut state = lock(&self.state);
        let applies = |rule: &Rule<Op>| {
            rule.times > 0 && rule.op.is_none_or(|named| named == op) && (rule.shard.is_none() || rule.shard == shard)
        };
        let mut fault = None;
        for (rule, then) in state.rules.iter_mut().filter(|(rule, _)| applies(rule)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.began.get_or_insert_with(Instant::now).elapsed() <= rule.lasts {
                rule.times -= 1;
                fault = Some(then.clone());
                break;
            }
        }
        state.calls.push(LoggedCall { at: self.start.elapsed(), op, shard, what });
        fault
    }
}
