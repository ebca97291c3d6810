//! Envoy's custom stats: one value a name for the whole process, ids of each VM's own.

use std::collections::BTreeMap;

use super::guest::Status;

/// All values, by the stat's name without its prefix `wasmcustom.`.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    values: BTreeMap<String, Value>,
}

#[derive(Clone, Debug)]
enum Value {
    Counter(u64),
    Gauge(u64),
    Histogram(Vec<u64>),
}

impl Metrics {
    /// The sum over counters and gauges called `name` that carry all of `labels`; `None` when there
    /// is none. Labels are found as the shipped `stats_tags` find them.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let carries = |stat: &str| {
            let mut parts = stat.split('|');
            let found: Vec<_> = match parts.next() {
                Some(first) if first == name => {
                    parts.filter_map(|part| part.split_once('=')).collect()
                }
                _ => return false,
            };
            labels.iter().all(|label| found.contains(label))
        };
        let values = self.values.iter().filter(|(stat, _)| carries(stat));
        let values = values.filter_map(|(_, value)| match value {
            Value::Counter(value) | Value::Gauge(value) => Some(*value),
            Value::Histogram(_) => None,
        });
        values.reduce(u64::wrapping_add)
    }

    /// What was recorded in the histogram called `name`, oldest first.
    pub(super) fn samples(&self, name: &str) -> Vec<u64> {
        match self.values.get(name) {
            Some(Value::Histogram(samples)) => samples.clone(),
            _ => Vec::new(),
        }
    }
}

/// One VM's ids. Every definition makes a new one, also of a name that has one.
#[derive(Debug, Default)]
pub(super) struct Handles {
    names: BTreeMap<u32, String>,
    /// Definitions so far, by kind.
    defined: [u32; 3],
}

/// The kind is the lowest bits of an id.
const KIND_BITS: u32 = 2;

impl Handles {
    /// `None` for a kind there is not.
    pub(super) fn define(&mut self, metrics: &mut Metrics, kind: u32, name: String) -> Option<u32> {
        let value = match kind {
            0 => Value::Counter(0),
            1 => Value::Gauge(0),
            2 => Value::Histogram(Vec::new()),
            _ => return None,
        };
        let defined = self.defined.get_mut(kind as usize)?;
        *defined += 1;
        let id = *defined << KIND_BITS | kind;
        metrics.values.entry(name.clone()).or_insert(value);
        self.names.insert(id, name);
        Some(id)
    }

    /// A counter takes more than 0 only, a gauge anything, a histogram nothing.
    pub(super) fn increment(&self, metrics: &mut Metrics, id: u32, by: i64) -> Result<(), Status> {
        match self.value(metrics, id)? {
            Value::Counter(value) if by > 0 => *value += by.unsigned_abs(),
            Value::Gauge(value) => *value = value.wrapping_add_signed(by),
            Value::Counter(_) | Value::Histogram(_) => return Err(Status::BadArgument),
        }
        Ok(())
    }

    /// Sets a gauge, but adds to a counter.
    pub(super) fn record(&self, metrics: &mut Metrics, id: u32, value: u64) -> Result<(), Status> {
        match self.value(metrics, id)? {
            Value::Counter(counter) => *counter += value,
            Value::Gauge(gauge) => *gauge = value,
            Value::Histogram(samples) => samples.push(value),
        }
        Ok(())
    }

    fn value<'a>(&self, metrics: &'a mut Metrics, id: u32) -> Result<&'a mut Value, Status> {
        let name = self.names.get(&id).ok_or(Status::NotFound)?;
        metrics.values.get_mut(name).ok_or(Status::NotFound)
    }
}
