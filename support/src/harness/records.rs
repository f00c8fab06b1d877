//! Puts records, and reads the records of a shard.

use aws_sdk_kinesis::{
    primitives::Blob,
    types::{PutRecordsRequestEntry, ShardIteratorType},
};

use super::{Harness, streams::must};

/// How much goes into one `PutRecords`: the service takes 500 records and, in its most modest version, 5 MiB.
const BATCH_RECORDS: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// A record as its shard stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its partition key.
    pub key: String,
    /// Its payload.
    pub data: Vec<u8>,
    /// Its sequence number.
    pub sequence_number: String,
}

impl Harness {
    /// Puts one record, and returns its shard and its sequence number.
    ///
    /// # Panics
    /// The service refuses.
    pub async fn put(&self, stream: &str, key: &str, data: impl Into<Vec<u8>>) -> (String, String) {
        let record = self.client.put_record().stream_name(stream).partition_key(key).data(Blob::new(data));
        let put = must("put into", stream, record.send().await);
        (put.shard_id, put.sequence_number)
    }

    /// Puts one record into this shard, whatever its key, and returns its sequence number.
    ///
    /// # Panics
    /// There is no such shard, or it is closed, or the service refuses.
    pub async fn put_to_shard(&self, stream: &str, shard: &str, key: &str, data: impl Into<Vec<u8>>) -> String {
        let shards = self.shards(stream).await;
        let target = shards.iter().find(|listed| listed.id == shard).expect("the target shard is listed");
        let record = self.client.put_record().stream_name(stream).partition_key(key).data(Blob::new(data));
        let record = record.explicit_hash_key(target.hash_keys.0.to_string());
        let put = must("put into", stream, record.send().await);
        assert_eq!(put.shard_id, shard, "{shard} of {stream} takes no records");
        put.sequence_number
    }

    /// Puts many records, each given as key and payload, in order.
    ///
    /// # Panics
    /// The service refuses one of them.
    pub async fn put_all<K, D>(&self, stream: &str, records: impl IntoIterator<Item = (K, D)>)
    where
        K: Into<String>,
        D: Into<Vec<u8>>,
    {
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (key, data) in records {
            let (key, data) = (key.into(), data.into());
            let size = key.len() + data.len();
            if batch.len() == BATCH_RECORDS || bytes + size > BATCH_BYTES {
                self.put_batch(stream, std::mem::take(&mut batch)).await;
                bytes = 0;
            }
            bytes += size;
            let entry = PutRecordsRequestEntry::builder().partition_key(key).data(Blob::new(data));
            batch.push(entry.build().expect("a record has a key and data"));
        }
        self.put_batch(stream, batch).await;
    }

    async fn put_batch(&self, stream: &str, batch: Vec<PutRecordsRequestEntry>) {
        if !batch.is_empty() {
            let put = self.client.put_records().stream_name(stream).set_records(Some(batch)).send().await;
            let failed = must("put into", stream, put).failed_record_count.unwrap_or_default();
            assert_eq!(failed, 0, "{stream} refused records");
        }
    }

    /// Reads a shard: every record from its horizon to its tip, or to its end.
    ///
    /// # Panics
    /// The service refuses.
    pub async fn records(&self, stream: &str, shard: &str) -> Vec<Stored> {
        let place = self.client.get_shard_iterator().stream_name(stream).shard_id(shard);
        let place = place.shard_iterator_type(ShardIteratorType::TrimHorizon);
        let mut next = must("open a shard of", stream, place.send().await).shard_iterator;
        let mut stored = Vec::new();
        while let Some(iterator) = next {
            let page = must("read", stream, self.client.get_records().shard_iterator(iterator).send().await);
            let at_tip = page.records.is_empty() && page.millis_behind_latest.unwrap_or_default() == 0;
            stored.extend(page.records.into_iter().map(Stored::from));
            next = page.next_shard_iterator.filter(|_| !at_tip);
        }
        stored
    }
}

impl From<aws_sdk_kinesis::types::Record> for Stored {
    fn from(record: aws_sdk_kinesis::types::Record) -> Self {
        Self {
            key: record.partition_key.unwrap_or_default(),
            data: record.data.into_inner(),
            sequence_number: record.sequence_number,
        }
    }
}
