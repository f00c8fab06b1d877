//! In place of [`encode`](super::encode) where the feature `kpl` is off: no aggregate is within any limit, so none is made.

use bytes::Bytes;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Format;

#[expect(clippy::unused_self, reason = "it stands in for one that has a key")]
impl Format {
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
