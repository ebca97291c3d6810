//! From a metrics page to an endpoint's metrics, whichever engine's families are on it.
//!
//! A series is known by its name and only the labels that the engine's table names are looked at:
//! others come and go with versions. Each family stands alone: a missing, renamed or garbled one
//! leaves its own field empty.

use std::collections::BTreeMap;

use super::adapters::Adapters;
use super::exposition::{LabelValue, Labels, Names, Sample, samples_of};
use super::families::{AdapterLists, Families, Family, Series, Tells};
use super::gpu::{self, GpuReading};
use super::metrics::EndpointMetrics;
use super::reading::{add, count, fraction, raise, unix_seconds};
use super::signals::Signals;

/// Engines told apart on one page; further ones count in sums and maxima but not in `engines` and
/// `cache_tokens`. Data-parallel deployments stay in the hundreds; this bounds a hostile page.
pub(super) const MAX_ENGINES: usize = 1024;

const PROCESS_START: &[u8] = b"process_start_time_seconds";

/// Reads the page `text` by the table `families`; `None` when it holds no usable sample of them.
pub(super) fn read(families: &'static Families, text: &[u8]) -> Option<EndpointMetrics> {
    let mut page = Page::new(families);
    let names = families.list.iter().map(|family| family.name);
    let names: Names<'_> = names.chain(gpu::NAMES).chain([PROCESS_START]).collect();
    for sample in samples_of(text, &names) {
        page.read(&sample);
    }
    page.into_metrics()
}

struct Page<'a> {
    families: &'static Families,
    /// By the engine's label, empty when absent.
    engines: BTreeMap<&'a [u8], EngineTotals>,
    /// Of the engines beyond [`MAX_ENGINES`].
    beyond: EngineTotals,
    kv_utilisation: Option<f64>,
    gpu: GpuReading,
    process_start: Option<f64>,
    prefix_hits: Option<u64>,
    prefix_queries: Option<u64>,
    progress: Option<u64>,
    external_tokens: Option<u64>,
    adapters: Option<Newest>,
}

/// What the series of one engine say.
#[derive(Default)]
struct EngineTotals {
    waiting: Option<u64>,
    running: Option<u64>,
    cache_tokens: Option<u64>,
    block_tokens: Option<u64>,
    blocks: Option<u64>,
}

/// The adapters of the series with the newest time.
struct Newest {
    time: f64,
    adapters: Adapters,
}

impl<'a> Page<'a> {
    fn new(families: &'static Families) -> Self {
        Self {
            families,
            engines: BTreeMap::new(),
            beyond: EngineTotals::default(),
            kv_utilisation: None,
            gpu: GpuReading::default(),
            process_start: None,
            prefix_hits: None,
            prefix_queries: None,
            progress: None,
            external_tokens: None,
            adapters: None,
        }
    }

    fn read(&mut self, sample: &Sample<'a>) {
        // Some families are no engine's own: those of a DCGM exporter merged into the page, and the
        // process's start, absent with several API servers. The youngest process counts.
        self.gpu.take(sample);
        if sample.name == PROCESS_START {
            raise(&mut self.process_start, unix_seconds(sample.value));
        }
        let mut families = self.families.list.iter();
        if let Some(family) = families.find(|family| family.has(sample)) {
            self.read_family(family.tells, sample);
        }
    }

    fn read_family(&mut self, tells: Tells, sample: &Sample<'a>) {
        let value = sample.value;
        let series = self.families.series;
        match tells {
            Tells::Waiting => series.combine(&mut self.engine(sample.labels).waiting, count(value)),
            Tells::Running => series.combine(&mut self.engine(sample.labels).running, count(value)),
            Tells::KvUtilisation => {
                raise(&mut self.kv_utilisation, fraction(value));
                self.engine(sample.labels);
            }
            Tells::BlockTokens => raise(&mut self.engine(sample.labels).block_tokens, size(value)),
            Tells::Blocks => raise(&mut self.engine(sample.labels).blocks, size(value)),
            Tells::CacheConfig {
                tokens,
                block_tokens,
                blocks,
            } => {
                // An info metric says everything in labels, as text: `None`, `True`, `2048`.
                let names = [self.families.engine, tokens, block_tokens, blocks];
                let [engine, tokens, block_tokens, blocks] = sample.labels.values(names);
                let number =
                    |value: Option<LabelValue<'_>>| value?.number().filter(|size| *size > 0);
                let engine = self.engine_named(engine);
                raise(&mut engine.cache_tokens, number(tokens));
                raise(&mut engine.block_tokens, number(block_tokens));
                raise(&mut engine.blocks, number(blocks));
            }
            Tells::PrefixHits => add(&mut self.prefix_hits, count(value)),
            Tells::PrefixQueries => add(&mut self.prefix_queries, count(value)),
            Tells::Progress => add(&mut self.progress, count(value)),
            Tells::External => add(&mut self.external_tokens, count(value)),
            Tells::Adapters(lists) => self.read_adapters(&lists, sample),
        }
    }

