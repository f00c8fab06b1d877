//! The table of complete readers.

use std::iter;

use kinesis_stream_support::canned::Canned;

use crate::{
    cost::Figures,
    process::Sample,
    readers::Reader,
    reading::{records, title},
};

pub(crate) fn print_head() {
    println!("                          records a second                CPU a record, ns             peak memory, MiB");
    println!(
        "                      most   median  bare  rust    least   median  bare  rust    least   median  bare  rust"
    );
}

/// The rows of one size and number of shards.
pub(crate) fn print_cell(canned: &Canned, readers: &[Reader], samples: &[Vec<Sample>]) {
    println!("{}:", title(canned));
    let rows: Vec<Row> = samples.iter().map(|rounds| row(rounds, records(canned))).collect();
    let of = |reader| readers.iter().position(|one| *one == reader).map(|at| &rows[at]);
    let references = [of(Reader::Bare), of(Reader::Ruststream)];
    for (reader, row) in iter::zip(readers, &rows) {
        print!("{:18}", reader.name());
        for (i, figures) in row.iter().enumerate() {
            print!("{:8.0} {:8.0}", figures.best, figures.median);
            for reference in references {
                let ratio = reference.map(|reference| figures.over(&reference[i]).best);
                print!("{:>6}", ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
            }
        }
        println!();
    }
}

/// Records per second, nanoseconds of CPU time per record, and MiB of peak memory.
type Row = [Figures; 3];

fn row(rounds: &[Sample], records: u32) -> Row {
    let records = f64::from(records);
    [
        Figures::highest(rounds.iter().map(|sample| records / sample.cost.wall.as_secs_f64())),
        Figures::lowest(rounds.iter().map(|sample| sample.cost.cpu.as_secs_f64() * 1e9 / records)),
        Figures::lowest(rounds.iter().map(|sample| f64::from(sample.peak_kib) / 1024.0)),
    ]
}
