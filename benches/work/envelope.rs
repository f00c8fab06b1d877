//! Headers: records in an envelope compared with plain records, with the same payload of 100 bytes.

use bytes::{BufMut, Bytes};
use kinesis_stream::prelude::*;
use kinesis_stream_support::canned::InProcess;

use super::{
    reading::kinesis,
    setup::{STREAM, Setup},
};

/// Three headers of a typical size.
const HEADERS: [(&str, &str); 3] =
    [("content-type", "application/json"), ("source", "usgs"), ("trace-id", "4bf92f3577b34da6a3ce929d0e0e4736")];

const PAYLOAD: usize = 100;

/// A page of 1,000 records of four shards, plain or in envelopes.
pub(crate) fn pages(headers: bool) -> InProcess {
    kinesis(4, 1000, PAYLOAD).data(if headers { envelope() } else { vec![0; PAYLOAD] })
}

/// Encodes an envelope as the documentation of the format says.
fn envelope() -> Vec<u8> {
    fn field(to: &mut Vec<u8>, bytes: &[u8]) {
        to.put_u32(u32::try_from(bytes.len()).expect("short"));
        to.put_slice(bytes);
    }
    let mut block = Vec::new();
    for (name, value) in HEADERS {
        field(&mut block, name.as_bytes());
        field(&mut block, value.as_bytes());
    }
    let mut blob = b"RSK2".to_vec();
    field(&mut blob, &block);
    blob.put_bytes(0, PAYLOAD);
    blob
}

/// How many records one call publishes.
pub(crate) const RECORDS: usize = 10_000;

/// A broker that publishes.
#[derive(Debug)]
pub(crate) struct Outbound(Setup);

impl Default for Outbound {
    fn default() -> Self {
        Self(Setup::new(kinesis(1, 1, 1)))
    }
}

impl Outbound {
    /// Publishes them, 500 a request.
    pub(crate) fn publish(&self, records: Vec<Outgoing>) {
        let published = self.0.run(self.0.broker.publisher().publish_all(STREAM, records));
        assert!(published.iter().all(Result::is_ok), "a record failed");
    }
}

/// Records to publish, with or without headers.
pub(crate) fn records(with_headers: bool) -> Vec<Outgoing> {
    let payload = Bytes::from(vec![0; PAYLOAD]);
    let record = |i| {
        let record = Outgoing::new(format!("key-{i:06}"), payload.clone());
        let headers = HEADERS.into_iter().filter(|_| with_headers);
        headers.fold(record, |record, (name, value)| record.header(name, value))
    };
    (0..RECORDS).map(record).collect()
}
