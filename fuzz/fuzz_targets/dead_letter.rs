#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kinesis_stream::fuzzing::dead_letter(bytes));
