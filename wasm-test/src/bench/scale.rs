//! How the cost of a decision grows: with the prompt, the endpoints, the index, the workers.
//!
//! Times are the module's own histogram, inside V8; processor time is the whole Envoy's.

mod report;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::latency::{self, Latency};
use super::overhead::wrk::{Load, New, Wrk};
use super::overhead::{cpu, upstream};
use super::spread::Spread;
use super::{BenchError, Run};
use crate::artifact;
use crate::envoy::{CANONICAL, Envoy};
use crate::progress::Progress;

/// How much is measured.
#[derive(Debug, Clone, Args)]
#[group(id = "scale")]
pub struct Options {
    /// Turns of each point, a second each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub turns: u32,
    /// Connections of each turn: with one a decision meets cold caches, with many a busy worker
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16], value_parser = clap::value_parser!(u32).range(1..))]
    pub decision_connections: Vec<u32>,
    /// Rounds of the comparison with and without replication
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub replication_rounds: u32,
    /// Connections of that comparison
    #[arg(long, value_delimiter = ',', default_value = "16", value_parser = clap::value_parser!(u32).range(1..))]
    pub replication_connections: Vec<u32>,
    /// What is varied; all of it if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Part>,
    /// The largest index, in blocks
    #[arg(long, default_value_t = 4_000_000)]
    pub most_blocks: usize,
}

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The prompt's length.
    Bodies,
    /// The number of endpoints.
    Endpoints,
    /// The blocks of the index.
    Blocks,
    /// The workers, with and without sharing.
    Replication,
    /// The pages that are scraped.
    Scrape,
}

const KB: usize = 1_024;
/// Of 1k to 128k tokens.
const BODIES: [usize; 8] = [
    4 * KB,
    8 * KB,
    16 * KB,
    32 * KB,
    64 * KB,
    128 * KB,
    256 * KB,
    512 * KB,
];
const ENDPOINTS: [u16; 5] = [4, 16, 64, 256, 1_024];
const BLOCKS: [usize; 4] = [10_000, 100_000, 1_000_000, 4_000_000];
const WORKERS: [usize; 3] = [1, 2, 4];

/// Where the other quantities are held while one is varied.
const BODY: usize = 16 * KB;
const POOL: u16 = 64;

/// Endpoints whose pages are scraped, and how long is watched.
const SCRAPED: u16 = 256;
const WATCHED: Duration = Duration::from_secs(10);

/// A real server's page, whose cost is measured by itself.
const PAGE: &str = include_str!("../../vectors/vllm/metrics/01-fresh.prom");
/// All that is read of a page, so that scrapes do not get in the way of what else is measured.
const SHORT_PAGE: &str = concat!(
    "vllm:num_requests_running{engine=\"0\"} 1\n",
    "vllm:num_requests_waiting{engine=\"0\"} 0\n",
    "vllm:kv_cache_usage_perc{engine=\"0\"} 0.1\n",
);

/// What came out; what was not asked for is empty.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ScaleFigures {
    /// By bytes of the body.
    pub bodies: Vec<Point>,
    /// By endpoints.
    pub endpoints: Vec<Point>,
    /// By indexed blocks.
    pub blocks: Vec<Point>,
    /// What an indexed block takes in each VM, in bytes: the difference between the largest and the
    /// smallest index.
    pub bytes_a_block: f64,
    /// By workers.
    pub replication: Vec<Replication>,
    /// Bytes of a metrics page, and processor time to fetch and read one, in microseconds.
    pub scrape: (usize, f64),
}

/// One measured size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// Of what is varied.
    pub size: usize,
    /// One entry for each number of connections.
    pub loads: Vec<PointLoad>,
}

/// How long decisions take under one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PointLoad {
    /// Connections, each of which asks again at once.
    pub connections: u32,
    /// Half of the decisions took no longer, in microseconds; one sample a turn.
    pub p50: Spread,
    /// 99 % of the decisions took no longer, in microseconds.
    pub p99: Spread,
}

/// What sharing costs with so many workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Replication {
    /// Workers of Envoy.
    pub workers: usize,
    /// Connections, each of which asks again at once.
    pub connections: u32,
    /// Processor time of a request that sharing adds, in microseconds, of the whole Envoy.
    pub added_cpu: Spread,
    /// The decision's p50 without sharing, in microseconds.
    pub p50: Spread,
    /// Added to it, in microseconds.
    pub added_p50: Spread,
    /// Throughput over that without sharing.
    pub rate: Spread,
}

impl Replication {
    /// From what was seen with and without.
    fn of(workers: usize, connections: u32, pairs: &[(Seen, Seen)]) -> Self {
        let spread = |figure: fn(&(Seen, Seen)) -> f64| Spread::of(pairs.iter().map(figure));
        Self {
            workers,
            connections,
            added_cpu: spread(|(with, without)| with.cpu - without.cpu),
            p50: spread(|(_, without)| without.p50),
            added_p50: spread(|(with, without)| with.p50 - without.p50),
            rate: spread(|(with, without)| with.rate / without.rate),
        }
    }
}

