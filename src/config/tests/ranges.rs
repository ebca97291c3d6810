//! Both ends of every range, and the restrictions on text.

use serde_json::{Value, json};

use super::{full, parse, with};

#[track_caller]
fn check(path: &str, accepted: &[Value], refused: &[Value]) {
    for value in accepted {
        let result = parse(&with(full(), path, value.clone()));
        assert!(result.is_ok(), "{path} = {value}: {}", result.unwrap_err());
    }
    for value in refused {
        let Err(error) = parse(&with(full(), path, value.clone())) else {
            panic!("{path} = {value} is accepted");
        };
        assert!(error.path().starts_with(path), "{path} = {value}: {error}");
    }
}

#[test]
fn counts() {
    let at_least_one: (&[Value], &[Value]) = (
        &[json!(1), json!(1.0), json!(4_294_967_295_u32)],
        &[
            json!(0),
            json!(-1),
            json!(1.5),
            json!(4_294_967_296_u64),
            json!("1"),
            json!(1e300),
        ],
    );
    for path in [
        "pools[0].endpoints[1].maxRunning",
        "pools[0].scoring.maxQueue",
        "pools[0].scoring.maxRunning",
        "pools[0].scoring.guardFloor",
        "pools[0].prefix.capacityBlocks",
    ] {
        check(path, at_least_one.0, at_least_one.1);
    }
    check(
        "pools[0].prefix.capacityBlocks",
        &[json!("auto"), json!("AUTO")],
        &[json!("all")],
    );
    check(
        "pools[0].prefix.blockTokens",
        &[json!(16), json!(4_096)],
        &[json!(15), json!(4_097)],
    );
    check(
        "pools[0].prefix.maxTokens",
        &[json!(128), json!(16_777_216)],
        &[json!(127), json!(16_777_217)],
    );
    check(
        "pools[0].health.staleAfter",
        &[json!(1), json!(9)],
        &[json!(0), json!(10)],
    );
    check(
        "overrideHost.fallbacks",
        &[json!(0), json!(8)],
        &[json!(9), json!(-1)],
    );
    check(
        "limits.labelValues",
        &[json!(1), json!(10_000)],
        &[json!(0), json!(10_001)],
    );
    for port in ["port", "gpuPort"] {
        check(
            &format!("pools[0].metrics.{port}"),
            &[json!(1), json!(65_535)],
            &[json!(0), json!(65_536)],
        );
    }
}

#[test]
fn numbers() {
    let share: (&[Value], &[Value]) = (
        &[json!(0), json!(1), json!(0.5)],
        &[json!(-0.001), json!(1.001), json!("0.5")],
    );
    check("pools[0].scoring.minHealth", share.0, share.1);
    check("pools[0].health.staleFloor", share.0, share.1);
    check(
        "pools[0].scoring.tieBand",
        &[json!(0), json!(0.1)],
        &[json!(-0.001), json!(0.101)],
    );
    check(
        "pools[0].scoring.guardRatio",
        &[json!(1), json!(1_000)],
        &[json!(0.999), json!(1_001)],
    );
    for factor in ["cache", "load", "queue", "health", "adapter"] {
        check(
            &format!("pools[0].scoring.weights.{factor}"),
            &[json!(0), json!(1_000_000)],
            &[json!(-0.001), json!(1_000_001), json!(1e308), json!("NaN")],
        );
    }
}

#[test]
fn durations() {
    check(
        "pools[0].metrics.interval",
        &[json!("50ms"), json!("10m"), json!(0.05), json!(600)],
        &[
            json!("49ms"),
            json!("601s"),
            json!(0),
            json!(-1),
            json!("1h"),
            json!("1"),
            json!(true),
        ],
    );
    check(
        "pools[0].metrics.timeout",
        &[json!("1ms"), json!("60s"), json!("1m")],
        &[json!("0s"), json!("0.9ms"), json!("61s"), json!(1e300)],
    );
}

#[test]
fn sizes() {
    check(
        "maxBufferedBytes",
        &[
            json!("1Ki"),
            json!("128Mi"),
            json!(983_040),
            json!(3.355_443_2e7),
        ],
        &[
            json!(1_023),
            json!("129Mi"),
            json!(134_217_729),
            json!(-1),
            json!(2_000.5),
        ],
    );
    check(
        "limits.indexBytes",
        &[json!("1Mi"), json!("512Mi"), json!("100M")],
        &[
            json!("1023Ki"),
            json!("513Mi"),
            json!("1Gi"),
            json!("18446744073709551615Gi"),
        ],
    );
}

#[test]
fn lists() {
    let endpoints = |count: u32| -> Value {
        (0..count)
            .map(|at| format!("10.0.{}.{}:80", at / 256, at % 256))
            .collect()
    };
    check(
        "pools[0].endpoints",
        &[endpoints(1), endpoints(4_096)],
        &[endpoints(4_097)],
    );
    let pools = |count: u32| -> Value {
        let name = |at: u32| json!(format!("pool-{at}"));
        (0..count)
            .map(|at| with(full(), "pools[0].name", name(at))["pools"][0].clone())
            .collect()
    };
    check("pools", &[pools(1), pools(256)], &[pools(0), pools(257)]);
    for path in ["pools[0].match.models", "pools[0].match.hosts"] {
        check(
            path,
            &[json!([]), json!(vec!["x"; 256])],
            &[json!(vec!["x"; 257]), json!("x")],
        );
    }
}

