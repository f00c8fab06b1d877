//! The random steps of a fleet.

use super::{
    super::nemesis::{inject_faults, inject_outage},
    ClockRates, Fleet, Leaving, MOST, STUCK_AFTER,
    node::Node,
};
use crate::util::mutex::lock;

impl Fleet {
    pub(super) fn step(&mut self) {
        match self.rng.below(25) {
            0..7 => self.churn.put(&mut self.rng),
            7..9 => self.churn.reshard(&mut self.rng),
            9..13 => self.break_something(),
            13 => self.crash(),
            14..16 => self.leave(),
            16 if self.nodes.len() < MOST => self.join(),
            17..19 => self.stop(),
            19 => self.churn.hide_any(&mut self.rng),
            20..22 => self.churn.trim(&mut self.rng),
            22 => self.begin_outage(),
            23 if self.clock_rates == ClockRates::Bursting => {
                if let Some(n) = self.any() {
                    self.nodes[n].fast_until = self.clock.millis() + self.rng.below(3_000);
                }
            }
            _ => {}
        }
        if self.nodes.is_empty() {
            self.join();
        }
        let pause = self.rng.below(5_000);
        self.pass(pause);
    }

    pub(super) fn break_something(&mut self) {
        if let Some(n) = self.any() {
            let Node { service, table, .. } = &self.nodes[n];
            inject_faults(&mut self.rng, &service.script, &table.script);
        }
    }

    fn begin_outage(&mut self) {
        if let Some(n) = self.any() {
            let Node { service, table, .. } = &self.nodes[n];
            inject_outage(&mut self.rng, &service.script, &table.script);
        }
    }

    /// Kills a process between two of its steps. Sometimes it restarts under its owner id.
    pub(super) fn crash(&mut self) {
        if let Some(n) = self.any() {
            let node = self.nodes.swap_remove(n);
            let owner = node.owner.clone();
            self.note(&format!("{owner} dies"));
            self.gone.insert(owner.clone());
            drop(node);
            if self.rng.one_in(2) && !lock(&self.oracle).is_duplicate(&owner) {
                self.join_as(owner, 5);
            }
        }
    }

    /// Makes a process close its subscription, or drop it.
    pub(super) fn leave(&mut self) {
        let Some(n) = self.any() else { return };
        let (node, now) = (self.nodes.swap_remove(n), self.clock.millis());
        self.note(&format!("{} leaves", node.owner));
        self.gone.insert(node.owner.clone());
        let closing = if self.rng.one_in(3) { None } else { node.close() };
        let leaving = closing.map_or_else(
            || {
                node.abandon();
                Leaving::EndsAt(now + self.rng.below(5_000))
            },
            |closing| Leaving::Closes(closing, now + STUCK_AFTER),
        );
        self.leaving.push((node, leaving));
    }

    /// Stops a process for up to 40 s. Rarely, another one starts meanwhile under the same owner id.
    pub(super) fn stop(&mut self) {
        let Some(n) = self.any() else { return };
        let until = self.clock.millis() + self.rng.below(40_000);
        self.nodes[n].stopped_until = until;
        self.note(&format!("{} is stopped until {until} ms", self.nodes[n].owner));
        if self.rng.one_in(20) {
            let owner = self.nodes[n].owner.clone();
            self.note(&format!("{owner} is believed dead and started again"));
            lock(&self.oracle).duplicate_owners.insert(owner.clone());
            self.join_as(owner, 5);
        }
    }
}
