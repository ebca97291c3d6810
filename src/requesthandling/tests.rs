use super::*;

fn parse(api: Api, body: &str) -> Result<InferenceRequest<'_>, ParseError> {
    api.parse(body.as_bytes())
}

fn chat_text(body: &str) -> String {
    parse(Api::ChatCompletions, body)
        .unwrap()
        .prompt
        .pieces
        .concat()
}

#[test]
fn the_path_names_the_api() {
    let api = |path: &str| Api::from_path(path.as_bytes());
    assert_eq!(api("/v1/completions"), Some(Api::Completions));
    assert_eq!(api("/v1/chat/completions"), Some(Api::ChatCompletions));
    assert_eq!(
        api("/llama/v1/chat/completions/?a=/v1/completions"),
        Some(Api::ChatCompletions)
    );
    for unknown in [
        "/v1/embeddings",
        "/v1/completions/x",
        "/",
        "",
        "/v1/chat",
        "/completions",
    ] {
        assert_eq!(api(unknown), None, "{unknown}");
    }
}

#[test]
fn a_completion_is_its_prompt() {
    let body = r#"{"prompt": "Say \"hi\" \u00e9", "x": {"prompt": "no"}, "model": "m"}"#;
    let request = parse(Api::Completions, body).unwrap();
    assert_eq!(request.model.as_deref(), Some("m"));
    assert_eq!(request.cache_salt, None);
    assert_eq!(request.prompt.pieces, ["Say \"hi\" é"]);
}

#[test]
fn a_chat_is_role_and_content_of_each_message_in_order() {
    let body = r#"{"model":"m","cache_salt":"t1","temperature":0.5,"messages":[
        {"role":"system","content":"You are a helpful assistant."},
        {"content":[{"type":"text","text":"Hel"},{"text":"lo!","type":"text"}],"role":"user"},
        {"role":"assistant","name":"x","content":"Hi"},
        {"role":"user","content":"Bye"}]}"#;
    let request = parse(Api::ChatCompletions, body).unwrap();
    assert_eq!(
        request.prompt.pieces.concat(),
        "systemYou are a helpful assistant.userHello!assistantHiuserBye"
    );
    assert_eq!(request.prompt.first_user_end, Some(5));
    assert_eq!(request.cache_salt.as_deref(), Some("t1"));
}

#[test]
fn the_last_of_two_equal_keys_wins() {
    let body = r#"{"model":"a","messages":[{"role":"user","content":"x"}],
        "messages":[{"role":"user","content":"y","content":"z"}],"model":"b"}"#;
    let request = parse(Api::ChatCompletions, body).unwrap();
    assert_eq!(request.model.as_deref(), Some("b"));
    assert_eq!(request.prompt.pieces.concat(), "userz");
}

#[test]
fn shapes_it_cannot_read_are_an_error_not_an_empty_prompt() {
    let unknown = [
        (Api::Completions, r#"{"model":"m"}"#),
        (Api::Completions, r#"{"prompt":[1,2,3]}"#),
        (Api::Completions, r#"{"prompt":["a","b"]}"#),
        (Api::Completions, r#"{"prompt":null}"#),
        (Api::Completions, "[]"),
        (Api::Completions, "5"),
        (Api::ChatCompletions, r#"{"prompt":"x"}"#),
        (Api::ChatCompletions, r#"{"messages":"x"}"#),
        (Api::ChatCompletions, r#"{"messages":[1]}"#),
        (Api::ChatCompletions, r#"{"messages":null}"#),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"role":"assistant","content":null}]}"#,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"role":"assistant"}]}"#,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[{"type":"image_url"}]}]}"#,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[{"type":"text"}]}]}"#,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[{"type":"file","text":"x"}]}]}"#,
        ),
        (Api::ChatCompletions, r#"{"messages":[{"content":["x"]}]}"#),
    ];
    for (api, body) in unknown {
        assert_eq!(parse(api, body), Err(ParseError::UnknownShape), "{body}");
    }
}

#[test]
fn what_is_not_json_is_malformed() {
    let malformed = [
        "",
        " ",
        "{",
        r#"{"prompt":"x""#,
        r#"{"prompt":"x"}}"#,
        "prompt",
        "{'a':1}",
    ];
    for body in malformed {
        assert_eq!(
            parse(Api::Completions, body),
            Err(ParseError::Malformed),
            "{body}"
        );
    }
    let not_utf8 = b"{\"prompt\":\"caf\xe9\"}";
    assert_eq!(Api::Completions.parse(not_utf8), Err(ParseError::Malformed));
}

#[test]
fn fields_of_other_types_are_the_servers_business() {
    let body = r#"{"model":5,"cache_salt":{"a":[1]},"messages":[{"role":7,"content":"x"}]}"#;
    let request = parse(Api::ChatCompletions, body).unwrap();
    assert_eq!((request.model, request.cache_salt), (None, None));
    assert_eq!(chat_text(body), "x");
}

#[test]
fn deep_nesting_beside_the_prompt_is_passed_over() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!(r#"{{"tools":{deep},"prompt":"x"}}"#);
    assert_eq!(parse(Api::Completions, &body).unwrap().prompt.pieces, ["x"]);
}

#[test]
fn a_cut_off_body_keeps_what_was_read() {
    let cases = [
        (
            r#"{"model":"m","prompt":"abc"#,
            r#"{"model":"m","prompt":"abc"}"#,
        ),
        (r#"{"model":"m","prom"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","prompt":"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","n":12"#, r#"{"model":"m"}"#),
        (r#"{"n":12,"a":[1,2"#, r#"{"n":12,"a":[1]}"#),
        (r#"{"n":tru"#, r"{}"),
        (r#"{"a":"x\"#, r#"{"a":"x"}"#),
        (r#"{"a":"x\u00e"#, r#"{"a":"x"}"#),
        (r#"{"a":"x\u00e9"#, r#"{"a":"x\u00e9"}"#),
        (r#"{"a":"x\ud83d\ude0"#, r#"{"a":"x"}"#),
        (r#"{"a":"x\\"#, r#"{"a":"x\\"}"#),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"he"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"he"}]}]}"#,
        ),
        (
            r#"{"messages":[{"role":"user","content":"a"},"#,
            r#"{"messages":[{"role":"user","content":"a"}]}"#,
        ),
        (r#"{"a":"}]","b":["#, r#"{"a":"}]","b":[]}"#),
    ];
    for (cut, expected) in cases {
        let mut body = cut.as_bytes().to_vec();
        assert!(close_cut_off(&mut body), "{cut}");
        assert_eq!(String::from_utf8(body).unwrap(), expected, "{cut}");
    }
    assert!(!close_cut_off(&mut Vec::new()));
    assert!(!close_cut_off(&mut b"tru".to_vec()));
}

#[test]
fn every_cut_of_a_body_still_parses() {
    let body = r#"{"model":"m","x":[null,{"y":-1.5e3}],"messages":[
        {"role":"system","content":"Größe \u4e2d\ud83d\ude00 \\ \" 😀"},
        {"role":"user","content":[{"type":"text","text":"für"}]}],"stream":true}"#;
    for end in 1..body.len() {
        let mut cut = body.as_bytes()[..end].to_vec();
        assert!(close_cut_off(&mut cut), "{end}");
        let text = String::from_utf8(cut).unwrap();
        assert!(
            serde_json::from_str::<serde_json::Value>(&text).is_ok(),
            "{end}: {text}"
        );
    }
}
