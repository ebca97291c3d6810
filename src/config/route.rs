//! Which requests a pool takes.

use super::error::ConfigError;
use super::fields::Fields;
use super::kind::Kind;
use super::pattern::Pattern;
use super::text::{self, TextRule};

/// Which requests a pool takes: every given part must fit, an empty one fits everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolMatch {
    /// Model names.
    pub models: Vec<Pattern>,
    /// Host names in lower case, without port.
    pub hosts: Vec<Pattern>,
    /// Start of the path up to the end of a segment, without a slash at its end; `None` also for
    /// `/`, which every path starts with.
    pub path_prefix: Option<String>,
}

impl PoolMatch {
    /// Whether a request to this `host` (`:authority`, with or without port) and `path` (with or
    /// without query) may be the pool's. The bytes are the client's and may be anything.
    pub fn fits_route(&self, host: &[u8], path: &[u8]) -> bool {
        self.fits_host(host) && self.fits_path(path)
    }

    /// Whether a request for `model` may be the pool's.
    pub fn fits_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|pattern| pattern.matches(model))
    }

    pub(super) fn fits_everything(&self) -> bool {
        *self == Self::default()
    }

    fn fits_host(&self, host: &[u8]) -> bool {
        if self.hosts.is_empty() {
            return true;
        }
        // Patterns are ASCII; a host that is not even UTF-8 is nobody's.
        let Ok(host) = core::str::from_utf8(host) else {
            return false;
        };
        let host = without_port(host).to_ascii_lowercase();
        self.hosts.iter().any(|pattern| pattern.matches(&host))
    }

    fn fits_path(&self, path: &[u8]) -> bool {
        let Some(prefix) = &self.path_prefix else {
            return true;
        };
        path.strip_prefix(prefix.as_bytes())
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?')))
    }

    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let prefix = fields.optional_text("pathPrefix")?;
        let prefix = prefix.map(|prefix| prefix.trim_end_matches('/').to_owned());
        Ok(Self {
            models: patterns(fields, "models", &text::MODEL_PATTERN, str::to_owned)?,
            hosts: patterns(
                fields,
                "hosts",
                &text::HOST_PATTERN,
                str::to_ascii_lowercase,
            )?,
            path_prefix: prefix.filter(|prefix| !prefix.is_empty()),
        })
    }
}

fn patterns(
    fields: &Fields<'_>,
    name: &str,
    rule: &'static TextRule,
    normalise: fn(&str) -> String,
) -> Result<Vec<Pattern>, ConfigError> {
    fields.list(name, |item| {
        let text = Kind::Text(rule).text(item.value);
        let text = text.ok_or_else(|| item.expected(rule.what))?;
        Ok(Pattern::new(normalise(&text)))
    })
}

/// `host` up to its port. The colons inside `[…]` belong to an IPv6 address.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(patterns: &[&str]) -> PoolMatch {
        PoolMatch {
            hosts: patterns.iter().copied().map(Pattern::new).collect(),
            ..PoolMatch::default()
        }
    }

    #[test]
    fn an_empty_match_fits_everything() {
        let all = PoolMatch::default();
        assert!(all.fits_everything());
        assert!(all.fits_route(b"", b""));
        assert!(all.fits_route(b"\xff:80", b"*"));
        assert!(all.fits_model(""));
    }

    #[test]
    fn hosts_compare_in_any_case_and_without_port() {
        let some = hosts(&["llm.example.com", "*.svc", "[fd00::*]", "10.0.0.1"]);
        for host in [
            "llm.example.com",
            "LLM.Example.COM:8443",
            "a.b.svc:80",
            "[FD00::1]",
            "[fd00::1]:8000",
            "10.0.0.1:1",
        ] {
            assert!(some.fits_route(host.as_bytes(), b"/"), "{host}");
        }
        for host in [
            "",
            "example.com",
            "llm.example.com.evil",
            "[fe80::1]:80",
            ":80",
        ] {
            assert!(!some.fits_route(host.as_bytes(), b"/"), "{host}");
        }
        assert!(!hosts(&["*"]).fits_route(b"\xff", b"/"));
    }

    #[test]
    fn a_path_prefix_ends_where_a_segment_does() {
        let some = PoolMatch {
            path_prefix: Some("/v1".to_owned()),
            ..PoolMatch::default()
        };
        for path in ["/v1", "/v1/", "/v1/completions", "/v1?x=/v2"] {
            assert!(some.fits_route(b"", path.as_bytes()), "{path}");
        }
        for path in ["", "/", "/v", "/v10", "/V1", "/x/v1", "v1"] {
            assert!(!some.fits_route(b"", path.as_bytes()), "{path}");
        }
        assert!(!some.fits_route(b"", b"/v1\xff"));
    }

    #[test]
    fn one_fitting_model_pattern_is_enough() {
        let some = PoolMatch {
            models: vec![Pattern::new("llama-3-8b*"), Pattern::new("base")],
            ..PoolMatch::default()
        };
        assert!(some.fits_model("llama-3-8b-instruct"));
        assert!(some.fits_model("base"));
        assert!(!some.fits_model("Base"));
        assert!(!some.fits_model("llama-3-70b"));
    }

    #[test]
    fn host_and_path_must_both_fit() {
        let both = PoolMatch {
            path_prefix: Some("/v1".to_owned()),
            ..hosts(&["a"])
        };
        assert!(both.fits_route(b"a", b"/v1"));
        assert!(!both.fits_route(b"b", b"/v1"));
        assert!(!both.fits_route(b"a", b"/v2"));
    }
}
