//! Whether the module survived.

use super::{Testbed, prompt};
use crate::envoy::VmReloads;

impl Testbed {
    /// Sends one more request, which would rebuild a lost virtual machine, and checks that there
    /// was none to rebuild. With more than one worker that request reaches only one of them.
    ///
    /// # Panics
    /// When one was lost.
    pub async fn assert_no_vm_lost(&self) {
        assert_eq!(
            self.complete(&prompt("is anybody there", 100)).await.status,
            200
        );
        let reloads = self.envoy.vm_reloads().await.expect("stats of the module");
        assert_eq!(reloads, VmReloads::default());
        let vms = self.envoy.vms_created().await;
        assert_eq!(vms.expect("a stat of the runtime"), self.vms);
        let log = self.envoy.log();
        for word in ["panicked", "[critical]"] {
            assert!(!log.contains(word), "{word} in Envoy's log");
        }
    }
}
