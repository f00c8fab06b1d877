//! What must be true of a journal, whatever was done to whom.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::Entry,
    row::{Place, Row},
    source::Puts,
    takeover::{Takeover, Takeovers},
};

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    pub(crate) takeovers: Vec<Takeover>,
    pub(crate) begun: usize,
    /// Begun once more by whoever has the shard, since the one before had not stored it.
    pub(crate) again: usize,
    /// Begun by one whose lease another one had by then.
    pub(crate) late: usize,
    /// Writes of one whose lease another one had by then, which were refused.
    pub(crate) refused: usize,
}

/// What is known of a shard.
#[derive(Debug, Default)]
struct Book<'a> {
    numbers: &'a [String],
    row: Option<Row>,
    /// So many records are covered by the row.
    covered: usize,
    /// Records that somebody has begun, and those that somebody has done.
    begun: BTreeSet<usize>,
    done: BTreeSet<usize>,
    epochs: BTreeMap<u64, Tenure>,
    /// The epoch in which a commit of each record was stored.
    stored: BTreeMap<usize, u64>,
}

/// One holding of a shard.
#[derive(Debug)]
struct Tenure {
    worker: String,
    start: usize,
    begun: BTreeSet<usize>,
    /// Its place among the takeovers, if it is one.
    takeover: Option<usize>,
}

/// Judges entry by entry.
struct Judge<'a> {
    puts: &'a Puts,
    shards: BTreeMap<&'a str, Book<'a>>,
    /// How many of each key were begun for the first time.
    keys: BTreeMap<&'a str, usize>,
    takeovers: Takeovers,
    verdict: Verdict,
}

pub(crate) fn judge(entries: &[Entry], puts: &Puts) -> Verdict {
    let mut judge = Judge {
        puts,
        shards: BTreeMap::new(),
        keys: BTreeMap::new(),
        takeovers: Takeovers::default(),
        verdict: Verdict::default(),
    };
    for (n, entry) in entries.iter().enumerate() {
        if let Err(why) = judge.enter(entry) {
            judge.verdict.violations.push(format!("line {}: {why}: {}", n + 1, entry.line));
        }
    }
    judge.end()
}

impl<'a> Judge<'a> {
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

    fn book(&mut self, entry: &'a Entry) -> &mut Book<'a> {
        let shard = entry.text("shard");
        let numbers = self.puts.shards.get(shard).map_or(&[][..], Vec::as_slice);
        self.shards.entry(shard).or_insert_with(|| Book { numbers, ..Book::default() })
    }

    fn wrote(&mut self, entry: &'a Entry) -> Result<(), String> {
        let row = entry.row().ok_or("a row that makes no sense")?;
        let book = self.book(entry);
        let before = book.row.replace(row.clone());
        let (epoch, counter) = before.as_ref().map_or((0, 0), |before| (before.epoch, before.counter));
        let is_take = row.epoch == epoch + 1;
        if row.counter <= counter || !is_take && row.epoch != epoch {
            return Err(format!("epoch {epoch} and counter {counter} were before"));
        }
        if is_take {
            return self.took(entry, before.as_ref(), &row);
        }
        book.written(entry, before.as_ref(), &row)
    }

    fn took(&mut self, entry: &'a Entry, before: Option<&Row>, row: &Row) -> Result<(), String> {
        let from = self.book(entry).epochs.last_key_value().map(|(_, tenure)| tenure.worker.clone());
        let takeover = from.and_then(|from| self.takeovers.taken(entry, &from, before));
        let worker = entry.text("owner").to_owned();
        let book = self.book(entry);
        book.epochs.insert(row.epoch, Tenure { worker, start: book.covered, begun: BTreeSet::new(), takeover });
        let place = before.map_or(&Place::Beginning, |before| &before.place);
        if *place == row.place { Ok(()) } else { Err(format!("a take changes the checkpoint, which was {place:?}")) }
    }

    fn refused(&mut self, entry: &'a Entry) {
        let worker = entry.text("owner");
        let tenure = self.book(entry).epochs.last_key_value();
        let is_late = entry.line["saves"] == true && tenure.is_some_and(|(_, tenure)| tenure.worker != worker);
        self.verdict.refused += usize::from(is_late);
    }

    fn begun(&mut self, entry: &'a Entry) -> Result<(), String> {
        let book = self.book(entry);
        let place = book.place(entry.text("number")).ok_or("nobody put it")?;
        let newest = book.epochs.last_key_value().map_or(0, |(epoch, _)| *epoch);
        let tenure = book.epochs.get_mut(&entry.epoch()).ok_or("no such epoch")?;
        if tenure.worker != entry.text("owner") || place < tenure.start {
            return Err(format!("the lease is {tenure:?}"));
        }
        if !tenure.begun.insert(place) {
            return Err("it was delivered twice under one lease".into());
        }
        let (takeover, late) = (tenure.takeover, entry.epoch() < newest);
        let first = book.begun.insert(place);
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

    /// The records of a key are begun for the first time in the order in which they were put.
    fn in_order(&mut self, entry: &'a Entry) -> Result<(), String> {
        let (key, n) = entry.text("payload").split_once(' ').ok_or("it says something else than was put")?;
        let next = self.keys.entry(key).or_default();
        let expected = *next;
        *next += 1;
        if n == expected.to_string() { Ok(()) } else { Err(format!("{key} {expected} should be next")) }
    }

    fn done(&mut self, entry: &'a Entry) -> Result<(), String> {
        let book = self.book(entry);
        let place = book.place(entry.text("number")).ok_or("nobody put it")?;
        book.done.insert(place);
        Ok(())
    }

    fn settled(&mut self, entry: &'a Entry) -> Result<(), String> {
        if entry.text("commit") != "stored" {
            return Ok(());
        }
        let book = self.book(entry);
        let place = book.place(entry.text("number")).ok_or("nobody put it")?;
        if book.covered <= place {
            return Err(format!("it is said to be stored, and the table covers {} records", book.covered));
        }
        match book.stored.insert(place, entry.epoch()) {
            Some(before) => Err(format!("it was stored under epoch {before}, too")),
            None => Ok(()),
        }
    }

    fn end(mut self) -> Verdict {
        for (shard, numbers) in &self.puts.shards {
            let (covered, done) = self.shards.get(&**shard).map_or((0, 0), |book| (book.covered, book.done.len()));
            if (covered, done) != (numbers.len(), numbers.len()) {
                let put = numbers.len();
                self.verdict.violations.push(format!("{shard}: of {put} records {done} were done, {covered} stored"));
            }
        }
        self.verdict.takeovers = self.takeovers.done();
        self.verdict
    }
}

impl Book<'_> {
    fn place(&self, number: &str) -> Option<usize> {
        self.numbers.iter().position(|known| known == number)
    }

    /// A write that is no take: by whoever holds the shard, unless it only asks for it.
    fn written(&mut self, entry: &Entry, before: Option<&Row>, row: &Row) -> Result<(), String> {
        let (epoch, tenure) = self.epochs.last_key_value().ok_or("nobody has taken it")?;
        let asks = before.is_some_and(|before| {
            (&before.owner, &before.place) == (&row.owner, &row.place) && before.wanted_by != row.wanted_by
        });
        let is_holder = tenure.worker == entry.text("owner") && entry.line["if_epoch"] == *epoch;
        if !is_holder && !asks {
            return Err(format!("a write of an older epoch is accepted: the lease is {tenure:?}"));
        }
        if entry.line["saves"] == true { self.saved(&row.place) } else { Ok(()) }
    }

    /// A checkpoint does not move back, and passes nothing that nobody has done.
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
