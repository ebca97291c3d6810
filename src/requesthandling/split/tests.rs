//! Bodies before and after.

use super::*;
use crate::requesthandling::Request;

const CHAT: Api = Api::ChatCompletions;

fn split(api: Api, text: &str) -> Option<SplitBody> {
    SplitBody::read(api, &mut text.as_bytes())
}

/// `text` as `edits` make it.
fn after(text: &str, edits: &[Edit]) -> String {
    let bytes = Edit::apply(edits, &mut text.as_bytes());
    assert_eq!(bytes.len(), Edit::length_after(edits, text.len()));
    let text = String::from_utf8(bytes).unwrap();
    serde_json::from_str::<serde_json::Value>(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    text
}

fn stripped(text: &str) -> String {
    let mut body = text.as_bytes();
    let mut request = Request::read(Api::Completions, &mut body, false).unwrap();
    after(text, &request.without_servers_own())
}

#[test]
fn a_prefill_server_is_asked_for_the_prompt_alone() {
    let text = r#"{"model":"m", "prompt":"p","stream": true,"stream_options":{"include_usage":true},"max_tokens":20}"#;
    let body = split(Api::Completions, text).unwrap();
    assert_eq!(
        after(text, &body.for_prefill()),
        r#"{"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false},"model":"m", "prompt":"p","stream": false,"max_tokens":1}"#
    );
    let text = r#"{"messages":[],"min_tokens":5,"seed":7}"#;
    assert_eq!(
        after(text, &split(CHAT, text).unwrap().for_prefill()),
        r#"{"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false},"max_tokens":1,"max_completion_tokens":1,"messages":[],"min_tokens":1,"seed":7}"#
    );
    let text = "{\n  \"max_completion_tokens\" : 9 ,\n  \"messages\" : [ ]\n}";
    let prefill = after(text, &split(CHAT, text).unwrap().for_prefill());
    assert!(
        prefill.ends_with("\n  \"max_completion_tokens\" : 1 ,\n  \"messages\" : [ ]\n}"),
        "{prefill}"
    );
}

#[test]
fn what_is_put_in_stands_before_a_first_member_that_is_cut_out() {
    let text = r#"{"bootstrap_room":5,"prompt":"p"}"#;
    let body = split(Api::Completions, text).unwrap();
    assert_eq!(
        after(text, &body.for_decode(br#"{"a":1}"#)),
        r#"{"kv_transfer_params":{"a":1},"prompt":"p"}"#
    );
}

#[test]
fn a_decode_server_gets_the_clients_body_and_the_parameters_as_they_came() {
    let text =
        r#"{"prompt":"p","stream":true,"stream_options":{"include_usage":true},"max_tokens":20}"#;
    let params = br#"{"do_remote_prefill":true, "remote_block_ids":[[1,2]],"x":1e5}"#;
    let body = split(Api::Completions, text).unwrap();
    assert_eq!(
        after(text, &body.for_decode(params)),
        r#"{"kv_transfer_params":{"do_remote_prefill":true, "remote_block_ids":[[1,2]],"x":1e5},"prompt":"p","stream":true,"stream_options":{"include_usage":true},"max_tokens":20}"#
    );
    assert_eq!(body.for_one(), []);
}

#[test]
fn a_clients_own_parameters_give_way() {
    let text = r#"{"bootstrap_room":5,"prompt":"p","kv_transfer_params":{"do_remote_prefill":true},"bootstrap_host":"evil"}"#;
    let body = split(Api::Completions, text).unwrap();
    assert_eq!(after(text, &body.for_one()), r#"{"prompt":"p"}"#);
    assert_eq!(
        after(text, &body.for_decode(br#"{"a":1}"#)),
        r#"{"prompt":"p","kv_transfer_params":{"a":1}}"#
    );
    let bootstrap = Bootstrap {
        host: "10.0.0.1".to_owned(),
        port: 8998,
        room: u64::MAX >> 1,
    };
    assert_eq!(
        after(text, &body.for_both(&bootstrap)),
        r#"{"bootstrap_port":8998,"bootstrap_room":9223372036854775807,"prompt":"p","bootstrap_host":"10.0.0.1"}"#
    );
}

#[test]
fn what_servers_hand_each_other_is_cut_wherever_it_stands() {
    for (text, left) in [
        (r#"{"prompt":"p"}"#, r#"{"prompt":"p"}"#),
        (
            r#"{"kv_transfer_params":{},"prompt":"p"}"#,
            r#"{"prompt":"p"}"#,
        ),
        (
            r#"{"prompt":"p","kv_transfer_params":{}}"#,
            r#"{"prompt":"p"}"#,
        ),
        (
            r#"{"prompt":"p" , "kv_transfer_params" : {} , "n":1}"#,
            r#"{"prompt":"p"  , "n":1}"#,
        ),
        (r#"{"kv_transfer_params":null}"#, "{}"),
        (r#"{"bootstrap_room":1,"bootstrap_port":2}"#, "{}"),
        (
            r#"{"bootstrap_room":1,"bootstrap_port":2,"n":1}"#,
            r#"{"n":1}"#,
        ),
        (
            r#"{"n":1,"bootstrap_room":1,"bootstrap_port":2}"#,
            r#"{"n":1}"#,
        ),
        (
            r#"{"n":1,"bootstrap_room":1,"m":2,"bootstrap_port":2}"#,
            r#"{"n":1,"m":2}"#,
        ),
        // A server reads escapes.
        (
            r#"{"kv_\u0074ransfer_params":{"a":[1]},"n":1}"#,
            r#"{"n":1}"#,
        ),
        // Elsewhere it is text like any other.
        (
            r#"{"n":{"kv_transfer_params":1}}"#,
            r#"{"n":{"kv_transfer_params":1}}"#,
        ),
        // The last one counts.
        (
            r#"{"kv_transfer_params":1,"n":1,"kv_transfer_params":{"a":2}}"#,
            r#"{"kv_transfer_params":1,"n":1,"kv_transfer_params":null}"#,
        ),
    ] {
        assert_eq!(stripped(text), left);
        if let Some(body) = split(Api::Completions, text) {
            assert_eq!(after(text, &body.for_one()), left);
        }
    }
}

#[test]
fn what_two_servers_cannot_share_is_not_split() {
    for setting in [
        r#""n":2"#,
        r#""best_of":3"#,
        r#""echo":true"#,
        r#""prompt_logprobs":1"#,
        r#""use_beam_search":true"#,
        r#""n":1,"n":4"#,
    ] {
        let text = format!("{{\"prompt\":\"p\",{setting}}}");
        assert_eq!(split(Api::Completions, &text), None, "{text}");
    }
    for setting in [
        r#""n": 1"#,
        r#""n":null"#,
        r#""echo":false"#,
        r#""prompt_logprobs":null"#,
    ] {
        let text = format!("{{\"prompt\":\"p\",{setting}}}");
        assert!(split(Api::Completions, &text).is_some(), "{text}");
    }
    for (_, api) in Api::paths() {
        let takes_part = matches!(api, Api::Completions | Api::ChatCompletions | Api::Messages);
        assert_eq!(
            split(api, r#"{"prompt":"p"}"#).is_some(),
            takes_part,
            "{api:?}"
        );
    }
    for text in ["", "[]", "{", "{\"prompt\"", "{\"prompt\":1,}"] {
        assert_eq!(split(Api::Completions, text), None, "{text}");
    }
}

/// What vLLM 0.32 answered.
const ANSWER: &str =
    include_str!("../../../wasm-test/vectors/vllm/disagg/A1-prefill-completions.response");

#[test]
fn parameters_are_taken_from_a_recorded_answer_byte_for_byte() {
    let (_, body) = ANSWER
        .replace("\r\n", "\n")
        .split_once("\n\n")
        .map(|(head, body)| (head.to_owned(), body.to_owned()))
        .unwrap();
    let params = transfer_params(body.trim_end().as_bytes()).unwrap();
    let params = core::str::from_utf8(params).unwrap();
    assert!(params.starts_with(
        r#"{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2"#
    ));
    assert!(params.ends_with(r#""remote_prefill_cached_tokens":320}"#));
    assert!(body.contains(&format!("\"kv_transfer_params\":{params},")));
}

#[test]
fn parameters_that_are_not_whole_are_none() {
    let whole = r#"{"do_remote_prefill":true,"remote_block_ids":[[1]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":1}"#;
    let answer = |params: &str| format!("{{\"id\":1,\"kv_transfer_params\":{params}}}");
    let text = answer(whole);
    assert_eq!(transfer_params(text.as_bytes()), Some(whole.as_bytes()));
    for name in NEEDED {
        let name = core::str::from_utf8(name).unwrap();
        let mut fewer: serde_json::Value = serde_json::from_str(whole).unwrap();
        fewer[name] = serde_json::Value::Null;
        assert_eq!(
            transfer_params(answer(&fewer.to_string()).as_bytes()),
            None,
            "{name}"
        );
        fewer.as_object_mut().unwrap().remove(name);
        assert_eq!(
            transfer_params(answer(&fewer.to_string()).as_bytes()),
            None,
            "{name}"
        );
    }
    let local = whole.replace("true", "false");
    for params in ["null", "{}", "[]", "\"x\"", &local] {
        assert_eq!(transfer_params(answer(params).as_bytes()), None, "{params}");
    }
    for answer in [
        "",
        "{}",
        "nonsense",
        "{\"kv_transfer_params\":{\"do_remote_prefill\":true",
    ] {
        assert_eq!(transfer_params(answer.as_bytes()), None, "{answer}");
    }
}
