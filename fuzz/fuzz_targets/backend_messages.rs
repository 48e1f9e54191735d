#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::wire::backend_messages(data));
