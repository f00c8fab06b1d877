//! Takes the place of the encoder if the feature `kpl` is off. It reports a size beyond every limit, so no aggregate is
//! built.

use bytes::Bytes;

#[derive(Clone, Copy, Debug)]
pub(crate) struct NoAggregates;

#[expect(clippy::unused_self, reason = "it has the signatures of `AggregateFormat`")]
impl NoAggregates {
    pub(crate) fn new(_: &str, _: Option<u128>) -> Self {
        Self
    }

    pub(crate) fn empty(self) -> usize {
        usize::MAX / 2
    }

    pub(crate) fn record(self, _: usize) -> usize {
        0
    }

    pub(crate) fn encode(self, records: impl Iterator<Item = Bytes>) -> Bytes {
        records.last().unwrap_or_default()
    }
}
