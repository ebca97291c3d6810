use super::*;

#[test]
fn the_path_names_the_api() {
    let api = |path: &str| Api::from_path(path.as_bytes());
    for (path, expected) in [
        ("/v1/completions", Api::Completions),
        ("/v1/chat/completions", Api::ChatCompletions),
        (
            "/llama/v1/chat/completions/?a=/v1/completions",
            Api::ChatCompletions,
        ),
        ("/v1/responses", Api::Responses),
        ("/v1/embeddings", Api::Pooling),
        ("/v1/score", Api::Pooling),
        ("/v2/rerank", Api::Pooling),
        ("/pooling", Api::Pooling),
        ("/v1/messages?beta=true", Api::Messages),
        ("/v1/messages/count_tokens", Api::CountTokens),
        ("/inference/v1/generate", Api::VllmGenerate),
        ("/generate", Api::SglangGenerate),
    ] {
        assert_eq!(api(path), Some(expected), "{path}");
    }
    for unknown in [
        "/v1/models",
        "/v1/completions/x",
        "/v1/mycompletions",
        "/v1/responses/resp_1",
        "/v1/messages/batches",
        "/",
        "",
        "/v1/chat",
        "/completions",
    ] {
        assert_eq!(api(unknown), None, "{unknown}");
    }
    for (path, expected) in Api::paths() {
        assert_eq!(api(path), Some(expected), "{path}");
    }
}

#[test]
fn a_response_is_read_as_the_chat_the_server_makes_of_it() {
    let same = chat_of(
        r#"{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},
           {"role":"assistant","content":"Ho"},{"role":"user","content":"Bye"}"#,
    );
    let items = r#"[{"role":"user","content":"Hi"},
        {"type":"message","id":"msg_1","status":"completed","role":"assistant",
         "content":[{"type":"output_text","text":"Ho","annotations":[]}]},
        {"role":"user","content":[{"type":"input_text","text":"Bye"}]}]"#;
    let body = format!(r#"{{"input":{items},"instructions":"Be brief.","model":"m"}}"#);
    assert_eq!(prompt(Api::Responses, &body), same);
    let read = read(
        Api::Responses,
        r#"{"instructions":"Be brief.","input":"Hi"}"#,
    )
    .unwrap();
    assert_eq!(read.prompts, [b"systemBe brief.userHi"]);
    assert_eq!(read.first_user_end, Some(21));
}

