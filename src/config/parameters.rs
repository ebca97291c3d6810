//! The parameters of one plugin, unread until the plugin that knows them asks.

use super::error::ConfigError;
use super::fields::Fields;
use super::json::Value;
use super::keys::Rows;

/// The `parameters` of one plugin as they were written, with their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    path: String,
    value: Value,
}

impl Parameters {
    /// What stands at `path`; `None` for nothing.
    pub(super) fn new(path: String, value: Option<&Value>) -> Self {
        Self {
            path,
            value: value.cloned().unwrap_or(Value::Null),
        }
    }

    /// The parameters as fields, all of which are among `rows`.
    pub(crate) fn fields(&self, rows: Rows) -> Result<Fields<'_>, ConfigError> {
        Fields::of_document(&self.path, rows, &self.value, "an object of parameters")
    }
}
