//! Plugins of llm-d for what happens here without a plugin.

use super::plugin::{Build, Plugin, PluginType, Role};

pub(super) const OPENAI: PluginType = parser("openai-parser");
pub(super) const ANTHROPIC: PluginType = parser("anthropic-parser");
pub(super) const VLLM_HTTP: PluginType = parser("vllmhttp-parser");
pub(super) const PASSTHROUGH: PluginType = parser("passthrough-parser");
pub(super) const DISAGG_HEADERS: PluginType = header_writer("disagg-headers-handler");
pub(super) const PREFILL_HEADER: PluginType = header_writer("prefill-header-handler");

const fn parser(name: &'static str) -> PluginType {
    PluginType {
        effect: "nothing to set up: the path says how a request is read, and one that cannot be \
                 read is routed by load",
        ..PluginType::new(name, Role::Parser, Build::Plain(|| Plugin::Passive))
    }
}

const fn header_writer(name: &'static str) -> PluginType {
    PluginType {
        effect: "nothing to set up: `disagg-profile-handler` has its pick written itself",
        ..PluginType::new(name, Role::HeaderWriter, Build::Plain(|| Plugin::Passive))
    }
}
