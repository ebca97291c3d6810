//! A module that does what a request's path says and logs what its host answers, in lines that
//! begin with `probe: `. It uses no SDK, so that it sees every status, and is built by `rustc`
//! alone.

use std::cell::Cell;
use std::ptr::null_mut;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, text: *const u8, len: usize) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        key: *const u8,
        key_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        len: usize,
    ) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_get_property(
        path: *const u8,
        path_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        key_len: usize,
        value: *const u8,
        len: usize,
        cas: u32,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, len: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, by: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_len: usize,
        body: *const u8,
        body_len: usize,
        headers: *const u8,
        headers_len: usize,
        grpc: i32,
    ) -> u32;
    fn proxy_http_call(
        cluster: *const u8,
        cluster_len: usize,
        headers: *const u8,
        headers_len: usize,
        body: *const u8,
        body_len: usize,
        trailers: *const u8,
        trailers_len: usize,
        timeout: u32,
        token: *mut u32,
    ) -> u32;
}

const REQUEST: u32 = 0;
const RESPONSE: u32 = 2;
const CALL: u32 = 6;
const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;

thread_local! {
    /// The stream that waits for a call.
    static WAITING: Cell<u32> = const { Cell::new(0) };
}

fn say(text: String) {
    let line = format!("probe: {text}");
    unsafe { proxy_log(2, line.as_ptr(), line.len()) };
}

