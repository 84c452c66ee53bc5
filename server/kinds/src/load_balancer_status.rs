//! `status.loadBalancer` of Services and Ingresses.

use std::collections::BTreeSet;

use plinth_codec::{names, Value};

use crate::checks::Check::Text;
use crate::checks::{address, Part};
use crate::columns::or;
use crate::path::{list, text};
use crate::warnings::address::warn_ip;
use crate::warnings::Warnings;

/// The points of a load balancer.
pub(crate) const POINTS: &str = "status.loadBalancer.ingress";

pub(crate) fn validate(new: &Part<'_>, old: &Value, has_mode: bool) {
    let before: BTreeSet<&str> = list(old, POINTS).iter().map(|point| text(point, "ip")).collect();
    for point in new.each(POINTS) {
        let (ip, name) = (point.text("ip"), point.text("hostname"));
        if !ip.is_empty() && !before.contains(ip) {
            point.apply("ip", address::legacy);
        }
        match point.set_text("ipMode").filter(|_| has_mode) {
            None if has_mode && !ip.is_empty() => {
                point.required("ipMode", "must be specified when `ip` is set");
            }
            None => {}
            Some(_) if ip.is_empty() => {
                point.forbidden("ipMode", "may not be specified when `ip` is not set")
            }
            Some(_) => point.one_of("ipMode", &["Proxy", "VIP"]),
        }
        point.check(&[Text("hostname", names::dns1123_subdomain_errors)]);
        if address::sloppy(name).is_some() {
            point.invalid("hostname", name, "must be a DNS name, not an IP address");
        }
    }
}

/// Warnings about addresses in `status.loadBalancer.ingress`.
pub(crate) fn warnings(new: &Value) -> Vec<String> {
    let mut found = Warnings::default();
    for (i, point) in list(new, POINTS).iter().enumerate() {
        warn_ip(text(point, "ip"), &format!("{POINTS}[{i}]"), &mut found);
    }
    found.into_vec()
}

/// The addresses of a load balancer, sorted, each once.
pub(crate) fn balancer_addresses(object: &Value) -> BTreeSet<&str> {
    list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| or(text(ingress, "ip"), text(ingress, "hostname")))
        .filter(|address| !address.is_empty())
        .collect()
}
