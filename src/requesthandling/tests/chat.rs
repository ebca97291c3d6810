use super::*;

#[test]
fn a_chat_is_role_and_content_of_each_message_in_order() {
    let body = r#"{"model":"m","cache_salt":"t1","temperature":0.5,"messages":[
        {"role":"system","content":"You are a helpful assistant."},
        {"content":[{"type":"text","text":"Hel"},{"text":"lo!","type":"text"}],"role":"user"},
        {"role":"assistant","content":"Hi"},
        {"role":"user","content":"Bye"}]}"#;
    let read = read(Api::ChatCompletions, body).unwrap();
    assert_eq!(read.model.as_deref(), Some("m"));
    assert_eq!(read.salt.as_deref(), Some(&b"t1"[..]));
    let text = "systemYou are a helpful assistant.userHello!assistantHiuserBye";
    assert_eq!(read.prompts, [text.as_bytes()]);
    assert_eq!(read.first_user_end, text.find("assistantHi"));
}

#[test]
fn developers_and_others_are_roles_like_any() {
    let messages = r#"{"role":"developer","content":"a"},{"role":"tool","content":"b"},"x""#;
    let body = format!(r#"{{"messages":[{messages}]}}"#);
    assert_eq!(
        read(Api::ChatCompletions, &body),
        Err(ParseError::UnknownShape)
    );
    let messages = messages.trim_end_matches(r#","x""#);
    assert_eq!(chat_of(messages), b"developeratoolb");
}

#[test]
fn a_message_without_content_is_its_role() {
    for content in [
        "",
        r#","content":null"#,
        r#","content":"""#,
        r#","content":[]"#,
    ] {
        let message = format!(r#"{{"role":"assistant"{content}}}"#);
        assert_eq!(chat_of(&message), b"assistant", "{content}");
    }
    assert_eq!(chat_of(r#"{"role":7,"content":"x"}"#), b"x");
    assert_eq!(chat_of(r#"{"content":"x"}"#), b"x");
}

#[test]
fn content_of_other_types_is_hashed_as_its_json() {
    assert_eq!(
        chat_of(r#"{"role":"user","content":{ "a" : 1 }}"#),
        [b"user", &record(41, br#"{"a":1}"#)[..]].concat()
    );
    assert_eq!(
        chat_of(r#"{"role":"user","content":12}"#),
        [b"user", &record(41, b"12")[..]].concat()
    );
}

#[test]
fn the_last_of_two_equal_keys_wins() {
    let body = r#"{"model":"a","messages":[{"role":"user","content":"x"}],
        "messages":[{"role":"user","content":"y","content":"z"}],"model":"b","mod\u0065l":"c"}"#;
    let read = read(Api::ChatCompletions, body).unwrap();
    assert_eq!(read.model.as_deref(), Some("c"));
    assert_eq!(read.prompts, [b"userz"]);
}

#[test]
fn parts_of_an_unknown_type_are_hashed_as_their_json() {
    let part = |json: &str| chat_of(&format!(r#"{{"role":"user","content":[{json}]}}"#));
    for (json, compact) in [
        (
            r#"{"type":"file","text": "x"}"#,
            r#"{"type":"file","text":"x"}"#,
        ),
        (r#"{"type":"text"}"#, r#"{"type":"text"}"#),
        (r#"{"type":"text","text":5}"#, r#"{"type":"text","text":5}"#),
        (r#"{"text":"x"}"#, r#"{"text":"x"}"#),
        (r#"{"type":5,"text":"x"}"#, r#"{"type":5,"text":"x"}"#),
        (r#"{"type":"image_url"}"#, r#"{"type":"image_url"}"#),
        (
            r#"{"type":"image_url","image_url":[1]}"#,
            r#"{"type":"image_url","image_url":[1]}"#,
        ),
        ("5", "5"),
        ("[1, 2]", "[1,2]"),
    ] {
        let expected = [b"user", &record(40, compact.as_bytes())[..]].concat();
        assert_eq!(part(json), expected, "{json}");
    }
    assert_eq!(part(r#""plain""#), b"userplain");
    assert_eq!(part(r#"{"type":"input_text","text":"x"}"#), b"userx");
}

/// Placeholders of a medium: `tokens` times four bytes of the content's hash.
fn placeholder(field: u8, content: &str, tokens: usize) -> Vec<u8> {
    let hash = xxhash_rust::xxh64::xxh64(content.as_bytes(), 0).to_le_bytes();
    let bytes: Vec<u8> = hash.into_iter().cycle().take(4 * tokens).collect();
    record(field, &bytes)
}

fn png(width: u32, height: u32) -> String {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file.extend(b"\x08\x06\0\0\0rest of the file");
    format!("data:image/png;base64,{}", base64(&file))
}

#[test]
fn images_audio_and_video_stand_as_placeholders_for_their_content() {
    let part = |json: &str| chat_of(&format!(r#"{{"role":"user","content":[{json}]}}"#));
    let url = "https://example.com/a.png";
    let user = |more: Vec<u8>| [b"user".to_vec(), more].concat();
    for json in [
        format!(r#"{{"type":"image_url","image_url":{{"url":"{url}","detail":"low"}}}}"#),
        format!(r#"{{"image_url":"{url}","type":"input_image"}}"#),
        format!(r#"{{"type":"image","source":{{"type":"url","url":"{url}"}}}}"#),
    ] {
        assert_eq!(part(&json), user(placeholder(64, url, 225)), "{json}");
    }
    let data = png(1_280, 800);
    let image = part(&format!(
        r#"{{"type":"image_url","image_url":{{"url":"{data}"}}}}"#
    ));
    assert_eq!(image, user(placeholder(64, &data, 1_000)));
    let bare = data.split_once(',').unwrap().1;
    let source = format!(r#"{{"type":"base64","media_type":"image/png","data":"{bare}"}}"#);
    let image = part(&format!(r#"{{"type":"image","source":{source}}}"#));
    assert_eq!(image, user(placeholder(64, bare, 1_000)));
    let audio = part(r#"{"type":"input_audio","input_audio":{"data":"AAAAA","format":"wav"}}"#);
    assert_eq!(audio, user(placeholder(65, "AAAAAwav", 2)));
    let video = part(r#"{"type":"video_url","video_url":{"url":"file:///v.mp4"}}"#);
    assert_eq!(video, user(placeholder(66, "file:///v.mp4", 4_500)));
}

#[test]
fn an_image_of_any_size_takes_a_bounded_number_of_tokens() {
    let tokens = |width, height| {
        let url = png(width, height);
        let json = format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
        let message = format!(r#"{{"role":"user","content":[{json}]}}"#);
        (chat_of(&message).len() - "user".len() - 6) / 4
    };
    assert_eq!(tokens(1, 1), 1);
    assert_eq!(tokens(u32::MAX, u32::MAX), 16_384);
}

#[test]
fn other_images_after_equal_text_leave_the_text_shared() {
    let with = |url: &str| {
        let part = format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
        chat_of(&format!(
            r#"{{"role":"user","content":[{{"type":"text","text":"Look:"}},{part}]}}"#
        ))
    };
    let (one, other) = (with("https://a"), with("https://b"));
    assert_eq!(one.len(), other.len());
    let shared = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    assert!(shared >= "userLook:".len() && shared < one.len());
}
