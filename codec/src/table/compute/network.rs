//! Services, endpoints, ingresses, addresses.

use super::read::{at, count, int_at, items, join, or, str_at};
use super::{with_more, Cell, Computation};
use crate::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// How many endpoints, ports or hosts a cell shows.
const SHOWN: usize = 3;

pub const SERVICE_CLUSTER_IP: Computation = Computation {
    reads: &["spec.clusterIP", "spec.clusterIPs"],
    cell: |service, _| {
        let first = items(service, "spec.clusterIPs").first().and_then(Value::as_str);
        or(first.unwrap_or(str_at(service, "spec.clusterIP")), "<none>").into()
    },
};

pub const SERVICE_EXTERNAL_IP: Computation = Computation {
    reads: &["spec.type", "spec.externalIPs", "spec.externalName", "status.loadBalancer.ingress"],
    cell: |service, _| {
        let external = || items(service, "spec.externalIPs").iter().filter_map(Value::as_str);
        let (ips, absent) = match str_at(service, "spec.type") {
            "ClusterIP" | "NodePort" => (join(external(), ","), "<none>"),
            "LoadBalancer" => {
                let balancer = balancer_addresses(service);
                (join(balancer.into_iter().chain(external()), ","), "<pending>")
            }
            "ExternalName" => return str_at(service, "spec.externalName").into(),
            _ => return "<unknown>".into(),
        };
        if ips.is_empty() {
            absent.into()
        } else {
            ips.into()
        }
    },
};

/// The addresses of a load balancer, sorted, each once.
fn balancer_addresses(object: &Value) -> BTreeSet<&str> {
    items(object, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| or(str_at(ingress, "ip"), str_at(ingress, "hostname")))
        .filter(|address| !address.is_empty())
        .collect()
}

pub const SERVICE_PORTS: Computation = Computation {
    reads: &["spec.ports[].port", "spec.ports[].nodePort", "spec.ports[].protocol"],
    cell: |service, _| {
        let ports: Vec<String> = items(service, "spec.ports")
            .iter()
            .map(|port| {
                let (number, protocol) = (int_at(port, "port"), str_at(port, "protocol"));
                match int_at(port, "nodePort") {
                    0 => format!("{number}/{protocol}"),
                    node_port => format!("{number}:{node_port}/{protocol}"),
                }
            })
            .collect();
        if ports.is_empty() {
            "<none>".into()
        } else {
            ports.join(",").into()
        }
    },
};

pub const ENDPOINTS: Computation = Computation {
    reads: &["subsets[].addresses[].ip", "subsets[].ports[].port"],
    cell: |endpoints, _| {
        let subsets = items(endpoints, "subsets");
        if subsets.is_empty() {
            return "<none>".into();
        }
        // A headless service may have addresses without ports.
        let total =
            subsets.iter().map(|s| items(s, "addresses").len() * items(s, "ports").len().max(1)).sum();
        let shown: Vec<Cow<'_, str>> = subsets
            .iter()
            .flat_map(|subset| {
                let ports = items(subset, "ports");
                (0..ports.len().max(1)).flat_map(move |i| {
                    items(subset, "addresses").iter().map(move |address| {
                        let ip = str_at(address, "ip");
                        match ports.get(i).map(|port| int_at(port, "port")) {
                            None => Cow::Borrowed(ip),
                            Some(port) if ip.contains(':') => Cow::Owned(format!("[{ip}]:{port}")),
                            Some(port) => Cow::Owned(format!("{ip}:{port}")),
                        }
                    })
                })
            })
            .take(SHOWN)
            .collect();
        with_more(shown.iter().map(|s| &**s), ",", total, SHOWN).into()
    },
};

