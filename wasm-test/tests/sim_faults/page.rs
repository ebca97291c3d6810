//! A metrics page, read just as far as these tests need it.

use std::collections::BTreeSet;
use std::fs;

use wasm_test::sim::Sim;

/// The text of a page.
#[derive(Debug)]
pub struct Page {
    pub text: String,
}

/// The page of the first server.
pub async fn page(sim: &Sim) -> Page {
    let answer = reqwest::get(sim[0].url("/metrics")).await;
    let text = answer.expect("an answer").text().await;
    Page {
        text: text.expect("text"),
    }
}

impl Page {
    /// A page of a real vLLM.
    pub fn recorded(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/vllm/metrics");
        Self {
            text: fs::read_to_string(format!("{folder}/{name}.prom")).expect("a recorded page"),
        }
    }

    /// Whether there is a sample of exactly that name.
    pub fn has(&self, name: &str) -> bool {
        self.samples(name).next().is_some()
    }

    /// The sum over all samples of that name.
    pub fn sum(&self, name: &str) -> f64 {
        assert!(self.has(name), "no {name}");
        self.samples(name).map(|(_, value)| value).sum()
    }

    /// The value of the first sample of that name with all those labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |text: &str| {
            labels.iter().all(|(label, value)| {
                let pair = format!("{label}=\"{value}\"");
                text.contains(&format!("{{{pair}")) || text.contains(&format!(",{pair}"))
            })
        };
        let mut samples = self.samples(name);
        samples
            .find(|(labels, _)| has(labels))
            .map(|(_, value)| value)
    }

    /// Every series: name and labels.
    pub fn series(&self) -> BTreeSet<&str> {
        let samples = self.text.lines().filter(|line| !line.starts_with('#'));
        samples
            .filter_map(|line| Some(line.rsplit_once(' ')?.0))
            .collect()
    }

    /// Labels, in their braces, and values of the samples of that name.
    fn samples(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        self.text.lines().filter_map(move |line| {
            let (series, value) = line.rsplit_once(' ')?;
            let labels = series.strip_prefix(name)?;
            let is_whole = labels.is_empty() || labels.starts_with('{');
            is_whole.then(|| (labels, value.parse().expect("a number")))
        })
    }
}
