//! What is taken from the endpoints' metrics pages.

use std::rc::Rc;

use super::{NAME, Producer};
use crate::config::{
    ConfigError, Fields, KeyDoc, Kind, LaterKey, MetricSpec, TextRule, key, later, required,
};
use crate::scheduling::Attribute;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::registry::Setup;

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "gives series names, for `endpoint-attribute-scorer`; the engines' own metrics are \
             read always, each page telling its engine",
    later: LATER,
    ..PluginType::new(TYPE_NAME, Role::Producer, Build::Reads(build))
};

pub(in crate::scheduling) const TYPE_NAME: &str = "core-metrics-extractor";

const SPEC: TextRule = TextRule {
    what: MetricSpec::WHAT,
    fits: |text| MetricSpec::parse(text).is_some(),
};

const ENGINES: Kind = Kind::List {
    min: 0,
    max: 16,
    of: "engines, each an object",
};
const SERIES: Kind = Kind::List {
    min: 0,
    max: MetricSpec::MAX,
    of: "series, each with attributeKey and metricSpec",
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("defaultEngine", NAME, "null", "Accepted; each page tells its engine, or `metrics.engine` does."),
    key("engineConfigs", ENGINES, "[]", "What is read beside the engines' own metrics."),
    required("engineConfigs[].name", NAME, "Accepted; the series are looked for on every page."),
    key("engineConfigs[].customMetrics", SERIES, "[]", "Series of a pool, at most 8 together."),
    required("engineConfigs[].customMetrics[].attributeKey", NAME, "The name it is given."),
    required("engineConfigs[].customMetrics[].metricSpec", Kind::Text(&SPEC), "The series, as `name` or `name{label=value}`; of several the first on the page."),
];

const OWN: &str = "leave it out: the metrics of vLLM, SGLang, TensorRT-LLM and Triton are known, \
                   see the pool's metrics.engine";
const LATER: &[LaterKey] = &[
    later("engineLabelKey", OWN),
    later("engineConfigs[].queuedRequestsSpec", OWN),
    later("engineConfigs[].runningRequestsSpec", OWN),
    later("engineConfigs[].kvUsageSpec", OWN),
    later("engineConfigs[].loraSpec", OWN),
    later("engineConfigs[].cacheInfoSpec", OWN),
    later("engineConfigs[].cacheBlockSizeLabelName", OWN),
    later("engineConfigs[].cacheNumBlocksLabelName", OWN),
    later("engineConfigs[].cacheBlockSizeSpec", OWN),
    later("engineConfigs[].cacheNumBlocksSpec", OWN),
];

/// The names given to series.
#[derive(Debug)]
struct CoreMetrics {
    names: Vec<String>,
}

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    fields.optional_text("defaultEngine")?;
    let mut names = Vec::new();
    fields.list("engineConfigs", |item| {
        let engine = item.fields("an object with name and customMetrics")?;
        engine.text("name")?;
        engine.list("customMetrics", |item| {
            let series = item.fields("an object with attributeKey and metricSpec")?;
            let name = series.text("attributeKey")?;
            let spec = series.text("metricSpec")?;
            setup.series(&series.path_of("attributeKey"), &name, &spec)?;
            names.push(name);
            Ok(())
        })
    })?;
    Ok(Plugin::Producer(Rc::new(CoreMetrics { names })))
}

impl Producer for CoreMetrics {
    fn provides(&self) -> Vec<Attribute> {
        let series = self.names.iter().cloned().map(Attribute::Series);
        core::iter::once(Attribute::Metrics).chain(series).collect()
    }
}
