//! What was put and what was settled: one byte for each record, there from the beginning, so that it does not show in
//! the curve.

use std::{fmt, str};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not zero, or the system would give the memory only when it is used.
    Unused = 1,
    Put,
    Settled,
}

/// The books.
#[derive(Debug)]
pub(crate) struct Books {
    states: Vec<State>,
    put: usize,
    settled: usize,
    /// Settled once more, after they were.
    again: usize,
    /// Records of others.
    foreign: usize,
}

impl Books {
    pub(crate) fn for_at_most(records: usize) -> Self {
        Self { states: vec![State::Unused; records], put: 0, settled: 0, again: 0, foreign: 0 }
    }

    /// Enters the next record that is put; none once the books are full.
    pub(crate) fn enter(&mut self) -> Option<usize> {
        let number = self.put;
        *self.states.get_mut(number)? = State::Put;
        self.put += 1;
        Some(number)
    }

    /// The number with which a payload begins.
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

    /// How many were put and not settled.
    pub(crate) fn open(&self) -> usize {
        self.put - self.settled
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { put, settled, again, foreign, .. } = self;
        write!(f, "{put} records put, {settled} settled, {again} of them more than once, {foreign} unknown")
    }
}
