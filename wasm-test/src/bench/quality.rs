//! Where requests should have gone: hit ratio and time to first token by router.
//!
//! Traces and synthetic loads are replayed, faster than they were recorded, against simulated
//! servers whose caches hold a fraction of what is asked for. The routers are real ones in real
//! proxies; only the servers' GPUs are simulated, and the oracle, which cannot be built.

pub mod figures;
pub mod load;
pub mod options;
pub mod oracle;
pub mod peer;
pub mod player;
pub mod router;
pub mod text;
pub mod trace;
pub mod verdict;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plot::{self, Caption, PlotError};
use super::report::table;
use super::{BenchError, Figures, Results, Run};
use crate::progress::Progress;
use crate::sim::Sim;
use figures::{Figure, LoadFigures, Round, RouterFigures};
use load::Load;
pub use options::Options;
use options::Setup;
use player::{Due, Target};
use router::{Family, Router, Started};
use text::Prompt;

/// What came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Quality {
    /// The servers.
    pub setup: Setup,
    /// One entry a load.
    pub loads: Vec<LoadFigures>,
}

/// A load, ready to play.
struct Ready {
    figures: LoadFigures,
    requests: Vec<Due>,
}

/// Time for a router to scrape its servers and open connections.
const SETTLE: Duration = Duration::from_millis(500);

/// Replays every load through every router, round by round. Keeps the results after each load of
/// each round, so that a run that is cut short leaves what it has.
pub async fn measure(options: &Options, run: &Run) -> Result<Quality, BenchError> {
    let setup = &options.setup;
    let earlier = if options.resume {
        Results::<Quality>::read(run.folder())?
    } else {
        None
    };
    let mut loads = Vec::new();
    for load in options.read()? {
        let mut load = prepare(&load, options);
        if let Some(earlier) = &earlier {
            load.figures.take_over(setup, &earlier.figures);
        }
        loads.push(load);
    }
    let rounds = options.replays as usize;
    let steps = loads.iter().map(|load| load.steps(rounds)).sum();
    let mut progress = Progress::new(steps, "requests");
    for round in 0..rounds {
        for at in 0..loads.len() {
            loads[at].play(round, setup, &mut progress).await;
            run.keep(quality(setup, &loads))?;
        }
    }
    progress.finish();
    Ok(quality(setup, &loads))
}

impl Ready {
    /// Requests to send in all.
    fn steps(&self, rounds: usize) -> usize {
        let routers = self.figures.routers.iter();
        let missing = routers.map(|one| rounds.saturating_sub(one.rounds.len()));
        missing.sum::<usize>() * self.requests.len()
    }

    /// Plays it once through every router that has no such round yet. A replay that the machine
    /// disturbed is repeated, and the less disturbed one taken.
    async fn play(&mut self, round: usize, setup: &Setup, progress: &mut Progress) {
        let Self { figures, requests } = self;
        let name = figures.kind.name();
        let missing = figures.routers.iter_mut();
        for one in missing.filter(|one| one.rounds.len() <= round) {
            progress.announce(&format!("{}, {name}", one.router));
            let first = play(one.router, requests, setup, || progress.step()).await;
            let best = match first {
                Ok(first) if first.is_disturbed() => {
                    let second = play(one.router, requests, setup, || {}).await;
                    second.map(|second| first.less_disturbed(second))
                }
                other => other,
            };
            match best {
                Ok(round) => one.rounds.push(round),
                Err(error) => one.failure = Some(error.to_string()),
            }
        }
    }
}

fn quality(setup: &Setup, loads: &[Ready]) -> Quality {
    Quality {
        setup: setup.clone(),
        loads: loads.iter().map(|load| load.figures.clone()).collect(),
    }
}

fn prepare(load: &Load, options: &Options) -> Ready {
    let config = options.setup.sim_config();
    let block_size = config.block_size as usize;
    let requests = load.requests.iter();
    let prompts: Vec<Prompt> = requests
        .map(|request| Prompt::new(request, config.model_name(), block_size))
        .collect();
    let new = |router: &Router| RouterFigures {
        router: *router,
        rounds: Vec::new(),
        failure: None,
    };
    let figures = LoadFigures {
        kind: load.kind,
        shape: load.shape(&prompts, block_size),
        routers: options.routers().iter().map(new).collect(),
    };
    let due = |at: f64| Duration::from_secs_f64(at / options.setup.compression);
    let requests = load.requests.iter().map(|request| due(request.at));
    Ready {
        figures,
        requests: requests.zip(prompts.into_iter().map(Arc::new)).collect(),
    }
}

async fn play(
    router: Router,
    requests: &[Due],
    setup: &Setup,
    step: impl FnMut(),
) -> Result<Round, BenchError> {
    let sim = Sim::start(&setup.sim_config(), usize::from(setup.servers)).await?;
    let sim = Arc::new(sim);
    let started = router.start(&sim.addresses(), setup).await?;
    tokio::time::sleep(SETTLE).await;
    let target = match started.url() {
        Some(url) => Target::Url(url),
        None => Target::Best(Arc::clone(&sim)),
    };
    let answers = player::play(requests, &target, step).await;
    if let Started::Envoy(envoy) = &started
        && router.family() == Family::InlineEpp
    {
        // The run counts only if what was measured is what was meant.
        let reloads = envoy.vm_reloads().await?;
        if reloads != crate::envoy::VmReloads::default() {
            let problem = format!("the module was lost and reloaded: {reloads:?}");
            return Err(BenchError::Content {
                path: "Envoy".into(),
                problem,
            });
        }
    }
    Ok(Round::new(&answers, &sim, setup.compression))
}

