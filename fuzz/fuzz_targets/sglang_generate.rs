//! Bodies of `/generate`.

#![no_main]

use inline_epp::requesthandling::Api;

libfuzzer_sys::fuzz_target!(|body: &[u8]| inline_epp_fuzz::read_whole(Api::SglangGenerate, body));
