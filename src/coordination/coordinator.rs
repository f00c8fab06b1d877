//! TITLE coordinator

mod at_tip;
mod candidates;
mod listing;
mod opening;
mod ownership;
mod rebalance;
mod removed;
mod seek;
mod take;
mod task;
mod unconfirmed;

pub(crate) use self::{
    seek::Seek,
    task::{Beginning, start},
};
