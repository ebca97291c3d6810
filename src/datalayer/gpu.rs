//! GPU load, as NVIDIA's DCGM exporter tells it.

use super::exposition::{Sample, samples};
use super::reading::{percentage, raise};

/// Reads a DCGM exporter's page: the share of time its busiest GPU was busy, in [0, 1]. `None` when
/// no GPU tells.
pub fn read(text: &[u8]) -> Option<f64> {
    let mut busiest = None;
    for sample in samples(text) {
        raise(&mut busiest, utilisation(&sample));
    }
    busiest
}

/// What `sample` tells of one GPU's load, in [0, 1].
pub(super) fn utilisation(sample: &Sample<'_>) -> Option<f64> {
    let is_load = sample.name == b"DCGM_FI_DEV_GPU_UTIL";
    is_load.then(|| percentage(sample.value)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_gpu_of_an_exporter_counts() {
        let page = b"# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n\
            DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA A100\"} 1410\n\
            DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA A100\"} 35\n\
            DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\",modelName=\"NVIDIA A100\"} 80\n\
            DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",UUID=\"GPU-c\",modelName=\"NVIDIA A100\"} 2147483632\n\
            DCGM_FI_DEV_MEM_COPY_UTIL{gpu=\"1\",UUID=\"GPU-b\"} 99\n";
        assert_eq!(read(page), Some(0.8));
    }

    #[test]
    fn a_page_without_gpu_load_tells_none() {
        for page in [
            "",
            "vllm:num_requests_waiting 3\n",
            "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} NaN\n",
        ] {
            assert_eq!(read(page.as_bytes()), None, "{page}");
        }
    }
}
