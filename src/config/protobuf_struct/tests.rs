use super::*;

/// What Envoy 1.40 hands over for `{pools: [{name: llama}], maxBufferedBytes: 33554432}`.
const FROM_ENVOY: &[u8] = include_bytes!("from_envoy.bin");

fn json_of(configuration: &[u8]) -> Value {
    serde_json::from_slice(&json_text(configuration)).expect("JSON")
}

fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    assert!(length < 0x80, "one byte of varint");
    [&[number << 3 | 2, length], payload].concat()
}

fn single(key: &str, value: &[u8]) -> Vec<u8> {
    field(1, &[field(1, key.as_bytes()), field(2, value)].concat())
}

fn number(value: f64) -> Vec<u8> {
    [&[0x11_u8][..], &value.to_le_bytes()].concat()
}

#[test]
fn the_bytes_of_a_real_envoy_are_the_users_yaml() {
    let expected: Value = serde_json::from_str(include_str!("from_envoy.json")).expect("JSON");
    assert_eq!(json_of(FROM_ENVOY), expected);
}

#[test]
fn json_text_is_left_alone() {
    for text in ["{}", " {\"a\": 1}", "\n{\"a\": 1}", "", "null", "nonsense"] {
        assert_eq!(json_text(text.as_bytes()), text.as_bytes(), "{text:?}");
    }
}

#[test]
fn every_kind_of_value_is_read() {
    let cases: [(Vec<u8>, &str); 6] = [
        (vec![0x08, 0], "null"),
        (vec![0x20, 1], "true"),
        (vec![0x20, 0], "false"),
        (field(3, "é".as_bytes()), "\"é\""),
        (field(5, &single("b", &[0x20, 1])), r#"{"b": true}"#),
        (
            field(6, &[field(1, &[0x20, 1]), field(1, &[0x08, 0])].concat()),
            "[true, null]",
        ),
    ];
    for (value, expected) in cases {
        let expected: Value = serde_json::from_str(expected).expect("JSON");
        assert_eq!(json_of(&single("a", &value))["a"], expected);
    }
}

#[test]
fn whole_numbers_stay_whole() {
    for (value, text) in [
        (2.0, "2"),
        (33_554_432.0, "33554432"),
        (0.05, "0.05"),
        (-1.5, "-1.5"),
    ] {
        assert_eq!(json_of(&single("a", &number(value)))["a"].to_string(), text);
    }
}

#[test]
fn numbers_that_json_cannot_say_leave_the_bytes_as_they_are() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let message = single("a", &number(value));
        assert_eq!(json_text(&message), message);
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| {
        // Lengths of more than one byte, so that the message can be deep.
        let long = |number: u8, payload: &[u8]| {
            let length = payload.len();
            let low = u8::try_from(length & 0x7f).expect("masked") | 0x80;
            let high = u8::try_from(length >> 7).expect("short");
            [&[number << 3 | 2, low, high], payload].concat()
        };
        (1..levels).fold(Vec::new(), |inner, _| {
            long(1, &[field(1, b"a"), long(2, &long(5, &inner))].concat())
        })
    };
    let depth = usize::try_from(MAX_DEPTH).expect("small");
    assert!(matches!(json_text(&nested(depth)), Cow::Owned(_)));
    assert!(matches!(json_text(&nested(depth + 1)), Cow::Borrowed(_)));
}

#[test]
fn damaged_bytes_never_panic_and_come_back_or_are_json() {
    for cut in 0..FROM_ENVOY.len() {
        for flip in [0_u8, 0x01, 0x80, 0xff] {
            let mut bytes = FROM_ENVOY[..cut].to_vec();
            if let Some(last) = bytes.last_mut() {
                *last ^= flip;
            }
            match json_text(&bytes) {
                Cow::Borrowed(same) => assert_eq!(same, bytes),
                Cow::Owned(text) => assert!(serde_json::from_slice::<Value>(&text).is_ok()),
            }
        }
    }
}
