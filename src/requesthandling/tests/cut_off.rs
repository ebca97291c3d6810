use super::*;

/// What is known of a body's prompts, in one piece.
fn known(read: &Read) -> Vec<u8> {
    [read.prompts.concat(), read.open.clone()].concat()
}

#[test]
fn a_cut_off_body_keeps_what_was_read() {
    let cases: [(&str, &[u8]); 12] = [
        (r#"{"model":"m","prompt":"abc"#, b"abc"),
        (r#"{"model":"m","prompt":"abc\"#, b"abc"),
        (r#"{"model":"m","prompt":"abc\u00e"#, b"abc"),
        (r#"{"model":"m","prompt":"abc\ud83d"#, b"abc"),
        (r#"{"model":"m","prompt":"abc\ud83d\ude0"#, b"abc"),
        (r#"{"model":"m","prompt":["abc","de"#, b"abcde"),
        (r#"{"model":"m","prompt":[1,23"#, b"\x01\0\0\0"),
        (r#"{"model":"m","prompt":"#, b""),
        (r#"{"model":"m","prompt""#, b""),
        (r#"{"model":"m","prompt":"abc","to"#, b"abc"),
        (r#"{"prompt":"abc","add_special_tokens":fals"#, b"abc"),
        ("", b""),
    ];
    for (cut, expected) in cases {
        let Ok(read) = read_cut(Api::Completions, cut.as_bytes()) else {
            assert_eq!(expected, b"", "{cut}");
            continue;
        };
        assert_eq!(known(&read), expected, "{cut}");
    }
}

#[test]
fn a_name_that_was_cut_off_is_none() {
    let model = |cut: &str| read_cut(Api::Completions, cut.as_bytes()).unwrap().model;
    assert_eq!(model(r#"{"prompt":"x","model":"m""#).as_deref(), Some("m"));
    assert_eq!(model(r#"{"prompt":"x","model":"m"#), None);
    assert_eq!(model(r#"{"prompt":"x","#), None);
}

#[test]
fn fields_that_may_still_come_hold_back_what_would_stand_behind_them() {
    let known = |message: &str| {
        let cut = format!(r#"{{"messages":[{{"role":"user","content":"a"}},{message}"#);
        known(&read_cut(Api::ChatCompletions, cut.as_bytes()).unwrap())
    };
    // The role comes first in the prompt, and last here, and only a whole one is one.
    assert_eq!(known(r#"{"content":"bcd"#), b"usera");
    assert_eq!(known(r#"{"content":"bcd","ro"#), b"usera");
    assert_eq!(known(r#"{"content":"bcd","role":"us"#), b"usera");
    assert_eq!(known(r#"{"role":"user","content":"bc"#), b"userauserbc");
    assert_eq!(
        known(r#"{"role":"user","content":[{"type":"text","text":"bc"#),
        b"userauserbc"
    );
    assert_eq!(
        known(r#"{"role":"user","content":[{"text":"bc"#),
        b"userauser"
    );
    // Tool calls come after a content that there may be, or not.
    assert_eq!(
        known(r#"{"role":"assistant","tool_calls":[{"id"#),
        b"useraassistant"
    );
    assert_eq!(
        known(r#"{"role":"assistant","content":"b","tool_calls":[{"#),
        b"useraassistantb"
    );
    assert_eq!(
        known(r#"{"role":"user","content":"b"},{"ro"#),
        b"userauserb"
    );
}

#[test]
fn every_cut_of_every_api_gives_a_prefix() {
    let text = r#"Größe \u4e2d\ud83d\ude00 \\ \" 😀\n"#;
    let messages = format!(
        r#"[{{"role":"system","content":"{text}"}},
            {{"role":"user","content":[{{"type":"text","text":"{text}"}},
              {{"type":"image_url","image_url":{{"url":"https://a"}}}}]}},
            {{"role":"assistant","content":null,"tool_calls":[{{"id":"1"}}]}},
            {{"role":"tool","content":"{text}","tool_call_id":"1"}}]"#
    );
    let input = messages.replace("image_url\":{", "x\":{");
    let bodies = [
        (
            Api::ChatCompletions,
            format!(r#"{{"tools":[{{"a":1}}],"messages":{messages}}}"#),
        ),
        (
            Api::Responses,
            format!(r#"{{"instructions":"{text}","input":{input}}}"#),
        ),
        (
            Api::Messages,
            format!(r#"{{"system":"{text}","messages":{messages}}}"#),
        ),
        (
            Api::Completions,
            format!(r#"{{"prompt":["{text}",[1,22,333],"{text}"]}}"#),
        ),
        (Api::Pooling, format!(r#"{{"input":"{text}"}}"#)),
        (Api::Pooling, format!(r#"{{"messages":{messages}}}"#)),
        (
            Api::VllmGenerate,
            r#"{"token_ids":[1,22,333,4444]}"#.to_owned(),
        ),
        (Api::SglangGenerate, format!(r#"{{"text":"{text}"}}"#)),
    ];
    for (api, body) in bodies {
        let whole = known(&read_bytes(api, body.as_bytes()).unwrap());
        assert!(whole.len() > 15, "{body}");
        let mut longest = 0;
        for end in 0..body.len() {
            let Ok(read) = read_cut(api, &body.as_bytes()[..end]) else {
                continue;
            };
            let known = known(&read);
            let is_prefix = whole.starts_with(&known) || known.is_empty();
            assert!(is_prefix, "{api:?} {end}: {known:?} of {whole:?}");
            longest = longest.max(known.len());
        }
        // Nothing but the last brace is missing in the end.
        assert_eq!(longest, whole.len(), "{api:?}");
    }
}
