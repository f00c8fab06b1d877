#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kinesis_stream::fuzzing::embedded_row(bytes));
