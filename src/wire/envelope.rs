//! The envelope that carries a record's headers (S5): a pure codec.
//!
//! ```text
//! "RSK2" | u32 length of the block | block: { u32 length | name | u32 length | value }* | payload
//! ```
//!
//! Numbers are big-endian, names are UTF-8. The format is shared with services that are already deployed, so it does
//! not change. Kinesis does not mark a record as enveloped, hence two rules. A blob whose headers do not parse is a
//! plain payload. A payload that would parse, or that a reader would take for an aggregated record, is wrapped in an
//! empty envelope before it is sent.
//!
//! **The number of headers is bounded.** A header may have 8 bytes on the wire and takes ten times as much in memory,
//! so without a bound one record could hold more than the budget counts.

use std::str;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{error::KinesisError, types::record::Headers, wire::aggregate::is_aggregated};

const MAGIC: &[u8] = b"RSK2";

/// The size of a length field.
const LENGTH: usize = size_of::<u32>();

/// The most headers of a record. A blob with more is a payload.
const MOST_HEADERS: usize = 1_024;

/// The blob to send. Without headers it is the payload itself, not copied, unless a reader would mistake the payload
/// for an envelope or an aggregated record.
pub(crate) fn encode(headers: &[(String, Bytes)], payload: Bytes) -> Result<Bytes, KinesisError> {
    if headers.is_empty() && parse(&payload).is_none() && !is_aggregated(&payload) {
        return Ok(payload);
    }
    if headers.len() > MOST_HEADERS {
        let problem = format!("at most {MOST_HEADERS} headers, {} were given", headers.len());
        return Err(KinesisError::invalid("headers", problem));
    }
    let block = headers.iter().map(|(name, value)| 2 * LENGTH + name.len() + value.len()).sum();
    let prefix = length(block)?;
    let mut blob = BytesMut::with_capacity(MAGIC.len() + LENGTH + block + payload.len());
    blob.put_slice(MAGIC);
    blob.put_u32(prefix);
    for (name, value) in headers {
        for field in [name.as_bytes(), value] {
            blob.put_u32(length(field.len())?);
            blob.put_slice(field);
        }
    }
    blob.put_slice(&payload);
    Ok(blob.freeze())
}

/// The headers and the payload of a blob, both as slices of it. A blob that is no envelope is all payload. A blob
/// without the magic costs one comparison.
pub(crate) fn decode(blob: Bytes) -> (Headers, Bytes) {
    match parse(&blob) {
        Some((headers, payload)) => (Headers::new(headers), payload),
        None => (Headers::default(), blob),
    }
}

fn parse(blob: &Bytes) -> Option<(Vec<(String, Bytes)>, Bytes)> {
    if !blob.starts_with(MAGIC) {
        return None;
    }
    let mut rest = blob.slice(MAGIC.len()..);
    let mut block = field(&mut rest)?;
    let mut headers = Vec::new();
    while !block.is_empty() {
        if headers.len() == MOST_HEADERS {
            return None;
        }
        let name = str::from_utf8(&field(&mut block)?).ok()?.to_owned();
        headers.push((name, field(&mut block)?));
    }
    Some((headers, rest))
}

