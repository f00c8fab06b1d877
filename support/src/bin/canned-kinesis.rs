//! The canned Kinesis as a program for manual use: `canned-kinesis [SHARDS [RECORDS [BYTES [PAGES [MILLIS]]]]]`.
//!
//! It prints its endpoint and serves until its standard input ends.

use std::{env, error::Error};

use kinesis_stream_support::canned;

fn main() -> Result<(), Box<dyn Error>> {
    canned::serve_if_spawned();
    let numbers: Vec<String> = env::args().skip(1).collect();
    canned::serve(numbers.join(" ").parse()?)?;
    Ok(())
}
