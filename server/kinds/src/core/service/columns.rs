//! The columns of services.

use plinth_codec::table::{join, Cell, Column, Now};
use plinth_codec::Value;

use crate::columns::or;
use crate::load_balancer_status::balancer_addresses;
use crate::path::{int_or_zero, list, text};

pub(crate) const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Type", "spec.type", ""),
    Column::computed("Cluster-IP", &["spec.clusterIP", "spec.clusterIPs"], cluster_ip_cell),
    Column::computed(
        "External-IP",
        &["spec.type", "spec.externalIPs", "spec.externalName", "status.loadBalancer.ingress"],
        external_ip_cell,
    ),
    Column::computed(
        "Port(s)",
        &["spec.ports[].port", "spec.ports[].nodePort", "spec.ports[].protocol"],
        ports_cell,
    ),
    Column::AGE,
    Column::labels("Selector", "spec.selector").wide(),
];

fn cluster_ip_cell(service: &Value, _: Now) -> Cell<'_> {
    let first = list(service, "spec.clusterIPs").first().and_then(Value::as_str);
    or(first.unwrap_or(text(service, "spec.clusterIP")), "<none>").into()
}

fn external_ip_cell(service: &Value, _: Now) -> Cell<'_> {
    let external = || list(service, "spec.externalIPs").iter().filter_map(Value::as_str);
    let (ips, absent) = match text(service, "spec.type") {
        "ClusterIP" | "NodePort" => (join(external(), ","), "<none>"),
        "LoadBalancer" => {
            let balancer = balancer_addresses(service);
            (join(balancer.into_iter().chain(external()), ","), "<pending>")
        }
        "ExternalName" => return text(service, "spec.externalName").into(),
        _ => return "<unknown>".into(),
    };
    if ips.is_empty() {
        absent.into()
    } else {
        ips.into()
    }
}

fn ports_cell(service: &Value, _: Now) -> Cell<'_> {
    let ports: Vec<String> = list(service, "spec.ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (int_or_zero(port, "port"), text(port, "protocol"));
            match int_or_zero(port, "nodePort") {
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
}
