//! Another plugin of the same `vm_id` that writes over shared data it does not own. Its configuration
//! is one key a line; with each tick it writes something else over all of them. It uses no SDK and
//! is built by `rustc` alone.

use std::cell::{Cell, RefCell};

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        key_len: usize,
        value: *const u8,
        len: usize,
        cas: u32,
    ) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
}

const PLUGIN_CONFIGURATION: u32 = 7;

/// Ticks after which it leaves everything alone.
const TICKS: usize = 60;

thread_local! {
    static KEYS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static TICK: Cell<usize> = const { Cell::new(0) };
}

fn bytes(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Vec<u8> {
    let (mut data, mut len) = (std::ptr::null_mut(), 0);
    if call(&mut data, &mut len) != 0 || data.is_null() {
        return Vec::new();
    }
    unsafe { Vec::from_raw_parts(data, len, len) }
}

fn get(key: &str) -> Vec<u8> {
    let mut cas = 0;
    bytes(|data, len| unsafe {
        proxy_get_shared_data(key.as_ptr(), key.len(), data, len, &mut cas)
    })
}

fn set(key: &str, value: &[u8]) {
    unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), 0) };
}

/// Something that does not belong where it is put: nothing, noise, a value that was cut or has one
/// bit turned, the value of another key, far too much.
fn nonsense(tick: usize, at: usize, keys: &[String]) -> Vec<u8> {
    let mut own = get(&keys[at]);
    match (tick + at) % 6 {
        0 => Vec::new(),
        1 => vec![0xFF; 64],
        2 => own[..own.len() / 2].to_vec(),
        3 => {
            if let Some(byte) = own.last_mut() {
                *byte ^= 1;
            }
            own
        }
        4 => get(&keys[(at + 1) % keys.len()]),
        _ => vec![b'x'; 100_000],
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    let mut memory = std::mem::ManuallyDrop::new(Vec::<u8>::with_capacity(size));
    memory.as_mut_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(_: u32, _: u32) {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(_: u32, size: usize) -> u32 {
    let text = bytes(|data, len| unsafe {
        proxy_get_buffer_bytes(PLUGIN_CONFIGURATION, 0, size, data, len)
    });
    let text = String::from_utf8_lossy(&text);
    KEYS.set(text.lines().map(str::to_owned).collect());
    unsafe { proxy_set_tick_period_milliseconds(50) };
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(_: u32) {
    let tick = TICK.get();
    TICK.set(tick + 1);
    if tick < TICKS {
        KEYS.with_borrow(|keys| {
            for (at, key) in keys.iter().enumerate() {
                set(key, &nonsense(tick, at, keys));
            }
        });
    }
}
