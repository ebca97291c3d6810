//! What a request costs: plain Envoy, the floor of every `ext_proc` picker, and inline-epp.
//!
//! The three take turns, so that all meet the same machine; a figure is the median over the rounds,
//! of differences and ratios within one round.

pub mod arms;
pub mod cpu;
pub mod ext_proc;
pub mod upstream;
pub mod wrk;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::plot::{Caption, Line, PlotError, Scale, lines};
use super::report::table;
use super::spread::Spread;
use super::{BenchError, Figures, Run};
use crate::progress::Progress;
use arms::{Arm, Kind};
use wrk::{Answered, Load, New, Wrk};

/// How much is measured.
#[derive(Debug, Clone, Args)]
#[group(id = "overhead")]
pub struct Options {
    /// Rounds of the cells that the README's claims rest on
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Rounds of all other cells
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub matrix_rounds: u32,
    /// Only those cells
    #[arg(long)]
    pub claims_only: bool,
    /// Bodies, in KB
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64, 256, 1_024])]
    pub bodies: Vec<usize>,
    /// Connections at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    pub connections: Vec<u32>,
    /// Workers of Envoy
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    pub workers: Vec<usize>,
    /// No streaming answers, which are measured with one worker
    #[arg(long)]
    pub no_streams: bool,
    /// Endpoints behind every Envoy, each with a real server's metrics page of 49 KB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub endpoints: u16,
}

/// Seconds of one turn.
const TURN: u32 = 1;
const KB: usize = 1_024;
/// Body and connections, with one worker, of the cells with more rounds.
const CLAIMS: [(usize, u32); 3] = [(16 * KB, 1), (256 * KB, 1), (16 * KB, 16)];
/// Chunks of an answer.
const STREAMS: [u32; 2] = [100, 1_000];
/// Streams at once.
const STREAMING: u32 = 16;

const PAGE: &str = include_str!("../../vectors/vllm/metrics/01-fresh.prom");

/// What came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overhead {
    /// Endpoints behind every Envoy.
    pub endpoints: u16,
    /// One entry for each body, number of connections and number of workers.
    pub cells: Vec<Cell>,
    /// One entry for each kind of stream.
    pub streams: Vec<Streamed>,
    /// Memory of the whole proxy side in the end, in MiB, with one worker: plain, `ext_proc`, ours.
    pub memory_mib: [f64; 3],
}

/// One load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Bytes of a request's body.
    pub body: usize,
    /// Connections at once.
    pub connections: u32,
    /// Workers of Envoy.
    pub workers: usize,
    /// Half of plain Envoy's answers took no longer, in microseconds.
    pub plain_p50: Spread,
    /// 99 % of plain Envoy's answers took no longer, in microseconds.
    pub plain_p99: Spread,
    /// What `ext_proc` adds.
    pub ext_proc: Added,
    /// What the module adds.
    pub inline: Added,
    /// The module's addition to the p50 over `ext_proc`'s.
    pub p50_ratio: Spread,
    /// The module's throughput over `ext_proc`'s.
    pub rate_ratio: Spread,
    /// The module's addition to the processor time over `ext_proc`'s.
    pub cpu_ratio: Spread,
}

/// What a picker adds to plain Envoy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Added {
    /// To the p50, in microseconds.
    pub p50: Spread,
    /// To the p99, in microseconds.
    pub p99: Spread,
    /// To the processor time of a request, of the whole proxy side, in microseconds.
    pub cpu: Spread,
    /// Throughput over plain Envoy's.
    pub rate: Spread,
}

/// Answers in many chunks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Streamed {
    /// Chunks of an answer.
    pub chunks: u32,
    /// The server waits between them; else they come as fast as they are taken.
    pub is_paced: bool,
    /// Throughput over plain Envoy's, of `ext_proc`.
    pub ext_proc: Spread,
    /// Throughput over plain Envoy's, of the module.
    pub inline: Spread,
}

/// One turn of each: plain, `ext_proc`, ours.
type Round = [Turn; 3];

#[derive(Debug, Clone, Copy)]
struct Turn {
    answered: Answered,
    /// Processor time of a request, in microseconds.
    cpu: f64,
}