#[test]
fn models() {
    let targets = |count: usize| json!(vec![json!({"model": "m"}); count]);
    let models = |count: usize| -> Value {
        let model = |at| json!({"name": format!("m{at}"), "targets": targets(1)});
        (0..count).map(model).collect()
    };
    check(
        "pools[0].models",
        &[models(0), models(1), models(256)],
        &[models(257), json!({})],
    );
    check(
        "pools[0].models[0].targets",
        &[targets(1), targets(64)],
        &[targets(0), targets(65), json!(["m"])],
    );
    check(
        "pools[0].models[0].targets[0].weight",
        &[json!(1), json!(1_000_000)],
        &[json!(0), json!(1_000_001), json!(0.5)],
    );
    let long = |length: usize| json!("x".repeat(length));
    for path in [
        "pools[0].models[0].name",
        "pools[0].models[0].targets[0].model",
    ] {
        check(
            path,
            &[long(1), long(256), json!("org/größe \"x\"")],
            &[long(0), long(257), json!("a\nb"), json!(1)],
        );
    }
    let twice = json!([
        {"name": "a", "targets": targets(1)},
        {"name": "a", "targets": targets(1)}
    ]);
    check("pools[0].models", &[], &[twice]);
}

#[test]
fn names() {
    let long = |length: usize| json!("x".repeat(length));
    check(
        "pools[0].name",
        &[long(1), long(128), json!("ns/llama 3 é")],
        &[
            long(0),
            long(129),
            json!("a|b"),
            json!("a\nb"),
            json!("a\u{85}b"),
            json!(7),
        ],
    );
    for path in ["pools[0].cluster", "pools[0].metrics.cluster"] {
        check(
            path,
            &[
                long(1),
                long(512),
                json!("outbound|8000||vllm.default.svc.cluster.local"),
            ],
            &[long(0), long(513), json!("a\0b")],
        );
    }
}

#[test]
fn paths() {
    let long = |length: usize| json!(format!("/{}", "x".repeat(length - 1)));
    check(
        "pools[0].metrics.path",
        &[json!("/"), json!("/metrics?format=text"), long(512)],
        &[
            json!(""),
            json!("metrics"),
            json!("/a b"),
            json!("/é"),
            json!("/#a"),
            long(513),
        ],
    );
    check(
        "pools[0].match.pathPrefix",
        &[json!("/"), json!("/v1"), json!("/v1/"), long(512)],
        &[
            json!(""),
            json!("v1"),
            json!("/v1?x"),
            json!("/v1#x"),
            json!("/v 1"),
            long(513),
        ],
    );
}

#[test]
fn patterns() {
    let long = |length: usize| json!("x".repeat(length));
    check(
        "pools[0].match.models[0]",
        &[json!("*"), json!("meta llama/é*"), long(256)],
        &[json!(""), json!("a\nb"), long(257), json!(null), json!(1)],
    );
    check(
        "pools[0].match.hosts[0]",
        &[
            json!("*"),
            json!("a.b"),
            json!("[fd00::1]"),
            json!("[fd00::*]"),
            long(256),
        ],
        &[
            json!(""),
            json!("a.b:80"),
            json!("a:*"),
            json!("[::1]:80"),
            json!("fd00::1"),
            json!("é"),
            json!("a b"),
            long(257),
        ],
    );
}

#[test]
fn the_override_header_is_a_token_that_nothing_else_needs() {
    check(
        "overrideHost.header",
        &[json!("x"), json!("X-Pick_1"), json!("x".repeat(128))],
        &[
            json!(""),
            json!(":authority"),
            json!("a b"),
            json!("a:b"),
            json!("é"),
            json!("Host"),
            json!("content-length"),
            json!("Content-Length"),
            json!("x-request-id"),
            json!("transfer-encoding"),
            json!("x".repeat(129)),
        ],
    );
}

#[test]
fn choices_match_in_any_case_but_not_otherwise() {
    check(
        "failureMode",
        &[json!("FAILOPEN"), json!("failClose")],
        &[json!("fail-open"), json!("")],
    );
    check(
        "logLevel",
        &[json!("Info"), json!("debug")],
        &[json!("warn"), json!(1)],
    );
    check(
        "pools[0].scoring.preset",
        &[
            json!("default"),
            json!("Low-Latency"),
            json!("MANY-ADAPTER"),
            json!("balanced"),
        ],
        &[
            json!("low_latency"),
            json!("lowlatency"),
            json!(["default"]),
        ],
    );
    check(
        "pools[0].metrics.engine",
        &[
            json!("AUTO"),
            json!("vllm"),
            json!("SGLang"),
            json!("trtllm"),
            json!("Triton"),
        ],
        &[json!("tgi")],
    );
    check(
        "overrideHost.mode",
        &[json!("HEADER"), json!("statefulsession")],
        &[json!("cookie")],
    );
}
