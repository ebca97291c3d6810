//! What NVIDIA's DCGM exporter tells of the GPUs behind an endpoint: their load, and whether one of
//! them is broken.
//!
//! Fields: <https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html>.

use super::exposition::{Sample, samples_of};
use super::reading::{percentage, raise};

/// The GPUs behind one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuReading {
    /// Share of time the GPU was busy, in [0, 1], of the busiest one that tells.
    pub utilisation: Option<f64>,
    /// One of them reports an error that only a reset or a repair takes away.
    pub faulty: bool,
}

/// The fields that are read, by their metrics' names.
pub(super) const NAMES: [&[u8]; 4] = [LOAD, ERRORS, REMAP_FAILURE, DOUBLE_BIT_ERRORS];
const LOAD: &[u8] = b"DCGM_FI_DEV_GPU_UTIL";
const ERRORS: &[u8] = b"DCGM_FI_DEV_XID_ERRORS";
const REMAP_FAILURE: &[u8] = b"DCGM_FI_DEV_ROW_REMAP_FAILURE";
const DOUBLE_BIT_ERRORS: &[u8] = b"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL";

/// Reads a DCGM exporter's page. `None` when it tells nothing of load or errors.
pub fn read(text: &[u8]) -> Option<GpuReading> {
    let mut reading = GpuReading::default();
    let mut tells = false;
    for sample in samples_of(text, &NAMES.into_iter().collect()) {
        tells |= reading.take(&sample);
    }
    tells.then_some(reading)
}

impl GpuReading {
    /// Takes in what `sample` tells of one GPU; `false` when it tells nothing.
    pub(super) fn take(&mut self, sample: &Sample<'_>) -> bool {
        match sample.name {
            LOAD => {
                let load = percentage(sample.value);
                raise(&mut self.utilisation, load);
                load.is_some()
            }
            ERRORS => self.note(sample.value, |latest| FATAL_XIDS.contains(&latest)),
            // Rows that were remapped are well again; a failure to remap one is not. Of the counts
            // of double-bit errors the volatile one, since the driver was loaded, can end.
            REMAP_FAILURE | DOUBLE_BIT_ERRORS => self.note(sample.value, |count| count > 0),
            _ => false,
        }
    }

    fn note(&mut self, value: f64, is_fault: impl Fn(u32) -> bool) -> bool {
        let value = known(value);
        self.faulty |= value.is_some_and(is_fault);
        value.is_some()
    }
}

/// Codes after which a GPU computes nothing right until it is reset: 48 double-bit ECC error, 74
/// error of a link between GPUs, 79 fallen off the bus, 95 uncontained ECC error, 119 and 120 its
/// system processor hangs or failed. The field holds the latest code of any kind and keeps it until
/// then. Codes: <https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>.
const FATAL_XIDS: [u32; 6] = [48, 74, 79, 95, 119, 120];

/// A code or a count. DCGM marks "not available" with numbers from `DCGM_INT32_BLANK` on.
fn known(value: f64) -> Option<u32> {
    const BLANK: f64 = 0x7fff_fff0_u32 as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    (0.0..BLANK).contains(&value).then_some(value as u32)
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
        let busy = GpuReading {
            utilisation: Some(0.8),
            faulty: false,
        };
        assert_eq!(read(page), Some(busy));
    }

    #[test]
    fn a_page_without_gpu_load_or_errors_tells_nothing() {
        for page in [
            "",
            "vllm:num_requests_waiting 3\n",
            "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} NaN\n",
            "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} -1\n",
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=\"0\"} 9223372036854775792\n",
        ] {
            assert_eq!(read(page.as_bytes()), None, "{page}");
        }
    }

    #[test]
    fn errors_that_only_a_reset_takes_away_are_faults() {
        for (sample, faulty) in [
            ("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 0", false),
            // A page fault of the application, a row remapped, an error contained.
            ("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 31", false),
            ("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 63", false),
            ("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 94", false),
            ("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 48", true),
            ("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 79", true),
            ("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 119", true),
            ("DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu=\"1\"} 0", false),
            ("DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu=\"1\"} 1", true),
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=\"1\"} 2", true),
        ] {
            // The other GPU is well, and says so after it.
            let page = format!("{sample}\nDCGM_FI_DEV_XID_ERRORS{{gpu=\"0\"}} 0\n");
            let reading = read(page.as_bytes()).expect("it tells of errors");
            assert_eq!(reading.faulty, faulty, "{sample}");
        }
    }
}
