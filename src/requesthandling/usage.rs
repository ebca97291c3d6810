//! What a response says of its prompt's length.

use super::json::Reader;

/// Bytes at the end of a response in which its usage is looked for: it comes last, or nearly so.
pub const USAGE_BYTES: usize = 4_096;

/// In the words of the APIs: the newer ones say input, and Anthropic's leaves out what was cached.
const NAMES: [&[u8]; 3] = [
    b"prompt_tokens",
    b"input_tokens",
    b"cache_read_input_tokens",
];

/// Tokens of the prompt, by the last usage in the `end` of a response, JSON or events. How many of
/// them were cached is not asked: of a prompt that was computed elsewhere, that is the other
/// server's number.
///
/// Text that a model wrote cannot pass for a usage: its quotes are escaped.
pub fn prompt_tokens(end: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"usage\"";
    let mut places = end.windows(KEY.len()).enumerate().rev();
    places.find_map(|(at, bytes)| {
        if bytes != KEY {
            return None;
        }
        let value = end.get(at.saturating_add(KEY.len())..)?;
        let value = value.trim_ascii_start().strip_prefix(b":")?;
        let [prompt, input, cached] = numbers(value)?;
        let uncached = prompt.or(input)?;
        Some(uncached.saturating_add(cached.unwrap_or(0))).filter(|&tokens| tokens > 0)
    })
}

/// The values of [`NAMES`] in the object that `text` begins with; what follows it is of no interest.
fn numbers(mut text: &[u8]) -> Option<[Option<u64>; 3]> {
    let mut reader = Reader::new(&mut text, false);
    let fields = reader.fields(&NAMES).ok()?;
    Some([0, 1, 2].map(|place| {
        reader.seek(fields.get(place)?);
        let mut digits = Vec::new();
        reader
            .compact(|piece| digits.extend_from_slice(piece))
            .ok()?;
        core::str::from_utf8(&digits).ok()?.parse().ok()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(end: &str) -> Option<u64> {
        prompt_tokens(end.as_bytes())
    }

    #[test]
    fn every_api_tells_it_in_its_own_words() {
        let completion = r#"..."usage":{"prompt_tokens":341,"total_tokens":342,"prompt_tokens_details":
            {"cached_tokens":320,"multimodal_tokens":null}},"kv_transfer_params":null}"#;
        assert_eq!(tokens(completion), Some(341));
        let stream = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":357}}\n\ndata: [DONE]\n\n";
        assert_eq!(tokens(stream), Some(357));
        let responses =
            r#""usage": {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}}}"#;
        assert_eq!(tokens(responses), Some(12));
        let messages =
            r#""usage":{"input_tokens":5,"cache_read_input_tokens":16,"output_tokens":1}}"#;
        assert_eq!(tokens(messages), Some(21));
    }

    #[test]
    fn the_last_usage_counts_that_says_something() {
        let events =
            "data: {\"usage\":{\"input_tokens\":9}}\n\ndata: {\"usage\":{\"output_tokens\":3}}\n\n";
        assert_eq!(tokens(events), Some(9));
        let growing = "data: {\"usage\":{\"prompt_tokens\":7}}\n\ndata: {\"usage\":null}\n\n";
        assert_eq!(tokens(growing), Some(7));
    }

    #[test]
    fn nothing_else_passes_for_a_usage() {
        for end in [
            "",
            "\"usage\"",
            r#""usage":"#,
            r#""usage":{"prompt_tokens":"#,
            r#""usage":{"prompt_tokens":0}}"#,
            r#""usage":{"prompt_tokens":-3}}"#,
            r#""usage":[341]"#,
            // What a model wrote.
            r#""content":"\"usage\":{\"prompt_tokens\":1}"}"#,
        ] {
            assert_eq!(tokens(end), None, "{end}");
        }
    }
}
