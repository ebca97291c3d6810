//! Values and labels out of Prometheus text, as Envoy and model servers write it.
//!
//! The one permissive parser among the crates splits labels at every comma, ends them at the first
//! `}` and drops series with empty braces; all three occur here.

/// The sum over the series of `text` that are called `name` and carry all of `labels`; `None` when
/// there is none.
pub(crate) fn sum(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    text.lines()
        .filter_map(parse)
        .filter(|sample| sample.name == name && sample.carries(labels))
        .map(|sample| sample.value)
        .reduce(|total, value| total + value)
}

/// The labels and values of the series of `text` that are called `name`, in their order.
pub(crate) fn series(text: &str, name: &str) -> Vec<Series> {
    let samples = text.lines().filter_map(parse);
    samples
        .filter(|sample| sample.name == name)
        .map(|sample| Series {
            labels: sample
                .labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            value: sample.value,
        })
        .collect()
}

/// One series: its labels and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values, in the page's order.
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Series {
    /// The value of the label `name`.
    pub fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.labels.iter();
        labels
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl Sample<'_> {
    fn carries(&self, wanted: &[(&str, &str)]) -> bool {
        wanted.iter().all(|(key, value)| {
            self.labels
                .iter()
                .any(|label| label.0 == *key && label.1 == *value)
        })
    }
}

/// The sample on `line`; `None` for comments, empty lines and what is not a sample.
fn parse(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    if name.is_empty() || name.starts_with('#') {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => parse_labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

/// The labels up to the closing brace, and what follows it.
fn parse_labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (key, quoted) = rest.split_once("=\"")?;
        let (value, after) = unquote(quoted)?;
        labels.push((key, value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// The text up to the closing quote with its escapes resolved, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE epp_routing_decisions_total counter
epp_routing_decisions_total{pool="llama",model="a,b}\"c\\",pod="[fd00::1]:8000"} 3
epp_routing_decisions_total{pool="llama",model="plain",pod="10.0.0.1:80"} 4 1700000000
epp_replica_gap_total{} 0
bare 1.5e3
"#;

    #[test]
    fn series_that_carry_the_labels_are_summed() {
        let name = "epp_routing_decisions_total";
        assert_eq!(sum(TEXT, name, &[("pool", "llama")]), Some(7.0));
        assert_eq!(
            sum(TEXT, name, &[("pool", "llama"), ("model", "plain")]),
            Some(4.0)
        );
        assert_eq!(sum(TEXT, name, &[("pool", "other")]), None);
    }

    #[test]
    fn label_values_may_hold_commas_braces_and_escapes() {
        let labels = [("model", "a,b}\"c\\")];
        assert_eq!(sum(TEXT, "epp_routing_decisions_total", &labels), Some(3.0));
    }

    #[test]
    fn series_need_no_labels() {
        assert_eq!(sum(TEXT, "epp_replica_gap_total", &[]), Some(0.0));
        assert_eq!(sum(TEXT, "bare", &[]), Some(1500.0));
    }

    #[test]
    fn series_keep_their_labels() {
        let all = series(TEXT, "epp_routing_decisions_total");
        let models: Vec<_> = all.iter().map(|one| one.label("model")).collect();
        assert_eq!(models, [Some("a,b}\"c\\"), Some("plain")]);
        assert_eq!(all[0].label("reason"), None);
        assert_eq!((all[0].value, all[1].value), (3.0, 4.0));
    }

    #[test]
    fn a_name_is_not_a_prefix() {
        assert_eq!(sum(TEXT, "epp_routing", &[]), None);
    }

    #[test]
    fn damaged_lines_are_no_samples() {
        for line in [
            "",
            "# HELP x y",
            "x{a=\"b\" 1",
            "x{a=\"b} 1",
            "x{a=\"b\"}",
            "x nonsense",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
