//! TITLE types

pub(crate) mod close_report;
pub(crate) mod commit;
pub(crate) mod id;
pub(crate) mod record;