/// Measures every point.
pub async fn measure(options: &Options, run: &Run) -> Result<ScaleFigures, BenchError> {
    let mut bench = Bench {
        wrk: Wrk::new(run)?,
        turns: options.turns,
        connections: options.decision_connections.clone(),
        progress: Progress::new(options.steps(), "turns"),
    };
    let mut figures = ScaleFigures::default();
    if options.has(Part::Bodies) {
        figures.bodies = bench.bodies().await?;
    }
    if options.has(Part::Endpoints) {
        figures.endpoints = bench.endpoints().await?;
    }
    if options.has(Part::Blocks) {
        (figures.blocks, figures.bytes_a_block) = bench.blocks(options.most_blocks).await?;
    }
    if options.has(Part::Replication) {
        for workers in WORKERS {
            let measured = bench.replication(workers, options).await?;
            figures.replication.extend(measured);
        }
    }
    if options.has(Part::Scrape) {
        figures.scrape = bench.scrape().await?;
    }
    bench.progress.finish();
    Ok(figures)
}

impl Options {
    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn steps(&self) -> usize {
        let of = |part, steps| if self.has(part) { steps } else { 0 };
        let blocks = BLOCKS.iter().filter(|blocks| **blocks <= self.most_blocks);
        let points = of(Part::Bodies, BODIES.len())
            + of(Part::Endpoints, ENDPOINTS.len())
            + of(Part::Blocks, blocks.count());
        let loads = WORKERS.len() * self.replication_connections.len();
        let rounds = 2 * loads * (self.replication_rounds as usize + 1);
        let points = points * self.decision_connections.len();
        points * (self.turns as usize + 1) + of(Part::Replication, rounds)
    }
}

struct Bench {
    wrk: Wrk,
    turns: u32,
    /// Of each turn of a point.
    connections: Vec<u32>,
    progress: Progress,
}

/// What an Envoy differs in.
struct Setup {
    endpoints: u16,
    workers: usize,
    /// Blocks of the index.
    blocks: usize,
    /// A module in which every worker keeps to itself.
    is_unshared: bool,
    /// The endpoints' metrics.
    page: &'static str,
}

const USUAL: Setup = Setup {
    endpoints: POOL,
    workers: 1,
    blocks: 1_000_000,
    is_unshared: false,
    page: SHORT_PAGE,
};

impl Setup {
    async fn start(&self) -> Result<Envoy, BenchError> {
        let endpoints = upstream::start(self.endpoints, self.page).await?;
        let bytes = self.blocks * inline_epp::prefix::BYTES_PER_ENTRY;
        // The least that is accepted.
        let bytes = bytes.max(1 << 20);
        let each = self.blocks.div_ceil(usize::from(self.endpoints));
        let mut builder = Envoy::builder(CANONICAL)
            .endpoints(&endpoints)
            .concurrency(self.workers)
            .arguments(&["--log-level", "warning"])
            .plugin(move |plugin| {
                plugin["limits"] = json!({"indexBytes": bytes});
                // All of the index is used, and no more.
                plugin["pools"][0]["prefix"] = json!({"capacityBlocks": each, "autoTune": false});
            })
            .bootstrap(latency::in_fine_buckets);
        if self.is_unshared {
            builder = builder.bootstrap(|tree| {
                let listener = &mut tree["static_resources"]["listeners"][0];
                let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
                let vm = &mut manager["http_filters"][0]["typed_config"]["config"]["vm_config"];
                vm["environment_variables"] = json!({"key_values": {"EPP_UNSHARED": "1"}});
            });
        }
        let module = tokio::task::spawn_blocking(artifact::switchable_module);
        let module = module.await.map_err(std::io::Error::from)?;
        let module = module.map_err(crate::envoy::StartError::from)?;
        Ok(builder.module(module).start().await?)
    }
}

impl Bench {
    async fn bodies(&mut self) -> Result<Vec<Point>, BenchError> {
        let mut points = Vec::new();
        for body in BODIES {
            self.progress.announce(&format!("{} KB", body / KB));
            let envoy = USUAL.start().await?;
            points.push(self.point(&envoy, body, body).await?);
        }
        Ok(points)
    }

    async fn endpoints(&mut self) -> Result<Vec<Point>, BenchError> {
        let mut points = Vec::new();
        for endpoints in ENDPOINTS {
            self.progress.announce(&format!("{endpoints} endpoints"));
            let envoy = Setup { endpoints, ..USUAL }.start().await?;
            points.push(self.point(&envoy, BODY, endpoints.into()).await?);
        }
        Ok(points)
    }

    /// The points, and what a block takes.
    async fn blocks(&mut self, most: usize) -> Result<(Vec<Point>, f64), BenchError> {
        let mut points = Vec::new();
        let mut memory = Vec::new();
        for blocks in BLOCKS.into_iter().filter(|blocks| *blocks <= most) {
            self.progress.announce(&format!("{blocks} blocks"));
            let envoy = Setup { blocks, ..USUAL }.start().await?;
            self.fill(&envoy, blocks).await?;
            points.push(self.point(&envoy, BODY, blocks).await?);
            memory.push((blocks as f64, cpu::resident(&[envoy.pid()])));
        }
        let grown = memory
            .first()
            .zip(memory.last())
            .map_or(0.0, |(first, last)| {
                // The worker's VM has the index, and the main thread's.
                (last.1 - first.1) * 1_048_576.0 / (last.0 - first.0).max(1.0) / 2.0
            });
        Ok((points, grown))
    }

