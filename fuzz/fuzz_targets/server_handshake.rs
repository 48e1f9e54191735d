#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::login::server_handshake(data));
