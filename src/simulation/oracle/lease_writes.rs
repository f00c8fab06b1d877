//! The checks of writes to the lease table.

use std::collections::BTreeMap;

use super::{Oracle, ShardModel, Term};
use crate::{
    config::position::Checkpoint,
    lease::{Held, Lease, LeaseKey},
};

impl Oracle {
    pub(super) fn taken(&mut self, lease: &Lease) {
        let (shard, now) = (lease.key.shard.as_str(), self.clock.millis());
        let owner = lease.owner.as_deref().unwrap_or_default();
        let what = format!("{shard} is taken by {owner}, epoch {}, at {now} ms", lease.epoch);
        self.log.push(what.clone());
        self.counts.takes += 1;
        let model = self.models.get_mut(shard).unwrap();
        if model.swept {
            self.violations.push(format!("{what}, although its row was removed"));
        }
        if lease.epoch != model.newest() + 1 {
            self.violations.push(format!("{what}, after epoch {}", model.newest()));
        }
        let handed_over = model.owner.is_none() && model.wanted_by.as_deref() == Some(owner);
        let runs_out = model.owner.as_ref().is_some_and(|former| former != owner);
        if runs_out && now + self.skew.early < model.alive_at + self.ttl {
            self.violations.push(format!("{what}, although its owner wrote at {} ms", model.alive_at));
        }
        self.counts.takeovers += usize::from(runs_out);
        self.counts.hand_overs += usize::from(handed_over);
        (model.owner, model.wanted_by, model.alive_at) = (Some(owner.to_owned()), None, now);
        let epoch = Term {
            owner: owner.to_owned(),
            taken_at: now,
            handed_over,
            next: model.covered,
            open: BTreeMap::new(),
            ended: lease.is_ended(),
        };
        model.epochs.insert(lease.epoch, epoch);
    }

    /// Notes a write by a holder and checks that it still holds the lease. Returns the shard.
    pub(super) fn holds(&mut self, held: &Held) -> &mut ShardModel {
        let (shard, now) = (held.key.shard.as_str(), self.clock.millis());
        let model = self.models.get_mut(shard).unwrap();
        model.alive_at = now;
        if held.epoch != model.newest() || model.owner.as_deref() != Some(&*held.owner) {
            let what = format!("{shard}: {} writes, epoch {}, in epoch {}", held.owner, held.epoch, model.newest());
            self.violations.push(what);
        }
        model
    }

    /// Notes a release. `settled` is how many records were settled when the call was sent.
    pub(super) fn released(&mut self, held: &Held, settled: usize) {
        let (shard, now) = (held.key.shard.as_str(), self.clock.millis());
        self.log.push(format!("{shard} is released by {}, epoch {}, at {now} ms", held.owner, held.epoch));
        let model = self.holds(held);
        model.owner = None;
        if model.covered < settled {
            let what = format!("{held:?} is released: {settled} are settled, {} covered", model.covered);
            self.violations.push(what);
        }
    }

    pub(super) fn asked(&mut self, key: &LeaseKey, by: &str) {
        self.log.push(format!("{} is asked for by {by} at {} ms", key.shard, self.clock.millis()));
        self.counts.asks += 1;
        self.models.get_mut(key.shard.as_str()).unwrap().wanted_by = Some(by.to_owned());
    }

    pub(super) fn ask_withdrawn(&mut self, key: &LeaseKey) {
        self.log.push(format!("the ask for {} is withdrawn at {} ms", key.shard, self.clock.millis()));
        self.models.get_mut(key.shard.as_str()).unwrap().wanted_by = None;
    }

    pub(super) fn stored(&mut self, held: &Held, checkpoint: &Checkpoint) {
        let shard = held.key.shard.as_str();
        let what = format!("{shard}, epoch {}: {checkpoint}", held.epoch);
        self.log.push(format!("{what}, by {}, at {} ms", held.owner, self.clock.millis()));
        self.counts.writes += 1;
        let model = self.holds(held);
        let mut wrong = Vec::new();
        let place = |number: &str| number[shard.len()..].parse::<usize>().unwrap();
        let upto = match checkpoint {
            // After a lost position, reading continues at the oldest record that is kept.
            Checkpoint::Since(_) => model.trimmed,
            Checkpoint::At(number) => place(number.as_str()),
            Checkpoint::After(number) => place(number.as_str()) + 1,
            Checkpoint::ShardEnd => model.records.len(),
        };
        let settled_upto = model.epochs[&held.epoch].settled_upto().min(model.run);
        if upto > settled_upto {
            wrong.push(format!("{what} passes {settled_upto}, which is not settled"));
        }
        if upto < model.covered || model.ended && *checkpoint != Checkpoint::ShardEnd {
            wrong.push(format!("{what} moves back from {}, ended: {}", model.covered, model.ended));
        }
        if *checkpoint == Checkpoint::ShardEnd {
            if !model.closed {
                wrong.push(format!("{what}: the shard is open"));
            }
            (model.ended, model.wanted_by) = (true, None);
        }
        model.covered = upto;
        self.violations.append(&mut wrong);
    }

    pub(super) fn removed(&mut self, key: &LeaseKey) {
        let shard = key.shard.as_str();
        self.log.push(format!("the row of {shard} is removed at {} ms", self.clock.millis()));
        self.counts.swept += 1;
        let children = self.models.values().filter(|model| model.parents.iter().any(|parent| parent == shard));
        let unread = children.filter(|child| child.epochs.is_empty()).count();
        let model = self.models.get_mut(shard).unwrap();
        if !model.ended || unread > 0 {
            self.violations.push(format!("the row of {shard} is removed, ended: {}, unread: {unread}", model.ended));
        }
        model.swept = true;
        (model.owner, model.wanted_by) = (None, None);
    }

    /// How many records of a shard are settled under this lease.
    pub(super) fn settled_upto(&self, held: &Held) -> usize {
        let model = &self.models[held.key.shard.as_str()];
        model.epochs.get(&held.epoch).map_or(0, Term::settled_upto)
    }
}
