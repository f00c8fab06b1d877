//! Checks the invariants of a history, whatever actions it contains.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::Entry,
    row::{Place, Row},
    source::Puts,
    takeover::{Takeover, Takeovers},
};

/// The result of the check.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    pub(crate) takeovers: Vec<Takeover>,
    pub(crate) begun: usize,
    /// Started again by the holder of the shard, because the previous holder had not stored it.
    pub(crate) again: usize,
    /// Started by a worker after another worker had taken its lease.
    pub(crate) late: usize,
    /// Refused writes by a worker after another worker had taken its lease.
    pub(crate) refused: usize,
}

/// The state of a shard.
#[derive(Debug, Default)]
struct CheckedShard<'a> {
    numbers: &'a [String],
    row: Option<Row>,
    /// How many records the row covers.
    covered: usize,
    /// Records that any worker has started, and those that any worker has finished.
    begun: BTreeSet<usize>,
    done: BTreeSet<usize>,
    epochs: BTreeMap<u64, LeaseTerm>,
    /// The epoch in which a commit of each record was stored.
    stored: BTreeMap<usize, u64>,
}

/// One holding of a shard by one worker.
#[derive(Debug)]
struct LeaseTerm {
    worker: String,
    start: usize,
    begun: BTreeSet<usize>,
    /// Its index in the list of takeovers, if it is one.
    takeover: Option<usize>,
}

/// Checks entry by entry.
struct Checker<'a> {
    puts: &'a Puts,
    shards: BTreeMap<&'a str, CheckedShard<'a>>,
    /// How many records of each key were started for the first time.
    keys: BTreeMap<&'a str, usize>,
    takeovers: Takeovers,
    verdict: Verdict,
}

pub(crate) fn check(entries: &[Entry], puts: &Puts) -> Verdict {
    let mut checker = Checker {
        puts,
        shards: BTreeMap::new(),
        keys: BTreeMap::new(),
        takeovers: Takeovers::default(),
        verdict: Verdict::default(),
    };
    for (n, entry) in entries.iter().enumerate() {
        if let Err(why) = checker.enter(entry) {
            checker.verdict.violations.push(format!("line {}: {why}: {}", n + 1, entry.line));
        }
    }
    checker.end()
}

impl<'a> Checker<'a> {
    fn enter(&mut self, entry: &'a Entry) -> Result<(), String> {
        match entry.event() {
            "wrote" => return self.wrote(entry),
            "begun" => return self.begun(entry),
            "done" => return self.done(entry),
            "settled" => return self.settled(entry),
            "refused" => self.refused(entry),
            _ => self.takeovers.enter(entry),
        }
        Ok(())
    }