/// Runs every cell.
pub async fn measure(options: &Options, run: &Run) -> Result<Overhead, BenchError> {
    let mut wrk = Wrk::new(run)?;
    let endpoints = upstream::start(options.endpoints, PAGE).await?;
    let mut progress = Progress::new(options.turns(), "turns");
    let mut cells = Vec::new();
    let mut streams = Vec::new();
    let mut memory_mib = [0.0; 3];
    for &workers in &options.workers {
        let loads = options.loads(workers);
        if loads.is_empty() {
            continue;
        }
        let mut arms = Vec::new();
        for kind in Kind::ALL {
            arms.push(Arm::start(kind, workers, &endpoints).await?);
        }
        for (body, connections, rounds) in loads {
            progress.announce(&format!(
                "{} KB, {connections} connections, {workers} workers",
                body / KB
            ));
            let load = Load {
                body,
                connections,
                seconds: TURN,
                new: New::HalfTheTails,
                headers: &[],
            };
            let rounds = take_turns(&mut wrk, &arms, load, rounds, &mut progress).await?;
            cells.push(Cell::of(body, connections, workers, &rounds));
        }
        if workers == 1 && !options.no_streams {
            streams = all_streams(&mut wrk, &arms, options, &mut progress).await?;
        }
        for (memory, arm) in memory_mib.iter_mut().zip(&arms) {
            arm.check().await?;
            if workers == 1 {
                *memory = cpu::resident(&arm.pids());
            }
        }
    }
    progress.finish();
    Ok(Overhead {
        endpoints: options.endpoints,
        cells,
        streams,
        memory_mib,
    })
}

impl Options {
    /// Body, connections and rounds of every cell with `workers` workers.
    fn loads(&self, workers: usize) -> Vec<(usize, u32, u32)> {
        let with = |body: usize| self.connections.iter().map(move |&one| (body * KB, one));
        let all = self.bodies.iter().flat_map(|&body| with(body));
        all.filter_map(|(body, connections)| {
            if workers == 1 && CLAIMS.contains(&(body, connections)) {
                return Some((body, connections, self.rounds));
            }
            (!self.claims_only).then_some((body, connections, self.matrix_rounds))
        })
        .collect()
    }

    /// Chunks, whether they are paced, and rounds of every kind of stream. Of those back to back nothing is
    /// claimed.
    fn streams(&self) -> impl Iterator<Item = (u32, bool, u32)> {
        let (claimed, reported) = (self.rounds, self.matrix_rounds);
        let both = move |&chunks: &u32| [(chunks, true, claimed), (chunks, false, reported)];
        STREAMS.iter().flat_map(both)
    }

    fn turns(&self) -> usize {
        let loads = self.workers.iter().flat_map(|&workers| self.loads(workers));
        let rounds: u32 = loads.map(|(_, _, rounds)| rounds + 1).sum();
        let streams = if self.no_streams {
            0
        } else {
            self.streams().map(|(_, _, rounds)| rounds + 1).sum()
        };
        (rounds + streams) as usize * Kind::ALL.len()
    }
}

/// Every kind of stream.
async fn all_streams(
    wrk: &mut Wrk,
    arms: &[Arm],
    options: &Options,
    progress: &mut Progress,
) -> Result<Vec<Streamed>, BenchError> {
    let mut streams = Vec::new();
    for (chunks, is_paced, rounds) in options.streams() {
        progress.announce(&format!("streams of {chunks} chunks"));
        streams.push(stream(wrk, arms, chunks, is_paced, rounds, progress).await?);
    }
    Ok(streams)
}

async fn stream(
    wrk: &mut Wrk,
    arms: &[Arm],
    chunks: u32,
    is_paced: bool,
    rounds: u32,
    progress: &mut Progress,
) -> Result<Streamed, BenchError> {
    let mut headers = vec![format!("{}={chunks}", upstream::CHUNKS)];
    if is_paced {
        headers.push(format!("{}=1", upstream::PACED));
    }
    let load = Load {
        body: KB,
        connections: STREAMING,
        seconds: TURN,
        new: New::HalfTheTails,
        headers: &headers,
    };
    let rounds = take_turns(wrk, arms, load, rounds, progress).await?;
    let over_plain = |at: usize| {
        Spread::of(
            rounds
                .iter()
                .map(|round| round[at].answered.rate() / round[0].answered.rate()),
        )
    };
    Ok(Streamed {
        chunks,
        is_paced,
        ext_proc: over_plain(1),
        inline: over_plain(2),
    })
}

/// Lets the three answer `load` in turn; the first round only warms up.
async fn take_turns(
    wrk: &mut Wrk,
    arms: &[Arm],
    load: Load<'_>,
    rounds: u32,
    progress: &mut Progress,
) -> Result<Vec<Round>, BenchError> {
    let mut taken = Vec::new();
    for round in 0..=rounds as usize {
        let mut turns: [Option<Turn>; 3] = [None; 3];
        // Whoever goes first is another one each time.
        for at in (0..arms.len()).map(|at| (at + round) % arms.len()) {
            let arm = &arms[at];
            let before = cpu::seconds(&arm.pids());
            let answered = wrk.send(arm.address(), load).await?;
            let used = cpu::seconds(&arm.pids()) - before;
            turns[at] = Some(Turn {
                answered,
                cpu: used * 1e6 / answered.requests as f64,
            });
            progress.step();
        }
        if let ([Some(plain), Some(ext_proc), Some(inline)], 1..) = (turns, round) {
            taken.push([plain, ext_proc, inline]);
        }
    }
    Ok(taken)
}

