//! The bytes of a row in the file: a pure codec.
//!
//! ```text
//! version 1 | { tag | u32 length | that many bytes }*
//! ```
//!
//! Numbers are big-endian and texts are UTF-8. Consumer, stream and shard are the key of the row, so the row does not
//! repeat them. An absent field is none, so a later version of this crate can add fields and still read the rows of
//! this one. This version refuses rows with fields that it does not know: rewriting them would lose those fields.

use std::str;

use bytes::{Buf, BufMut};

use crate::{
    config::position::Checkpoint,
    lease::{Lease, LeaseKey},
};

const VERSION: u8 = 1;

const OWNER: u8 = 1;
const EPOCH: u8 = 2;
const COUNTER: u8 = 3;
const SINCE: u8 = 4;
const AT: u8 = 5;
const AFTER: u8 = 6;
const SHARD_END: u8 = 7;
/// Once for each parent.
const PARENT: u8 = 8;
const STREAM_CREATED: u8 = 9;
const WANTED_BY: u8 = 10;

/// Why a row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error(
        "it is in version {0}, and this program knows version {VERSION}: use the newer version of kinesis-stream that wrote it"
    )]
    Newer(u8),
    #[error(
        "it has a field {0} that this program does not know: use the newer version of kinesis-stream that wrote it"
    )]
    Unknown(u8),
    #[error("it is damaged")]
    Damaged,
}

/// Writes a row as bytes.
pub(super) fn encode(lease: &Lease) -> Vec<u8> {
    let mut row = vec![VERSION];
    text(&mut row, OWNER, lease.owner.as_deref());
    field(&mut row, EPOCH, &lease.epoch.to_be_bytes());
    field(&mut row, COUNTER, &lease.counter.to_be_bytes());
    match &lease.checkpoint {
        None => {}
        Some(Checkpoint::Since(unix_millis)) => field(&mut row, SINCE, &unix_millis.to_be_bytes()),
        Some(Checkpoint::At(number)) => field(&mut row, AT, number.as_str().as_bytes()),
        Some(Checkpoint::After(number)) => field(&mut row, AFTER, number.as_str().as_bytes()),
        Some(Checkpoint::ShardEnd) => field(&mut row, SHARD_END, &[]),
    }
    for parent in &lease.parents {
        field(&mut row, PARENT, parent.as_str().as_bytes());
    }
    if let Some(created) = lease.stream_created {
        field(&mut row, STREAM_CREATED, &created.to_be_bytes());
    }
    text(&mut row, WANTED_BY, lease.wanted_by.as_deref());
    row
}

fn text(row: &mut Vec<u8>, tag: u8, text: Option<&str>) {
    if let Some(text) = text {
        field(row, tag, text.as_bytes());
    }
}

/// No field is longer than 4 GiB: the database takes values of up to 3 GiB.
fn field(row: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    row.put_u8(tag);
    row.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    row.put_slice(bytes);
}

/// Reads a row from these bytes.
pub(super) fn decode(key: &LeaseKey, mut row: &[u8]) -> Result<Lease, Unreadable> {
    match row.try_get_u8() {
        Ok(VERSION) => {}
        Ok(version) if version > VERSION => return Err(Unreadable::Newer(version)),
        _ => return Err(Unreadable::Damaged),
    }
    let mut lease = Lease {
        key: key.clone(),
        owner: None,
        epoch: 0,
        counter: 0,
        checkpoint: None,
        parents: Vec::new(),
        stream_created: None,
        wanted_by: None,
        is_foreign: false,
    };
    while !row.is_empty() {
        let (tag, bytes) = next_field(&mut row).ok_or(Unreadable::Damaged)?;
        set_field(&mut lease, tag, bytes)?;
    }
    Ok(lease)
}

fn next_field<'a>(row: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let tag = row.try_get_u8().ok()?;
    let length = usize::try_from(row.try_get_u32().ok()?).ok()?;
    let (bytes, rest) = row.split_at_checked(length)?;
    *row = rest;
    Some((tag, bytes))
}