pub const SLICE_PORTS: Computation = Computation {
    reads: &["ports[].port", "ports[].name"],
    cell: |slice, _| {
        let ports = items(slice, "ports");
        let shown: Vec<Cow<'_, str>> = ports
            .iter()
            .take(SHOWN)
            .map(|port| match at(port, "port").and_then(Value::as_int) {
                Some(number) => Cow::Owned(number.to_string()),
                None => at(port, "name").and_then(Value::as_str).unwrap_or("*").into(),
            })
            .collect();
        unset_if_empty(with_more(shown.iter().map(|s| &**s), ",", ports.len(), SHOWN))
    },
};

pub const SLICE_ENDPOINTS: Computation = Computation {
    reads: &["endpoints[].addresses"],
    cell: |slice, _| {
        let addresses =
            || items(slice, "endpoints").iter().flat_map(|e| items(e, "addresses")).filter_map(Value::as_str);
        unset_if_empty(with_more(addresses(), ",", addresses().count(), SHOWN))
    },
};

fn unset_if_empty<'a>(text: String) -> Cell<'a> {
    if text.is_empty() {
        "<unset>".into()
    } else {
        text.into()
    }
}

pub const INGRESS_HOSTS: Computation = Computation {
    reads: &["spec.rules[].host"],
    cell: |ingress, _| {
        // Upstream stops at the rule after the third host, and counts rules, with hosts or without.
        let rules = items(ingress, "spec.rules");
        let hosts = || rules.iter().map(|r| str_at(r, "host")).filter(|h| !h.is_empty());
        let third = rules.iter().enumerate().filter(|(_, r)| !str_at(r, "host").is_empty()).nth(SHOWN - 1);
        let more = third.is_some_and(|(i, _)| i + 1 < rules.len());
        match hosts().next() {
            None => "*".into(),
            Some(_) if more => with_more(hosts(), ",", rules.len(), SHOWN).into(),
            Some(_) => join(hosts(), ",").into(),
        }
    },
};

pub const INGRESS_ADDRESS: Computation = Computation {
    reads: &["status.loadBalancer.ingress"],
    cell: |ingress, _| join(balancer_addresses(ingress).into_iter(), ",").into(),
};

pub const INGRESS_PORTS: Computation = Computation {
    reads: &["spec.tls#"],
    cell: |ingress, _| if count(ingress, "spec.tls") > 0 { "80, 443" } else { "80" }.into(),
};

pub const INGRESS_CLASS_NAME: Computation = Computation {
    reads: &["metadata.name", "metadata.annotations"],
    cell: |class, _| named_default(class, &["ingressclass.kubernetes.io/is-default-class"]),
};

/// A name, marked if one of the annotations makes the object the default.
pub(super) fn named_default<'a>(object: &'a Value, annotations: &[&str]) -> Cell<'a> {
    let name = str_at(object, "metadata.name");
    let set = at(object, "metadata.annotations");
    let is_default =
        annotations.iter().any(|a| set.and_then(|s| s.get(a)).and_then(Value::as_str) == Some("true"));
    if is_default {
        format!("{name} (default)").into()
    } else {
        name.into()
    }
}

pub const INGRESS_CLASS_PARAMETERS: Computation = Computation {
    reads: &["spec.parameters"],
    cell: |class, _| {
        let Some(parameters) = at(class, "spec.parameters") else { return "<none>".into() };
        let (kind, name) = (str_at(parameters, "kind"), str_at(parameters, "name"));
        match at(parameters, "apiGroup").and_then(Value::as_str) {
            Some(group) => format!("{kind}.{group}/{name}").into(),
            None => format!("{kind}/{name}").into(),
        }
    },
};

pub const IP_ADDRESS_PARENT: Computation = Computation {
    reads: &["spec.parentRef"],
    cell: |address, _| {
        let Some(parent) = at(address, "spec.parentRef") else { return "<none>".into() };
        let [group, resource, namespace, name] =
            ["group", "resource", "namespace", "name"].map(|field| str_at(parent, field));
        let dot = if group.is_empty() { "" } else { "." };
        let slash = if namespace.is_empty() { "" } else { "/" };
        let resource = format!("{resource}{dot}{group}").to_lowercase();
        format!("{resource}{slash}{namespace}/{name}").into()
    },
};
