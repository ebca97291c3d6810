//! What the metric families of an engine tell: the vocabulary of the engines' tables.

/// The families of one engine.
#[derive(Debug)]
pub(super) struct Families {
    /// The label that tells an endpoint's engines apart.
    pub(super) engine: &'static [u8],
    /// How the requests of several series of one engine combine.
    pub(super) series: Series,
    /// Whether each engine's block count is that of all engines together.
    pub(super) blocks_are_total: bool,
    /// Each family that is read.
    pub(super) list: &'static [Family],
}

/// How the requests of several series of one engine combine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Series {
    /// Each has requests of its own: they add up.
    Parts,
    /// Each shows the same requests: the highest counts.
    Copies,
}

/// One family, or those of its series that have one label value.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static [u8],
    /// Label and value that a series must have.
    pub(super) only: Option<(&'static [u8], &'static [u8])>,
    pub(super) tells: Tells,
}

/// What a series tells, by its value unless stated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tells {
    /// Requests waiting.
    Waiting,
    /// Requests running.
    Running,
    /// KV-cache utilisation in [0, 1].
    KvUtilisation,
    /// Tokens of a KV-cache block.
    BlockTokens,
    /// KV-cache blocks.
    Blocks,
    /// The cache's size, by the values of these labels.
    CacheConfig {
        /// Tokens the cache holds.
        tokens: &'static [u8],
        /// Tokens of a block.
        block_tokens: &'static [u8],
        /// Blocks.
        blocks: &'static [u8],
    },
    /// Prompt tokens found in the prefix cache.
    PrefixHits,
    /// Prompt tokens looked up in the prefix cache.
    PrefixQueries,
    /// Prompt tokens taken over from other servers.
    External,
    /// A part of the work done since the process started: tokens or steps.
    Progress,
    /// Adapters in the comma-separated lists of these labels. The value is the time it was so, in
    /// seconds since the Unix epoch.
    Adapters(AdapterLists),
}

/// The labels that list adapters.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdapterLists {
    /// Those with a running request.
    pub(super) running: &'static [u8],
    /// Those of waiting requests only.
    pub(super) waiting: &'static [u8],
    /// How many can be loaded at once.
    pub(super) most: &'static [u8],
}

/// All series of the family `name`.
pub(super) const fn family(name: &'static [u8], tells: Tells) -> Family {
    Family {
        name,
        only: None,
        tells,
    }
}

/// The series of the family `name` whose label `label` is `value`.
pub(super) const fn series(
    name: &'static [u8],
    label: &'static [u8],
    value: &'static [u8],
    tells: Tells,
) -> Family {
    Family {
        name,
        only: Some((label, value)),
        tells,
    }
}