fn set_field(lease: &mut Lease, tag: u8, bytes: &[u8]) -> Result<(), Unreadable> {
    let text = || str::from_utf8(bytes).map_err(|_| Unreadable::Damaged);
    let number = || bytes.try_into().map_err(|_| Unreadable::Damaged);
    match tag {
        OWNER => lease.owner = Some(text()?.into()),
        EPOCH => lease.epoch = u64::from_be_bytes(number()?),
        COUNTER => lease.counter = u64::from_be_bytes(number()?),
        SINCE => lease.checkpoint = Some(Checkpoint::Since(i64::from_be_bytes(number()?))),
        AT => lease.checkpoint = Some(Checkpoint::At(text()?.into())),
        AFTER => lease.checkpoint = Some(Checkpoint::After(text()?.into())),
        SHARD_END => lease.checkpoint = Some(Checkpoint::ShardEnd),
        PARENT => lease.parents.push(text()?.into()),
        STREAM_CREATED => lease.stream_created = Some(i64::from_be_bytes(number()?)),
        WANTED_BY => lease.wanted_by = Some(text()?.into()),
        unknown => return Err(Unreadable::Unknown(unknown)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> LeaseKey {
        LeaseKey { consumer: "default".into(), stream: "orders".into(), shard: "shardId-0".into() }
    }

    fn bare() -> Lease {
        Lease {
            key: key(),
            owner: None,
            epoch: 1,
            counter: 2,
            checkpoint: None,
            parents: Vec::new(),
            stream_created: None,
            wanted_by: None,
            is_foreign: false,
        }
    }

    fn checkpoints() -> impl Strategy<Value = Option<Checkpoint>> {
        prop_oneof![
            Just(None),
            any::<i64>().prop_map(|unix_millis| Some(Checkpoint::Since(unix_millis))),
            any::<String>().prop_map(|number| Some(Checkpoint::At(number.into()))),
            any::<String>().prop_map(|number| Some(Checkpoint::After(number.into()))),
            Just(Some(Checkpoint::ShardEnd)),
        ]
    }

    proptest! {
        #[test]
        fn a_row_is_read_as_it_was_written(
            names in any::<(Option<String>, Option<String>)>(),
            numbers in any::<(u64, u64, Option<i64>)>(),
            checkpoint in checkpoints(),
            parents in any::<Vec<String>>(),
        ) {
            let lease = Lease {
                key: key(),
                owner: names.0.map(Into::into),
                epoch: numbers.0,
                counter: numbers.1,
                checkpoint,
                parents: parents.into_iter().map(Into::into).collect(),
                stream_created: numbers.2,
                wanted_by: names.1.map(Into::into),
                is_foreign: false,
            };
            prop_assert_eq!(decode(&key(), &encode(&lease)), Ok(lease));
        }

        #[test]
        fn bytes_that_are_no_row_are_an_error_and_no_panic(bytes in any::<Vec<u8>>()) {
            let _ = decode(&key(), &bytes);
            let _ = decode(&key(), &[&[VERSION], bytes.as_slice()].concat());
        }
    }

    // Users have files with these bytes: a change of this test means that version 1 can no longer be read.
    #[test]
    fn the_bytes_of_version_1_do_not_change() {
        let lease = Lease {
            owner: Some("a".into()),
            checkpoint: Some(Checkpoint::After("49".into())),
            parents: vec!["p".into(), "q".into()],
            stream_created: Some(-1),
            wanted_by: Some("b".into()),
            ..bare()
        };
        let bytes = b"\x01\
            \x01\0\0\0\x01a\
            \x02\0\0\0\x08\0\0\0\0\0\0\0\x01\
            \x03\0\0\0\x08\0\0\0\0\0\0\0\x02\
            \x06\0\0\0\x0249\
            \x08\0\0\0\x01p\
            \x08\0\0\0\x01q\
            \x09\0\0\0\x08\xff\xff\xff\xff\xff\xff\xff\xff\
            \x0a\0\0\0\x01b";
        assert_eq!(encode(&lease), bytes);
        assert_eq!(decode(&key(), bytes), Ok(lease));
    }

    #[test]
    fn a_row_of_a_newer_version_is_refused_and_not_misread() {
        let row = encode(&bare());
        assert_eq!(decode(&key(), &[&[2], &row[1..]].concat()), Err(Unreadable::Newer(2)));
        assert_eq!(decode(&key(), &[row.as_slice(), &[11, 0, 0, 0, 0]].concat()), Err(Unreadable::Unknown(11)));
        for damaged in [&row[..row.len() - 1], &[], &[0], &[1, 1, 0, 0, 0, 1, 0xff], &[1, 2, 0, 0, 0, 1, 0]] {
            assert_eq!(decode(&key(), damaged), Err(Unreadable::Damaged), "{damaged:?}");
        }
    }
}
