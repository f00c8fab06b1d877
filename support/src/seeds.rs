//! The seeds of a randomized test, given by an environment variable.

use std::{env, ops::Range, thread};

/// The seeds in this variable: one (`7`) or a range (`0..100`). Without the variable, the first `few` seeds.
///
/// # Panics
///
/// The variable holds anything else.
#[must_use]
pub fn seeds(variable: &str, few: u64) -> Range<u64> {
    let Ok(seeds) = env::var(variable) else { return 0..few };
    let number = |text: &str| text.parse::<u64>().expect("seeds are a number, or a range such as 0..100");
    match seeds.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&seeds)..number(&seeds) + 1,
    }
}

/// Prints the variable and the seed if the test panics, so that the run can be replayed.
#[derive(Debug)]
pub struct ReplayHint(pub &'static str, pub u64);

impl Drop for ReplayHint {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("replay with {}={}", self.0, self.1);
        }
    }
}
