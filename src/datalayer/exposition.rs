//! A scanner for the Prometheus text exposition format (0.0.4), `OpenMetrics` exemplars included.
//!
//! Model servers expose hundreds of series of which a handful matter, so the scanner hands out
//! borrowed samples one by one, of [`Names`] that somebody wants: of any other line it looks at the
//! first bytes only and for its end. It allocates nothing, reads each line a constant number of
//! times, and leaves label values escaped until somebody compares them.
//!
//! The page comes from the network. A line that is not a sample (a comment, a blank line, anything
//! malformed) is skipped and never spoils its neighbours. Names quoted inside the braces, which
//! Prometheus 3 uses for names outside `[a-zA-Z_:][a-zA-Z0-9_:]*`, count as malformed: no model
//! server has such a name.
//!
//! Format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

mod names;

pub use names::Names;

use crate::words;

/// The samples of `text`, in order. Comments and malformed lines are skipped.
pub fn samples(text: &[u8]) -> impl Iterator<Item = Sample<'_>> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| sample(line, |_| true))
}

/// Those of [`samples`] whose name is among `names`. A line of another name costs no more than to
/// find its end.
pub fn samples_of<'a>(text: &'a [u8], names: &Names<'_>) -> impl Iterator<Item = Sample<'a>> {
    let mut rest = Some(text);
    let lines = core::iter::from_fn(move || {
        loop {
            let text = rest?;
            let (line, after) = text.split_at_checked(words::len_before::<b'\n', b'\n'>(text))?;
            rest = after.split_first().map(|(_, after)| after);
            if names.may_begin(text) {
                return Some(line);
            }
        }
    });
    lines.filter_map(|line| sample(line, |name| names.has(name)))
}

/// One line of the page: one value of one series.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Metric name, at least one byte of `[a-zA-Z_:][a-zA-Z0-9_:]*`.
    pub name: &'a [u8],
    /// Labels, possibly none.
    pub labels: Labels<'a>,
    /// Value as sent: it may be NaN, infinite or negative.
    pub value: f64,
}

/// The labels of one sample, well-formed, read when iterated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'a> {
    /// The text between the braces, already checked to be a list of labels.
    raw: &'a [u8],
}

impl<'a> Labels<'a> {
    /// Name and value of each label, in the order of the page.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], LabelValue<'a>)> + use<'a> {
        let mut rest = self.raw;
        core::iter::from_fn(move || {
            let (item, after) = label(rest)?;
            let after = after.trim_ascii_start();
            rest = after.strip_prefix(b",").unwrap_or(after);
            Some(item)
        })
    }

    /// The value of the label `name`; the first one should the page repeat it.
    pub fn value(&self, name: &[u8]) -> Option<LabelValue<'a>> {
        let [value] = self.values([name]);
        value
    }

    /// As [`Self::value`], of several labels of different names in one go.
    pub fn values<const N: usize>(&self, names: [&[u8]; N]) -> [Option<LabelValue<'a>>; N] {
        let mut values = [None; N];
        let mut missing = N;
        let mut labels = self.iter();
        while missing > 0
            && let Some((key, value)) = labels.next()
        {
            let mut slots = names.iter().zip(&mut values);
            if let Some((_, slot @ None)) = slots.find(|(name, _)| **name == key) {
                *slot = Some(value);
                missing = missing.saturating_sub(1);
            }
        }
        values
    }
}

/// A label's value, borrowed as it stands in the page, escapes included.
#[derive(Clone, Copy, Debug)]
pub struct LabelValue<'a> {
    raw: &'a [u8],
}

