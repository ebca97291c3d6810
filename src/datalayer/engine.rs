//! The engines whose metrics pages are read.

use super::families::Families;
use super::metrics::EndpointMetrics;
use super::{page, sglang, triton, trtllm, vllm};
use crate::config::Engine;

/// Reads the metrics page `text` of an `engine`; of any, the first that the page has a family of,
/// so each page of a mixed pool decides for itself. `None` when the page holds no usable sample of
/// the engine's families: another engine's page, or no metrics page at all. Never fails otherwise;
/// linear in `text`, and memory grows with the number of engines and adapters only, up to
/// `page::MAX_ENGINES` and [`super::Adapters::MAX`].
pub fn read(engine: Engine, text: &[u8]) -> Option<EndpointMetrics> {
    let mut tables = tables(engine).iter();
    tables.find_map(|families| page::read(families, text))
}

const fn tables(engine: Engine) -> &'static [&'static Families] {
    match engine {
        Engine::Auto => &[
            &vllm::FAMILIES,
            &sglang::FAMILIES,
            &trtllm::FAMILIES,
            &triton::FAMILIES,
        ],
        Engine::Vllm => &[&vllm::FAMILIES],
        Engine::Sglang => &[&sglang::FAMILIES],
        Engine::Trtllm => &[&trtllm::FAMILIES],
        Engine::Triton => &[&triton::FAMILIES],
    }
}

#[cfg(test)]
mod tests;
