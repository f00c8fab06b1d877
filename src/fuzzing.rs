//! The parsers of bytes that others wrote, for the fuzz targets in `fuzz/`. A build without `--cfg fuzzing` has none of
//! it.
//!
//! Each function panics where a promise is broken.

use bytes::Bytes;

use crate::{
    dead_letters,
    wire::{aggregate, envelope},
};

/// S5: an envelope that was opened and packed again opens to the same headers and the same payload.
///
/// # Panics
///
/// If it does not.
pub fn envelope(blob: &[u8]) {
    let (headers, payload) = envelope::decode(Bytes::copy_from_slice(blob));
    let named: Vec<_> = headers.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    let packed = envelope::encode(&named, payload.clone()).expect("it fits: it is no longer than the blob");
    assert_eq!(envelope::decode(packed), (headers, payload));
}

/// A7: a dead letter that was read reads the same after it was written again.
///
/// # Panics
///
/// If it does not.
pub fn dead_letter(data: &[u8]) {
    dead_letters::fuzz(data);
}

/// R12: a record with a wrong magic or trailer is a plain one.
///
/// # Panics
///
/// If the check takes a record for an aggregated one that is too short for it.
pub fn aggregate(blob: &[u8]) {
    assert!(!aggregate::is_aggregated(blob) || blob.len() > 20);
}

/// A row of the lease file either cannot be read, or survives being written and read again.
///
/// # Panics
///
/// If it changes.
#[cfg(feature = "embedded")]
pub fn embedded_row(row: &[u8]) {
    crate::lease::fuzz_embedded_row(row);
}

/// A row of the lease table of any content is a lease or an error.
#[cfg(feature = "dynamodb")]
pub fn dynamodb_row(attributes: &[u8]) {
    crate::lease::fuzz_dynamodb_row(attributes);
}
