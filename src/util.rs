//! TITLE util

pub(crate) mod clock;
pub(crate) mod mutex;
pub(crate) mod timer;
pub(crate) mod watched;
