//! Which runs are played: those of the seeds that the environment names.

use std::{env, ops::Range, thread};

/// The seeds in this variable, one as in `7` or a range as in `0..100`; without it so many from the first on.
pub(crate) fn seeds(variable: &str, few: u64) -> Range<u64> {
    let Ok(seeds) = env::var(variable) else { return 0..few };
    let number = |text: &str| text.parse::<u64>().expect("seeds are a number, or a range as in 0..100");
    match seeds.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&seeds)..number(&seeds) + 1,
    }
}

/// Names the seed of a run that fails.
pub(crate) struct Names(pub(crate) &'static str, pub(crate) u64);

impl Drop for Names {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("replay with {}={}", self.0, self.1);
        }
    }
}
