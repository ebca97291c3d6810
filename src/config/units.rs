//! Durations and sizes, as people write them.

use core::time::Duration;

use super::json::Value;

const KI: u64 = 1 << 10;
const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;

/// A duration: a number of seconds, or a decimal number with one of the units `ms`, `s`, `m`.
pub(super) fn duration(value: &Value) -> Option<Duration> {
    if let Some(seconds) = value.number() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let (number, unit) = split_unit(value.text()?)?;
    let unit_seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * unit_seconds).ok()
}

/// A size in bytes: a whole number, alone or with a Kubernetes unit: `Ki`, `Mi`, `Gi` are powers
/// of 1024, `k`, `K`, `M`, `G` of 1000. Case matters, as it does in Kubernetes.
pub(super) fn size(value: &Value) -> Option<u64> {
    if let Some(bytes) = value.whole() {
        return Some(bytes);
    }
    let (number, unit) = split_unit(value.text()?)?;
    let unit_bytes = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => KI,
        "Mi" => MI,
        "Gi" => GI,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_bytes)
}

/// `duration` in the largest unit that leaves a whole number.
pub(super) fn write_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis >= 60_000 && millis.is_multiple_of(60_000) {
        format!("{}m", millis / 60_000)
    } else if millis.is_multiple_of(1_000) {
        format!("{}s", millis / 1_000)
    } else {
        format!("{millis}ms")
    }
}

/// `bytes` in the largest binary unit that leaves a whole number.
pub(super) fn write_size(bytes: u64) -> String {
    for (unit_bytes, unit) in [(GI, "Gi"), (MI, "Mi"), (KI, "Ki")] {
        if bytes >= unit_bytes && bytes.is_multiple_of(unit_bytes) {
            return format!("{}{unit}", bytes / unit_bytes);
        }
    }
    bytes.to_string()
}

/// The number at the start of `text`, and what follows it.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at_checked(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    fn number(text: &str) -> Value {
        Value::Number(text.to_owned())
    }

    #[test]
    fn durations_take_a_unit_or_are_seconds() {
        for (value, millis) in [
            (text("500ms"), 500),
            (text("1s"), 1_000),
            (text("2m"), 120_000),
            (text("1.5s"), 1_500),
            (number("3"), 3_000),
            (number("0.25"), 250),
        ] {
            assert_eq!(
                duration(&value),
                Some(Duration::from_millis(millis)),
                "{value}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for bad in [
            "", "s", "1", "1 s", "1h", "1S", "-1s", "1e3s", "1.2.3s", ".", "1s1s", "é1s",
        ] {
            assert_eq!(duration(&text(bad)), None, "{bad}");
        }
        for bad in ["-1", "1e300"] {
            assert_eq!(duration(&number(bad)), None, "{bad}");
        }
        let huge = format!("{}s", "9".repeat(400));
        assert_eq!(duration(&text(&huge)), None);
    }

    #[test]
    fn sizes_take_kubernetes_units_or_are_bytes() {
        for (value, bytes) in [
            (number("983040"), 983_040),
            (number("3.3554432e7"), 33_554_432),
            (text("983040"), 983_040),
            (text("2Ki"), 2_048),
            (text("64Mi"), 67_108_864),
            (text("1Gi"), 1_073_741_824),
            (text("2k"), 2_000),
            (text("2K"), 2_000),
            (text("3M"), 3_000_000),
            (text("4G"), 4_000_000_000),
        ] {
            assert_eq!(size(&value), Some(bytes), "{value}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for bad in [
            "", "Mi", "1.5Mi", "1 Mi", "64MiB", "64mi", "1m", "-1", "Mi64", "1Ti",
        ] {
            assert_eq!(size(&text(bad)), None, "{bad}");
        }
        assert_eq!(size(&text("18446744073709551615Gi")), None);
        assert_eq!(size(&number("1.5")), None);
        assert_eq!(size(&number("-1")), None);
    }

    #[test]
    fn limits_are_written_in_their_largest_unit() {
        let written = [50, 1_000, 1_500, 60_000, 600_000, 90_000]
            .map(|millis| write_duration(Duration::from_millis(millis)));
        assert_eq!(written, ["50ms", "1s", "1500ms", "1m", "10m", "90s"]);
        let written = [1_024, 1_048_576, 1_073_741_824, 983_040, 1_000].map(write_size);
        assert_eq!(written, ["1Ki", "1Mi", "1Gi", "960Ki", "1000"]);
    }
}
