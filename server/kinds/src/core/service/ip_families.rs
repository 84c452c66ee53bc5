//! Validation of the IP families of a Service.

use crate::checks::Check::{EachUnique, Enum, MustBe};
use crate::checks::Part;

/// Validates IP families and policy; also runs before cluster IPs are allocated.
pub(crate) fn validate_families(service: &Part<'_>) {
    service.check(&[
        EachUnique("spec.ipFamilies", "", &[MustBe("", &["IPv4", "IPv6"])]),
        Enum("spec.ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]),
    ]);
    let kind = service.text("spec.type");
    if kind == "ExternalName" {
        const WHY: &str = "may not be set for ExternalName services";
        for key in ["spec.clusterIPs", "spec.ipFamilies"] {
            if !service.list(key).is_empty() {
                service.forbidden(key, WHY);
            }
        }
        service.forbid_each(&["spec.ipFamilyPolicy"], WHY);
    }
    let headless = service.texts("spec.clusterIPs").first() == Some(&"None");
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        service.invalid(
            "spec.clusterIPs[0]",
            "None",
            &format!("may not be set to 'None' for {kind} services"),
        );
    }
}