impl Figures for Quality {
    const NAME: &'static str = "quality";
    const TITLE: &'static str = "Where requests should have gone";

    fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.conditions());
        text.push_str(&table(
            &LOAD_HEAD,
            &self.loads.iter().map(load_row).collect::<Vec<_>>(),
        ));
        for load in &self.loads {
            let played = load.routers.iter().filter(|one| one.is_played());
            let rows: Vec<Vec<String>> = played.map(|one| row(load, one)).collect();
            if rows.is_empty() {
                continue;
            }
            let table = table(&HEAD, &rows);
            // Writing to a String cannot fail.
            let _ = write!(text, "\n### {}\n\n{table}", load.kind.name());
        }
        let verdict = verdict::lines(&self.loads);
        if !verdict.is_empty() {
            text.push_str("\n### Verdict\n\n");
            text.extend(verdict.iter().map(|line| format!("* {line}\n")));
        }
        text
    }

    fn plots(&self) -> Result<Vec<(&'static str, String)>, PlotError> {
        let hits = self.bars("Hit ratio by the servers' counters", |one| one.hit_ratio)?;
        let means = self.bars("Mean time to first token, s", |one| one.mean_ttft)?;
        Ok(vec![("hits", hits), ("ttft", means)])
    }
}

const LOAD_HEAD: [&str; 6] = [
    "load",
    "requests",
    "seconds",
    "tokens a prompt",
    "distinct blocks",
    "best possible hit ratio",
];

fn load_row(one: &LoadFigures) -> Vec<String> {
    vec![
        one.kind.name().to_owned(),
        one.shape.requests.to_string(),
        format!("{:.0}", one.shape.seconds),
        format!("{:.0}", one.shape.mean_prompt),
        one.shape.working_set.to_string(),
        format!("{:.3}", one.shape.ideal_hit_ratio),
    ]
}

const HEAD: [&str; 10] = [
    "router",
    "hit ratio",
    "mean TTFT, s",
    "p50, s",
    "p99, s",
    "busiest ÷ mean",
    "gain in hits",
    "gain in TTFT",
    "on the way, ms",
    "errors, lag",
];

fn row(load: &LoadFigures, one: &RouterFigures) -> Vec<String> {
    let fault = one.fault().unwrap_or_default();
    if one.rounds.is_empty() {
        let mut cells = vec![one.router.to_string()];
        cells.resize(HEAD.len() - 1, "–".to_owned());
        cells.push(fault);
        return cells;
    }
    let show = |figure: Figure, digits: usize| {
        let spread = one.spread(figure);
        match spread.samples {
            1 => format!("{:.digits$}", spread.median),
            _ => format!("{spread:.digits$}"),
        }
    };
    let gain = |figure| {
        let gain = load.gain(one, figure);
        let percent = |gain: f64| format!("{} %", (gain * 100.0).round() as i64);
        gain.map_or_else(|| "–".to_owned(), percent)
    };
    // With nothing to hit, the gain is a quotient of noise.
    let some_hits = load.shape.ideal_hit_ratio > 0.01;
    vec![
        one.router.to_string(),
        show(|one| one.hit_ratio, 3),
        show(|one| one.mean_ttft, 2),
        show(|one| one.p50_ttft, 2),
        show(|one| one.p99_ttft, 2),
        show(|one| one.imbalance, 2),
        if some_hits {
            gain(|one| one.hit_ratio)
        } else {
            "–".to_owned()
        },
        gain(|one| one.mean_ttft),
        show(|one| one.on_the_way_ms, 1),
        fault,
    ]
}

impl Quality {
    /// What was played against what.
    fn conditions(&self) -> String {
        let Setup {
            servers,
            cache_blocks,
            compression,
            pool,
        } = &self.setup;
        let held = |one: &LoadFigures| {
            let share = f64::from(*cache_blocks) / one.shape.working_set.max(1) as f64;
            format!("{:.1} %", share * 100.0)
        };
        let held: Vec<String> = self.loads.iter().map(held).collect();
        let further = match pool {
            Value::Object(members) if members.is_empty() => String::new(),
            further => format!(" Every inline-epp has `{further}` in its pool."),
        };
        format!(
            "{servers} simulated servers (an A100 with an 8B model each), played {compression} times as fast as recorded. \
             Each cache holds {cache_blocks} blocks of 512 tokens, {} of the loads' distinct blocks. One token of the \
             servers stands for {} of the trace in prompts, {} in answers. Times are in seconds of the trace. The gain is \
             0 % for Envoy's random policy and 100 % for the oracle, which wants the earliest first token and may pass by hits for it. \"On the way\" is what is not the servers' part of \
             the mean, in real milliseconds. Ring hash goes by a header in which the client sends a hash of the first \
             user message; least request looks at all servers.{further}",
            held.join(", "),
            text::TOKENS,
            text::ANSWER_TOKENS,
        )
    }

    fn bars(&self, title: &str, figure: Figure) -> Result<String, PlotError> {
        let groups: Vec<&str> = self.loads.iter().map(|load| load.kind.name()).collect();
        let routers = self.loads.first().map_or(&[][..], |load| &load.routers);
        let names: Vec<String> = routers.iter().map(|one| one.router.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let height =
            |one: &RouterFigures| (!one.rounds.is_empty()).then(|| one.spread(figure).median);
        let bars: Vec<Vec<Option<f64>>> = self
            .loads
            .iter()
            .map(|load| load.routers.iter().map(height).collect())
            .collect();
        let caption = Caption {
            title,
            x: "",
            y: "",
        };
        plot::bars(caption, &groups, &names, &bars)
    }
}