#[test]
fn items_that_are_no_messages_are_hashed_as_their_json() {
    let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
    let output = r#"{"type":"function_call_output","call_id":"c","output":"4"}"#;
    let body = format!(r#"{{"input":[{{"role":"user","content":"x"}},{call}, {output}]}}"#);
    let expected = [
        b"userx".to_vec(),
        record(39, call.as_bytes()),
        record(39, output.as_bytes()),
    ];
    assert_eq!(prompt(Api::Responses, &body), expected.concat());
}

#[test]
fn a_response_has_a_head_of_its_own() {
    for (name, field, value) in [
        ("conversation", 15, r#""conv_1""#),
        ("prompt", 14, r#"{"id":"p"}"#),
        ("tools", 1, r#"[{"type":"function","name":"f"}]"#),
        ("reasoning", 3, r#"{"effort":"low"}"#),
    ] {
        let body = format!(r#"{{"input":"x","{name}":{value}}}"#);
        let expected = [record(field, value.as_bytes()), b"userx".to_vec()].concat();
        assert_eq!(prompt(Api::Responses, &body), expected, "{name}");
    }
    for body in [
        r#"{"instructions":"x"}"#,
        r#"{"input":5}"#,
        r#"{"input":["x"]}"#,
    ] {
        assert_eq!(
            read(Api::Responses, body),
            Err(ParseError::UnknownShape),
            "{body}"
        );
    }
}

#[test]
fn embeddings_are_prompts_or_chats() {
    let read = |body: &str| read(Api::Pooling, body).unwrap().prompts;
    assert_eq!(read(r#"{"input":"x"}"#), [b"x"]);
    assert_eq!(read(r#"{"input":["x","y"]}"#), [b"x", b"y"]);
    assert_eq!(read(r#"{"input":[[1],[2]]}"#), [[1, 0, 0, 0], [2, 0, 0, 0]]);
    let messages = r#"{"messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(read(messages), [b"userx"]);
}

#[test]
fn pairs_are_one_prompt_of_both_sides() {
    let pair = |body: &str| prompt(Api::Pooling, body);
    let rerank = pair(r#"{"query":"q","documents":["a","b"]}"#);
    assert_eq!(
        rerank,
        [record(42, br#""q""#), record(7, br#"["a","b"]"#)].concat()
    );
    assert_ne!(rerank, pair(r#"{"query":"q","documents":["b","a"]}"#));
    assert_ne!(
        pair(r#"{"text_1":"a","text_2":"b"}"#),
        pair(r#"{"text_1":"b","text_2":"a"}"#)
    );
    assert_eq!(read(Api::Pooling, "{}"), Err(ParseError::UnknownShape));
}

#[test]
fn rendered_prompts_are_token_ids() {
    let body = r#"{"model":"m","token_ids":[1,2],"sampling_params":{"max_tokens":1}}"#;
    assert_eq!(prompt(Api::VllmGenerate, body), [1, 0, 0, 0, 2, 0, 0, 0]);
    let media = r#"{"token_ids":[1,2],"features":{"mm_hashes":{"image":["h"]}}}"#;
    assert_ne!(
        prompt(Api::VllmGenerate, media),
        prompt(Api::VllmGenerate, body)
    );
    assert_eq!(
        read(Api::VllmGenerate, r#"{"prompt":"x"}"#),
        Err(ParseError::UnknownShape)
    );
}

#[test]
fn sglang_takes_text_or_ids_with_its_own_names_for_salt_and_adapter() {
    let read = |body: &str| read(Api::SglangGenerate, body).unwrap();
    assert_eq!(read(r#"{"text":"x"}"#).prompts, [b"x"]);
    assert_eq!(read(r#"{"text":["x","y"]}"#).prompts, [b"x", b"y"]);
    assert_eq!(read(r#"{"input_ids":[[7]]}"#).prompts, [[7, 0, 0, 0]]);
    let salted = read(r#"{"text":"x","extra_key":"tenant","cache_salt":"no"}"#);
    assert_eq!(salted.salt.as_deref(), Some(&b"tenant"[..]));
    let adapter = |name: &str| read(&format!(r#"{{"text":"x","lora_path":"{name}"}}"#)).prompts;
    assert_ne!(adapter("a"), adapter("b"));
    assert_ne!(adapter("a"), [b"x"]);
}

#[test]
fn an_anthropic_conversation_is_read_as_the_chat_the_server_makes_of_it() {
    let same = chat_of(
        r#"{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},
           {"role":"assistant","content":"Ho"}"#,
    );
    let messages = r#""messages":[{"role":"user","content":"Hi"},
        {"role":"assistant","content":[{"type":"text","text":"Ho"}]}]"#;
    for system in [
        r#""Be brief.""#,
        r#"[{"type":"text","text":"Be brief."}]"#,
        r#"[{"type":"text","text":"Be ","cache_control":{"type":"ephemeral"}},
            {"type":"text","text":"brief."}]"#,
    ] {
        let body = format!(r#"{{"model":"m",{messages},"system":{system}}}"#);
        for api in [Api::Messages, Api::CountTokens] {
            assert_eq!(prompt(api, &body), same, "{system}");
        }
    }
    assert!(Api::Messages.fills_cache() && !Api::CountTokens.fills_cache());
    assert_eq!(
        read(Api::Messages, r#"{"system":"x"}"#),
        Err(ParseError::UnknownShape)
    );
}

#[test]
fn the_billing_header_is_not_part_of_the_prompt() {
    let body = |blocks: &str| {
        prompt(
            Api::Messages,
            &format!(r#"{{"system":[{blocks}],"messages":[{{"role":"user","content":"x"}}]}}"#),
        )
    };
    let billing = |cch: &str| {
        format!(
            r#"{{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch={cch};"}}"#
        )
    };
    let rest = r#"{"type":"text","text":"Be brief."}"#;
    let plain = body(rest);
    for cch in ["36ee5", "0aaa9"] {
        assert_eq!(body(&format!("{},{rest}", billing(cch))), plain);
    }
    assert_eq!(plain, b"systemBe brief.userx");
    assert_eq!(body(&billing("36ee5")), b"userx");
    // Something that only begins alike is.
    assert_ne!(
        body(r#"{"type":"text","text":"x-anthropic-billing"}"#),
        b"userx"
    );
}

#[test]
fn blocks_of_tools_and_thinking_are_hashed_without_what_moves() {
    let body = |block: &str| {
        prompt(
            Api::Messages,
            &format!(r#"{{"messages":[{{"role":"user","content":[{block}]}}]}}"#),
        )
    };
    let mark = r#","cache_control":{"type":"ephemeral"}"#;
    for (block, expected) in [
        (
            r#""type":"tool_use","id":"t1","name":"f","input":{"a": 1}"#,
            [
                record(43, br#""t1""#),
                record(32, br#""f""#),
                record(33, br#"{"a":1}"#),
            ]
            .concat(),
        ),
        (
            r#""type":"tool_result","tool_use_id":"t1","content":"four""#,
            [record(34, br#""t1""#), b"four".to_vec()].concat(),
        ),
        (
            r#""content":[{"type":"text","text":"no"}],"type":"tool_result","is_error":true"#,
            [record(38, b"true"), b"no".to_vec()].concat(),
        ),
        (
            r#""type":"thinking","thinking":"hm","signature":"sig""#,
            record(37, br#""hm""#),
        ),
    ] {
        let expected = [b"user".to_vec(), expected].concat();
        assert_eq!(body(&format!("{{{block}}}")), expected, "{block}");
        assert_eq!(body(&format!("{{{block}{mark}}}")), expected, "{block}");
    }
    assert_eq!(body(r#""plain""#), b"userplain");
    let other = r#"{"type":"search_result","title":"t"}"#;
    assert_eq!(
        body(other),
        [b"user".to_vec(), record(40, other.as_bytes())].concat()
    );
    let untyped = r#"{"type":7,"thinking":"x"}"#;
    assert_eq!(
        body(untyped),
        [b"user".to_vec(), record(40, untyped.as_bytes())].concat()
    );
}
