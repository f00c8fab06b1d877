//! A rule: which calls it matches, and what it does to them.

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

/// The calls that a rule will match: every call of its operation, until it is narrowed.
#[derive(Debug)]
#[must_use = "a scope does nothing until it gets an action"]
pub struct Scope {
    faults: Faults,
    op: Op,
    shard: Option<String>,
    text: Option<String>,
    window: Window,
}

#[expect(clippy::must_use_candidate, reason = "a rule is active whether or not its handle is kept")]
impl Scope {
    pub(super) fn new(faults: Faults, op: Op) -> Self {
        Self { faults, op, shard: None, text: None, window: Window::Every }
    }

    /// Only calls on this shard, or on its lease. `PutRecord`, `PutRecords` and `ListShards` name no shard: never
    /// matched.
    pub fn shard(mut self, id: impl Into<String>) -> Self {
        self.shard = Some(id.into());
        self
    }

    /// Only calls whose body contains this text.
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Only the first `n` calls from now on.
    pub fn first(mut self, n: usize) -> Self {
        self.window = Window::First(n);
        self
    }

    /// Only the `k`-th call from now on. The next call is the first.
    pub fn nth(mut self, k: usize) -> Self {
        self.window = Window::Nth(k);
        self
    }

    /// Only some calls: `of_a_thousand` out of 1,000 on average. Only `seed` decides which ones.
    pub fn some(mut self, of_a_thousand: u64, seed: u64) -> Self {
        self.window = Window::Some { of_a_thousand, seed };
        self
    }

    /// The call fails with `error` and has no effect.
    pub fn fail(self, error: AwsError) -> Rule {
        self.install(Action::Fail(error))
    }

    /// The call takes effect, but its response is `error`.
    pub fn apply_then_fail(self, error: AwsError) -> Rule {
        self.install(Action::ApplyThenFail(error))
    }

    /// The call waits for this long, then continues.
    pub fn delay(self, time: Duration) -> Rule {
        self.install(Action::Delay(time))
    }

    /// The call waits until the rule is lifted, then continues.
    pub fn hold(self) -> Rule {
        self.install(Action::Hold)
    }

    /// The call is never answered and has no effect. Lifting the rule spares only later calls.
    pub fn hang(self) -> Rule {
        self.install(Action::Hang)
    }

    /// If the call succeeds, `change` edits its response.
    pub fn edit(self, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Rule {
        self.install(Action::Edit(Arc::new(change)))
    }

    /// The entries of a `PutRecords` at these places fail with `error`. The other entries are put, if there are any.
    pub fn fail_entries(self, places: impl IntoIterator<Item = usize>, error: AwsError) -> Rule {
        let mut places: Vec<usize> = places.into_iter().collect();
        places.sort_unstable();
        places.dedup();
        self.install(Action::FailEntries(places.into(), error))
    }

    fn install(self, action: Action) -> Rule {
        let (lifted, _) = watch::channel(false);
        let Self { faults, op, shard, text, window } = self;
        let state = RuleState { op, shard, text, window, met: AtomicUsize::new(0), lifted };
        let rule = Rule { state: Arc::new(state), action };
        faults.install(rule.clone());
        rule
    }
}

/// An active rule. Dropping this handle leaves the rule active.
#[derive(Clone, Debug)]
pub struct Rule {
    state: Arc<RuleState>,
    pub(super) action: Action,
}

impl Rule {
    /// Ends the rule: it spares later calls, and calls that it holds continue.
    pub fn lift(&self) {
        self.state.lifted.send_replace(true);
    }

    /// How many calls the rule acted on.
    #[must_use]
    pub fn hits(&self) -> usize {
        self.state.window.hits(self.state.met.load(Ordering::Relaxed))
    }

    pub(super) fn is_lifted(&self) -> bool {
        *self.state.lifted.borrow()
    }

    /// Counts a call, and returns whether the rule acts on it.
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
struct RuleState {
    op: Op,
    shard: Option<String>,
    text: Option<String>,
    window: Window,
    /// Matching calls so far, inside and outside of the window.
    met: AtomicUsize,
    lifted: watch::Sender<bool>,
}

/// Which of the counted calls the rule acts on.
#[derive(Clone, Copy, Debug)]
enum Window {
    Every,
    First(usize),
    Nth(usize),
    Some { of_a_thousand: u64, seed: u64 },
}

impl Window {
    /// Whether the window contains the `k`-th call.
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

    /// How many of the first `met` calls the window contains.
    fn hits(self, met: usize) -> usize {
        match self {
            Self::Every => met,
            Self::First(n) => met.min(n),
            Self::Nth(n) => usize::from(n > 0 && met >= n),
            Self::Some { .. } => (1..=met).filter(|k| self.contains(*k)).count(),
        }
    }
}

/// What a rule does to a call.
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
