//! Validation of the IP families of a Service.

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::Value;

use crate::checks::validate;
use crate::checks::Check::Enum;
use crate::path::{at, list, text, texts};

/// Validates IP families and policy; also runs before cluster IPs are allocated.
pub(crate) fn validate_families(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.ipFamilies";
    let kind = text(service, "spec.type");
    let mut seen = HashSet::new();
    for (i, family) in texts(service, PATH).iter().enumerate() {
        let here = format_args!("{PATH}[{i}]");
        if !matches!(*family, "IPv4" | "IPv6") {
            errors.push(field::not_supported(here, *family, &["IPv4", "IPv6"]));
        }
        if !seen.insert(*family) {
            errors.push(field::duplicate(here, *family));
        }
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    validate(&[Enum("spec.ipFamilyPolicy", policies)], service, format_args!(""), errors);
    if kind == "ExternalName" {
        for key in ["clusterIPs", "ipFamilies"]
            .iter()
            .filter(|key| !list(service, &format!("spec.{key}")).is_empty())
        {
            errors.push(field::forbidden(
                format_args!("spec.{key}"),
                "may not be set for ExternalName services",
            ));
        }
        if at(service, "spec.ipFamilyPolicy").is_some() {
            errors.push(field::forbidden("spec.ipFamilyPolicy", "may not be set for ExternalName services"));
        }
    }
    let headless = texts(service, "spec.clusterIPs").first() == Some(&"None");
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let why = format!("may not be set to 'None' for {kind} services");
        errors.push(field::invalid("spec.clusterIPs[0]", "None", &why));
    }
}
