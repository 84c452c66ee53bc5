//! Names of signers, `example.com/signer` (kubernetes `pkg/apis/core/validation/names.go`).

use plinth_codec::names;

use crate::checks::Part;

/// Validates a name.
pub(crate) fn signer_name(signer: &Part<'_>) {
    let name = signer.text("");
    let invalid = |value: &str, why: &str| signer.invalid("", value, why);
    if name.is_empty() {
        return signer.required("", "");
    }
    let [domain, path] = name.split('/').collect::<Vec<_>>()[..] else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return invalid(name, why);
    };
    let labels = |value: &str, rule: fn(&str) -> Vec<String>| {
        let bad = value.split('.').map(|label| (label, rule(label))).find(|(_, errors)| !errors.is_empty());
        let (label, errors) = bad.unwrap_or_default();
        errors.iter().for_each(|why| invalid(value, &format!("validating label {label:?}: {why}")));
    };
    labels(domain, names::dns1123_label_errors);
    if !domain.contains('.') {
        invalid(domain, "should be a domain with at least two segments separated by dots");
    }
    labels(path, names::dns1123_subdomain_errors);
}

/// Whether the signer is one of Kubernetes' own.
pub(crate) fn is_kubernetes_signer(name: &str) -> bool {
    let domain = name.split('/').next().unwrap_or_default();
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}