    /// Old label sets stay on the page for ever, so only those with the newest time count: all of
    /// them, since nothing tells several engines' series apart.
    fn read_adapters(&mut self, lists: &AdapterLists, sample: &Sample<'a>) {
        let Some(time) = unix_seconds(sample.value) else {
            return;
        };
        let newest = self.adapters.get_or_insert_with(|| Newest::at(time));
        if time > newest.time {
            *newest = Newest::at(time);
        }
        if time >= newest.time {
            let adapters = &mut newest.adapters;
            let names = [lists.running, lists.waiting, lists.most];
            let [running, waiting, most] = sample.labels.values(names);
            for_each_name(running, |name| adapters.insert(name));
            for_each_name(waiting, |name| adapters.insert_waiting(name));
            if let Some(most) = most.and_then(LabelValue::number) {
                adapters.allow(u32::try_from(most).unwrap_or(u32::MAX));
            }
        }
    }

    fn engine(&mut self, labels: Labels<'a>) -> &mut EngineTotals {
        self.engine_named(labels.value(self.families.engine))
    }

    fn engine_named(&mut self, label: Option<LabelValue<'a>>) -> &mut EngineTotals {
        let engine = label.map_or(&b""[..], |value| value.raw());
        if self.engines.len() < MAX_ENGINES || self.engines.contains_key(engine) {
            self.engines.entry(engine).or_default()
        } else {
            &mut self.beyond
        }
    }

    fn into_metrics(self) -> Option<EndpointMetrics> {
        let waiting = self.sum(|engine| engine.waiting);
        let running = self.sum(|engine| engine.running);
        let cache_tokens = self.cache_tokens();
        let carries_any = waiting.is_some()
            || running.is_some()
            || self.kv_utilisation.is_some()
            || cache_tokens.is_some()
            || self.prefix_hits.is_some()
            || self.prefix_queries.is_some()
            || self.progress.is_some()
            || self.adapters.is_some();
        let engines = self.engines.keys().filter(|engine| !engine.is_empty());
        carries_any.then(|| EndpointMetrics {
            waiting: narrow(waiting),
            running: narrow(running),
            kv_utilisation: self.kv_utilisation,
            gpu_utilisation: self.gpu.utilisation,
            engines: u32::try_from(engines.count()).unwrap_or(u32::MAX).max(1),
            cache_tokens,
            process_start: self.process_start,
            prefix_hits: self.prefix_hits,
            prefix_queries: self.prefix_queries,
            progress: self.progress,
            external_tokens: self.external_tokens,
            gpu_fault: self.gpu.faulty,
            adapters: self.adapters.map(|newest| newest.adapters),
            signals: Signals::default(),
        })
    }

    fn sum(&self, of: impl Fn(&EngineTotals) -> Option<u64>) -> Option<u64> {
        let mut sum = None;
        for engine in self.engines.values().chain([&self.beyond]) {
            add(&mut sum, of(engine));
        }
        sum
    }

    /// Tokens by the engines' own sizes where any tells it, else by their blocks.
    fn cache_tokens(&self) -> Option<u64> {
        let (mut sizes, mut blocks) = (None, None);
        for engine in self.engines.values() {
            add(&mut sizes, engine.cache_tokens);
            let product = engine.blocks.zip(engine.block_tokens);
            let product = product.map(|(count, tokens)| count.saturating_mul(tokens));
            if self.families.blocks_are_total {
                raise(&mut blocks, product);
            } else {
                add(&mut blocks, product);
            }
        }
        sizes.or(blocks)
    }
}

/// The names in a list between commas.
fn for_each_name(list: Option<LabelValue<'_>>, mut take: impl FnMut(&str)) {
    let list: Vec<u8> = list.into_iter().flat_map(LabelValue::unescaped).collect();
    let names = list.split(|byte| *byte == b',');
    for name in names.filter_map(|name| core::str::from_utf8(name).ok()) {
        take(name.trim());
    }
}

impl Newest {
    fn at(time: f64) -> Self {
        Self {
            time,
            adapters: Adapters::default(),
        }
    }
}

impl Family {
    fn has(&self, sample: &Sample<'_>) -> bool {
        self.name == sample.name
            && self.only.is_none_or(|(label, value)| {
                let found = sample.labels.value(label);
                found.is_some_and(|found| found.is(value))
            })
    }
}

impl Series {
    fn combine(self, total: &mut Option<u64>, value: Option<u64>) {
        match self {
            Self::Parts => add(total, value),
            Self::Copies => raise(total, value),
        }
    }
}

/// A size; 0 says nothing.
fn size(value: f64) -> Option<u64> {
    count(value).filter(|size| *size > 0)
}

fn narrow(count: Option<u64>) -> u32 {
    u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX)
}