impl<'a> LabelValue<'a> {
    /// The bytes between the quotes, escapes unresolved. Servers escape in one way only, so equal
    /// raw values are equal values: good enough to tell series apart, not to read text.
    pub const fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// The value's bytes with `\\`, `\"` and `\n` resolved. Any other backslash stands for itself.
    pub fn unescaped(self) -> impl Iterator<Item = u8> + use<'a> {
        let mut bytes = self.raw.iter().copied();
        core::iter::from_fn(move || {
            let byte = bytes.next()?;
            if byte != b'\\' {
                return Some(byte);
            }
            let mut ahead = bytes.clone();
            let resolved = match ahead.next() {
                Some(b'n') => b'\n',
                Some(escaped @ (b'\\' | b'"')) => escaped,
                _ => return Some(byte),
            };
            bytes = ahead;
            Some(resolved)
        })
    }

    /// Whether the value, unescaped, is `text`.
    pub fn is(self, text: &[u8]) -> bool {
        self.unescaped().eq(text.iter().copied())
    }

    /// The value as an unsigned decimal number, `None` for anything else.
    pub fn number(self) -> Option<u64> {
        core::str::from_utf8(self.raw).ok()?.parse().ok()
    }
}

/// `name [{labels}] value [timestamp] [# exemplar]`, blanks anywhere between, of a name that
/// `is_wanted`.
fn sample(line: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> Option<Sample<'_>> {
    let (name, rest) = identifier(line.trim_ascii(), true)?;
    if !is_wanted(name) {
        return None;
    }
    let after_name = rest.trim_ascii_start();
    let (labels, rest) = match after_name.strip_prefix(b"{") {
        Some(inner) => label_set(inner)?,
        // Without a blank, `up+1` would be the sample `up` of value 1.
        None if after_name.len() == rest.len() => return None,
        None => (Labels::default(), rest),
    };
    let (value, rest) = number(rest)?;
    let rest = rest.trim_ascii_start();
    let after_timestamp = match rest.first() {
        None | Some(b'#') => rest,
        Some(_) => number(rest)?.1.trim_ascii_start(),
    };
    matches!(after_timestamp.first(), None | Some(b'#')).then_some(Sample {
        name,
        labels,
        value,
    })
}

/// The labels up to the closing brace, and what follows it.
fn label_set(inner: &[u8]) -> Option<(Labels<'_>, &[u8])> {
    let mut rest = inner.trim_ascii_start();
    loop {
        if let Some(after) = rest.strip_prefix(b"}") {
            let raw = inner.get(..inner.len().checked_sub(rest.len())?)?;
            return Some((Labels { raw }, after));
        }
        rest = label(rest)?.1.trim_ascii_start();
        match rest.strip_prefix(b",") {
            Some(after) => rest = after.trim_ascii_start(),
            None if rest.starts_with(b"}") => {}
            None => return None,
        }
    }
}

type Label<'a> = (&'a [u8], LabelValue<'a>);

/// One `name="value"` and what follows it.
fn label(text: &[u8]) -> Option<(Label<'_>, &[u8])> {
    let (name, rest) = identifier(text.trim_ascii_start(), false)?;
    let rest = rest.trim_ascii_start().strip_prefix(b"=")?;
    let quoted = rest.trim_ascii_start().strip_prefix(b"\"")?;
    let end = quoted_len(quoted)?;
    let (raw, rest) = quoted.split_at_checked(end)?;
    Some(((name, LabelValue { raw }), rest.strip_prefix(b"\"")?))
}

/// Bytes up to the quote that closes a value.
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut len: usize = 0;
    loop {
        let rest = text.get(len..)?;
        let plain = words::len_before::<b'"', b'\\'>(rest);
        len = len.saturating_add(plain);
        if *rest.get(plain)? == b'"' {
            return Some(len);
        }
        // A backslash, and what it escapes.
        len = len.saturating_add(2);
    }
}

/// A metric name (colons allowed) or a label name, and what follows it.
fn identifier(text: &[u8], colons: bool) -> Option<(&[u8], &[u8])> {
    let leads = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || (colons && byte == b':');
    if !leads(*text.first()?) {
        return None;
    }
    let end = text
        .iter()
        .position(|byte| !leads(*byte) && !byte.is_ascii_digit());
    text.split_at_checked(end.unwrap_or(text.len()))
}

/// A float as Go and Rust both read it (`NaN`, `+Inf` and `1e3` included), and what follows it.
fn number(text: &[u8]) -> Option<(f64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace);
    let (token, rest) = text.split_at_checked(end.unwrap_or(text.len()))?;
    Some((core::str::from_utf8(token).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests;
