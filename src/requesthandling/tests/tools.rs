use super::*;

#[test]
fn what_templates_put_at_the_head_is_hashed_before_the_messages() {
    let messages = r#""messages":[{"role":"user","content":"x"}]"#;
    for (name, field, value) in [
        ("tools", 1, r#"[{"type":"function"}]"#),
        ("reasoning_effort", 2, r#""high""#),
        ("reasoning", 3, r#"{"effort":"low"}"#),
        ("chat_template", 5, r#""{{x}}""#),
        ("chat_template_kwargs", 6, r#"{"thinking":true}"#),
        ("documents", 7, r#"[{"text":"d"}]"#),
        ("add_special_tokens", 8, "false"),
        ("mm_processor_kwargs", 9, r#"{"min_pixels":1}"#),
        ("truncate_prompt_tokens", 10, "128"),
    ] {
        let expected = [record(field, value.as_bytes()), b"userx".to_vec()].concat();
        // The order of the keys is the client's business.
        let before = chat(&format!(r#"{{"{name}":{value},{messages}}}"#));
        let after = chat(&format!(r#"{{{messages},"{name}" : {value} }}"#));
        assert_eq!(before, expected, "{name}");
        assert_eq!(after, expected, "{name}");
        for nothing in ["null", "[]", "{}", r#""""#] {
            let empty = chat(&format!(r#"{{"{name}":{nothing},{messages}}}"#));
            assert_eq!(empty, b"userx", "{name}: {nothing}");
        }
    }
}

#[test]
fn what_does_not_change_the_prompt_is_not_hashed() {
    let plain = r#"{"messages":[{"role":"user","content":"x"}]}"#;
    for field in [
        r#""temperature":0.7"#,
        r#""stream":true"#,
        r#""max_tokens":5"#,
        r#""max_completion_tokens":5"#,
        r#""user":"u""#,
        r#""seed":1"#,
        r#""tool_choice":"auto""#,
        r#""context_management":{"edits":[]}"#,
        r#""kv_transfer_params":{"messages":[]}"#,
        r#""metadata":{"tools":[1]}"#,
    ] {
        let more = plain.replacen('{', &format!("{{{field},"), 1);
        assert_eq!(chat(&more), chat(plain), "{field}");
    }
    // Nor in a message.
    assert_eq!(
        chat_of(r#"{"role":"user","content":"x","cache_control":{}}"#),
        b"userx"
    );
}

#[test]
fn every_field_of_a_message_that_decides_the_prompt_is_hashed() {
    for (name, field, value) in [
        ("reasoning_content", 37, r#""hm""#),
        ("reasoning", 37, r#""hm""#),
        (
            "tool_calls",
            33,
            r#"[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}]"#,
        ),
        ("function_call", 35, r#"{"name":"f"}"#),
        ("tool_call_id", 34, r#""call_1""#),
        ("refusal", 36, r#""no""#),
        ("name", 32, r#""Ann""#),
    ] {
        let message = format!(r#"{{"{name}":{value},"content":null,"role":"assistant"}}"#);
        let expected = [b"assistant".to_vec(), record(field, value.as_bytes())].concat();
        assert_eq!(chat_of(&message), expected, "{name}");
        let empty = format!(r#"{{"role":"assistant","{name}":null}}"#);
        assert_eq!(chat_of(&empty), b"assistant", "{name}");
    }
    let call = |arguments: &str| {
        chat_of(&format!(
            r#"{{"role":"assistant","content":null,
                "tool_calls":[{{"id":"1","function":{{"name":"f","arguments":"{arguments}"}}}}]}}"#
        ))
    };
    assert_ne!(call("{}"), call("{ }"));
}

#[test]
fn white_space_between_tokens_makes_no_difference_and_inside_strings_it_does() {
    let tools = |json: &str| {
        chat(&format!(
            r#"{{"tools":{json},"messages":[{{"role":"user","content":"x"}}]}}"#
        ))
    };
    let dense = r#"[{"name":"a b","n":[1,2.5,-3e2,true,null],"e":"\"\\\u00e9"}]"#;
    let airy = "[ {\"name\" : \"a b\" ,\n\t\"n\":[ 1 , 2.5,-3e2 , true,null ]\r\n, \
                \"e\":\"\\\"\\\\\\u00e9\" } ]";
    assert_eq!(tools(dense), tools(airy));
    assert_ne!(tools(dense), tools(&dense.replace("a b", "a  b")));
}

#[test]
fn a_record_cannot_be_written_as_text() {
    // Text that spells a record's beginning has no byte 0xFF in it.
    let forged = chat_of(r#"{"role":"user","content":"x\u00ff\u0020"}"#);
    let named = chat_of(r#"{"role":"user","content":"x","name":"n"}"#);
    assert!(!forged.contains(&0xFF));
    assert_eq!(named[5..], record(32, br#""n""#));
}
