//! Values of series that the operator's plugins ask for, whatever they mean.

use std::rc::Rc;

use super::exposition::{Names, Sample, samples_of};
use crate::config::MetricSpec;

/// One value for each series asked for, in the order of the specifications; `None` where the page
/// had none. Values are finite. A copy shares them, so that every request's view of every endpoint
/// can have one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// `None` while there is no value.
    values: Option<Rc<[Option<f64>; MetricSpec::MAX]>>,
}

impl Signals {
    /// How many there may be.
    pub const MAX: usize = MetricSpec::MAX;
    /// Nothing is known.
    pub const NONE: Self = Self { values: None };

    /// The value of the series at `place`.
    pub fn get(&self, place: usize) -> Option<f64> {
        self.values.as_ref()?.get(place).copied().flatten()
    }

    /// Sets the value of the series at `place`; no place, or nothing finite, sets none.
    pub fn set(&mut self, place: usize, value: f64) {
        if place >= Self::MAX || !value.is_finite() {
            return;
        }
        let values = self.values.get_or_insert_default();
        if let Some(slot) = Rc::make_mut(values).get_mut(place) {
            *slot = Some(value);
        }
    }

    /// Every place's value.
    pub fn iter(&self) -> impl Iterator<Item = Option<f64>> {
        (0..Self::MAX).map(|place| self.get(place))
    }
}

/// Reads the series `specs` off the page `text`: of each the first that matches and is finite.
/// Linear in the page, once, and not at all without specifications.
pub fn read(specs: &[MetricSpec], text: &[u8]) -> Signals {
    let mut signals = Signals::default();
    if specs.is_empty() {
        return signals;
    }
    let names: Names<'_> = specs.iter().map(|spec| spec.family.as_bytes()).collect();
    for sample in samples_of(text, &names) {
        for (place, spec) in specs.iter().enumerate() {
            if signals.get(place).is_none() && is_meant(spec, &sample) {
                signals.set(place, sample.value);
            }
        }
    }
    signals
}

fn is_meant(spec: &MetricSpec, sample: &Sample<'_>) -> bool {
    sample.name == spec.family.as_bytes()
        && spec.labels.iter().all(|(name, value)| {
            let found = sample.labels.value(name.as_bytes());
            found.is_some_and(|found| found.is(value.as_bytes()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_texts(specs: &[&str], page: &str) -> Vec<Option<f64>> {
        let specs: Vec<MetricSpec> = specs
            .iter()
            .map(|spec| MetricSpec::parse(spec).unwrap())
            .collect();
        let signals = read(&specs, page.as_bytes());
        signals.iter().take(specs.len()).collect()
    }

    #[test]
    fn a_series_is_told_by_its_name_and_the_labels_asked_for() {
        let page = "# TYPE temperature gauge\n\
                    temperature{gpu=\"0\",rack=\"a\"} 61.5\n\
                    temperature{gpu=\"1\",rack=\"a\"} 70\n\
                    budget -3\n";
        assert_eq!(
            read_texts(
                &[
                    "temperature",
                    "temperature{gpu=1}",
                    "budget",
                    "temperature{gpu=2}",
                    "x"
                ],
                page
            ),
            [Some(61.5), Some(70.0), Some(-3.0), None, None]
        );
    }

    #[test]
    fn what_is_not_finite_is_passed_over() {
        let page = "load NaN\nload{a=\"1\"} +Inf\nload{a=\"2\"} 4\n";
        assert_eq!(read_texts(&["load"], page), [Some(4.0)]);
    }

    #[test]
    fn values_beyond_the_last_place_are_left_out() {
        let mut signals = Signals::default();
        signals.set(MetricSpec::MAX, 1.0);
        signals.set(0, f64::NAN);
        assert_eq!(signals, Signals::default());
        assert_eq!(signals.get(MetricSpec::MAX), None);
    }
}
