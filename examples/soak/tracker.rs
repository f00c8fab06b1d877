//! Tracks which records were put and settled, with one byte per record. All of it is allocated at the start, so that
//! the memory curve does not show it.

use std::{fmt, str};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not zero, because the system would commit zeroed memory only on its first use.
    Unused = 1,
    Put,
    Settled,
}

/// The states of all records.
#[derive(Debug)]
pub(crate) struct RecordTracker {
    states: Vec<State>,
    put: usize,
    settled: usize,
    /// Settled more than once.
    again: usize,
    /// Records with an unknown number.
    foreign: usize,
}

impl RecordTracker {
    pub(crate) fn for_at_most(records: usize) -> Self {
        Self { states: vec![State::Unused; records], put: 0, settled: 0, again: 0, foreign: 0 }
    }

    /// Adds the next record, and returns its number; `None` once the tracker is full.
    pub(crate) fn add(&mut self) -> Option<usize> {
        let number = self.put;
        *self.states.get_mut(number)? = State::Put;
        self.put += 1;
        Some(number)
    }

    /// The number at the start of a payload.
    pub(crate) fn number(payload: &[u8]) -> Option<usize> {
        let digits = payload.iter().take_while(|byte| byte.is_ascii_digit()).count();
        str::from_utf8(&payload[..digits]).ok()?.parse().ok()
    }

    pub(crate) fn settle(&mut self, number: Option<usize>) {
        match number.and_then(|number| self.states.get_mut(number)) {
            Some(state @ State::Put) => {
                *state = State::Settled;
                self.settled += 1;
            }
            Some(State::Settled) => self.again += 1,
            Some(State::Unused) | None => self.foreign += 1,
        }
    }

    /// How many records were put and not settled.
    pub(crate) fn open(&self) -> usize {
        self.put - self.settled
    }
}

impl fmt::Display for RecordTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { put, settled, again, foreign, .. } = self;
        write!(f, "{put} records put, {settled} settled, {again} of them more than once, {foreign} unknown")
    }
}
