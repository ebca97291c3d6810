//! Why a configuration is refused.

use core::fmt;

/// The first thing that is wrong with a configuration. Its `Display` is one line: the JSON path,
/// what was expected there and what was found, of which at most 40 characters are repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    path: String,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Json(String),
    Expected { expected: String, found: String },
    UnknownField { allowed: Vec<&'static str> },
    GivenTwice,
    Later { value: String, instead: String },
    Other(String),
}

impl ConfigError {
    /// Text that is not JSON at all; `error` carries line and column.
    pub(super) fn json(error: &serde_json::Error) -> Self {
        Self::new("", Problem::Json(error.to_string()))
    }

    /// A value other than the one `expected`.
    pub(crate) fn expected(
        path: &str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        Self::new(path, Problem::Expected { expected, found })
    }

    /// A field that the section does not have.
    pub(super) fn unknown_field(path: &str, allowed: Vec<&'static str>) -> Self {
        Self::new(path, Problem::UnknownField { allowed })
    }

    /// A field that stands in its object more than once.
    pub(super) fn given_twice(path: &str) -> Self {
        Self::new(path, Problem::GivenTwice)
    }

    /// A field, or with `value` one value of it, of the contract that this version does not have.
    pub(crate) fn later(path: &str, value: &str, instead: impl fmt::Display) -> Self {
        let (value, instead) = (value.to_owned(), instead.to_string());
        Self::new(path, Problem::Later { value, instead })
    }

    /// What is wrong in words of its own.
    pub(crate) fn other(path: &str, what: impl Into<String>) -> Self {
        Self::new(path, Problem::Other(what.into()))
    }

    fn new(path: &str, problem: Problem) -> Self {
        let path = path.to_owned();
        Self { path, problem }
    }

    /// The JSON path of what is wrong, such as `pools[0].scoring.maxQueue`; empty when it is the
    /// whole configuration.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "configuration"
        } else {
            &self.path
        };
        write!(out, "{path}: ")?;
        match &self.problem {
            Problem::Json(error) => write!(out, "not valid JSON: {error}"),
            Problem::Expected { expected, found } => {
                write!(out, "expected {expected}, found {found}")
            }
            Problem::UnknownField { allowed } if allowed.is_empty() => {
                write!(out, "unknown field: there are none")
            }
            Problem::UnknownField { allowed } => {
                write!(out, "unknown field, expected one of {}", allowed.join(", "))
            }
            Problem::Other(what) => out.write_str(what),
            Problem::GivenTwice => write!(out, "given twice"),
            Problem::Later { value, instead } => {
                if !value.is_empty() {
                    write!(out, "{value} is ")?;
                }
                let version = env!("CARGO_PKG_VERSION");
                write!(out, "not available in version {version}; {instead}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}
