//! How a prompt is computed at one endpoint for another.

use core::time::Duration;

use super::error::ConfigError;
use super::fields::Fields;

/// How a prompt is computed at one endpoint for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisaggregationConfig {
    /// Where it stands, for errors that only the pool's plugins bring up.
    pub path: String,
    /// Who sees to it.
    pub mode: SplitMode,
    /// Time after which the prompt is computed where the request is answered.
    pub prefill_timeout: Duration,
    /// The cluster that calls for prompts go through; `None`: the pool's own.
    pub cluster: Option<String>,
    /// Port at which `SGLang` prefill servers wait for decode servers.
    pub bootstrap_port: u16,
}

/// Who sees to it that a prompt is computed elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitMode {
    /// Nobody: every request is for the decode pick alone.
    Off,
    /// A sidecar of the decode endpoint, which is told by a header.
    Header,
    /// This module, for vLLM with its NIXL connector: first one server, then the other.
    InlineNixl,
    /// This module, for `SGLang`: both servers at once.
    InlineSglang,
}

impl SplitMode {
    /// In the order of their names in the list of keys.
    const ALL: [Self; 4] = [
        Self::Off,
        Self::Header,
        Self::InlineNixl,
        Self::InlineSglang,
    ];

    /// Whether this module calls the prefill endpoint.
    pub const fn is_inline(self) -> bool {
        matches!(self, Self::InlineNixl | Self::InlineSglang)
    }

    /// As it is written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Header => "header",
            Self::InlineNixl => "inline-nixl",
            Self::InlineSglang => "inline-sglang",
        }
    }
}

impl DisaggregationConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let port = fields.whole("bootstrapPort")?;
        Ok(Self {
            path: fields.path().to_owned(),
            mode: fields.choice("mode", &SplitMode::ALL)?,
            prefill_timeout: fields.duration("prefillTimeout")?,
            cluster: fields.optional_text("cluster")?,
            // The list of keys holds ports to their range.
            bootstrap_port: u16::try_from(port).unwrap_or(u16::MAX),
        })
    }
}
