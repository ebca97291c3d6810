//! Configuration: the JSON a user writes, checked into values the rest can trust.
