//! The pick as Envoy reads it.

use crate::config::{OverrideHost, OverrideMode};
use crate::scheduling::Ranked;

/// How many endpoints the header can name: the pick and its fallbacks.
pub(super) fn attempts(config: &OverrideHost) -> usize {
    match config.mode {
        OverrideMode::Header => usize::try_from(config.fallbacks)
            .unwrap_or(0)
            .saturating_add(1),
        OverrideMode::StatefulSession => 1,
    }
}

/// Leaves those of `ranking` that the header will name: a picker may have a number of its own, and
/// who is not named is not offered.
pub(super) fn leave_the_named(mode: OverrideMode, ranking: &mut Vec<Ranked>) {
    if mode == OverrideMode::StatefulSession {
        ranking.truncate(1);
    }
}

/// The header's value for endpoints called `names` (`ip:port`), the pick first: one an attempt and
/// comma separated for the `override_host` policy; the pick alone, in base64, for the session filter.
pub(super) fn value(mode: OverrideMode, names: &[&str]) -> Vec<u8> {
    match mode {
        OverrideMode::Header => names.join(",").into_bytes(),
        OverrideMode::StatefulSession => base64(names.first().copied().unwrap_or_default()),
    }
}

/// RFC 4648, with padding: Envoy refuses base64 without.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(text.len().div_ceil(3).saturating_mul(4));
    for chunk in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let index = usize::try_from(bits >> shift & 0x3F).unwrap_or(0);
            let digit = ALPHABET.get(index).filter(|_| at <= chunk.len());
            out.push(digit.copied().unwrap_or(b'='));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_rfc_4648() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("10.0.0.1:8000", "MTAuMC4wLjE6ODAwMA=="),
            ("[fd00::1]:8000", "W2ZkMDA6OjFdOjgwMDA="),
            ("~~~???", "fn5+Pz8/"),
        ] {
            assert_eq!(String::from_utf8(base64(text)).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_session_names_the_pick_alone() {
        let names = ["10.0.0.1:8000", "10.0.0.2:8000"];
        assert_eq!(
            value(OverrideMode::Header, &names),
            b"10.0.0.1:8000,10.0.0.2:8000"
        );
        assert_eq!(
            value(OverrideMode::StatefulSession, &names),
            b"MTAuMC4wLjE6ODAwMA=="
        );
    }
}