    /// Sends prompts nobody knows until the index is full.
    async fn fill(&mut self, envoy: &Envoy, blocks: usize) -> Result<(), BenchError> {
        let load = Load {
            body: 512 * KB,
            connections: 4,
            seconds: 1,
            new: New::All,
            headers: &[],
        };
        // A tenth is left to the prompts that are measured.
        let wanted = blocks as f64 * 0.9;
        for _ in 0..300 {
            self.wrk.send(envoy.address(), load).await?;
            let known = envoy.prometheus_value("epp_prefix_tree_nodes", &[]).await?;
            if known >= Some(wanted) {
                return Ok(());
            }
        }
        Err(BenchError::Content {
            path: "envoy".into(),
            problem: format!("its index has not got {blocks} blocks in 300 s"),
        })
    }

    async fn point(
        &mut self,
        envoy: &Envoy,
        body: usize,
        size: usize,
    ) -> Result<Point, BenchError> {
        let mut loads = Vec::new();
        for connections in self.connections.clone() {
            let (mut p50, mut p99) = (Vec::new(), Vec::new());
            for turn in 0..=self.turns {
                let seen = self.turn(envoy, body, connections).await?;
                // The first only warms up.
                if turn > 0 {
                    p50.push(seen.p50);
                    p99.push(seen.p99);
                }
            }
            let (p50, p99) = (Spread::of(p50), Spread::of(p99));
            loads.push(PointLoad {
                connections,
                p50,
                p99,
            });
        }
        Ok(Point { size, loads })
    }

    async fn turn(
        &mut self,
        envoy: &Envoy,
        body: usize,
        connections: u32,
    ) -> Result<Seen, BenchError> {
        let load = Load {
            body,
            connections,
            seconds: 1,
            new: New::HalfTheTails,
            headers: &[],
        };
        let before = Latency::read(envoy).await?;
        let used = cpu::seconds(&[envoy.pid()]);
        let answered = self.wrk.send(envoy.address(), load).await?;
        let used = cpu::seconds(&[envoy.pid()]) - used;
        let decisions = Latency::read(envoy).await?.since(&before);
        self.progress.step();
        Ok(Seen {
            p50: decisions.quantile(0.5),
            p99: decisions.quantile(0.99),
            cpu: used * 1e6 / answered.requests as f64,
            rate: answered.rate(),
        })
    }

    /// With and without, in turn.
    async fn replication(
        &mut self,
        workers: usize,
        options: &Options,
    ) -> Result<Vec<Replication>, BenchError> {
        self.progress
            .announce(&format!("sharing among {workers} workers"));
        let shared = Setup { workers, ..USUAL }.start().await?;
        let unshared = Setup {
            workers,
            is_unshared: true,
            ..USUAL
        };
        let unshared = unshared.start().await?;
        let mut all = Vec::new();
        for &connections in &options.replication_connections {
            let mut pairs = Vec::new();
            for round in 0..=options.replication_rounds {
                let mut with = Seen::default();
                let mut without = Seen::default();
                for is_shared in [round % 2 == 0, round % 2 == 1] {
                    let envoy = if is_shared { &shared } else { &unshared };
                    let seen = self.turn(envoy, BODY, connections).await?;
                    *(if is_shared { &mut with } else { &mut without }) = seen;
                }
                if round > 0 {
                    pairs.push((with, without));
                }
            }
            all.push(Replication::of(workers, connections, &pairs));
        }
        Ok(all)
    }

    /// What many endpoints cost while nobody asks for anything, beyond what few do.
    async fn scrape(&mut self) -> Result<(usize, f64), BenchError> {
        let mut used = Vec::new();
        for endpoints in [POOL, SCRAPED] {
            let setup = Setup {
                endpoints,
                page: PAGE,
                ..USUAL
            };
            let envoy = setup.start().await?;
            tokio::time::sleep(WATCHED / 4).await;
            let scrapes = async || envoy.prometheus_value("epp_scrapes_total", &[]).await;
            let (before, pages) = (cpu::seconds(&[envoy.pid()]), scrapes().await?);
            tokio::time::sleep(WATCHED).await;
            let seconds = cpu::seconds(&[envoy.pid()]) - before;
            used.push((
                scrapes().await?.unwrap_or(0.0) - pages.unwrap_or(0.0),
                seconds,
            ));
        }
        let [few, many] = used[..] else {
            return Ok((PAGE.len(), 0.0));
        };
        let pages = (many.0 - few.0).max(1.0);
        Ok((PAGE.len(), (many.1 - few.1) * 1e6 / pages))
    }
}

/// One turn.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    p50: f64,
    p99: f64,
    /// Of a request, in microseconds.
    cpu: f64,
    rate: f64,
}