/// Takes a length and that many bytes from the front.
fn field(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(from.try_get_u32().ok()?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}

fn length(bytes: usize) -> Result<u32, KinesisError> {
    u32::try_from(bytes)
        .map_err(|_| KinesisError::invalid("headers", format!("at most {} bytes in all, {bytes} were given", u32::MAX)))
}

#[cfg(test)]
mod tests {
    use md5::{Digest, Md5};
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Vec<(String, Bytes)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes()))).collect()
    }

    fn lies_within(part: &Bytes, whole: &Bytes) -> bool {
        whole.as_ptr_range().contains(&part.as_ptr())
    }

    // S5
    #[test]
    fn the_wire_format_is_the_one_of_deployed_services() {
        let blob = encode(&headers(&[("a", "xyz"), ("bc", "")]), Bytes::from_static(b"payload")).unwrap();
        let wire = b"RSK2\0\0\0\x16\0\0\0\x01a\0\0\0\x03xyz\0\0\0\x02bc\0\0\0\0payload";
        assert_eq!(blob, wire.as_slice());
    }

    // S5
    #[test]
    fn a_payload_without_headers_passes_through_uncopied() {
        for payload in [&b""[..], b"R", b"plain", b"RSK2", b"RSK2\0\0\0\x01"] {
            let payload = Bytes::copy_from_slice(payload);
            let blob = encode(&[], payload.clone()).unwrap();
            assert_eq!((blob.as_ptr(), &blob), (payload.as_ptr(), &payload));
            let (headers, decoded) = decode(blob);
            assert!(headers.is_empty());
            assert_eq!((decoded.as_ptr(), &decoded), (payload.as_ptr(), &payload));
        }
    }

    // S5
    #[test]
    fn a_payload_that_parses_as_an_envelope_is_wrapped_in_an_empty_one() {
        let payload = encode(&headers(&[("a", "b")]), Bytes::from_static(b"c")).unwrap();
        let blob = encode(&[], payload.clone()).unwrap();
        assert_eq!(blob, [b"RSK2\0\0\0\0", payload.as_ref()].concat());
        assert_eq!(decode(blob), (Headers::default(), payload));
    }

    // S5
    #[test]
    fn a_payload_that_looks_like_an_aggregated_record_is_wrapped_in_an_empty_envelope() {
        // The magic, an unknown field, and the MD5 of that.
        let md5 = Md5::digest(b"\x78\x01");
        let payload = Bytes::from([b"\xf3\x89\x9a\xc2\x78\x01", md5.as_slice()].concat());
        assert!(is_aggregated(&payload));
        let blob = encode(&[], payload.clone()).unwrap();
        assert!(!is_aggregated(&blob));
        assert_eq!(decode(blob), (Headers::default(), payload));
    }

    // S5
    #[test]
    fn more_headers_than_the_limit_are_a_payload_and_are_not_published() {
        let block = |count: usize| vec![0; count * 2 * LENGTH];
        for (count, is_envelope) in [(MOST_HEADERS, true), (MOST_HEADERS + 1, false), (131_064, false)] {
            let length = u32::try_from(block(count).len()).unwrap().to_be_bytes();
            let blob = Bytes::from([MAGIC, &length, &block(count)].concat());
            let (headers, payload) = decode(blob.clone());
            assert_eq!(headers.iter().count(), if is_envelope { count } else { 0 });
            assert_eq!(payload.len(), if is_envelope { 0 } else { blob.len() });
            let given = vec![(String::new(), Bytes::new()); count];
            assert_eq!(encode(&given, Bytes::new()).is_ok(), is_envelope);
        }
    }

    // S5
    #[test]
    fn a_blob_that_does_not_parse_is_delivered_unchanged() {
        let table: [(&str, &[u8]); 9] = [
            ("the magic alone", b"RSK2"),
            ("another magic", b"RSK1\0\0\0\0payload"),
            ("half a length", b"RSK2\0\0"),
            ("a block longer than the blob", b"RSK2\0\0\0\x09\0\0\0\x01a"),
            ("the longest block", b"RSK2\xff\xff\xff\xffpayload"),
            ("a name longer than the block", b"RSK2\0\0\0\x05\0\0\0\x02abcdef"),
            ("a value longer than the block", b"RSK2\0\0\0\x09\0\0\0\x01a\0\0\0\x01b"),
            ("a name without a value", b"RSK2\0\0\0\x05\0\0\0\x01apayload"),
            ("a name that is not UTF-8", b"RSK2\0\0\0\x09\0\0\0\x01\xff\0\0\0\0payload"),
        ];
        for (name, blob) in table {
            assert_eq!(decode(Bytes::from_static(blob)), (Headers::default(), Bytes::from_static(blob)), "{name}");
        }
    }

    // S5
    #[test]
    fn names_may_repeat_and_keep_their_order_and_values_are_not_copied() {
        let sent = headers(&[("id", "1"), ("trace", "t"), ("id", "2")]);
        let blob = encode(&sent, Bytes::from_static(b"payload")).unwrap();
        let (headers, payload) = decode(blob.clone());
        assert_eq!(headers, Headers::new(sent));
        assert_eq!(headers.get("id").unwrap(), "1");
        assert!(headers.iter().all(|(_, value)| lies_within(value, &blob)));
        assert!(lies_within(&payload, &blob));
    }

    // S5, S2
    #[test]
    fn headers_too_long_for_their_length_field_are_refused_before_any_copy() {
        let value = Bytes::from(vec![0; 64 << 20]);
        let sent: Vec<_> = (0..64).map(|n| (n.to_string(), value.clone())).collect();
        let refusal = encode(&sent, Bytes::new()).unwrap_err().to_string();
        assert_eq!(refusal, "invalid headers: at most 4294967295 bytes in all, 4294967926 were given");
    }

    fn blob() -> impl Strategy<Value = Vec<u8>> {
        let bytes = || vec(any::<u8>(), 0..64);
        let small = || vec(prop_oneof![Just(0), Just(1), Just(b'a'), any::<u8>()], 0..32);
        prop_oneof![
            bytes(),
            small().prop_map(|tail| [MAGIC, &tail].concat()),
            (headers_strategy(), small()).prop_map(|(headers, tail)| encode(&headers, tail.into()).unwrap().to_vec()),
        ]
    }

    fn headers_strategy() -> impl Strategy<Value = Vec<(String, Bytes)>> {
        vec((".{0,6}", vec(any::<u8>(), 0..12).prop_map(Bytes::from)), 0..5)
    }

    proptest! {
        // S5
        #[test]
        fn every_record_decodes_to_the_headers_and_payload_that_were_sent(headers in headers_strategy(), payload in blob()) {
            let payload = Bytes::from(payload);
            let blob = encode(&headers, payload.clone()).unwrap();
            prop_assert_eq!(decode(blob), (Headers::new(headers), payload));
        }

        // S5
        #[test]
        fn no_blob_panics_or_loses_a_byte(blob in blob()) {
            let (headers, payload) = decode(blob.clone().into());
            let fields: usize = headers.iter().map(|(name, value)| 2 * LENGTH + name.len() + value.len()).sum();
            let envelope = if payload.len() == blob.len() { 0 } else { MAGIC.len() + LENGTH + fields };
            prop_assert_eq!(envelope + payload.len(), blob.len());
            prop_assert!(blob.ends_with(&payload));
        }
    }
}
