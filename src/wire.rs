//! TITLE wire

pub(crate) mod aggregate;
pub(crate) mod envelope;
