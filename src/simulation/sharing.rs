//! Instances share the shards: they ask each other until the shares are even, and a hand-over repeats no settled record
//! (E5, A7).

use std::collections::BTreeMap;

mod even_shares;
mod hand_over;
mod lost_owners;
mod outages;
mod slow_start;
mod unable;

const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn shares<'a>(shares: impl IntoIterator<Item = (&'a str, usize)>) -> BTreeMap<String, usize> {
    shares.into_iter().map(|(owner, share)| (owner.to_owned(), share)).collect()
}