impl Cell {
    fn of(body: usize, connections: u32, workers: usize, rounds: &[Round]) -> Self {
        let spread = |figure: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(figure));
        let p50 = |turn: &Turn| turn.answered.p50 as f64;
        let p99 = |turn: &Turn| turn.answered.p99 as f64;
        let added = |at: usize| Added {
            p50: spread(&|round| p50(&round[at]) - p50(&round[0])),
            p99: spread(&|round| p99(&round[at]) - p99(&round[0])),
            cpu: spread(&|round| round[at].cpu - round[0].cpu),
            rate: spread(&|round| round[at].answered.rate() / round[0].answered.rate()),
        };
        Self {
            body,
            connections,
            workers,
            plain_p50: spread(&|round| p50(&round[0])),
            plain_p99: spread(&|round| p99(&round[0])),
            ext_proc: added(1),
            inline: added(2),
            p50_ratio: spread(&|[plain, ext_proc, inline]| {
                (p50(inline) - p50(plain)) / (p50(ext_proc) - p50(plain)).max(1.0)
            }),
            rate_ratio: spread(&|[_, ext_proc, inline]| {
                inline.answered.rate() / ext_proc.answered.rate()
            }),
            cpu_ratio: spread(&|[plain, ext_proc, inline]| {
                (inline.cpu - plain.cpu) / (ext_proc.cpu - plain.cpu).max(1.0)
            }),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            format!("{} KB", self.body / KB),
            self.connections.to_string(),
            self.workers.to_string(),
            self.p50_ratio.samples.to_string(),
            format!("{:.0}", self.plain_p50.median),
            format!("{:.0}", self.ext_proc.p50),
            format!("{:.0}", self.inline.p50),
            format!("{:.2}", self.p50_ratio),
            format!(
                "{:.0} / {:.0}",
                self.ext_proc.p99.median, self.inline.p99.median
            ),
            format!("{:.2}", self.rate_ratio),
            format!(
                "{:.0} / {:.0}",
                self.ext_proc.cpu.median, self.inline.cpu.median
            ),
            format!("{:.2}", self.cpu_ratio),
        ]
    }
}

impl Figures for Overhead {
    const NAME: &'static str = "overhead";
    const TITLE: &'static str = "What a request costs";

    fn markdown(&self) -> String {
        let cells: Vec<Vec<String>> = self.cells.iter().map(Cell::row).collect();
        let head = [
            "body",
            "connections",
            "workers",
            "rounds",
            "plain p50, µs",
            "+ ext_proc, µs",
            "+ inline-epp, µs",
            "inline / ext_proc",
            "+ p99, µs",
            "throughput, inline / ext_proc",
            "+ CPU a request, µs",
            "CPU, inline / ext_proc",
        ];
        let streams: Vec<Vec<String>> = self.streams.iter().map(Streamed::row).collect();
        let streams_head = [
            "streams",
            "rounds",
            "ext_proc / plain",
            "inline-epp / plain",
        ];
        let [plain, ext_proc, inline] = self.memory_mib;
        let endpoints = self.endpoints;
        format!(
            "Median (quartiles). Two figures with a slash between them are ext_proc's and inline-epp's. The servers read \
             the request and answer at once; {endpoints} endpoints, half of the prompts with a new tail, everything on.\n\n\
             {}\n{}\nMemory with one worker, MiB: plain {plain:.0}, with ext_proc and its service {ext_proc:.0}, with \
             inline-epp {inline:.0}.\n",
            table(&head, &cells),
            table(&streams_head, &streams),
        )
    }

    fn plots(&self) -> Result<Vec<(&'static str, String)>, PlotError> {
        let of = |figure: fn(&Cell) -> f64| {
            let alone = |cell: &&Cell| cell.connections == 1 && cell.workers == 1;
            let point = |cell: &Cell| (cell.body as f64 / KB as f64, figure(cell).max(1.0));
            self.cells.iter().filter(alone).map(point).collect()
        };
        let drawn = [
            Line {
                name: "do-nothing ext_proc".to_owned(),
                points: of(|cell| cell.ext_proc.p50.median),
            },
            Line {
                name: "inline-epp".to_owned(),
                points: of(|cell| cell.inline.p50.median),
            },
        ];
        let caption = Caption {
            title: "Added to plain Envoy's p50, one connection",
            x: "KB of body",
            y: "microseconds",
        };
        Ok(vec![("p50", lines(caption, Scale::Logarithmic, &drawn)?)])
    }
}

impl Streamed {
    fn row(&self) -> Vec<String> {
        let pace = if self.is_paced {
            format!("one a {} µs", upstream::PACE.as_micros())
        } else {
            "back to back".to_owned()
        };
        vec![
            format!("{} chunks, {pace}", self.chunks),
            self.inline.samples.to_string(),
            format!("{:.3}", self.ext_proc),
            format!("{:.3}", self.inline),
        ]
    }
}
