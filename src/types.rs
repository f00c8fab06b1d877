//! TITLE types

pub(crate) mod id;
pub(crate) mod record;
