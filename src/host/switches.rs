//! What tests switch on in a build of their own, with the feature `test-switches`; the shipped module
//! has none of it.

/// Each worker keeps to itself: set by the VM's environment variable `EPP_UNSHARED`.
pub(super) fn keeps_to_itself() -> bool {
    cfg!(feature = "test-switches") && std::env::var_os("EPP_UNSHARED").is_some()
}

/// Ends this VM, when a scraped page says so.
#[cfg(feature = "test-switches")]
pub(super) fn trap_if_told(page: &[u8]) {
    if page.windows(8).any(|part| part == b"epp_trap") {
        core::arch::wasm32::unreachable();
    }
}

/// Ends this VM, when the request carries the header `x-epp-trap`.
#[cfg(feature = "test-switches")]
pub(super) fn trap_if_asked() {
    if super::abi::header(super::abi::HeaderMap::Request, "x-epp-trap").is_ok() {
        core::arch::wasm32::unreachable();
    }
}
