//! ServiceCIDR (`networking.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::address;
use crate::checks::Check::{self, By};
use crate::path::{list, texts};
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_checks: CREATE_CHECKS,
    validate_update,
    status_keeps: STATUS_KEEPS_METADATA,
    columns: &[Column::NAME, Column::list("CIDRs", "spec.cidrs", ""), Column::AGE],
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const CREATE_CHECKS: &[Check] = &[By(|object, _, errors| {
    const PATH: &str = "spec.cidrs";
    let networks = texts(object, PATH);
    let family = |network: &str| network.contains(':');
    match networks.as_slice() {
        [] => {
            errors.push(field::required(PATH, "at least one CIDR required"));
            return;
        }
        [_] => {}
        [first, second] if family(first) != family(second) => {}
        _ => {
            let why =
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            errors.push(field::invalid(PATH, list(object, PATH).to_vec(), why));
        }
    }
    for (i, network) in networks.iter().enumerate() {
        address::canonical_network(network, format_args!("{PATH}[{i}]"), errors);
    }
})];

/// The CIDRs are immutable, except that a single-stack ServiceCIDR can become dual-stack.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.cidrs";
    const WHY: &str = "field is immutable";
    let (now, before) = (texts(new, PATH), texts(old, PATH));
    if before.len() != now.len() && (before.len() != 1 || now.len() < before.len()) {
        return vec![field::invalid(PATH, list(new, PATH).to_vec(), WHY)];
    }
    let pairs = now.iter().zip(&before).enumerate();
    let changed = pairs.filter(|(_, (now, before))| now != before);
    changed.map(|(i, (now, _))| field::invalid(format_args!("{PATH}[{i}]"), *now, WHY)).collect()
}
