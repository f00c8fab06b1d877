//! Reading a dead letter: recognizes the format of data, and leaves the rest to that format.

use bytes::Bytes;

use crate::{
    dead_letters::{dead_letter::DeadLetter, header_format, json_format},
    error::KinesisError,
    types::record::Record,
    wire::envelope,
};

impl DeadLetter {
    /// The dead letter in the data of a record of a dead-letter stream, for programs that read it by other means.
    /// `data` is what the service returns, decoded from Base64. `partition_key` is the key of the dead letter, which
    /// is the key of the original record.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`] if the data is no dead letter.
    ///
    /// ```
    /// use kinesis_stream::DeadLetter;
    ///
    /// let data = r#"{
    ///     "format": "kinesis-dead-letter/1", "stream": "quakes", "shard": "shardId-000000000000",
    ///     "sequence_number": "49590338271490256608559692538361571095921575989136588898", "partition_key": "ak",
    ///     "consumer": "billing", "attempts": 5, "rejected": false, "reason": "no such customer",
    ///     "headers": [], "payload": "{\"mag\":2.1}"
    /// }"#;
    /// let letter = DeadLetter::parse("ak", data)?;
    /// assert_eq!((letter.record().stream(), letter.reason()), ("quakes", "no such customer"));
    /// assert_eq!(letter.original().payload(), r#"{"mag":2.1}"#);
    /// # Ok::<(), kinesis_stream::KinesisError>(())
    /// ```
    pub fn parse(partition_key: &str, data: impl Into<Bytes>) -> Result<Self, KinesisError> {
        let (headers, payload) = envelope::decode(data.into());
        if header_format::is_one(&headers) {
            return header_format::parse(&headers, payload, Some(partition_key));
        }
        json_format::parse(&payload)
    }
}

impl TryFrom<&Record> for DeadLetter {
    type Error = KinesisError;

    /// The dead letter in a record of a dead-letter stream.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`] if the record is no dead letter.
    fn try_from(record: &Record) -> Result<Self, KinesisError> {
        if header_format::is_one(record.headers()) {
            return header_format::parse(record.headers(), record.payload().clone(), record.partition_key());
        }
        json_format::parse(record.payload())
    }
}
