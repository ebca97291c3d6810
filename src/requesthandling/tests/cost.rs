use core::cell::Cell;
use std::rc::Rc;

use super::*;

/// A body that counts the bytes that were read of it.
struct Counted<'a>(&'a [u8], Rc<Cell<usize>>);

impl Body for Counted<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read(&mut self, start: usize, max: usize) -> Vec<u8> {
        let bytes = (&mut &*self.0 as &mut dyn Body).read(start, max);
        self.1.set(self.1.get() + bytes.len());
        bytes
    }
}

const MARK: &str = r#"{"type":"text","text":"x-anthropic-billing-header"},"#;

/// API, what a body begins with, what it repeats, and what it ends with.
const REPEATED: [(Api, &str, &str, &str); 15] = [
    (Api::Completions, r#"{"prompt":""#, "text ", r#""}"#),
    (Api::Completions, r#"{"prompt":["#, "[1],", "[1]]}"),
    (
        Api::Completions,
        "{",
        r#""prompt":"a","#,
        r#""prompt":"b"}"#,
    ),
    (
        Api::Completions,
        r#"{"prompt":["#,
        r#"{"a":[1, 2]},"#,
        "[1]]}",
    ),
    (
        Api::ChatCompletions,
        r#"{"messages":["#,
        "{},",
        r#"{"role":"a"}]}"#,
    ),
    (
        Api::ChatCompletions,
        r#"{"messages":["#,
        r#"{"content":"a","role":"b"},"#,
        "{}]}",
    ),
    (
        Api::ChatCompletions,
        r#"{"messages":[{"content":"#,
        "[",
        "1",
    ),
    (
        Api::ChatCompletions,
        r#"{"messages":[{"content":["#,
        r#"{"text":"a","type":"text"},"#,
        r#""a"]}]}"#,
    ),
    (
        Api::ChatCompletions,
        r#"{"messages":[{"content":["#,
        "{},",
        r#"{}],"role":"b"}]}"#,
    ),
    (
        Api::ChatCompletions,
        r#"{"messages":[{"#,
        r#""role":"a","#,
        r#""content":"a"}]}"#,
    ),
    (
        Api::ChatCompletions,
        r#"{"messages":[{"role":"a"}],"tools":["#,
        r#"{"a":[1, 2]},"#,
        "1]}",
    ),
    (
        Api::Messages,
        r#"{"system":["#,
        MARK,
        r#"{}],"messages":[{"role":"a"}]}"#,
    ),
    (
        Api::Messages,
        r#"{"messages":[{"content":["#,
        r#"{"content":"a","type":"tool_result"},"#,
        "{}]}]}",
    ),
    (
        Api::Responses,
        r#"{"input":["#,
        r#"{"type":"reasoning"},"#,
        "{}]}",
    ),
    (
        Api::Responses,
        r#"{"input":["#,
        r#"{"content":"a","role":"b"},"#,
        "{}]}",
    ),
];

#[test]
fn every_byte_is_read_a_bounded_number_of_times() {
    const WINDOW: usize = 1_024;
    for (api, head, item, tail) in REPEATED {
        let body = format!("{head}{}{tail}", item.repeat(200_000 / item.len()));
        for cut_off in [false, true] {
            let count = Rc::default();
            let mut source = Counted(body.as_bytes(), Rc::clone(&count));
            let reader = Reader::with_window(&mut source, cut_off, WINDOW);
            let _ = read_with(Request::with_reader(api, reader));
            let times = count.get() / body.len();
            assert!(times <= 8, "{times} times: {head}{item}");
        }
    }
}

#[test]
fn a_body_that_fits_a_window_is_copied_once() {
    for (api, head, item, tail) in REPEATED {
        let body = format!("{head}{}{tail}", item.repeat(20));
        for cut_off in [false, true] {
            let count = Rc::default();
            let mut source = Counted(body.as_bytes(), Rc::clone(&count));
            let reader = Reader::new(&mut source, cut_off);
            let _ = read_with(Request::with_reader(api, reader));
            assert_eq!(count.get(), body.len(), "{head}{item}");
        }
    }
}
