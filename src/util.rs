//! TITLE util

pub(crate) mod backoff;
pub(crate) mod circuit;
pub(crate) mod clock;
pub(crate) mod mutex;
pub(crate) mod timer;
pub(crate) mod watched;
