//! How many instructions per record the parts of the library take. Noise does not affect this count.
//!
//! ```sh
//! cargo install gungraun-runner --version 0.20.0 --locked    # once; it also needs valgrind
//! cargo bench --bench instructions                           # all, and the table
//! cargo bench --bench instructions -- '**::settling::**'     # one group
//! ```
//!
//! The pieces of work are those of `parts`, in `work/`. They run in one thread, on a Kinesis in this process without
//! sockets, under a paused clock. Callgrind counts from the end of the set-up to the end of the work: it starts with a
//! subscription that is open and has read ahead, and ends once that subscription has delivered the records and has read
//! as far ahead again.
//!
//! The counts include the library, the SDK and the endpoint, which only looks up a prepared page. They change with the
//! compiler and the processor, but hardly from run to run.

use std::{
    env,
    io::{self, BufRead, BufReader},
    process::{Command, ExitCode, Stdio},
};

use serde_json::Value;

mod counted;
mod work;

/// Tells this program to count, and not to print the table.
const VARIABLE: &str = "KINESIS_STREAM_COUNTS";

fn main() -> io::Result<ExitCode> {
    let asks = |what: &[&str]| env::args().any(|arg| what.contains(&arg.as_str()));
    if env::var_os(VARIABLE).is_some() || asks(&["--gungraun-run", "--list", "--help"]) {
        counted::run();
        return Ok(ExitCode::SUCCESS);
    }
    if !asks(&["--bench"]) {
        counted::smoke();
        return Ok(ExitCode::SUCCESS);
    }
    count()
}

/// Counts each bench, and prints the instructions per record.
fn count() -> io::Result<ExitCode> {
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args().skip(1)).arg("--output-format=json").env(VARIABLE, "1").stdout(Stdio::piped());
    let mut process = command.spawn()?;
    let output = process.stdout.take().ok_or_else(|| io::Error::other("standard output is not piped"))?;
    println!("{:40}{:>17}{:>12}{:>12}", "", "instructions each", "its first", "the group's");
    let mut table = Table::default();
    for line in BufReader::new(output).lines() {
        let summary = serde_json::from_str(&line?)?;
        table.print(&summary).ok_or_else(|| io::Error::other("the summary of a bench has no count"))?;
    }
    let code = process.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The counts so far.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

/// A bench, and its instructions per record.
struct Row {
    group: String,
    function: String,
    id: String,
    each: f64,
}

impl Table {
    /// Prints a bench from its summary, as a multiple of the first bench of its function, and as a multiple of the
    /// bench with the same name in the first function of the group (or else of the first bench of the group).
    fn print(&mut self, summary: &Value) -> Option<()> {
        let row = Row::new(summary)?;
        let first = |is: &dyn Fn(&Row) -> bool| self.rows.iter().find(|row| is(row)).map(|first| row.each / first.each);
        let of_the_function = first(&|first| first.group == row.group && first.function == row.function);
        let of_the_group = first(&|first| first.group == row.group && first.id == row.id)
            .or_else(|| first(&|first| first.group == row.group));
        let name = format!("{} {} {}", row.group, row.function, row.id);
        let [own, group] = [of_the_function, of_the_group].map(|ratio| ratio.unwrap_or(1.0));
        println!("{name:40}{:17.0}{own:12.2}{group:12.2}", row.each);
        self.rows.push(row);
        Some(())
    }
}

impl Row {
    fn new(summary: &Value) -> Option<Self> {
        let text = |field: &str| summary[field].as_str().map(str::to_owned);
        let (group, function, id) = (text("group")?, text("function_name")?, text("id")?);
        let counted = summary.pointer("/profiles/0/data/total/metrics/Ir/values/new")?.as_f64()?;
        let each = counted / f64::from(counted::records(&group, &id));
        Some(Self { group, function, id, each })
    }
}