    fn shard(&mut self, entry: &'a Entry) -> &mut CheckedShard<'a> {
        let id = entry.text("shard");
        let numbers = self.puts.shards.get(id).map_or(&[][..], Vec::as_slice);
        self.shards.entry(id).or_insert_with(|| CheckedShard { numbers, ..CheckedShard::default() })
    }

    fn wrote(&mut self, entry: &'a Entry) -> Result<(), String> {
        let row = entry.row().ok_or("a row that makes no sense")?;
        let shard = self.shard(entry);
        let before = shard.row.replace(row.clone());
        let (epoch, counter) = before.as_ref().map_or((0, 0), |before| (before.epoch, before.counter));
        let is_take = row.epoch == epoch + 1;
        if row.counter <= counter || !is_take && row.epoch != epoch {
            return Err(format!("epoch {epoch} and counter {counter} were before"));
        }
        if is_take {
            return self.took(entry, before.as_ref(), &row);
        }
        shard.written(entry, before.as_ref(), &row)
    }

    fn took(&mut self, entry: &'a Entry, before: Option<&Row>, row: &Row) -> Result<(), String> {
        let from = self.shard(entry).epochs.last_key_value().map(|(_, term)| term.worker.clone());
        let takeover = from.and_then(|from| self.takeovers.taken(entry, &from, before));
        let worker = entry.text("owner").to_owned();
        let shard = self.shard(entry);
        shard.epochs.insert(row.epoch, LeaseTerm { worker, start: shard.covered, begun: BTreeSet::new(), takeover });
        let place = before.map_or(&Place::Beginning, |before| &before.place);
        if *place == row.place { Ok(()) } else { Err(format!("a take changes the checkpoint, which was {place:?}")) }
    }

    fn refused(&mut self, entry: &'a Entry) {
        let worker = entry.text("owner");
        let term = self.shard(entry).epochs.last_key_value();
        let is_late = entry.line["saves"] == true && term.is_some_and(|(_, term)| term.worker != worker);
        self.verdict.refused += usize::from(is_late);
    }

    fn begun(&mut self, entry: &'a Entry) -> Result<(), String> {
        let shard = self.shard(entry);
        let place = shard.place(entry.text("number")).ok_or("nobody put it")?;
        let newest = shard.epochs.last_key_value().map_or(0, |(epoch, _)| *epoch);
        let term = shard.epochs.get_mut(&entry.epoch()).ok_or("no such epoch")?;
        if term.worker != entry.text("owner") || place < term.start {
            return Err(format!("the lease is {term:?}"));
        }
        if !term.begun.insert(place) {
            return Err("it was delivered twice under one lease".into());
        }
        let (takeover, late) = (term.takeover, entry.epoch() < newest);
        let first = shard.begun.insert(place);
        self.verdict.begun += 1;
        self.verdict.late += usize::from(late);
        if first {
            return self.in_order(entry);
        }
        self.verdict.again += usize::from(!late);
        if let Some(takeover) = takeover.filter(|_| !late) {
            self.takeovers.again(takeover);
        }
        Ok(())
    }

    /// Records of a key must be started for the first time in the order in which they were put.
    fn in_order(&mut self, entry: &'a Entry) -> Result<(), String> {
        let (key, n) = entry.text("payload").split_once(' ').ok_or("it says something else than was put")?;
        let next = self.keys.entry(key).or_default();
        let expected = *next;
        *next += 1;
        if n == expected.to_string() { Ok(()) } else { Err(format!("{key} {expected} should be next")) }
    }

    fn done(&mut self, entry: &'a Entry) -> Result<(), String> {
        let shard = self.shard(entry);
        let place = shard.place(entry.text("number")).ok_or("nobody put it")?;
        shard.done.insert(place);
        Ok(())
    }

    fn settled(&mut self, entry: &'a Entry) -> Result<(), String> {
        if entry.text("commit") != "stored" {
            return Ok(());
        }
        let shard = self.shard(entry);
        let place = shard.place(entry.text("number")).ok_or("nobody put it")?;
        if shard.covered <= place {
            return Err(format!("it is said to be stored, and the table covers {} records", shard.covered));
        }
        match shard.stored.insert(place, entry.epoch()) {
            Some(before) => Err(format!("it was stored under epoch {before}, too")),
            None => Ok(()),
        }
    }

    fn end(mut self) -> Verdict {
        for (shard, numbers) in &self.puts.shards {
            let (covered, done) = self.shards.get(&**shard).map_or((0, 0), |shard| (shard.covered, shard.done.len()));
            if (covered, done) != (numbers.len(), numbers.len()) {
                let put = numbers.len();
                self.verdict.violations.push(format!("{shard}: of {put} records {done} were done, {covered} stored"));
            }
        }
        self.verdict.takeovers = self.takeovers.done();
        self.verdict
    }
}

impl CheckedShard<'_> {
    fn place(&self, number: &str) -> Option<usize> {
        self.numbers.iter().position(|known| known == number)
    }

    /// A write other than a take must come from the holder of the shard, unless it only requests the shard.
    fn written(&mut self, entry: &Entry, before: Option<&Row>, row: &Row) -> Result<(), String> {
        let (epoch, term) = self.epochs.last_key_value().ok_or("nobody has taken it")?;
        let asks = before.is_some_and(|before| {
            (&before.owner, &before.place) == (&row.owner, &row.place) && before.wanted_by != row.wanted_by
        });
        let is_holder = term.worker == entry.text("owner") && entry.line["if_epoch"] == *epoch;
        if !is_holder && !asks {
            return Err(format!("a write of an older epoch is accepted: the lease is {term:?}"));
        }
        if entry.line["saves"] == true { self.saved(&row.place) } else { Ok(()) }
    }

    /// A checkpoint never moves back, and never passes an unfinished record.
    fn saved(&mut self, place: &Place) -> Result<(), String> {
        let upto = match place {
            Place::Beginning => 0,
            Place::At(number) => self.place(number).ok_or("nobody put the record of the checkpoint")?,
            Place::After(number) => self.place(number).ok_or("nobody put the record of the checkpoint")? + 1,
            Place::End => self.numbers.len(),
        };
        let before = std::mem::replace(&mut self.covered, upto);
        if upto < before {
            return Err(format!("the checkpoint moves back from {before} to {upto} records"));
        }
        match (before..upto).find(|place| !self.done.contains(place)) {
            Some(passed) => Err(format!("the checkpoint passes record {passed} of its shard, which nobody has done")),
            None => Ok(()),
        }
    }
}
