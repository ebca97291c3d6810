use std::collections::BTreeSet;

use super::*;
use crate::datalayer::vllm::captures::CAPTURES;

type Plain = (String, Vec<(String, String)>, f64);

fn plain(sample: &Sample<'_>) -> Plain {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let labels = sample
        .labels
        .iter()
        .map(|(name, value)| (text(name.to_vec()), text(value.unescaped().collect())))
        .collect();
    (text(sample.name.to_vec()), labels, sample.value)
}

fn only(line: &str) -> Plain {
    let found: Vec<_> = samples(line.as_bytes())
        .map(|sample| plain(&sample))
        .collect();
    assert_eq!(found.len(), 1, "{line}: {found:?}");
    found.into_iter().next().unwrap()
}

fn expected(name: &str, labels: &[(&str, &str)], value: f64) -> Plain {
    let labels = labels
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    (name.into(), labels, value)
}

#[test]
fn every_sample_of_a_captured_page_is_read() {
    for capture in CAPTURES {
        assert_eq!(
            samples(capture.page).count(),
            capture.samples,
            "{}",
            capture.name
        );
    }
}

#[test]
fn the_samples_of_some_names_are_those_of_all_that_have_them() {
    let odd = b" \t up 1\nup\r\nup 2\nupper 3\n\n\rup{a=\"1\"} 4\nu 5\n#up 6\nup 7";
    let pages = CAPTURES.iter().map(|capture| capture.page);
    for page in pages.chain([&odd[..], b"", b"\n", b"u 1", b"up{} 1\n\n"]) {
        let everything: BTreeSet<&[u8]> = samples(page).map(|sample| sample.name).collect();
        let some = everything.iter().copied().skip(3).step_by(5).collect();
        let long = everything.iter().filter(|name| name.len() >= 20);
        for wanted in [
            everything.clone(),
            some,
            long.copied().collect(),
            BTreeSet::from([&b"u"[..]]),
            BTreeSet::from([&b"up"[..], b"process_start_time_seconds"]),
            BTreeSet::new(),
        ] {
            let names = wanted.iter().copied().collect();
            let found: Vec<_> = samples_of(page, &names).map(|one| plain(&one)).collect();
            let expected = samples(page).filter(|one| wanted.contains(one.name));
            let expected: Vec<_> = expected.map(|one| plain(&one)).collect();
            assert_eq!(found.len(), expected.len(), "{wanted:?}");
            // A NaN differs from itself.
            assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }
    }
}

