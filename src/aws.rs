//! TITLE aws

#[cfg(test)]
pub(crate) mod canned;
pub(crate) mod classify;
pub(crate) mod config;
