//! Bodies of `/v1/chat/completions`.

#![no_main]

use inline_epp::requesthandling::Api;

libfuzzer_sys::fuzz_target!(|body: &[u8]| inline_epp_fuzz::read_whole(Api::ChatCompletions, body));
