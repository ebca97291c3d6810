//! Bodies of every API that are cut off anywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| inline_epp_fuzz::read_cut_off(body));
