//! TITLE config

pub(crate) mod limits;
pub(crate) mod position;
pub(crate) mod redelivery;
pub(crate) mod settings;
