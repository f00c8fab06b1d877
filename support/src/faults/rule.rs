//! A fault: which calls it meets, and what it does to them.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tokio::{sync::watch, time::Duration};

use super::{AwsError, Call, Faults};
use crate::op::Op;

/// The calls that a fault will meet: every one of its operation, until it is narrowed.
#[derive(Debug)]
#[must_use = "a scope does nothing until it is told what happens in it"]
pub struct Scope {
    faults: Faults,
    op: Op,
    shard: Option<String>,
    text: Option<String>,
    window: Window,
}

#[expect(clippy::must_use_candidate, reason = "a rule is in force whether or not its handle is kept")]
impl Scope {
    pub(super) fn new(faults: Faults, op: Op) -> Self {
        Self { faults, op, shard: None, text: None, window: Window::Every }
    }

    /// Only calls on this shard, or on its lease. `PutRecord`, `PutRecords` and `ListShards` name none, so they are not met.
    pub fn shard(mut self, id: impl Into<String>) -> Self {
        self.shard = Some(id.into());
        self
    }

    /// Only calls whose body holds this text.
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Only the first `n` calls from now on.
    pub fn first(mut self, n: usize) -> Self {
        self.window = Window::First(n);
        self
    }

    /// Only the `k`-th call from now on; the next one is the first.
    pub fn nth(mut self, k: usize) -> Self {
        self.window = Window::Nth(k);
        self
    }

    /// Only some calls: so many of a thousand, which ones depends on `seed` alone.
    pub fn some(mut self, of_a_thousand: u64, seed: u64) -> Self {
        self.window = Window::Some { of_a_thousand, seed };
        self
    }

    /// The call is answered with `error` and does nothing.
    pub fn fail(self, error: AwsError) -> Rule {
        self.install(Action::Fail(error))
    }

    /// The call does its work, and its answer is replaced by `error`.
    pub fn apply_then_fail(self, error: AwsError) -> Rule {
        self.install(Action::ApplyThenFail(error))
    }

    /// The call waits for this long, then goes on.
    pub fn delay(self, time: Duration) -> Rule {
        self.install(Action::Delay(time))
    }

    /// The call waits until the rule is lifted, then goes on.
    pub fn hold(self) -> Rule {
        self.install(Action::Hold)
    }

    /// The call is never answered and does nothing. Lifting the rule spares only later calls.
    pub fn hang(self) -> Rule {
        self.install(Action::Hang)
    }

    /// The answer of the call, if it succeeds, is changed.
    pub fn edit(self, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Rule {
        self.install(Action::Edit(Arc::new(change)))
    }

    /// The entries of a `PutRecords` at these places fail with `error`. The others are put, if there are any.
    pub fn fail_entries(self, places: impl IntoIterator<Item = usize>, error: AwsError) -> Rule {
        let mut places: Vec<usize> = places.into_iter().collect();
        places.sort_unstable();
        places.dedup();
        self.install(Action::FailEntries(places.into(), error))
    }

    fn install(self, action: Action) -> Rule {
        let (lifted, _) = watch::channel(false);
        let Self { faults, op, shard, text, window } = self;
        let state = State { op, shard, text, window, met: AtomicUsize::new(0), lifted };
        let rule = Rule { state: Arc::new(state), action };
        faults.install(rule.clone());
        rule
    }
}

/// A fault in force. Dropping this handle leaves it in force.
#[derive(Clone, Debug)]
pub struct Rule {
    state: Arc<State>,
    pub(super) action: Action,
}

impl Rule {
    /// Ends it: later calls are spared, calls that it holds go on.
    pub fn lift(&self) {
        self.state.lifted.send_replace(true);
    }

    /// How many calls it has acted on.
    #[must_use]
    pub fn hits(&self) -> usize {
        self.state.window.hits(self.state.met.load(Ordering::Relaxed))
    }

    pub(super) fn is_lifted(&self) -> bool {
        *self.state.lifted.borrow()
    }

    /// Counts a call, and tells whether it is to be acted on.
    pub(super) fn meets(&self, call: &Call) -> bool {
        let state = &*self.state;
        let ours = call.op() == state.op
            && (state.shard.is_none() || state.shard.as_deref() == call.shard())
            && state.text.as_ref().is_none_or(|text| call.says(text));
        ours && !self.is_lifted() && state.window.contains(state.met.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns once the rule is lifted.
    pub(super) async fn lifted(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.state.lifted.subscribe().wait_for(|lifted| *lifted).await);
    }
}

#[derive(Debug)]
struct State {
    op: Op,
    shard: Option<String>,
    text: Option<String>,
    window: Window,
    /// Calls counted so far, in and out of the window.
    met: AtomicUsize,
    lifted: watch::Sender<bool>,
}

/// Which of the counted calls are acted on.
#[derive(Clone, Copy, Debug)]
enum Window {
    Every,
    First(usize),
    Nth(usize),
    Some { of_a_thousand: u64, seed: u64 },
}

impl Window {
    /// Whether the `k`-th call is in it.
    fn contains(self, k: usize) -> bool {
        match self {
            Self::Every => true,
            Self::First(n) => k <= n,
            Self::Nth(n) => k == n,
            Self::Some { of_a_thousand, seed } => {
                let mut hasher = DefaultHasher::new();
                (seed, k).hash(&mut hasher);
                hasher.finish() % 1_000 < of_a_thousand
            }
        }
    }

    /// How many of `met` calls were in it.
    fn hits(self, met: usize) -> usize {
        match self {
            Self::Every => met,
            Self::First(n) => met.min(n),
            Self::Nth(n) => usize::from(n > 0 && met >= n),
            Self::Some { .. } => (1..=met).filter(|k| self.contains(*k)).count(),
        }
    }
}

/// What happens to a call.
#[derive(Clone)]
pub(super) enum Action {
    Fail(AwsError),
    ApplyThenFail(AwsError),
    FailEntries(Arc<[usize]>, AwsError),
    Delay(Duration),
    Hold,
    Hang,
    Edit(Arc<dyn Fn(&mut Value) + Send + Sync>),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(error) => f.debug_tuple("Fail").field(&error.code()).finish(),
            Self::ApplyThenFail(error) => f.debug_tuple("ApplyThenFail").field(&error.code()).finish(),
            Self::FailEntries(places, error) => {
                f.debug_tuple("FailEntries").field(places).field(&error.code()).finish()
            }
            Self::Delay(time) => f.debug_tuple("Delay").field(time).finish(),
            Self::Hold => f.write_str("Hold"),
            Self::Hang => f.write_str("Hang"),
            Self::Edit(_) => f.write_str("Edit"),
        }
    }
}
