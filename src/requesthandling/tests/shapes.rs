use super::*;

#[test]
fn shapes_it_cannot_read_are_an_error_not_an_empty_prompt() {
    let unknown = [
        (Api::Completions, r#"{"model":"m"}"#),
        (Api::Completions, "[]"),
        (Api::Completions, "5"),
        (Api::Completions, r#""prompt""#),
        (Api::ChatCompletions, r#"{"prompt":"x"}"#),
        (Api::ChatCompletions, r#"{"messages":"x"}"#),
        (Api::ChatCompletions, r#"{"messages":{"role":"user"}}"#),
        (Api::ChatCompletions, r#"{"messages":[1]}"#),
        (Api::ChatCompletions, r#"{"messages":null}"#),
        (Api::Messages, r#"{"messages":[[]]}"#),
    ];
    for (api, body) in unknown {
        assert_eq!(read(api, body), Err(ParseError::UnknownShape), "{body}");
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
        r#"{"prompt":"x"} x"#,
        "prompt",
        "{'a':1}",
        r#"{"prompt" "x"}"#,
        r#"{"prompt":"x",}"#,
        r#"{"prompt":["a" "b"]}"#,
        r#"{"prompt":["a",]}"#,
        r#"{"prompt":"\x"}"#,
        r#"{"prompt":"\u00g0"}"#,
        "{5:5}",
        r#"{"a":#}"#,
        r#"{"a":[#]}"#,
        r#"{"prompt":["#,
        r#"{"prompt":[1"#,
        "\u{feff}",
        "\u{feff}\u{feff}{}",
        "nul",
        "{}{}",
        "[1,2",
    ];
    for body in malformed {
        let expected = if body == "nul" {
            ParseError::UnknownShape
        } else {
            ParseError::Malformed
        };
        assert_eq!(read(Api::Completions, body), Err(expected), "{body}");
    }
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let plain = r#"{"model":"m","prompt":"x"}"#;
    let marked = format!("\u{feff}{plain}");
    assert_eq!(
        read(Api::Completions, &marked),
        read(Api::Completions, plain)
    );
    let mut source = marked.as_bytes();
    let request = Request::read(Api::Completions, &mut source, false).unwrap();
    let place = request.model().unwrap().place.clone();
    assert_eq!(&marked.as_bytes()[place], br#""m""#);
}

#[test]
fn names_of_other_types_are_none() {
    for name in ["5", "null", "{}", "[\"m\"]"] {
        let body = format!(r#"{{"model":{name},"cache_salt":{name},"prompt":"x"}}"#);
        let read = read(Api::Completions, &body).unwrap();
        assert_eq!((read.model, read.salt), (None, None), "{name}");
    }
    let long = "m".repeat(5_000);
    let body = format!(r#"{{"model":"{long}","cache_salt":"","prompt":"x"}}"#);
    let read = read(Api::Completions, &body).unwrap();
    assert_eq!((read.model, read.salt), (None, None));
}

#[test]
fn the_models_name_is_found_where_it_stands() {
    for body in [
        r#"{"model":"a\/b","prompt":"x"}"#,
        r#"{"prompt":"x", "model" :  "a\/b" }"#,
        r#"{"model":"no","x":{"model":"no"},"model":"a\/b","prompt":"x"}"#,
    ] {
        let mut source = body.as_bytes();
        let request = Request::read(Api::Completions, &mut source, false).unwrap();
        let model = request.model().unwrap();
        assert_eq!(model.name, "a/b");
        assert_eq!(&body.as_bytes()[model.place.clone()], br#""a\/b""#);
    }
}

#[test]
fn every_escape_is_what_it_stands_for() {
    let prompt = |text: &str| prompt(Api::Completions, &format!(r#"{{"prompt":"{text}"}}"#));
    assert_eq!(prompt(r#"\"\\\/\b\f\n\r\t\u0041"#), b"\"\\/\x08\x0c\n\r\tA");
    assert_eq!(prompt(r"\u4e2d\ud83d\ude00é"), "中😀é".as_bytes());
    // Halves of a pair: as Python writes them.
    assert_eq!(prompt(r"a\ud83dx"), b"a\xed\xa0\xbdx");
    assert_eq!(prompt(r"\ud83d"), b"\xed\xa0\xbd");
    assert_eq!(
        prompt(r"\ude00\ud83d\ud83d\ude00"),
        b"\xed\xb8\x80\xed\xa0\xbd\xf0\x9f\x98\x80"
    );
    assert_eq!(prompt(r"\ud83d\n"), b"\xed\xa0\xbd\n");
    assert_eq!(prompt(r"a\u0000b"), b"a\0b");
}

#[test]
fn bytes_that_no_text_holds_are_hashed_as_they_are() {
    for bytes in [
        &b"\xff\xfe"[..],
        b"caf\xe9",
        b"a\nb\0c",
        b"\xed\xa0\x80",
        b"\xf0\x9f",
    ] {
        let body = [b"{\"prompt\":\"", bytes, b"\"}"].concat();
        let read = read_bytes(Api::Completions, &body).unwrap();
        assert_eq!(read.prompts, [bytes]);
    }
    let body = b"{\"model\":\"m\xff\",\"cache_salt\":\"\xff\",\"prompt\":\"x\"}";
    let read = read_bytes(Api::Completions, body).unwrap();
    assert_eq!(read.model.as_deref(), Some("m\u{fffd}"));
    assert_eq!(read.salt.as_deref(), Some(&b"\xff"[..]));
}

#[test]
fn nesting_of_any_depth_is_passed_over_and_hashed() {
    let depth = 100_000;
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let body = format!(r#"{{"x":{deep},"prompt":"x"}}"#);
        let read = read_with(Request::read(Api::Completions, &mut body.as_bytes(), false));
        assert_eq!(read.unwrap().prompts, [b"x"]);
        let body = format!(r#"{{"tools":{deep},"messages":[{{"role":"user","content":"x"}}]}}"#);
        let read = read_with(Request::read(
            Api::ChatCompletions,
            &mut body.as_bytes(),
            false,
        ));
        let expected = [record(1, deep.as_bytes()), b"userx".to_vec()].concat();
        assert_eq!(read.unwrap().prompts, [expected]);
    }
}

#[test]
fn numbers_that_python_writes_are_passed_over() {
    let body = r#"{"a":NaN,"b":[Infinity,-Infinity],"c":-1.5E+3,"prompt":"x"}"#;
    assert_eq!(prompt(Api::Completions, body), b"x");
}

/// Takes two bytes.
struct Small(Vec<u8>);

impl PromptSink for Small {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn end_first_user_message(&mut self) {}

    fn end_prompt(&mut self) {}

    fn mark(&mut self) {}

    fn end_mark(&mut self, kept: bool) {
        assert!(kept);
    }

    fn is_full(&self) -> bool {
        self.0.len() >= 2
    }
}

#[test]
fn reading_stops_when_the_sink_is_full() {
    for (api, body) in [
        (Api::Completions, r#"{"prompt":["ab","cd",null]}"#),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"role":"ab"},{"role":"cd"},null]}"#,
        ),
        (
            Api::Messages,
            r#"{"messages":[{"role":"ab"},{"role":"cd"},null]}"#,
        ),
        (
            Api::Responses,
            r#"{"input":[{"role":"ab"},{"role":"cd"},null]}"#,
        ),
    ] {
        let mut source = body.as_bytes();
        let mut request = Request::read(api, &mut source, false).unwrap();
        let mut sink = Small(Vec::new());
        assert_eq!(request.read_prompts(&mut sink), Ok(()));
        assert_eq!(sink.0, b"ab", "{body}");
    }
}
