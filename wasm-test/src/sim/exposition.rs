//! Prometheus text as Python's `prometheus_client` writes it.

use std::fmt::Write;

use crate::sim::stats::Histogram;

/// A page under construction. Labels are given sorted, as on the pages of the real thing.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// Unix seconds that the `_created` companions report; `None`: there are none, as with several
    /// processes behind one page.
    created: Option<f64>,
}

/// Label names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    pub fn new(created: Option<f64>) -> Self {
        Self {
            text: String::new(),
            created,
        }
    }

    pub fn gauge(&mut self, name: &str, help: &str, samples: &[(Labels<'_>, f64)]) {
        self.family(name, help, "gauge", samples);
    }

    /// A counter and its `_created` companion.
    pub fn counter(&mut self, name: &str, help: &str, samples: &[(Labels<'_>, f64)]) {
        self.family(&format!("{name}_total"), help, "counter", samples);
        if let Some(created) = self.created {
            let created: Vec<_> = samples
                .iter()
                .map(|(labels, _)| (*labels, created))
                .collect();
            self.family(&format!("{name}_created"), help, "gauge", &created);
        }
    }

    /// A histogram and its `_created` companion. `le` follows the label `engine`.
    pub fn histogram(&mut self, name: &str, help: &str, series: &[(Labels<'_>, &Histogram)]) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for (labels, value) in series {
            let last = ("+Inf".to_owned(), value.total());
            let buckets = value.buckets().map(|(bound, count)| (number(bound), count));
            for (bound, count) in buckets.chain([last]) {
                let mut labels = labels.to_vec();
                labels.push(("le", &bound));
                labels.sort_unstable();
                self.sample(&bucket, &labels, count as f64);
            }
            self.sample(&format!("{name}_count"), labels, value.total() as f64);
            self.sample(&format!("{name}_sum"), labels, value.sum());
        }
        if let Some(created) = self.created {
            let created: Vec<_> = series
                .iter()
                .map(|(labels, _)| (*labels, created))
                .collect();
            self.family(&format!("{name}_created"), help, "gauge", &created);
        }
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn family(&mut self, name: &str, help: &str, kind: &str, samples: &[(Labels<'_>, f64)]) {
        self.head(name, help, kind);
        for (labels, value) in samples {
            self.sample(name, labels, *value);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{label}=\"{}\"", escape(value));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {}", number(value));
    }
}

/// `page` without the families whose name begins with one of `prefixes`.
pub fn without(page: &str, prefixes: &[String]) -> String {
    let stays = |line: &&str| {
        let words = ["# HELP ", "# TYPE "];
        let comment = words.iter().find_map(|word| line.strip_prefix(word));
        let name = comment.unwrap_or(line);
        !prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix.as_str()))
    };
    page.split_inclusive('\n').filter(stays).collect()
}

fn escape(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

/// A number the way Python writes it, with an exponent from 1,000,000 on.
fn number(value: f64) -> String {
    let plain = format!("{value:?}");
    match plain.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let digits = format!("{}.{}{}", &plain[..1], &plain[1..dot], &plain[dot + 1..]);
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}e+{:02}", dot - 1)
        }
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_like_pythons() {
        let expected = [
            (0.0, "0.0"),
            (1419.0, "1419.0"),
            (0.126_984_126_984_126_98, "0.12698412698412698"),
            (1_795_969_292.05, "1.79596929205e+09"),
            (4_922_802_176.0, "4.922802176e+09"),
            (2_000_000.0, "2e+06"),
            (999_999.5, "999999.5"),
        ];
        for (value, text) in expected {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn label_values_are_escaped() {
        let mut page = Page::new(None);
        page.gauge("m", "h", &[(&[("a", "x\"\\\n")], 1.0)]);
        assert!(page.into_text().ends_with("m{a=\"x\\\"\\\\\\n\"} 1.0\n"));
    }

    #[test]
    fn families_are_left_out_whole() {
        let mut page = Page::new(Some(0.0));
        page.gauge("a:x", "h", &[(&[], 1.0)]);
        page.counter("a:y", "h", &[(&[("l", "v")], 1.0)]);
        page.gauge("b", "a:x", &[(&[], 1.0)]);
        let text = page.into_text();
        let rest = "# HELP b a:x\n# TYPE b gauge\nb 1.0\n";
        assert_eq!(without(&text, &["a:".into()]), rest);
        assert_eq!(without(&text, &[]), text);
        let without_y = without(&text, &["a:y".into()]);
        assert!(without_y.contains("a:x 1.0") && !without_y.contains("a:y"));
    }
}
