//! The end of a fleet: everything is read, the shares are even, nothing moves, all instances close.

use super::{Fleet, Leaving, STEP, STUCK_AFTER, node::Node};
use crate::{simulation::oracle::Counts, types::close_report::CloseReport, util::mutex::lock};

impl Fleet {
    /// Ends all faults; workers stop giving records back. Returns how long it takes until all work is done.
    pub(super) fn recover(&mut self) -> u64 {
        self.note("the faults are over");
        self.churn.show_all();
        self.lag = self.lag.min(50);
        lock(&self.oracle).faults_are_over = true;
        self.nodes.iter_mut().for_each(Node::heal);
        self.leaving.iter_mut().for_each(|(node, _)| node.heal());
        let begun = self.clock.millis();
        let (mut missing, mut since) = (Vec::new(), begun);
        loop {
            let left = lock(&self.oracle).missing();
            if left.is_empty() {
                break;
            }
            if left != missing {
                (missing, since) = (left, self.clock.millis());
            }
            assert!(self.clock.millis() < since + STUCK_AFTER, "stuck: {missing:?}");
            self.make_room();
            self.pass(500);
        }
        self.clock.millis() - begun
    }

    /// How many shards each instance reads, and how many it may read.
    pub(super) fn shares(&self) -> Vec<(usize, usize)> {
        let oracle = lock(&self.oracle);
        let shares = oracle.shares();
        let share = |node: &Node| (shares.get(node.owner.as_str()).copied().unwrap_or_default(), node.most);
        self.nodes.iter().map(share).collect()
    }

    /// Whether the shares of all instances with room differ by at most one, and no move is pending.
    pub(super) fn is_even(&self) -> bool {
        let shares = self.shares();
        let oracle = lock(&self.oracle);
        let open = oracle.open_shards().len();
        let richest = shares.iter().map(|(share, _)| *share).max().unwrap_or_default();
        shares.iter().map(|(share, _)| share).sum::<usize>() == open
            && self.nodes.iter().zip(&shares).all(|(node, (share, _))| node.holds() == *share)
            && shares.iter().all(|(share, most)| share >= most || richest <= share + 1)
            && oracle.requests().is_empty()
    }

    /// How long it takes until the shares are even. They must stay so for longer than other instances may take to see
    /// the lease of a stopped instance expire.
    pub(super) fn settle(&mut self) -> u64 {
        let begun = self.clock.millis();
        let mut even_since = None;
        while even_since.is_none_or(|since| self.clock.millis() < since + 15_000) {
            assert!(self.clock.millis() < begun + STUCK_AFTER, "not even: {:?}", self.shares());
            self.make_room();
            self.pass(500);
            even_since = if self.is_even() { even_since.or(Some(self.clock.millis())) } else { None };
        }
        even_since.unwrap_or_default() - begun
    }

    /// Lets this much time pass and checks that no shard moves.
    pub(super) fn rest(&mut self, time: u64) {
        let moves = |fleet: &Self| Counts { swept: 0, writes: 0, ..lock(&fleet.oracle).counts };
        let before = moves(self);
        self.longest = 1_000;
        self.pass(time);
        self.longest = STEP;
        assert_eq!(moves(self), before);
        assert!(self.is_even(), "{:?}", self.shares());
    }

    /// Adds one more instance while records arrive. Exactly as many shards move to it as make the shares even, and none
    /// of their records is delivered twice.
    pub(super) fn add_newcomer(&mut self) -> u64 {
        let mut shares: Vec<usize> = self.shares().into_iter().map(|(share, _)| share).collect();
        let mut moves = 0;
        while let Some(richest) = shares.iter_mut().max().filter(|richest| **richest >= moves + 2) {
            (*richest, moves) = (*richest - 1, moves + 1);
        }
        let before = lock(&self.oracle).counts;
        self.join_unbounded();
        let (begun, mut even_at) = (self.clock.millis(), None);
        for _ in 0..10 {
            self.churn.put(&mut self.rng);
            self.pass(500);
            even_at = even_at.or_else(|| self.is_even().then(|| self.clock.millis()));
        }
        self.until("the newcomer has its share", |fleet| {
            even_at = even_at.or_else(|| fleet.is_even().then(|| fleet.clock.millis()));
            even_at.is_some() && lock(&fleet.oracle).missing().is_empty()
        });
        let took = even_at.unwrap_or_default() - begun;
        let after = lock(&self.oracle).counts;
        let expected = Counts {
            takes: before.takes + moves,
            hand_overs: before.hand_overs + moves,
            asks: before.asks + moves,
            ..before
        };
        let unlike = |counts: Counts| Counts { records: 0, deliveries: 0, writes: 0, swept: 0, ..counts };
        assert_eq!(unlike(after), unlike(expected), "{:?}", self.shares());
        took
    }

    /// Closes all instances in good order and checks that every lease is free.
    pub(super) fn close(&mut self) {
        let now = self.clock.millis();
        self.until("those who leave are gone", |fleet| fleet.leaving.is_empty());
        self.reports.clear();
        for node in std::mem::take(&mut self.nodes) {
            let closing = node.close().expect("it has subscribed");
            self.leaving.push((node, Leaving::Closes(closing, now + STUCK_AFTER)));
        }
        self.until("everybody closes", |fleet| fleet.leaving.is_empty());
        assert!(self.reports.iter().all(CloseReport::is_clean), "{:?}", self.reports);
        let oracle = lock(&self.oracle);
        assert!(oracle.owned().is_empty(), "{:?}", oracle.owned());
    }
}