#[test]
fn a_sample_has_a_name_labels_and_a_value() {
    assert_eq!(only("up 1"), expected("up", &[], 1.0));
    assert_eq!(only("up{} 1"), expected("up", &[], 1.0));
    assert_eq!(only(":a:b_9 2.5e-3"), expected(":a:b_9", &[], 0.0025));
    assert_eq!(
        only(r#"m{a="1",_b2="two"} 3"#),
        expected("m", &[("a", "1"), ("_b2", "two")], 3.0)
    );
}

#[test]
fn blanks_and_a_trailing_comma_are_allowed() {
    let same = expected("m", &[("a", "1"), ("b", " x ")], 3.0);
    for line in [
        r#"m{a="1",b=" x "}3"#,
        r#"m{a="1",b=" x ",} 3"#,
        "\t m\t{ a = \"1\" , b\t=\t\" x \" , }\t 3 \t",
        "m{a=\"1\",b=\" x \"} 3\r",
    ] {
        assert_eq!(only(line), same, "{line:?}");
    }
}

#[test]
fn timestamps_and_exemplars_are_left_aside() {
    for line in [
        "m 3 1395066363000",
        "m 3 -5",
        "m 3 1.5e9",
        r#"m 3 # {trace_id="a} 9"} 0.5 1.6"#,
        r#"m 3 1.5 # {trace_id="x"} 0.5"#,
        "m 3 #",
    ] {
        assert_eq!(only(line), expected("m", &[], 3.0), "{line}");
    }
}

#[test]
fn label_values_may_hold_what_delimits_labels() {
    assert_eq!(
        only(r#"m{a="},{=\" # ",b="\\",c="x\ny",d="\q\\\""} 1"#),
        expected(
            "m",
            &[
                ("a", "},{=\" # "),
                ("b", "\\"),
                ("c", "x\ny"),
                ("d", "\\q\\\"")
            ],
            1.0
        )
    );
}

#[test]
fn infinities_and_nan_are_values() {
    assert_eq!(only("m +Inf").2.to_bits(), f64::INFINITY.to_bits());
    assert_eq!(only("m Inf").2.to_bits(), f64::INFINITY.to_bits());
    assert_eq!(only("m -Inf").2.to_bits(), f64::NEG_INFINITY.to_bits());
    assert!(only("m NaN").2.is_nan());
    assert_eq!(only("m 1e999").2.to_bits(), f64::INFINITY.to_bits());
}

#[test]
fn malformed_lines_are_skipped() {
    for line in [
        "",
        "   ",
        "# HELP m text",
        "#m 1",
        "  # TYPE m gauge",
        "m",
        "m ",
        "m one",
        "m 1_000",
        "m 0x10",
        "m+1",
        "m 1 2 3",
        "m 1 soon",
        "m 1 soon # {}",
        "9m 1",
        "é 1",
        "{a=\"1\"} 1",
        r#"{"quoted.name",a="1"} 1"#,
        "m{a=\"1\"}",
        "m{a=\"1\"} ",
        "m{a=\"1\" 1",
        "m{a=\"1 1",
        "m{a=\"1\\\"} 1",
        "m{a=1} 1",
        "m{a} 1",
        "m{a=} 1",
        "m{=\"1\"} 1",
        "m{,} 1",
        "m{a=\"1\",,} 1",
        "m{a=\"1\"b=\"2\"} 1",
        "m{a:b=\"1\"} 1",
        "m{9a=\"1\"} 1",
        "m}{ 1",
        "m{{a=\"1\"}} 1",
        "m\0 1",
    ] {
        assert_eq!(samples(line.as_bytes()).count(), 0, "{line:?}");
    }
}

#[test]
fn a_malformed_line_leaves_its_neighbours_alone() {
    let page = b"a 1\nb{x=\"un\nterminated\"} 2\n\xff\xfe 3\r\nc 4\r\n\n# EOF\nd 5";
    let names: Vec<_> = samples(page).map(|sample| sample.name).collect();
    assert_eq!(names, [b"a", b"c", b"d"]);
}

#[test]
fn label_values_need_not_be_utf8() {
    let sample = samples(b"m{a=\"\xff\xfe\"} 1").next().unwrap();
    let value = sample.labels.value(b"a").unwrap();
    assert_eq!(value.raw(), b"\xff\xfe");
    assert!(value.is(b"\xff\xfe"));
    assert_eq!(value.number(), None);
}

#[test]
fn labels_are_found_by_name() {
    let sample = samples(br#"m{ab="1",a="2\"",a="3",n="42"} 1"#)
        .next()
        .unwrap();
    let value = sample.labels.value(b"a").unwrap();
    assert_eq!(value.raw(), b"2\\\"");
    assert!(value.is(b"2\"") && !value.is(b"2") && !value.is(b"2\\\""));
    assert!(sample.labels.value(b"b").is_none());
    assert_eq!(sample.labels.value(b"n").unwrap().number(), Some(42));
}

#[test]
fn long_hostile_lines_are_skipped() {
    for unit in ["m{a=\"", "{", "\\\"", "a=\"1\",", "9", " ", "#"] {
        let line = format!("m{{{}", unit.repeat(200_000));
        assert_eq!(samples(line.as_bytes()).count(), 0, "{unit}");
    }
    let digits = format!("m {}", "9".repeat(1_000_000));
    assert_eq!(only(&digits).2.to_bits(), f64::INFINITY.to_bits());
}
