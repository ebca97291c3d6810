use super::*;

fn completion(prompt: &str) -> Result<Read, ParseError> {
    read(
        Api::Completions,
        &format!(r#"{{"model":"m","prompt":{prompt}}}"#),
    )
}

fn ids(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

#[test]
fn a_completion_is_its_prompt() {
    let body = r#"{"prompt": "Say \"hi\" \u00e9", "x": {"prompt": "no"}, "model": "m"}"#;
    let read = read(Api::Completions, body).unwrap();
    assert_eq!(read.model.as_deref(), Some("m"));
    assert_eq!(read.salt, None);
    assert_eq!(read.prompts, ["Say \"hi\" é".as_bytes()]);
    assert_eq!(read.first_user_end, None);
}

#[test]
fn token_ids_are_four_bytes_each() {
    let read = completion("[0, 1,4294967295]").unwrap();
    assert_eq!(read.prompts, [ids(&[0, 1, u32::MAX])]);
}

#[test]
fn each_prompt_of_a_list_is_one_of_its_own() {
    let read = completion(r#"["one","","two"]"#).unwrap();
    assert_eq!(read.prompts, [&b"one"[..], b"", b"two"]);
    let read = completion(r#"[[1,2],"x",[3],[]]"#).unwrap();
    let expected = [ids(&[1, 2]), b"x".to_vec(), ids(&[3]), Vec::new()];
    assert_eq!(read.prompts, expected);
    let read = completion(r#"[{"prompt_token_ids":[1]}]"#).unwrap();
    assert_eq!(read.prompts, [record(39, br#"{"prompt_token_ids":[1]}"#)]);
    assert!(completion("[]").unwrap().prompts.is_empty());
}

#[test]
fn what_is_no_prompt_is_an_unknown_shape() {
    for prompt in [
        "null",
        "5",
        "true",
        "[1,\"a\"]",
        "[\"a\",1]",
        "[1.5]",
        "[-1]",
        "[4294967296]",
        "[1e3]",
        "[null]",
        "[true]",
        "[[[1]]]",
        "[[\"a\"]]",
        "[NaN]",
    ] {
        assert_eq!(
            completion(prompt),
            Err(ParseError::UnknownShape),
            "{prompt}"
        );
    }
}

#[test]
fn every_prompt_begins_with_what_the_request_says_about_all() {
    let body = |more: &str| format!(r#"{{"prompt":["a","b"]{more}}}"#);
    let plain = read(Api::Completions, &body("")).unwrap();
    let given = read(Api::Completions, &body(r#","add_special_tokens":false"#)).unwrap();
    assert_eq!(given.prompts.len(), 2);
    for (prompt, text) in given.prompts.iter().zip(&plain.prompts) {
        assert_eq!(prompt[..6], [0xFF, 0, 8, 0, 0, 0]);
        assert_eq!(&prompt[14..], text);
    }
    let other = read(Api::Completions, &body(r#","truncate_prompt_tokens":5"#)).unwrap();
    assert_ne!(other.prompts[0], given.prompts[0]);
    assert_eq!(
        read(Api::Completions, &body(r#","logit_bias":{}"#)),
        Ok(plain)
    );
}

#[test]
fn embeds_stand_in_for_a_prompt() {
    let one = prompt(Api::Completions, r#"{"prompt_embeds":"QUJD"}"#);
    let other = prompt(Api::Completions, r#"{"prompt_embeds":"QUJE"}"#);
    assert_eq!(one.len(), 14);
    assert_ne!(one, other);
}

#[test]
fn an_end_of_zeros_is_told_from_padding() {
    let all = [r#""abc""#, r#""abc\u0000""#, r#""abc\u0000\u0000""#];
    let padded = all.map(|text| {
        let mut prompt = completion(text).unwrap().prompts[0].clone();
        prompt.resize(prompt.len().div_ceil(4) * 4, 0);
        prompt
    });
    assert_ne!(padded[0], padded[1]);
    assert_ne!(padded[1], padded[2]);
    // Ids of small numbers end in zeros, and are never padded.
    assert_eq!(completion("[1]").unwrap().prompts, [ids(&[1])]);
}