fn bytes(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> (u32, String) {
    let (mut data, mut len) = (null_mut(), 0);
    let status = call(&mut data, &mut len);
    if status != 0 || data.is_null() {
        return (status, String::new());
    }
    let bytes = unsafe { Vec::from_raw_parts(data, len, len) };
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

fn header(map: u32, name: &str) -> (u32, String) {
    bytes(|data, len| unsafe {
        proxy_get_header_map_value(map, name.as_ptr(), name.len(), data, len)
    })
}

fn buffer(buffer: u32) -> (u32, usize) {
    let (status, text) =
        bytes(|data, len| unsafe { proxy_get_buffer_bytes(buffer, 0, 1 << 30, data, len) });
    (status, text.len())
}

fn property(path: &str) -> (u32, String) {
    bytes(|data, len| unsafe { proxy_get_property(path.as_ptr(), path.len(), data, len) })
}

fn set_header(map: u32, name: &str, value: &str) -> u32 {
    unsafe {
        proxy_replace_header_map_value(map, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    }
}

fn shared(key: &str) -> (u32, String, u32) {
    let mut cas = 0;
    let (status, value) = bytes(|data, len| unsafe {
        proxy_get_shared_data(key.as_ptr(), key.len(), data, len, &mut cas)
    });
    (status, value, cas)
}

fn share(key: &str, value: &str, cas: u32) -> u32 {
    unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) }
}

fn define(kind: u32, name: &str) -> (u32, u32) {
    let mut id = 0;
    let status = unsafe { proxy_define_metric(kind, name.as_ptr(), name.len(), &mut id) };
    (status, id)
}

fn pairs(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut out = (headers.len() as u32).to_le_bytes().to_vec();
    for (name, value) in headers {
        out.extend((name.len() as u32).to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
    }
    for (name, value) in headers {
        for text in [name, value] {
            out.extend(text.as_bytes());
            out.push(0);
        }
    }
    out
}

fn call(cluster: &str, headers: &[(&str, &str)], timeout: u32) -> u32 {
    let (headers, trailers, mut token) = (pairs(headers), pairs(&[]), 0);
    unsafe {
        proxy_http_call(
            cluster.as_ptr(),
            cluster.len(),
            headers.as_ptr(),
            headers.len(),
            null_mut(),
            0,
            trailers.as_ptr(),
            trailers.len(),
            timeout,
            &mut token,
        )
    }
}

fn reply(body: &str) -> u32 {
    let (details, headers) = ("of_the_probe", pairs(&[("x-probe", "replied")]));
    unsafe {
        proxy_send_local_response(
            418,
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    }
}

/// What a stream can see of its request now.
fn sight() -> String {
    let (status, path) = header(REQUEST, ":path");
    format!("path={status}:{path}")
}

fn shared_data() {
    say(format!("get missing={}", shared("key").0));
    say(format!(
        "set missing with a token={}",
        share("key", "first", 77)
    ));
    let (status, value, cas) = shared("key");
    say(format!("get={status}:{value}"));
    say(format!("set without a token={}", share("key", "second", 0)));
    say(format!(
        "set with an old token={}",
        share("key", "third", cas)
    ));
    let (_, value, cas) = shared("key");
    say(format!("get={value}"));
    say(format!("set with the token={}", share("key", "", cas)));
    let (status, value, newer) = shared("key");
    say(format!(
        "get emptied={status}:{value} token is another={}",
        newer != cas
    ));
}

fn metrics() {
    let (defined, counter) = define(0, "probe_counter");
    let (again, other) = define(0, "probe_counter");
    let (_, gauge) = define(1, "probe_gauge");
    let (_, histogram) = define(2, "probe_histogram");
    say(format!(
        "define={defined} again={again} same id={}",
        counter == other
    ));
    say(format!("define of no kind={}", define(9, "probe_none").0));
    let increment = |id, by| unsafe { proxy_increment_metric(id, by) };
    let record = |id, value| unsafe { proxy_record_metric(id, value) };
    say(format!(
        "counter by 0={} by -1={} by 2={}",
        increment(counter, 0),
        increment(counter, -1),
        increment(counter, 2)
    ));
    say(format!(
        "counter by its other id={} recorded={}",
        increment(other, 3),
        record(counter, 10)
    ));
    say(format!(
        "gauge recorded={} by -2={} by 0={}",
        record(gauge, 7),
        increment(gauge, -2),
        increment(gauge, 0)
    ));
    say(format!(
        "histogram by 1={} recorded={}",
        increment(histogram, 1),
        record(histogram, 5)
    ));
    say(format!(
        "unknown counter by 1={} recorded={}",
        increment(4_000, 1),
        record(4_000, 1)
    ));
}

fn odd_calls() {
    say(format!("absent header={}", header(REQUEST, "x-absent").0));
    say(format!("repeated header={:?}", header(REQUEST, "x-twice")));
    say(format!("response header={}", header(RESPONSE, ":status").0));
    say(format!("call's header={}", header(CALL, ":status").0));
    say(format!(
        "request body={:?} call's body={:?}",
        buffer(0),
        buffer(4)
    ));
    say(format!("configuration={:?}", buffer(7)));
    say(format!("unknown property={}", property("no\0such").0));
    say(format!(
        "early property={}",
        property("response\0code_details").0
    ));
    say(format!("unknown context={}", unsafe {
        proxy_set_effective_context(9_999)
    }));
    let complete = [
        (":method", "GET"),
        (":path", "/metrics"),
        (":authority", "a"),
    ];
    say(format!(
        "unknown cluster={}",
        call("nobody", &complete, 1_000)
    ));
    say(format!(
        "no authority={}",
        call("model-servers", &complete[..2], 1_000)
    ));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    Box::leak(vec![0_u8; size].into_boxed_slice()).as_mut_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(_: u32, _: u32) {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(_: u32, _: u32) -> u32 {
    let (_, configuration) =
        bytes(|data, len| unsafe { proxy_get_buffer_bytes(7, 0, 1 << 30, data, len) });
    if configuration.contains("ticks") {
        unsafe { proxy_set_tick_period_milliseconds(50) };
        say("configured".to_owned());
    }
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(_: u32) {
    say("tick".to_owned());
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(id: u32, _: u32, end: u32) -> u32 {
    let (_, path) = header(REQUEST, ":path");
    say(format!("request_headers {path} end={end}"));
    match path.as_str() {
        "/shared-data" => shared_data(),
        "/metrics-calls" => metrics(),
        "/odd-calls" => odd_calls(),
        "/reply" => say(format!("reply={}", reply("short and stout"))),
        "/trap" => panic!("as the path says"),
        _ => {}
    }
    if path.contains("call-") {
        WAITING.set(id);
        let headers = [
            (":method", "GET"),
            (":path", "/metrics"),
            (":authority", "a"),
        ];
        let timeout = if path.ends_with("timeout") {
            200
        } else {
            30_000
        };
        let sent = call("model-servers", &headers, timeout);
        say(format!("call={sent}"));
        if sent != 0 {
            say(format!("reply={}", reply("")));
        }
    }
    if path.starts_with("/hold") {
        PAUSE
    } else {
        CONTINUE
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(_: u32, size: u32, end: u32) -> u32 {
    let (status, readable) = buffer(0);
    say(format!(
        "request_body size={size} end={end} buffer={status}:{readable} {}",
        sight()
    ));
    let (_, path) = header(REQUEST, ":path");
    if path == "/hold-reply" {
        say(format!("reply={}", reply("")));
    }
    if path.starts_with("/hold-call") || path.starts_with("/hold") && end == 0 {
        PAUSE
    } else {
        CONTINUE
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(_: u32, _: u32) -> u32 {
    let (status, readable) = buffer(0);
    say(format!(
        "request_trailers buffer={status}:{readable} {}",
        sight()
    ));
    say(format!(
        "set={}",
        set_header(REQUEST, "x-probe", "from the trailers")
    ));
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(_: u32, _: u32, _: u32) -> u32 {
    let (_, status) = header(RESPONSE, ":status");
    let details = property("response\0code_details");
    let upstream = property("upstream\0address").0;
    say(format!(
        "response_headers {status} details={details:?} upstream={upstream} {}",
        sight()
    ));
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_body(_: u32, _: u32, end: u32) -> u32 {
    if end == 1 {
        say(format!(
            "response_body end status={} {}",
            header(RESPONSE, ":status").0,
            sight()
        ));
    }
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(context: u32, _: u32, headers: u32, body: u32, _: u32) {
    let stream = WAITING.get();
    let (_, status) = header(CALL, ":status");
    let (readable, size) = buffer(4);
    say(format!(
        "http_call_response to the stream={} headers={} status={status} body={readable}:{}",
        context == stream,
        headers > 0,
        size == body as usize
    ));
    if status == "503" {
        let by_server = header(CALL, "x-envoy-upstream-service-time").0 == 0;
        let overloaded = header(CALL, "x-envoy-overloaded").0 == 0;
        let (_, body) =
            bytes(|data, len| unsafe { proxy_get_buffer_bytes(4, 0, 1 << 10, data, len) });
        say(format!("503 by server={by_server} overloaded={overloaded} says={body}"));
    }
    say(format!("request as root={}", header(REQUEST, ":path").0));
    let acting = unsafe { proxy_set_effective_context(stream) };
    say(format!("act as the stream={acting} {}", sight()));
    if acting == 0 && status == "200" {
        say(format!(
            "set={}",
            set_header(REQUEST, "x-probe", "from the call")
        ));
        let resumed = unsafe { proxy_continue_stream(0) };
        say(format!("resume={resumed} {}", sight()));
    } else if acting == 0 {
        say(format!("reply={}", reply("")));
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_log(_: u32) {
    let details = property("response\0code_details");
    say(format!(
        "log details={details:?} status={:?} {}",
        header(RESPONSE, ":status"),
        sight()
    ));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(_: u32) -> u32 {
    say(format!("done {}", sight()));
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(_: u32) {
    say("delete".to_owned());
}
