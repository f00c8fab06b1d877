//! A record that passed all checks.

use bytes::Bytes;

use super::error::PublishError;
use crate::{publishing::record::Outgoing, wire::envelope};

/// The memory that a record takes in addition to its data and key, roughly.
const OVERHEAD: usize = 256;

/// A record that is within its limits.
#[derive(Debug)]
pub(super) struct Prepared {
    record: Outgoing,
    data: Bytes,
}

impl Prepared {
    pub(super) fn new(mut record: Outgoing) -> Result<Self, PublishError> {
        let data = envelope::encode(&record.headers, record.payload.clone());
        match data.and_then(|data| record.check(&data).map(|()| data)) {
            Ok(data) => {
                // The payload is the end of the data, so it need not be kept twice.
                record.payload = data.slice(data.len() - record.payload.len()..);
                Ok(Self { record, data })
            }
            Err(cause) => Err(PublishError::new(record, 0, cause)),
        }
    }

    /// The bytes that it occupies until it is settled.
    pub(super) fn room(&self) -> usize {
        self.data.len() + self.record.partition_key.len() + OVERHEAD
    }

    pub(super) fn into_parts(self) -> (Outgoing, Bytes) {
        (self.record, self.data)
    }
}
