//! Which series of a metrics page is meant.

use core::fmt;

/// A metric's name and labels it must carry, written `name` or `name{label=value,other="v"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// The metric's name as it stands on the page.
    pub family: String,
    /// Labels and their values, all of which a series must have; it may have others.
    pub labels: Vec<(String, String)>,
}

impl MetricSpec {
    /// Series that the plugins of one pool may ask for. Each is a value in every endpoint's part of
    /// the snapshot.
    pub const MAX: usize = 8;
    /// What a specification is, for errors.
    pub const WHAT: &'static str =
        "a metric as name or name{label=value,other=\"value\"}, of at most 512 bytes";

    /// Reads a specification.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > MAX_BYTES {
            return None;
        }
        let (family, labels) = match text.strip_suffix('}') {
            None => (text, ""),
            Some(open) => open.split_once('{')?,
        };
        let family = family.trim();
        let labels = split_labels(labels)?;
        is_name(family, true).then(|| Self {
            family: family.to_owned(),
            labels,
        })
    }
}

const MAX_BYTES: usize = 512;

impl fmt::Display for MetricSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.family)?;
        for (at, (name, value)) in self.labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            write!(out, "{open}{name}={value:?}")?;
        }
        if self.labels.is_empty() {
            Ok(())
        } else {
            out.write_str("}")
        }
    }
}

/// `label=value` pairs between commas; a value in quotes may hold commas.
fn split_labels(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Some(labels);
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        if !is_name(name, false) {
            return None;
        }
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at_checked(after.find(',').unwrap_or(after.len()))?,
        };
        labels.push((name.to_owned(), value.trim_end().to_owned()));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(after) => after,
            None if after.is_empty() => after,
            None => return None,
        };
    }
}

fn is_name(text: &str, colons: bool) -> bool {
    let leads = |c: char| c.is_ascii_alphabetic() || c == '_' || (colons && c == ':');
    text.starts_with(leads) && text.chars().all(|c| leads(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_followed_by_labels() {
        let spec = |text| MetricSpec::parse(text).map(|spec| spec.to_string());
        for (text, read) in [
            ("vllm:num_requests_waiting", "vllm:num_requests_waiting"),
            ("a{}", "a"),
            (" a { b = c } ", "a{b=\"c\"}"),
            ("a{b=c,d=\"e,f\"}", "a{b=\"c\",d=\"e,f\"}"),
            ("a{b=\"\",}", "a{b=\"\"}"),
        ] {
            assert_eq!(spec(text).as_deref(), Some(read), "{text}");
        }
    }

    #[test]
    fn what_is_no_series_is_refused() {
        for text in [
            "",
            "1a",
            "a-b",
            "a{",
            "a{b}",
            "a{b=c",
            "a}",
            "a{1=b}",
            "a{b=\"c}",
            "a{b=\"c\"d}",
            "a{b:c=d}",
        ] {
            assert_eq!(MetricSpec::parse(text), None, "{text}");
        }
        assert_eq!(MetricSpec::parse(&"a".repeat(513)), None);
    }
}
