//! stub
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingCredit {
    /// a
    UnlessConfirmed,
    /// b
    Full,
    /// c
    None,
}
