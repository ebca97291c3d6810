//! The `log` crate's back end: Envoy's log.

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::abi;
use crate::config::LogLevel;

struct EnvoyLog;

static LOGGER: EnvoyLog = EnvoyLog;

impl Log for EnvoyLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            abi::log(number(record.level()), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Starts logging at the level `info`.
pub(super) fn install() {
    // Fails only when a logger is installed already, in which case it stays.
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Logs from `level` on. Envoy's own level for `wasm` applies as well.
pub(super) fn set_level(level: LogLevel) {
    log::set_max_level(match level {
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Trace => LevelFilter::Trace,
    });
}

/// proxy-wasm's number for a level.
fn number(level: Level) -> u32 {
    match level {
        Level::Trace => 0,
        Level::Debug => 1,
        Level::Info => 2,
        Level::Warn => 3,
        Level::Error => 4,
    }
}
